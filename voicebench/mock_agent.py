"""The agent to practise on, as a machine: user audio in, what the agent does out. Deterministic to the bit.

Its clock is the audio it has heard, so it behaves the same in-process on the virtual clock and behind a socket.
Its latencies are whatever its options say and tell nothing about any real product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np

from voicebench.audio import synth
from voicebench.audio.level import energy_limit, energy_of
from voicebench.events import Samples
from voicebench.scenario.adapter_options import MockOptions

PITCH_HZ = 210.0
"""Higher than the synthesized user's, so that the two sides of a recording are told apart by ear."""
SEED_STEP = 1_000_003
"""Seeds of a run's sessions lie this far apart, so that runs with seeds 0, 1, 2 share no session's jitter."""
_ALMOST = 1e-6
"""Samples: a due time that is a hair above a frame's start through float rounding is that frame's start."""


@dataclass(frozen=True, slots=True)
class Say:
    """Samples `start` to `stop` of a reply are spoken now. `stop` may reach past its end: the rest is silence."""

    reply: Samples
    start: int
    stop: int

    @property
    def samples(self) -> Samples:
        if self.stop <= len(self.reply):
            return self.reply[self.start : self.stop]
        padded = np.zeros(self.stop - self.start, dtype=np.int16)
        padded[: len(self.reply) - self.start] = self.reply[self.start :]
        return padded

    @property
    def first(self) -> bool:
        return self.start == 0

    @property
    def last(self) -> bool:
        return self.stop >= len(self.reply)


@dataclass(frozen=True, slots=True)
class Heard:
    """The user's turn is over. `text`: the fixture transcript, None when there is none left."""

    text: str | None


@dataclass(frozen=True, slots=True)
class BargeIn:
    """The user has spoken over the reply for long enough; the agent stops a reaction time later."""


@dataclass(frozen=True, slots=True)
class Clear:
    """What was said and has not been played is to be dropped."""


MockOutput: TypeAlias = Say | Heard | BargeIn | Clear


class MockAgent:
    """LISTENING -> WAITING -> SPEAKING -> LISTENING; a barge-in ends SPEAKING a reaction time later.

    LISTENING   user has spoken, then been silent for endpoint_silence_ms   -> Heard, WAITING
    WAITING     response_delay_ms plus jitter have passed                    -> SPEAKING
    SPEAKING    the reply is over                                            -> LISTENING
                user spoke for barge_in_min_ms without a break               -> BargeIn, then Clear, LISTENING

    Noise shorter than barge_in_min_ms over the agent's speech is not a turn.
    """

    def __init__(
        self,
        options: MockOptions,
        *,
        sample_rate_hz: int,
        seed: int | None = None,
        extra_delay_ms: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`seed` draws the jitter instead of the options' own, in the second and later sessions of a run; the voice
        stays that of the options, so that sessions share the synthesized replies. `extra_delay_ms` is asked at the
        end of each user turn how much longer the answer takes: the load of the moment, for an agent that has one."""
        self._options = options
        self._rate_hz = sample_rate_hz
        self._extra_delay_ms = extra_delay_ms
        self._seed = options.seed if seed is None else seed
        self._random = np.random.PCG64(self._seed)
        self._state: Literal["listening", "waiting", "speaking"] = "listening"
        self._heard_samples = 0
        self._turn_pending = False
        self._silence_samples = 0
        self._overlap_samples = 0
        self._respond_at = 0.0
        self._stop_at: float | None = None
        self._reply: Samples = np.zeros(0, dtype=np.int16)
        self._reply_at = 0
        self._turns = 0
        self._limits: dict[int, float] = {}
        self._endpoint = self._samples_of(options.endpoint_silence_ms) - _ALMOST
        self._barge_in_min = self._samples_of(options.barge_in_min_ms) - _ALMOST
        self.user_active = False
        """Whether the last frame heard was user speech."""
        if options.greeting_ms > 0:
            self._speak(options.greeting_ms)

    def hear(self, samples: Samples) -> list[MockOutput]:
        """Hear one frame of user audio, int16 of any length, and return what the agent does meanwhile."""
        return self.step(active=self.is_active(samples), n_samples=len(samples))

    def is_active(self, samples: Samples) -> bool:
        """Whether the agent takes the frame for speech: its RMS level is at or above threshold_db."""
        limit = self._limits.get(len(samples))
        if limit is None:
            limit = self._limits[len(samples)] = energy_limit(self._options.threshold_db, len(samples))
        return energy_of(samples) >= limit

    def step(self, *, active: bool, n_samples: int) -> list[MockOutput]:
        """As `hear`, for a frame whose activity is already known."""
        start = self._heard_samples
        self._heard_samples += n_samples
        self.user_active = active
        if active:
            self._silence_samples = 0
            if self._state != "speaking":
                self._turn_pending = True
        else:
            self._silence_samples += n_samples
        outputs: list[MockOutput] = []
        if self._state == "listening" and self._turn_pending and self._silence_samples >= self._endpoint:
            outputs.append(self._end_of_turn())
        if self._state == "waiting" and start >= self._respond_at:
            self._speak(self._options.response_ms)
        if self._state == "speaking":
            self._say(active, start, n_samples, outputs)
        return outputs

    def _end_of_turn(self) -> Heard:
        options = self._options
        delay_ms = options.response_delay_ms + options.jitter_ms * self._uniform() + self._extra_delay_ms()
        self._respond_at = self._heard_samples + self._samples_of(delay_ms) - _ALMOST
        self._turn_pending = False
        self._state = "waiting"
        text = options.transcripts[self._turns] if self._turns < len(options.transcripts) else None
        self._turns += 1
        return Heard(text)

    def _speak(self, duration_ms: float) -> None:
        self._reply = _voice(duration_ms, self._rate_hz, self._options.level_db, self._options.seed + self._turns)
        self._reply_at = 0
        self._overlap_samples = 0
        self._stop_at = None
        self._state = "speaking"

    def _say(self, active: bool, start: int, n_samples: int, outputs: list[MockOutput]) -> None:
        self._overlap_samples = self._overlap_samples + n_samples if active else 0
        if self._stop_at is None and self._options.interruptible and active:
            self._notice_barge_in(outputs)
        if self._stop_at is not None and start >= self._stop_at:
            self._state = "listening"
            outputs.append(Clear())
            return
        stop = self._reply_at + n_samples
        outputs.append(Say(self._reply, self._reply_at, stop))
        self._reply_at = stop
        if stop >= len(self._reply):
            self._state = "listening"

    def _notice_barge_in(self, outputs: list[MockOutput]) -> None:
        if self._overlap_samples >= self._barge_in_min:
            self._stop_at = self._heard_samples + self._samples_of(self._options.interrupt_reaction_ms) - _ALMOST
            self._turn_pending = True
            outputs.append(BargeIn())

    def _samples_of(self, duration_ms: float) -> float:
        return duration_ms * self._rate_hz / 1000.0

    def _uniform(self) -> float:
        # From the bit generator's raw output: numpy promises that stream, not the ones of its distributions.
        return float(self._random.random_raw() >> 11) * 2.0**-53


def session_seed(seed: int, session_number: int) -> int:
    """The mock's seed in the n-th session (from 0) of a run: the first is as configured, the others differ."""
    return seed + SEED_STEP * session_number


@lru_cache(maxsize=256)
def _voice(duration_ms: float, rate_hz: int, level_db: float, seed: int) -> Samples:
    voice = synth.speech(duration_ms, rate_hz, level_db=level_db, seed=seed, pitch_hz=PITCH_HZ)
    voice.flags.writeable = False
    return voice
