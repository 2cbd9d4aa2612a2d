"""One session's WebSocket after the handshake, without a socket: bytes from the agent in, session events out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Opcode
from websockets.protocol import State

from voicebench.errors import AgentError
from voicebench.events import AgentClosed, AgentEvent, Samples
from voicebench.protocols.failures import close_name, reason_of_close
from voicebench.protocols.frames import MessageReader, masked_with, whole_binary
from voicebench.protocols.text import clean_text

MAX_TEXT_BYTES: Final = 262_144
"""Parsing JSON of this size takes about 2 ms; a larger text message is no control message and is left unread."""
MAX_CLOSE_CHARS: Final = 123
"""A close frame has no room for more."""


class Codec(Protocol):
    """What the messages on a WebSocket mean: one per session, since audio may be cut anywhere."""

    @property
    def verbatim(self) -> bool:
        """Whether the samples that `audio` gives are the message's bytes as they are: int16, little-endian."""

    def binary(self, payload: bytes, time_s: float) -> list[AgentEvent]:
        """The events in a binary message. Never raises."""

    def text(self, text: str, time_s: float) -> list[AgentEvent]:
        """The events in a text message. Never raises."""

    def audio(self, data: bytes, at: int) -> Samples | None:
        """The audio of the binary message that is `data` from `at` on, if there is nothing more to it."""


class WebSocketLine:
    """OPEN -> CLOSED when the agent closes, breaks a rule or vanishes; OPEN -> CLOSING -> CLOSED when we hang up.

    After each `receive` send what `outgoing` returns (pongs, the answer to a close), also when `closed` has become
    true. Bytes go on the wire in the order in which `wrap`, `outgoing` and `hang_up` returned them.
    """

    def __init__(
        self,
        protocol: ClientProtocol,
        codec: Codec,
        *,
        place: str,
        fresh_mask: Callable[[], bytes] | None = None,
    ) -> None:
        """`protocol` has finished its handshake; `place` names the agent in errors; `fresh_mask` gives 4 random
        bytes for each frame; None: ready frames are sent under the mask they share."""
        self._protocol = protocol
        self._codec = codec
        self._place = place
        self._fresh_mask = fresh_mask
        self._reader = MessageReader(protocol, masked=False)
        self._hung_up = False
        self.closed = False
        """Both directions are over: once `outgoing` is sent the socket may be closed."""
        self.failure: AgentError | None = None
        """Why the agent's side ended, when it was not in answer to our hanging up. Whether `agent_hangup` is
        a failure depends on the script: after the last turn it is none."""
        self.oversized_texts = 0

    @property
    def sends_as_is(self) -> bool:
        """Whether ready frames go on the wire as they are."""
        return self._fresh_mask is None

    def audio(self, data: bytes) -> Samples | None:
        """The audio in `data`, if that is one whole binary message and nothing else; None: `receive` has to see it."""
        if self.closed or not self._reader.at_rest:
            return None
        body = whole_binary(data)
        return self._codec.audio(data, body) if body else None

    def head(self, data: bytes) -> bytes:
        """The header of a message that `audio` has taken; with the length it says all that `audio` asks for."""
        return data[: whole_binary(data)] if self._codec.verbatim else b""

    def receive(self, data: bytes, time_s: float) -> list[AgentEvent]:
        """Take bytes from the socket; b"" is its end. Returns what they mean, stamped `time_s`. Never raises."""
        if self.closed:
            return []
        if not data:
            return self.broken(f"{self._place} ended the connection without a WebSocket close", time_s)
        events: list[AgentEvent] = []
        for opcode, payload in self._reader.feed(data):
            if opcode is Opcode.BINARY:
                events += self._codec.binary(payload, time_s)
            elif opcode is Opcode.TEXT:
                if not self._text(payload, events, time_s):
                    break
            else:
                events.append(self._agent_closed(time_s))
        if self._reader.violation is not None:
            events.append(self._violated(self._reader.violation, time_s))
        return events

    def broken(self, why: str, time_s: float) -> list[AgentEvent]:
        """The socket is gone (`why`: a sentence, for instance that it was reset): the agent's last event."""
        if self.closed:
            return []
        self._protocol.receive_eof()
        return [self._end(AgentError(reason_of_close(None), why), None, "", time_s)]

    def wrap(self, ready: bytes) -> bytes:
        """What goes on the wire for a ready frame."""
        return ready if self._fresh_mask is None else masked_with(ready, self._fresh_mask())

    def outgoing(self) -> bytes:
        """What must be sent now; b"" when nothing."""
        return b"".join(self._protocol.data_to_send())

    def hang_up(self) -> bytes:
        """Begin our orderly close (1000) and return what to send. A second time, or too late: b""."""
        if self._protocol.state is State.OPEN:
            self._hung_up = True
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
        return self.outgoing()

    def _text(self, payload: bytes, events: list[AgentEvent], time_s: float) -> bool:
        if len(payload) > MAX_TEXT_BYTES:
            self.oversized_texts += 1
            return True
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            self._reader.fail(CloseCode.INVALID_DATA, "text message is not UTF-8")
            return False
        events += self._codec.text(text, time_s)
        return True

    def _agent_closed(self, time_s: float) -> AgentClosed:
        close = self._protocol.close_rcvd
        code = CloseCode.NO_STATUS_RCVD if close is None else close.code
        text = "" if close is None else clean_text(close.reason, MAX_CLOSE_CHARS)
        said = f", saying {text!r}" if text else ""
        why = f"{self._place} closed the WebSocket, code {close_name(code)}{said}"
        return self._end(AgentError(reason_of_close(code), why), int(code), text, time_s)

    def _violated(self, why: str, time_s: float) -> AgentClosed:
        sent = self._protocol.close_sent
        code = CloseCode.PROTOCOL_ERROR if sent is None or self._hung_up else sent.code
        error = AgentError("protocol", f"{self._place} broke the WebSocket protocol: {why}")
        return self._end(error, int(code), why, time_s)

    def _end(self, error: AgentError, code: int | None, text: str, time_s: float) -> AgentClosed:
        self.closed = True
        if self._hung_up:  # whatever it says now, we ended it
            return AgentClosed(time_s, code, text)
        self.failure = error
        return AgentClosed(time_s, code, str(error), error.reason)
