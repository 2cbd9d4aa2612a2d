"""One session as a machine: ticks and agent events in, what to send and a recording out.

It knows no socket and no clock. The shells (virtual clock, pacer, adapter greenlet) call `hear` for what the agent did
and `step` at a tick; in between they send the frames the last `Step` named without asking again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from voicebench.audio.level import frame_energies
from voicebench.events import AgentAudio, AgentClear, AgentClosed, AgentEvent, AgentTranscript, Samples
from voicebench.instants import ms_to_ns, s_to_ns, samples_to_ns
from voicebench.playout import Playout
from voicebench.proceedings import PlayedAt, Proceedings, recording_of
from voicebench.protocols.failures import close_name, reason_of_close
from voicebench.recording import Lateness, Recording
from voicebench.records import FINISHED, Outcome
from voicebench.scenario.model import Turn
from voicebench.script import Script
from voicebench.vad import StreamingVad

NEVER = 1 << 62
ORDERLY_CLOSES = (1000, 1001)
MEASURED_PACKETS, MEASURED_SAMPLES = 64, 1 << 14
KEPT_SAMPLES = 1 << 15
"""Of sound that is kept elsewhere, so much is heard before it is handed on: 64 KB, 1.4 to 4 s."""
LISTEN_EVERY_S = 2.0
"""It is listened to at least so often, that there is something to hand on."""

Keeper = Callable[[int, Samples], bool]
"""Takes what the agent was heard to say, and never changes: its position, samples. False: keep it for now."""

# Beyond these an agent is no longer talking to anybody, and the tester's memory and time are at stake.
MAX_AHEAD_S = 600.0
"""How much audio may wait to be heard."""
MAX_EVENTS, MAX_EVENTS_PER_S = 60_000, 1000
"""Messages: those ten minutes in packets of 10 ms, and 1,000 for each second."""
MAX_FINAL_CHARS = 100_000
"""Final user transcripts: what is said in two hours. More would take seconds to score."""


class Step(NamedTuple):
    """What the shell does until tick `wake`: send frames `at`, `at + 1`, ... of a turn's clip, then silence."""

    clip: int | None
    """Index of the turn whose audio is being sent; None: silence."""
    at: int
    """Which frame of the clip the tick of the step sends."""
    wake: int
    """The tick to call `step` at again, or earlier when `hear` says so."""
    ended: bool = False


@dataclass(slots=True)
class _Played:
    turn: Turn
    trigger: Literal["anchor", "timeout"]
    tick: int
    start_ns: int
    end_ns: int
    speech_start_ns: int
    speech_end_ns: int


class _Log:
    """What arrived, as columns: no object a packet."""

    def __init__(self) -> None:
        self.clears_s = array("d")
        self.transcripts: list[AgentTranscript] = []
        self.final_chars = 0
        self._time_s = array("d")
        self._n_samples = array("q")
        self._energy = array("d")
        self._unmeasured: list[Samples] = []
        self._unmeasured_samples = 0

    @property
    def n_packets(self) -> int:
        return len(self._time_s)

    @property
    def n_events(self) -> int:
        return len(self._time_s) + len(self.clears_s) + len(self.transcripts)

    def packet(self, samples: Samples, time_s: float) -> bool:
        """Whether it was time to take stock: some dozens of packets have come since the last time."""
        self._time_s.append(time_s)
        self._n_samples.append(len(samples))
        self._unmeasured.append(samples)
        self._unmeasured_samples += len(samples)
        # The energies of some dozens of packets at once cost a tenth of what they cost one by one.
        if len(self._unmeasured) >= MEASURED_PACKETS or self._unmeasured_samples >= MEASURED_SAMPLES:
            self._measure()
            return True
        return False

    def packets_of_one_length(self, packets: Samples, times_s: Sequence[float]) -> None:
        self._measure()
        self._time_s.extend(times_s)
        self._n_samples.extend([packets.shape[1]] * len(packets))
        self._energy.extend(frame_energies(packets.reshape(-1), packets.shape[1]))

    def said(self, said: AgentTranscript) -> None:
        self.transcripts.append(said)
        if said.final and said.role == "user":
            self.final_chars += len(said.text)

    def columns(self) -> tuple[bytes, bytes, bytes]:
        """Of all packets: arrival in seconds, length in samples, energy."""
        self._measure()
        return self._time_s.tobytes(), self._n_samples.tobytes(), self._energy.tobytes()

    def _measure(self) -> None:
        if self._unmeasured:
            wide = np.concatenate(self._unmeasured).astype(np.float64)
            wide *= wide
            lengths = np.array(self._n_samples[-len(self._unmeasured) :])
            starts: npt.NDArray[np.int64] = np.cumsum(lengths) - lengths
            self._energy.extend(np.add.reduceat(wide, starts))
            self._unmeasured.clear()
            self._unmeasured_samples = 0


