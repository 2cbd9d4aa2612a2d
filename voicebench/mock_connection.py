"""One caller's connection to the mock agent: handshake, then hear and answer until either side closes."""

from __future__ import annotations

import json
import socket as native_socket
import urllib.parse
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import gevent
from websockets.frames import CloseCode, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from voicebench.clock import monotonic_s, realtime_s
from voicebench.mock_agent import session_seed
from voicebench.mock_conversation import Answer, Conversation, Fact
from voicebench.mock_delivery import ServerOptions, capacity_delay_ms
from voicebench.mock_truth import TruthLog
from voicebench.protocols.frames import MessageReader
from voicebench.protocols.upgrade import END_OF_HEAD, MAX_HEAD_BYTES
from voicebench.scenario.adapter_options import MockOptions
from voicebench.scenario.document import MAX_SAMPLE_RATE_HZ
from voicebench.worker.stamps import ANCILLARY_BYTES, arrival_s, ask_for_stamps

READ_BYTES = 65536
HANDSHAKE_TIMEOUT_S = 10.0
LINGER_S = 2.0
"""How long a closed connection is still read: closing a socket with unread bytes sends a reset, which may overtake the
close frame at the other side."""
MIN_SAMPLE_RATE_HZ = 8000
RATE_RANGE = f"{MIN_SAMPLE_RATE_HZ} to {MAX_SAMPLE_RATE_HZ}"
SESSION_HEADER = "x-voicebench-session"


@dataclass(slots=True)
class Service:
    """What all connections of a server share."""

    sample_rate_hz: int
    options: MockOptions
    tester: ServerOptions
    truth: TruthLog
    ssl: Any
    sessions: int = 0
    """Sessions at once, now."""


class _EndOfCall(Exception):  # noqa: N818 - an end, not an error
    """The conversation is over; the text says why."""


