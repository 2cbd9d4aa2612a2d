"""The generic protocol: binary messages are mono PCM16 little-endian, text messages are JSON (docs/websocket.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from voicebench.audio import pcm
from voicebench.audio.resample import PacketResampler
from voicebench.events import AgentAudio, AgentClear, AgentEvent, AgentTranscript, Samples
from voicebench.protocols.text import clean_text


class PcmCodec:
    """Messages of one agent to events of one session. Counts what it could not use, and never fails on it."""

    verbatim: Final = True

    def __init__(self, *, agent_rate_hz: int, session_rate_hz: int) -> None:
        """`agent_rate_hz`: the rate of the agent's audio, resampled to the session's packet by packet."""
        self._resampler = PacketResampler(agent_rate_hz, session_rate_hz) if agent_rate_hz != session_rate_hz else None
        self._half_sample = b""
        self.cut_messages = 0
        """Binary messages with an odd number of bytes."""
        self.ignored_texts = 0
        """Text messages that are no JSON object or of a type unknown here."""

    def binary(self, payload: bytes, time_s: float) -> list[AgentEvent]:
        """Agent audio of any length; none: no event."""
        if self._half_sample or len(payload) & 1:
            payload = self._whole_samples(payload)
        samples = pcm.from_bytes(payload)
        if self._resampler is not None and len(samples):
            samples = self._resampler.push(samples)
        return [AgentAudio(samples, time_s)] if len(samples) else []

    def audio(self, data: bytes, at: int) -> Samples | None:
        """The usual message, from `at` on: whole samples at the session's rate, and none left over before."""
        if self._half_sample or (len(data) - at) & 1 or self._resampler is not None:
            return None
        return pcm.from_bytes(data, at)

    def text(self, text: str, time_s: float) -> list[AgentEvent]:
        """`clear` and `transcript`; everything else is counted and ignored."""
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):  # RecursionError: a thousand brackets deep
            message = None
        kind = message.get("type") if isinstance(message, dict) else None
        if kind == "clear":
            self._drop_pending()
            return [AgentClear(time_s)]
        if kind == "transcript" and isinstance(message.get("text"), str):
            role: Literal["user", "agent"] = "agent" if message.get("role") == "agent" else "user"
            return [AgentTranscript(role, clean_text(message["text"]), time_s, bool(message.get("final", True)))]
        self.ignored_texts += 1
        return []

    def _whole_samples(self, payload: bytes) -> bytes:
        # Agents that pass on a TTS stream as it comes cut it anywhere, so the lone byte belongs to the next message.
        # Dropping it would turn all that follows into noise.
        if len(payload) & 1:
            self.cut_messages += 1
        payload = self._half_sample + payload
        whole = len(payload) & ~1
        self._half_sample = payload[whole:]
        return payload[:whole]

    def _drop_pending(self) -> None:
        """What follows a clear is new audio: no half sample and no filter memory of the old reaches into it."""
        self._half_sample = b""
        if self._resampler is not None:
            self._resampler.reset()


def frame_payload(samples: Samples) -> bytes:
    """A frame of user audio as the payload of a binary message."""
    return pcm.to_bytes(samples)


def start_message(configured: Mapping[str, Any], *, sample_rate_hz: int, session_id: str, session_number: int) -> str:
    """The text message that opens a session: `sample_rate` in front, unless the configured object has its own.

    >>> start_message({"call": "{session_id}"}, sample_rate_hz=8000, session_id="s-7", session_number=7)
    '{"sample_rate": 8000, "call": "s-7"}'

    Raises:
        TypeError, ValueError: `configured` holds something that JSON does not have.
    """
    filled = fill_in(configured, session_id=session_id, session_number=session_number)
    return json.dumps({"sample_rate": sample_rate_hz, **filled}, allow_nan=False)


def fill_in(value: Any, *, session_id: str, session_number: int) -> Any:
    """Replace `{session_id}` and `{session_number}` in a string, or in all strings of a nested value.

    Other braces stay as they are.

    >>> fill_in(["{session_number}", 3, "{x}"], session_id="s", session_number=7)
    ['7', 3, '{x}']
    """
    if isinstance(value, str):
        return value.replace("{session_id}", session_id).replace("{session_number}", str(session_number))
    if isinstance(value, Mapping):
        return {key: fill_in(item, session_id=session_id, session_number=session_number) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill_in(item, session_id=session_id, session_number=session_number) for item in value]
    return value
