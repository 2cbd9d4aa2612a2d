"""An agent in this process that notes all it hears, and says what the test tells it to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from websockets.http11 import Request
from websockets.server import ServerProtocol

from tests.support.sockets import listening, read_head
from voicebench.protocols.frames import MessageReader, Opcode, server_frame


class Heard:
    """One connection, as the agent saw it."""

    def __init__(self, sock: Any) -> None:
        self.sock = sock
        self.frames: list[bytes] = []
        self.close_code: int | None = None

    def say(self, pcm: bytes) -> None:
        self.sock.sendall(server_frame(pcm))


class HearingAgent:
    """Listens until it is left. `on_frame(heard)` is called after each frame of the user."""

    def __init__(self, on_frame: Callable[[Heard], None] | None = None) -> None:
        self.on_frame = on_frame
        self.connections: list[Heard] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def listening(self) -> Iterator[HearingAgent]:
        with listening(self._handle) as self.port:
            yield self

    def _handle(self, sock: Any) -> None:
        protocol = ServerProtocol()
        protocol.receive_data(read_head(sock))
        (request,) = protocol.events_received()
        assert isinstance(request, Request)
        protocol.send_response(protocol.accept(request))
        sock.sendall(b"".join(protocol.data_to_send()))
        heard = Heard(sock)
        self.connections.append(heard)
        reader = MessageReader(protocol, masked=True)
        while data := sock.recv(65536):
            for opcode, payload in reader.feed(data):
                if opcode is Opcode.CLOSE:
                    heard.close_code = int.from_bytes(payload[:2], "big")
                elif opcode is Opcode.BINARY:
                    heard.frames.append(payload)
                    if self.on_frame is not None:
                        self.on_frame(heard)
            sock.sendall(b"".join(protocol.data_to_send()))
            if heard.close_code is not None:
                return
