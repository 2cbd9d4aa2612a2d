"""The mock agent behind a real socket: something to call, and something with known truth to test the tester with.

It speaks the generic PCM protocol (docs/websocket.md). Each connection has its own agent, whose clock is the audio it
has heard, so what it does depends on the audio alone and not on how busy the machine is.
"""

from __future__ import annotations

import errno
import random
import socket as native_socket
from typing import IO, Any

import gevent
import gevent.server
import gevent.socket

from voicebench.errors import TesterError
from voicebench.mock_connection import LINGER_S, Connection, Service
from voicebench.mock_delivery import ServerOptions
from voicebench.mock_truth import TruthLog
from voicebench.scenario.adapter_options import MockOptions

BACKLOG = 1024
"""Hundreds of sessions may start in the same second."""


class MockServer:
    """Listens from `start` until `stop`; one greenlet for each connection."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        sample_rate_hz: int,
        options: MockOptions,
        tester: ServerOptions,
        truth: IO[str] | None = None,
        ssl: Any = None,
    ) -> None:
        """As `serve`, without listening yet."""
        self.service = Service(sample_rate_hz, options, tester, TruthLog(truth), ssl)
        self._luck = random.Random(options.seed)
        self._connections = 0
        self._live: dict[gevent.Greenlet, Connection] = {}
        self._server: gevent.server.StreamServer | None = None
        self._host = host
        self.port = port
        """Where it listens; 0 becomes the port that was picked."""

    def start(self) -> None:
        """Bind and listen. Raises TesterError when the address can't be had."""
        try:
            family = gevent.socket.getaddrinfo(self._host, self.port, type=native_socket.SOCK_STREAM)[0][0]
            listener = gevent.socket.socket(family, native_socket.SOCK_STREAM)
            try:
                listener.setsockopt(native_socket.SOL_SOCKET, native_socket.SO_REUSEADDR, 1)
                listener.bind((self._host, self.port))
                listener.listen(BACKLOG)
            except BaseException:
                listener.close()
                raise
        except OSError as error:
            why = "is taken" if error.errno == errno.EADDRINUSE else f"can't be used ({error.strerror})"
            raise TesterError(f"{self._host}:{self.port} {why}: choose another --port or --host") from None
        self.port = listener.getsockname()[1]
        self._server = gevent.server.StreamServer(listener, self._accepted)
        self._server.start()

    @property
    def url(self) -> str:
        """What to call."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'wss' if self.service.ssl else 'ws'}://{host}:{self.port}"

    def stop(self) -> None:
        """Refuse new connections and close the open ones (1001), each with its `ended` line in the truth log."""
        if self._server is not None:
            self._server.stop()
        live = list(self._live.items())
        for greenlet, connection in live:
            connection.goodbye = connection.goodbye or "server stopped"
            greenlet.kill(block=False)
        gevent.joinall([greenlet for greenlet, _ in live], timeout=LINGER_S)

    def _accepted(self, sock: Any, _address: object) -> None:
        number = self._connections
        self._connections += 1
        refused = self._luck.random() < self.service.tester.fail_rate
        connection = Connection(self.service, sock, number, refused=refused)
        greenlet = gevent.getcurrent()
        self._live[greenlet] = connection
        try:
            connection.run()
        finally:
            del self._live[greenlet]


def serve(
    host: str,
    port: int,
    *,
    sample_rate_hz: int,
    options: MockOptions,
    tester: ServerOptions | None = None,
    truth: IO[str] | None = None,
    ssl: Any = None,
) -> MockServer:
    """Start a mock agent and return it; it serves while the caller waits cooperatively.

    Args:
        host, port: Where to listen; port 0 picks a free one (`MockServer.port`).
        sample_rate_hz: Of both directions, unless a connection says otherwise (`?rate=`, start message).
        options: How the agent behaves; connection n has the seed of session n.
        tester: What to do to the tester; None: nothing.
        truth: Line-buffered text file for the truth log.
        ssl: A `gevent.ssl.SSLContext` for wss.

    Raises:
        TesterError: The address can't be had.
    """
    server = MockServer(
        host,
        port,
        sample_rate_hz=sample_rate_hz,
        options=options,
        tester=tester or ServerOptions(),
        truth=truth,
        ssl=ssl,
    )
    server.start()
    return server
