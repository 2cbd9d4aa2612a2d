"""TCP to the agent under gevent: names, addresses, time-outs and proxies, each failure with its one reason."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket as native_socket
from typing import Any, Final

import gevent
import gevent.monkey
import gevent.socket

from voicebench.clock import monotonic_s
from voicebench.errors import AgentError, TesterError
from voicebench.worker.adapters.proxy import HttpProxy, tunnel_opened

SEND_BUFFER_BYTES: Final = 32 * 1024
"""Small, so that an agent that stops reading is noticed after a second of audio and not after two minutes."""
READ_BYTES: Final = 65536

# What this machine has run out of; blaming the agent for it would be a false finding.
OURS: Final = {
    errno.EMFILE: "file descriptors (raise `ulimit -n`)",
    errno.ENFILE: "file descriptors of the whole system (fs.file-max)",
    errno.EADDRNOTAVAIL: "local ports (widen net.ipv4.ip_local_port_range, or add workers on other machines)",
    errno.ENOBUFS: "network buffers",
    errno.ENOMEM: "memory",
}


RESOLVER_DESCRIPTORS: Final = 8
"""So many files and sockets the resolver may want at a time."""


class Deadline:
    """A time-out that spans several steps."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._due_s = monotonic_s() + timeout_s

    def left_s(self) -> float:
        """What is left of it, at least a millisecond: a step that finds its data ready still succeeds."""
        return max(0.001, self._due_s - monotonic_s())


def place_of(host: str, port: int) -> str:
    """An agent's address as people read it.

    >>> place_of("::1", 80)
    '[::1]:80'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def connect_tcp(host: str, port: int, *, deadline: Deadline, place: str, proxy: HttpProxy | None = None) -> Any:
    """A connected gevent socket to the agent, or a tunnel to it through the proxy.

    Args:
        host, port: The agent; with a proxy its name is resolved there.
        deadline: For all of it: name, connection, tunnel.
        place: Names the agent in errors.

    Raises:
        AgentError: `refused`, `timeout` or, from a proxy, `auth`, `limited`, `handshake`, `dropped`.
        TesterError: This machine ran out of ports, file descriptors or memory.
    """
    if proxy is None:
        return _connect(host, port, deadline, place)
    proxy_place = f"the proxy {place_of(proxy.host, proxy.port)}"
    sock = _connect(proxy.host, proxy.port, deadline, proxy_place)
    try:
        _open_tunnel(sock, proxy.connect_request(host, port), deadline, proxy_place)
    except BaseException:
        sock.close()
        raise
    return sock


class PlainWire:
    """The handshake's side of a connection without TLS; `tls.TlsWire` has the same steps."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Send it all. Raises OSError, TimeoutError."""
        send_all(self._sock, data, deadline)

    def receive(self, deadline: Deadline) -> bytes:
        """The next bytes; b"" at the end. Raises OSError, TimeoutError."""
        return read_some(self._sock, deadline)


def read_some(sock: Any, deadline: Deadline) -> bytes:
    """The next bytes from a gevent socket; b"" at its end. Raises OSError, and TimeoutError at the deadline."""
    sock.settimeout(deadline.left_s())
    data: bytes = sock.recv(READ_BYTES)
    return data


def send_all(sock: Any, data: bytes, deadline: Deadline) -> None:
    """Send it all on a gevent socket. Raises OSError, and TimeoutError at the deadline."""
    sock.settimeout(deadline.left_s())
    sock.sendall(data)


def agent_error(error: OSError, place: str) -> AgentError | TesterError:
    """An error of a connected socket during a handshake, in terms of whose fault it is."""
    if error.errno in OURS:
        return TesterError(f"this machine is out of {OURS[error.errno]}: {place} could not be called")
    return AgentError("dropped", f"{place} broke the connection during the handshake: {_words(error)}")