class Connection:
    """One caller's socket: handshake, then hear and answer until either side closes."""

    def __init__(self, service: Service, sock: Any, number: int, *, refused: bool) -> None:
        """`refused`: this is one of those that `fail_rate` turns away."""
        self._service = service
        self._sock = sock
        self._number = number
        self._refused = refused
        self._protocol = ServerProtocol(max_size=None)
        self._reader = MessageReader(self._protocol, masked=True)
        self._session: str | None = None
        self._rate_hz = service.sample_rate_hz
        self._conversation: Conversation | None = None
        self._hangup_at_s: float | None = None
        self._kernel_stamps = False
        self._read_s = 0.0
        self.goodbye: str | None = None
        """Why it ended, for the truth log."""

    def run(self) -> None:
        """Serve until the end; never raises, whatever the caller does."""
        live = False
        try:
            early = self._open()
            live = True
            self._service.sessions += 1
            self._converse(early)
        except _EndOfCall as end:
            self.goodbye = str(end)
        except OSError as error:
            self.goodbye = f"caller's connection broke: {error.strerror or error}"
        except gevent.GreenletExit:
            self._close(CloseCode.GOING_AWAY)
        finally:
            if live:
                self._service.sessions -= 1
                self._note(Fact("ended", None, {"why": self.goodbye}))
            self._sock.close()

    # --- the handshake ---------------------------------------------------------------------------------------------

    def _open(self) -> bytes:
        """Answer the upgrade; returns what the caller sent behind it."""
        if self._service.ssl is not None:
            self._sock = self._service.ssl.wrap_socket(self._sock, server_side=True)
        self._sock.setsockopt(native_socket.IPPROTO_TCP, native_socket.TCP_NODELAY, 1)
        self._sock.settimeout(HANDSHAKE_TIMEOUT_S)
        request, early = self._read_request()
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(request.path).query)
        self._session = request.headers.get(SESSION_HEADER) or query.get("session", [None])[0]
        if self._refused:
            self._note(Fact("refused", None, {"status": 503}))
            self._reject(HTTPStatus.SERVICE_UNAVAILABLE, "this is one of those that --fail-rate turns away\n")
        if "rate" in query:
            self._set_rate(_rate_of(query["rate"][0]))
        self._protocol.send_response(self._protocol.accept(request))
        self._flush()
        if self._protocol.state is not State.OPEN:
            raise _EndOfCall("no WebSocket upgrade")
        return early

    def _set_rate(self, rate_hz: int | None) -> None:
        if rate_hz is None:
            self._reject(HTTPStatus.BAD_REQUEST, f"rate must be a whole number of Hz, {RATE_RANGE}\n")
        else:
            self._rate_hz = rate_hz

    def _read_request(self) -> tuple[Request, bytes]:
        head = b""
        while (end := END_OF_HEAD.search(head)) is None:
            data = self._sock.recv(READ_BYTES)
            if not data or len(head) > MAX_HEAD_BYTES:
                raise _EndOfCall("no HTTP request")
            head += data
        self._protocol.receive_data(head[: end.end()])
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                return event, head[end.end() :]
        self._flush()
        raise _EndOfCall("no HTTP request")

    def _reject(self, status: HTTPStatus, text: str) -> None:
        self._protocol.send_response(self._protocol.reject(status, text))
        self._flush()
        raise _EndOfCall(f"refused with {int(status)}")

    # --- the conversation ------------------------------------------------------------------------------------------

    def _converse(self, early: bytes) -> None:
        tester = self._service.tester
        self._sock.settimeout(None)
        now_s = monotonic_s()
        self._note(Fact("connected", now_s, {"rate_hz": self._rate_hz, "sessions": self._service.sessions}))
        if tester.hangup_after_ms is not None:
            self._hangup_at_s = now_s + tester.hangup_after_ms / 1000.0
        self._read_s = now_s
        if self._service.truth.kept and self._service.ssl is None:  # under TLS only whole records are told apart
            self._kernel_stamps = ask_for_stamps(self._sock)
        if early:
            self._take(early, now_s)
        while True:
            try:
                data, time_s = self._read()
            except TimeoutError:
                self._hang_up()
            if not data:
                raise _EndOfCall("caller ended the connection without a close")
            self._take(data, time_s)
            if self._hangup_at_s is not None and monotonic_s() >= self._hangup_at_s:
                self._hang_up()

    def _read(self) -> tuple[bytes, float]:
        if self._hangup_at_s is not None:
            self._sock.settimeout(max(0.001, self._hangup_at_s - monotonic_s()))
        if not self._kernel_stamps:
            data: bytes = self._sock.recv(READ_BYTES)
            return data, monotonic_s()
        data, ancillary, _, _ = self._sock.recvmsg(READ_BYTES, ANCILLARY_BYTES)
        now_s = monotonic_s()
        since_s, self._read_s = self._read_s, now_s
        return data, arrival_s(ancillary, now_s=now_s, realtime_now_s=realtime_s(), since_s=since_s)

    def _take(self, data: bytes, time_s: float) -> None:
        """Everything in one read is answered with one send."""
        answer = Answer()
        for opcode, payload in self._reader.feed(data):
            if opcode is Opcode.BINARY:
                conversation = self._conversation or self._begin()
                conversation.hear(payload, time_s, answer)
            elif opcode is Opcode.TEXT:
                self._obey(payload)
        answer.frames.extend(self._protocol.data_to_send())
        now_s = monotonic_s()
        if answer.frames:
            self._sock.sendall(b"".join(answer.frames))
        for fact in answer.facts:
            self._note(fact, now_s)
        if self._protocol.state is not State.OPEN:
            close = self._protocol.close_rcvd
            raise _EndOfCall(
                f"caller broke the protocol: {self._reader.violation}"
                if close is None
                else f"caller closed, code {int(close.code)}"
            )

    def _begin(self) -> Conversation:
        service = self._service
        self._conversation = Conversation(
            service.options,
            service.tester,
            sample_rate_hz=self._rate_hz,
            seed=session_seed(service.options.seed, self._number),
            extra_delay_ms=lambda: capacity_delay_ms(service.tester.capacity, service.sessions),
        )
        return self._conversation

    def _obey(self, payload: bytes) -> None:
        """A start message may set the rate, as long as no audio has come."""
        try:
            message = json.loads(payload)
        except (ValueError, RecursionError):
            return
        rate = message.get("sample_rate") if isinstance(message, dict) else None
        if rate is None or self._conversation is not None:
            return
        rate_hz = _rate_of(rate)
        if rate_hz is None:
            self._reader.fail(CloseCode.POLICY_VIOLATION, f"sample_rate must be a whole number of Hz, {RATE_RANGE}")
        else:
            self._rate_hz = rate_hz

    # --- the end ---------------------------------------------------------------------------------------------------

    def _hang_up(self) -> None:
        self.goodbye = "hung up (--hangup-after-ms)"
        self._close(CloseCode.NORMAL_CLOSURE)
        raise _EndOfCall(self.goodbye)

    def _close(self, code: CloseCode) -> None:
        """Say goodbye and give the caller a moment to do so too."""
        if self._protocol.state is not State.OPEN:
            return
        self._protocol.send_close(code)
        try:
            with gevent.Timeout(LINGER_S, False):
                self._sock.settimeout(None)
                self._flush()
                while self._protocol.close_rcvd is None and (data := self._sock.recv(READ_BYTES)):
                    self._reader.feed(data)
        except OSError:
            pass  # the caller has left already

    def _flush(self) -> None:
        data = b"".join(self._protocol.data_to_send())
        if data:
            self._sock.sendall(data)

    def _note(self, fact: Fact, now_s: float | None = None) -> None:
        t_s = fact.t_s if fact.t_s is not None else now_s if now_s is not None else monotonic_s()
        self._service.truth.note(fact.event, t_s=t_s, connection=self._number, session=self._session, **fact.more)


def _rate_of(value: object) -> int | None:
    """A sample rate from a query string or a JSON message; None if it is none."""
    try:
        rate_hz = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else 0
    except ValueError:
        return None
    return rate_hz if MIN_SAMPLE_RATE_HZ <= rate_hz <= MAX_SAMPLE_RATE_HZ else None
