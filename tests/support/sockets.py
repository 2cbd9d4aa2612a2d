"""Agents for tests that are nothing but a script of bytes, and a caller that talks to a live socket."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import gevent.pool
import gevent.server
import gevent.socket
from websockets.http11 import Request
from websockets.server import ServerProtocol

from voicebench.events import AgentEvent
from voicebench.scenario.adapter_options import websocket_options
from voicebench.worker.adapters.base import LiveSocket, SessionInfo
from voicebench.worker.adapters.websocket import WebSocketTransport

SESSION = SessionInfo("s-1", 1, 16000, 320, "a scenario", "2026-01-01T00:00:00Z")


@contextlib.contextmanager
def listening(handle: Callable[[Any], None], **more: Any) -> Iterator[int]:
    """A TCP server on a free loopback port whose connections are handled by `handle(sock)`, then closed."""

    def serve(sock: Any, _address: object) -> None:
        with contextlib.suppress(OSError):
            handle(sock)
        sock.close()

    handlers = gevent.pool.Pool()
    server = gevent.server.StreamServer(("127.0.0.1", 0), serve, spawn=handlers, **more)
    server.start()
    try:
        yield server.server_port
    finally:
        server.close()
        handlers.join(timeout=2)
        handlers.kill()


def read_head(sock: Any) -> bytes:
    """Read up to the end of an HTTP head."""
    head = b""
    while b"\r\n\r\n" not in head:
        data = sock.recv(4096)
        if not data:
            return head
        head += data
    return head


def accepting(*sent_behind: bytes, then: Callable[[Any], None] | None = None) -> Callable[[Any], None]:
    """A handler that accepts the upgrade, sends these bytes in the same segment, and goes on with `then`."""

    def handle(sock: Any) -> None:
        protocol = ServerProtocol()
        protocol.receive_data(read_head(sock))
        (request,) = protocol.events_received()
        assert isinstance(request, Request)
        protocol.send_response(protocol.accept(request))
        sock.sendall(b"".join((*protocol.data_to_send(), *sent_behind)))
        (then or until_closed)(sock)

    return handle


def until_closed(sock: Any) -> None:
    """Read until the other side is gone."""
    while sock.recv(65536):
        pass


def reset(sock: Any) -> None:
    """End the connection by a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def transport(url: str, **options: Any) -> WebSocketTransport:
    """A transport with these options, time-outs short enough for tests that wait for one."""
    return WebSocketTransport(
        websocket_options({"url": url, "connect_timeout_s": 5, "handshake_timeout_s": 5, **options})
    )


class Caller:
    """What the pacer does with a live socket, one step at a time."""

    def __init__(self, live: LiveSocket) -> None:
        self.live = live
        self.events: list[AgentEvent] = list(live.early)

    def send(self, data: bytes) -> None:
        """Send it all."""
        while data:
            try:
                data = data[self.live.sock.send(data) :]
            except BlockingIOError:
                gevent.sleep(0.001)

    def listen_until(self, enough: Callable[[list[AgentEvent]], object], timeout_s: float = 10.0) -> list[AgentEvent]:
        """Read and answer until `enough(events)` or the line is closed; returns all events so far."""
        with gevent.Timeout(timeout_s):
            while not enough(self.events) and not self.live.line.closed:
                try:
                    data = self.live.sock.recv(65536)
                except BlockingIOError:
                    gevent.sleep(0.001)
                    continue
                except ConnectionError as error:
                    self.events += self.live.line.broken(f"the connection broke: {error.strerror}", 0.0)
                    break
                self.events += self.live.line.receive(data, 0.0)
                self.send(self.live.line.outgoing())
        return self.events

    def close(self) -> None:
        """Hang up and let go of the socket. Scripted agents don't answer a close, so nothing is waited for."""
        try:
            with contextlib.suppress(OSError):
                self.send(self.live.line.hang_up())
        finally:
            self.live.sock.close()


@contextlib.contextmanager
def calling(to: WebSocketTransport, session: SessionInfo = SESSION) -> Iterator[Caller]:
    """A caller on a line that is closed in the end."""
    caller = Caller(to.open(session))
    try:
        yield caller
    finally:
        caller.close()