def native(sock: Any) -> native_socket.socket:
    """The same connection as a native, non-blocking socket; the gevent one is void afterwards."""
    plain: native_socket.socket = gevent.monkey.get_original("socket", "socket")(fileno=sock.detach())
    plain.setblocking(False)
    return plain


def _connect(host: str, port: int, deadline: Deadline, place: str) -> Any:
    addresses = _resolve(host, port, deadline, place)
    failure: OSError | None = None
    for number, (family, address) in enumerate(addresses):
        # A name's first address may be a black hole (IPv6 without a route): leave time for the others.
        share_s = deadline.left_s() / (len(addresses) - number)
        try:
            return _connect_to(family, address, share_s)
        except OSError as error:
            failure = error
    assert failure is not None
    raise _connect_error(failure, place, deadline.timeout_s) from failure


def _connect_to(family: int, address: tuple[Any, ...], timeout_s: float) -> Any:
    sock = gevent.socket.socket(family, native_socket.SOCK_STREAM)
    try:
        sock.setsockopt(native_socket.IPPROTO_TCP, native_socket.TCP_NODELAY, 1)
        sock.setsockopt(native_socket.SOL_SOCKET, native_socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        sock.settimeout(timeout_s)
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _resolve(host: str, port: int, deadline: Deadline, place: str) -> list[tuple[int, tuple[Any, ...]]]:
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:  # no name, so no trip to the resolver's thread
        family = native_socket.AF_INET if number.version == 4 else native_socket.AF_INET6
        return [(family, (host, port))]
    try:
        with gevent.Timeout(deadline.left_s(), TimeoutError()):
            found = gevent.socket.getaddrinfo(host, port, type=native_socket.SOCK_STREAM)
    except TimeoutError as error:
        raise AgentError(
            "timeout", f"{place}: the name was not resolved within {deadline.timeout_s:g} s: check the DNS server"
        ) from error
    except (OSError, UnicodeError) as error:
        ours = error if isinstance(error, OSError) and error.errno in OURS else _resolvers_need()
        if ours is not None:
            raise agent_error(ours, place) from error
        raise AgentError(
            "refused", f"{place}: the host's name can't be resolved ({_words(error)}): check its spelling, and DNS"
        ) from error
    return [(family, address) for family, _, _, _, address in found]


def _resolvers_need() -> OSError | None:
    """What this machine lacks of what resolving a name takes; None: nothing.

    A resolver that can't open /etc/hosts or a socket may say what it also says of a name that does not exist.
    """
    held: list[int] = []
    try:
        while len(held) < RESOLVER_DESCRIPTORS:
            held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error
    finally:
        for descriptor in held:
            os.close(descriptor)
    return None


def _connect_error(error: OSError, place: str, timeout_s: float) -> AgentError | TesterError:
    if error.errno in OURS:
        return TesterError(f"this machine is out of {OURS[error.errno]}: {place} could not be called")
    if isinstance(error, TimeoutError):  # ours, or the kernel's ETIMEDOUT
        return AgentError(
            "timeout", f"{place}: no connection within {timeout_s:g} s: check host, port and firewalls on the way"
        )
    if isinstance(error, ConnectionRefusedError):
        return AgentError("refused", f"{place} refused the connection: is the agent running, and on this port?")
    return AgentError("refused", f"{place} can't be reached: {_words(error)}")


def _open_tunnel(sock: Any, request: bytes, deadline: Deadline, proxy_place: str) -> None:
    answer = b""
    try:
        send_all(sock, request, deadline)
        while not tunnel_opened(answer, proxy_place):
            data = read_some(sock, deadline)
            if not data:
                raise AgentError("dropped", f"{proxy_place} closed the connection without answering CONNECT")
            answer += data
    except TimeoutError as error:
        raise AgentError(
            "timeout", f"{proxy_place} opened no tunnel within {deadline.timeout_s:g} s: can it reach the agent?"
        ) from error
    except OSError as error:
        raise agent_error(error, proxy_place) from error


def _words(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text)
