"""The page's socket."""

from __future__ import annotations

import socket
from typing import Any

import gevent.socket
from gevent.pool import Pool
from gevent.pywsgi import WSGIHandler, WSGIServer

from voicebench.errors import UsageError
from voicebench.page.app import make_app
from voicebench.page.assets import load_assets, web_folder
from voicebench.page.feed import MAX_STREAMS, Feed
from voicebench.page.guard import LOOPBACK_NAMES, Guard
from voicebench.page.source import Source

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8089
MAX_CONNECTIONS = MAX_STREAMS + 100
SILENT_S = 20.0
"""A browser that takes or says nothing for so long is let go."""
SEND_BUFFER_BYTES = 64 << 10
"""What waits in the kernel for one that never reads."""
LAST_PICTURE_S = 1.0


def page_address(text: str) -> tuple[str, int]:
    """Host and port of `--page`.

    >>> page_address("127.0.0.1:9000"), page_address("9000"), page_address("[::1]:9000"), page_address("localhost")
    (('127.0.0.1', 9000), ('127.0.0.1', 9000), ('::1', 9000), ('localhost', 8089))

    Raises:
        UsageError: It is none, or not of this machine.
    """
    host, _, port_text = ("", "", text) if text.isdecimal() else text.rpartition(":")
    if not host and not text.isdecimal():
        host, port_text = text, ""
    host = host.strip("[]") or DEFAULT_HOST
    if host not in LOOPBACK_NAMES and not host.startswith("127."):
        raise UsageError(
            f"--page {text}: the page listens on this machine alone (127.0.0.1), since it has no authentication: from "
            f"elsewhere use a tunnel (ssh -L {DEFAULT_PORT}:127.0.0.1:{DEFAULT_PORT} HOST)"
        )
    if port_text and not (port_text.isdecimal() and int(port_text) < 65536):
        raise UsageError(f"--page {text}: {port_text!r} is no port: write 127.0.0.1:{DEFAULT_PORT}")
    return host, int(port_text) if port_text else DEFAULT_PORT


class Page:
    """A page that listens. Requests are answered whenever the main thread waits."""

    def __init__(self, source: Source, guard: Guard, listener: socket.socket) -> None:
        self._feed = Feed(lambda: source.picture)
        app = make_app(source, self._feed, guard, load_assets(web_folder()))
        self._server = _Server(listener, app, log=None, handler_class=_Handler, spawn=Pool(MAX_CONNECTIONS))
        self._server.start()

    @property
    def n_streams(self) -> int:
        return self._feed.n_streams

    def close(self) -> None:
        """Give open pages the last picture, within a second, and go."""
        self._feed.drained(LAST_PICTURE_S)
        self._server.stop(timeout=0)
        self._feed.close()


def listen(host: str, port: int, *, exactly: bool) -> socket.socket:
    """The page's socket.

    Args:
        exactly: Whether the port was asked for; one that was not gives way to any that is free.

    Raises:
        UsageError: It can't be had.
    """
    try:
        return _listener(host, port)
    except OSError as error:
        if exactly:
            raise UsageError(
                f"--page {host}:{port}: can't be listened at: {error.strerror}: choose another port, or --headless"
            ) from None
    return _listener(host, 0)


def _listener(host: str, port: int) -> socket.socket:
    listener = gevent.socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener  # type: ignore[no-any-return]


def url_of(listener: socket.socket) -> str:
    """Where browsers find it."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Handler(WSGIHandler):  # type: ignore[misc]
    def handle_error(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, TimeoutError):
            self.close_connection = True  # a page that hangs is nothing to tell on the master's terminal
        else:
            super().handle_error(kind, error, trace)


class _Server(WSGIServer):  # type: ignore[misc]
    def handle(self, sock: Any, address: Any) -> None:
        sock.settimeout(SILENT_S)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        super().handle(sock, address)
