"""One caller's conversation with the mock agent, without a socket: user audio in, WebSocket frames and truth out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from websockets.frames import Opcode

from voicebench.audio import pcm
from voicebench.events import Samples
from voicebench.mock_agent import BargeIn, Clear, Heard, MockAgent, Say
from voicebench.mock_delivery import Delivery, ServerOptions
from voicebench.protocols.frames import server_frame
from voicebench.scenario.adapter_options import MockOptions


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the truth log. `t_s` None: it happens when the frames that go with it are sent."""

    event: str
    t_s: float | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the agent does at once on what it heard: frames to send in one go, and what is true about them."""

    frames: list[bytes] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)


class Conversation:
    """Audio messages to answers. Its media time is the audio heard so far; arrival times are only noted."""

    def __init__(
        self,
        options: MockOptions,
        tester: ServerOptions,
        *,
        sample_rate_hz: int,
        seed: int,
        extra_delay_ms: Callable[[], float],
    ) -> None:
        """`extra_delay_ms`: how much the load of the moment slows the agent down."""
        self._agent = MockAgent(options, sample_rate_hz=sample_rate_hz, seed=seed, extra_delay_ms=extra_delay_ms)
        self._tester = tester
        self._rate_hz = sample_rate_hz
        self._extra_delay_ms = extra_delay_ms
        self._delivery: Delivery | None = None
        self._replies = 0
        self._heard_samples = 0
        self._was_active = False
        self._active_since_s = 0.0
        self._active_until_s = 0.0
        self._active_until_samples = 0

    def hear(self, payload: bytes, time_s: float, answer: Answer) -> None:
        """Hear one message of PCM16 that arrived at `time_s` and add what the agent does to `answer`.

        A message with an odd number of bytes is heard without the last one.
        """
        samples = pcm.from_bytes(payload if len(payload) % 2 == 0 else payload[:-1])
        n_samples = len(samples)
        if not n_samples:
            return
        outputs = self._agent.hear(samples)
        self._heard_samples += n_samples
        self._note_activity(time_s)
        for output in outputs:
            match output:
                case Say() if output.first:
                    self._begin_reply(output, n_samples, answer)
                case Heard(text):
                    self._end_of_turn(text, answer)
                case BargeIn():
                    answer.facts.append(
                        Fact("barge_in", time_s, {**self._media(), "onset_t": round(self._active_since_s, 6)})
                    )
                case Clear():
                    self._delivery = None
                    answer.frames.append(_text_frame({"type": "clear"}))
                    answer.facts.append(Fact("clear", None, self._media()))
        if self._delivery is not None:
            self._deliver(self._delivery, self._delivery.advance(n_samples), answer)

    def _note_activity(self, time_s: float) -> None:
        active = self._agent.user_active
        if active:
            if not self._was_active:
                self._active_since_s = time_s
            self._active_until_s = time_s
            self._active_until_samples = self._heard_samples
        self._was_active = active

    def _begin_reply(self, say: Say, frame_samples: int, answer: Answer) -> None:
        if self._delivery is not None:  # a stutter of the last reply reached up to here
            self._deliver(self._delivery, self._delivery.rest(), answer)
        self._replies += 1
        self._delivery = Delivery(say.reply, frame_samples, self._rate_hz, self._tester)

    def _deliver(self, delivery: Delivery, messages: list[Samples], answer: Answer) -> None:
        if not messages:
            return
        answer.frames.extend(server_frame(pcm.to_bytes(samples)) for samples in messages)
        if delivery.sent == sum(map(len, messages)):
            answer.facts.append(Fact("first_audio", None, self._reply()))
        if delivery.done:
            answer.facts.append(Fact("last_audio", None, self._reply()))
            self._delivery = None

    def _end_of_turn(self, text: str | None, answer: Answer) -> None:
        if text is not None:
            answer.frames.append(_text_frame({"type": "transcript", "role": "user", "text": text, "final": True}))
        more = {"media_s": self._in_s(self._active_until_samples), "extra_delay_ms": self._extra_delay_ms()}
        answer.facts.append(Fact("user_speech_end", self._active_until_s, more))

    def _reply(self) -> dict[str, Any]:
        return {"reply": self._replies, **self._media()}

    def _media(self) -> dict[str, Any]:
        return {"media_s": self._in_s(self._heard_samples)}

    def _in_s(self, samples: int) -> float:
        return round(samples / self._rate_hz, 6)


def _text_frame(message: dict[str, Any]) -> bytes:
    return server_frame(json.dumps(message).encode(), Opcode.TEXT)