class _Ear(StreamingVad):
    """The online detector, which also tells how long nothing can come of listening on."""

    def soonest(self) -> int:
        """The position, in samples, up to which it must have heard before it can confirm another boundary."""
        needed = self.rule.silence_frames if self.speaking else self.rule.speech_frames
        return (self.frames + needed - self._run) * self.rule.frame_samples


class Session:
    """WAITING <-> PLAYING -> TAIL -> ENDED; the line's end, a cut or a failure ends it from anywhere.

    WAITING   the anchor came and its delay has passed, or timeout_ms without one   -> PLAYING
    PLAYING   the turn's audio is over: another turn is left                        -> WAITING
              none is left                                                          -> TAIL
    TAIL      tail_ms passed, the agent is silent, the last turn is decided         -> ENDED
    any       max_duration_ms, `end`, or the agent has closed                       -> ENDED
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        scenario = script.scenario
        self._max_tick = script.tick_from(ms_to_ns(scenario.max_duration_ms))
        self._playout = Playout(scenario.sample_rate, longest=self._max_tick * script.frame_samples)
        self._vad = _Ear(scenario.sample_rate, scenario.vad_agent)
        self._margin_ns = samples_to_ns(self._vad.rule.frame_samples, scenario.sample_rate)
        self._listened = 0
        self._only_boundary_until = 0
        """Up to this tick nothing is decided but by a boundary of the agent's speech, or its closing."""
        self._ticks = 0
        self._keeper: Keeper | None = None
        self._listen_every = script.tick_from(s_to_ns(LISTEN_EVERY_S))
        self._onsets_ns: list[int] = []
        self._offsets_ns: list[int] = []
        self._played: list[_Played] = []
        self._log = _Log()
        self.idle = True
        """Nothing is to be heard before another packet comes: that one is, at the next tick."""
        self._closed: AgentClosed | None = None
        self.outcome: Outcome | None = None
        """How it ended; None while it goes on."""

    @property
    def ended(self) -> bool:
        return self.outcome is not None

    @property
    def over(self) -> bool:
        """Nothing more is heard: it has ended, or will at the next tick, since the agent has closed."""
        return self.outcome is not None or self._closed is not None

    @property
    def ticks(self) -> int:
        """Frames of session time that have passed: its length on the grid."""
        return self._ticks

    @property
    def turn_name(self) -> str:
        """Where in the script it is, for people: "turn 3 of 5"."""
        return f"turn {max(1, len(self._played))} of {len(self.script.scenario.turns)}"

    def keep_with(self, keeper: Keeper | None) -> None:
        """Have the agent's sound kept elsewhere as it grows: to be said before the first step."""
        self._keeper = keeper

    def hear(self, event: AgentEvent) -> bool:
        """Take what the agent did. `time_s` is when it arrived, seconds since session start; before 0 counts as 0.

        Returns:
            Whether `step` must be called at the next tick; False: nothing can come of it before the last step's `wake`.
        """
        if self.outcome is not None or self._closed is not None:
            return False
        time_s = max(0.0, event.time_s)
        news = True
        if isinstance(event, AgentAudio):
            news = self.hear_audio(event.samples, time_s)
        elif isinstance(event, AgentClear):
            self._playout.clear(time_s, horizon=self._listened)
            self._log.clears_s.append(time_s)
        elif isinstance(event, AgentTranscript):
            self._log.said(AgentTranscript(event.role, event.text, time_s, event.final))
            news = False
        else:
            self._closed = event
        return self._stops_at_excess(time_s) or news

    def hear_audio(self, samples: Samples, time_s: float) -> bool:
        """As `hear` of an `AgentAudio`, at half its price: most of what an agent does is this.

        Whether it has sent too much of anything is asked once for some dozens of packets.
        """
        if self.outcome is not None or self._closed is not None or not len(samples):
            return False
        if time_s < 0.0:
            time_s = 0.0
        self._playout.place(samples, time_s, horizon=self._listened)
        if self._log.packet(samples, time_s):
            return self._stops_at_excess(time_s) or self.idle
        return self.idle

    def hear_packets(self, packets: Samples, times_s: Sequence[float]) -> bool:
        """As `hear_audio` for one after the other: packets of one length, in shape (packets, samples).

        They may be kept back until anything else is heard or the session is asked for something, as long as whoever
        keeps them sees to it that `step` is called at the next tick where `idle` says so.
        """
        if self.outcome is not None or self._closed is not None:
            return False
        times_s = [max(0.0, time_s) for time_s in times_s]
        for samples, time_s in zip(packets, times_s, strict=True):
            self._playout.place(samples, time_s, horizon=self._listened)
        self._log.packets_of_one_length(packets, times_s)
        return self._stops_at_excess(times_s[-1]) or self.idle

    def _stops_at_excess(self, time_s: float) -> bool:
        excess = self._excess(time_s)
        if excess is not None:
            self._closed = AgentClosed(time_s, None, excess, "protocol")
        return excess is not None

    def _excess(self, time_s: float) -> str | None:
        """What the agent sent too much of, in a sentence; None: nothing."""
        log = self._log
        ahead_s = self._playout.queued_until / self.script.scenario.sample_rate - time_s
        if ahead_s > MAX_AHEAD_S:
            return f"the agent sent more than {MAX_AHEAD_S / 60:g} minutes of audio ahead of its being heard"
        if log.n_events > MAX_EVENTS + MAX_EVENTS_PER_S * time_s:
            return f"the agent floods the line: {log.n_events} messages of audio, clears and transcripts"
        if log.final_chars > MAX_FINAL_CHARS:
            return f"the agent sent final user transcripts of more than {MAX_FINAL_CHARS} characters"
        return None

    def step(self, tick: int) -> Step:
        """Listen up to the tick, decide, and say what to send from it on.

        Args:
            tick: Ascending from 0; its frame's due time is `script.tick_ns(tick)`, however late the call comes.
        """
        step = self._step(tick)
        if self._keeper is not None and step.wake > tick + self._listen_every and not step.ended:
            return step._replace(wake=tick + self._listen_every)
        return step

    def _step(self, tick: int) -> Step:
        if self.outcome is not None:
            return Step(None, 0, NEVER, ended=True)
        self._ticks = tick
        heard_boundary = self._listen(tick * self.script.frame_samples)
        if tick < self._only_boundary_until and not heard_boundary and self._closed is None:
            self._look_ahead()
            wake = self._only_boundary_until if self.idle else min(self._only_boundary_until, self._next_boundary)
            return Step(None, 0, max(tick + 1, wake))
        now_ns = self.script.tick_ns(tick)
        ending = self._ending(tick, now_ns)
        if ending is not None:
            self.outcome = ending
            return Step(None, 0, NEVER, ended=True)
        self._maybe_start_turn(tick, now_ns)
        self._look_ahead()
        return self._step_from(tick, now_ns)

    def _look_ahead(self) -> None:
        """Whether anything can be heard of what is here."""
        # One analysis frame later even the rest of audio that fills no such frame has been decided on.
        heard_all = self._playout.queued_until + self._vad.rule.frame_samples <= self._listened
        self.idle = heard_all and not self._vad.undecided

    @property
    def _next_boundary(self) -> int:
        """The tick at which the detector may confirm its next boundary."""
        return self._tick_at(self._vad.soonest())

    def end(self, outcome: Outcome, ticks: int) -> None:
        """End it from outside (cut, lost, failed); `ticks` frames have been sent."""
        if self.outcome is None:
            self._ticks = max(self._ticks, ticks)
            self.outcome = outcome
            self._listen(self._ticks * self.script.frame_samples)

    def _listen(self, until: int) -> bool:
        """Whether a boundary was heard."""
        events = self._vad.push(self._playout.heard(self._listened, until))
        for event in events:
            times = self._onsets_ns if event.kind == "onset" else self._offsets_ns
            times.append(s_to_ns(event.time_s))
        self._listened = until
        if self._keeper is not None and until - self._playout.base >= KEPT_SAMPLES:
            self._hand_on(self._keeper)
        return bool(events)

    def _hand_on(self, keeper: Keeper) -> None:
        """All that the detector has decided on: what it hears half of is asked for once more."""
        start, decided = self._playout.base, self._vad.frames * self._vad.rule.frame_samples
        while decided - start >= KEPT_SAMPLES and keeper(start, self._playout.heard(start, start + KEPT_SAMPLES)):
            start += KEPT_SAMPLES
        if start > self._playout.base:
            self._playout.let_go(start)

    def _ending(self, tick: int, now_ns: int) -> Outcome | None:
        if self._closed is not None:
            return self._ending_by_close(self._closed, now_ns)
        if tick >= self._max_tick or self._is_over(now_ns):
            return self._without_line_trouble()
        return None

    def _without_line_trouble(self) -> Outcome:
        if self._log.n_packets:
            return FINISHED
        return Outcome("failed", "no_audio", "the agent sent no audio at all; does it speak this protocol and rate?")

    def _ending_by_close(self, closed: AgentClosed, now_ns: int) -> Outcome:
        if closed.code in ORDERLY_CLOSES and self._last_turn_decided(now_ns):
            return self._without_line_trouble()
        reason = closed.reason or reason_of_close(closed.code)
        where = f"at {max(0.0, closed.time_s):.1f} s, in {self.turn_name}"
        return Outcome("failed", reason, f"{_goodbye(closed)} {where}; counted as {reason!r}")

    def _is_over(self, now_ns: int) -> bool:
        if len(self._played) < len(self.script.scenario.turns):
            return False
        tail_ns = self._played[-1].end_ns + ms_to_ns(self.script.scenario.tail_ms)
        return now_ns >= tail_ns and self._agent_is_silent and self._last_turn_decided(now_ns)

    @property
    def _agent_is_silent(self) -> bool:
        """By the detector, and so for good unless more comes: an agent that streams silence has stopped, too."""
        return not self._vad.undecided and self._loud_until() <= self._listened

    def _loud_until(self) -> int:
        """The end of the last frame that may open a segment, of those not yet decided on: queued or half heard."""
        rule = self._vad.rule
        start = self._vad.frames * rule.frame_samples
        whole = -(-max(0, self._playout.queued_until - start) // rule.frame_samples) * rule.frame_samples
        energies = frame_energies(self._playout.heard(start, start + whole), rule.frame_samples)
        loud = np.flatnonzero(energies >= rule.open_energy)
        return start + (int(loud[-1]) + 1) * rule.frame_samples if len(loud) else 0

    def _last_turn_decided(self, now_ns: int) -> bool:
        if len(self._played) < len(self.script.scenario.turns):
            return False
        return now_ns >= self._deadline_ns or self._is_answered(self._played[-1])

    @property
    def _deadline_ns(self) -> int:
        # One analysis frame more: the detector may place the user's offset that much later in the session's track.
        last = self._played[-1]
        return last.speech_end_ns + ms_to_ns(last.turn.response_timeout_ms) + self._margin_ns

    def _is_answered(self, played: _Played) -> bool:
        return bool(self._onsets_ns) and self._onsets_ns[-1] > played.speech_start_ns + self._margin_ns

    def _maybe_start_turn(self, tick: int, now_ns: int) -> None:
        turns = self.script.scenario.turns
        if len(self._played) == len(turns) or now_ns < self._previous_end_ns:
            return
        turn = turns[len(self._played)]
        due_ns, trigger = self._due(turn)
        if now_ns >= due_ns:
            self._start_turn(turn, trigger, tick, now_ns)

    @property
    def _previous_end_ns(self) -> int:
        return self._played[-1].end_ns if self._played else 0

    def _due(self, turn: Turn) -> tuple[int, Literal["anchor", "timeout"]]:
        """When the turn starts as things stand, and by what. Once the anchor came the time-out no longer applies."""
        anchor_ns = self._anchor_ns(turn)
        if anchor_ns is None:
            return self._previous_end_ns + ms_to_ns(turn.start.timeout_ms), "timeout"
        return anchor_ns + ms_to_ns(turn.start.delay_ms), "anchor"

    def _anchor_ns(self, turn: Turn) -> int | None:
        after = turn.start.after
        if after == "session_start":
            return 0
        if after == "previous_turn_end":
            return self._previous_end_ns
        times = self._onsets_ns if after == "agent_speech_start" else self._offsets_ns
        return next((time_ns for time_ns in times if time_ns >= self._previous_end_ns), None)

    def _start_turn(self, turn: Turn, trigger: Literal["anchor", "timeout"], tick: int, now_ns: int) -> None:
        index = len(self._played)
        end_ns = now_ns + samples_to_ns(len(self.script.clips[index]), self.script.scenario.sample_rate)
        speech_ns = self.script.speech_ns[index]
        self._played.append(
            _Played(
                turn=turn,
                trigger=trigger,
                tick=tick,
                start_ns=now_ns,
                end_ns=end_ns,
                speech_start_ns=now_ns if speech_ns is None else now_ns + speech_ns[0],
                speech_end_ns=end_ns if speech_ns is None else now_ns + speech_ns[1],
            )
        )

    def _step_from(self, tick: int, now_ns: int) -> Step:
        clip, at = None, 0
        if self._played and tick - self._played[-1].tick < self.script.clip_frames[len(self._played) - 1]:
            clip, at = len(self._played) - 1, tick - self._played[-1].tick
        return Step(clip, at, max(tick + 1, min(self._wake(now_ns, tick), self._max_tick)))

    def _wake(self, now_ns: int, tick: int) -> int:
        """The first tick at which anything can be decided, unless `hear` says otherwise before."""
        self._only_boundary_until = 0
        if now_ns < self._previous_end_ns:
            self.idle = False  # whatever is heard meanwhile, the next decision is taken when the turn's audio is over
            return self.script.tick_from(self._previous_end_ns)
        boundary = NEVER if self.idle else self._next_boundary
        turns = self.script.scenario.turns
        if len(self._played) < len(turns):
            turn = turns[len(self._played)]
            due = self.script.tick_from(self._due(turn)[0])
            if self._anchor_ns(turn) is not None:
                return due
            self._only_boundary_until = min(due, self._max_tick)
            return min(due, boundary)
        over = self.script.tick_from(self._played[-1].end_ns + ms_to_ns(self.script.scenario.tail_ms))
        if not self._is_answered(self._played[-1]):
            over = max(over, min(boundary, self.script.tick_from(self._deadline_ns)))
        if self._vad.speaking:
            return max(over, boundary)
        return tick + 1 if self._vad.undecided else max(over, self._tick_at(self._loud_until()))

    def _tick_at(self, position: int) -> int:
        """The first tick at which the session has listened that far."""
        return -(-position // self.script.frame_samples)

    def proceedings(
        self,
        session_id: str,
        *,
        clock: Literal["virtual", "real"],
        lateness: Lateness | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Proceedings:
        """All that happened but the sound, once it has ended.

        Raises:
            RuntimeError: It has not ended.
        """
        if self.outcome is None:
            raise RuntimeError("the session has not ended")
        time_s, n_samples, energy = self._log.columns()
        return Proceedings(
            session_id=session_id,
            clock=clock,
            outcome=self.outcome,
            ticks=self._ticks,
            at_max=self._ticks >= self._max_tick,
            played=tuple(PlayedAt(each.tick, each.trigger, each.start_ns, each.end_ns) for each in self._played),
            packet_time_s=time_s,
            packet_samples=n_samples,
            packet_energy=energy,
            agent_energies=self._vad.energies.tobytes(),
            clears_s=self._log.clears_s.tobytes(),
            transcripts=tuple(self._log.transcripts),
            late_ms=None if lateness is None else (lateness.send_ms.tobytes(), lateness.drain_gap_ms.tobytes()),
            extra=dict(extra or {}),
        )

    def agent_track(self) -> Samples:
        """What the agent was heard to say, up to the session's end.

        Raises:
            RuntimeError: Some of it is kept elsewhere.
        """
        return self._playout.track(self._ticks * self.script.frame_samples)

    def agent_blocks(self) -> Iterator[tuple[int, Samples]]:
        """What is left of it, up to the session's end, in blocks with their positions, for whoever keeps it."""
        end = self._ticks * self.script.frame_samples
        for start in range(self._playout.base, end, KEPT_SAMPLES):
            yield start, self._playout.heard(start, min(start + KEPT_SAMPLES, end))

    def recording(
        self,
        session_id: str,
        *,
        clock: Literal["virtual", "real"],
        lateness: Lateness | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Recording:
        """What was recorded, once it has ended. Raises as `proceedings`."""
        proceedings = self.proceedings(session_id, clock=clock, lateness=lateness, extra=extra)
        return recording_of(self.script, proceedings, self.agent_track())


def _goodbye(closed: AgentClosed) -> str:
    if closed.reason is not None and closed.text:
        return closed.text  # the transport's own sentence, which names the place
    how = (
        "the connection broke without a close"
        if closed.code is None
        else f"agent closed, code {close_name(closed.code)}"
    )
    return f"{how} ({closed.text})" if closed.text else how
