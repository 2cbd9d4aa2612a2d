"""Where a master listens and workers find it: `HOST`, `HOST:PORT`, `[v6]:PORT`, or what ZeroMQ calls an endpoint."""

from __future__ import annotations

import ipaddress
import re

DEFAULT_PORT = 5557
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")


def to_connect(text: str) -> str:
    """The endpoint a worker connects to.

    Raises:
        ValueError: It is no address; the sentence says what one looks like.

    >>> to_connect("load-1.example"), to_connect("10.0.0.7:6000"), to_connect("[::1]")
    ('tcp://load-1.example:5557', 'tcp://10.0.0.7:6000', 'tcp://[::1]:5557')
    """
    if text.startswith("ipc://"):
        return text
    host, port = _parts(text)
    return f"tcp://{host}:{port}"


def to_bind(text: str) -> str:
    """The endpoint a master listens at: an IP address of the machine.

    Raises:
        ValueError: As `to_connect`; and for a name, since it may mean any of several addresses.

    >>> to_bind("0.0.0.0:5557"), to_bind("localhost")
    ('tcp://0.0.0.0:5557', 'tcp://127.0.0.1:5557')
    """
    if text.startswith("ipc://"):
        return text
    host, port = _parts(text)
    if host == "localhost":
        host = "127.0.0.1"
    if host != "*" and _ip(host) is None:
        raise ValueError(f"{host!r} is a name: give an IP address of this machine, or 0.0.0.0 for all of them")
    return f"tcp://{host}:{port}"


def is_private(endpoint: str) -> bool:
    """Whether only this machine can reach it.

    >>> is_private("tcp://127.0.0.1:5557"), is_private("tcp://0.0.0.0:5557")
    (True, False)
    """
    if endpoint.startswith("ipc://"):
        return True
    ip = _ip(_parts(endpoint)[0])
    return ip is not None and ip.is_loopback


def _parts(text: str) -> tuple[str, str]:
    where = text.removeprefix("tcp://")
    if "/" in where:
        raise ValueError(f"{text!r} is no address: write HOST or HOST:PORT, for instance 10.0.0.7:{DEFAULT_PORT}")
    host, colon, port = where.rpartition(":")
    if not colon or where.endswith("]") or (where.count(":") > 1 and not where.startswith("[")):
        host, port = where, str(DEFAULT_PORT)
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    if not (host in ("*", "localhost") or _ip(host) is not None or _HOST.fullmatch(host)):
        raise ValueError(f"{text!r} is no address: write HOST or HOST:PORT, for instance 10.0.0.7:{DEFAULT_PORT}")
    if not (port == "*" or (port.isdecimal() and 0 <= int(port) <= 65535)):
        raise ValueError(f"{port!r} is no port: a number up to 65535")
    return host, "*" if port == "0" else port


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
