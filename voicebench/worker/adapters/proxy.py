"""The proxies of the environment: `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, in either case."""

from __future__ import annotations

import base64
import re
import urllib.parse
import urllib.request
from dataclasses import dataclass, field

from voicebench.errors import AdapterError, AgentError
from voicebench.protocols.failures import reason_of_proxy_status, status_name

MAX_ANSWER_BYTES = 65536
STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})(?: [^\r\n]*)?\r?\n")
END_OF_HEAD = re.compile(rb"\r?\n\r?\n")


@dataclass(frozen=True, slots=True)
class HttpProxy:
    """An HTTP proxy that opens tunnels (CONNECT)."""

    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)

    def connect_request(self, host: str, port: int) -> bytes:
        """What asks the proxy for a tunnel to the agent."""
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if self.authorization is not None:
            lines.append(f"Proxy-Authorization: {self.authorization}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("iso-8859-1")


def proxy_for(*, secure: bool, host: str, port: int) -> HttpProxy | None:
    """The proxy the environment asks for on the way to an agent; None: straight there.

    ws looks at http_proxy, wss at https_proxy, both then at all_proxy; no_proxy as `urllib.request` reads it.

    Raises:
        AdapterError: The proxy is of a kind that can't be used here, or its address can't be read.
    """
    proxies = urllib.request.getproxies()
    schemes = ("wss", "https", "all") if secure else ("ws", "http", "all")
    name = next((scheme for scheme in schemes if proxies.get(scheme)), None)
    if name is None or urllib.request.proxy_bypass(f"{host}:{port}"):
        return None
    return _parse(proxies[name], f"{name}_proxy")


def tunnel_opened(answer: bytes, proxy_place: str) -> bool:
    """Whether the proxy's answer so far opens the tunnel; False: it is not whole yet.

    Raises:
        AgentError: It refuses (`failures.reason_of_proxy_status`), or is no HTTP proxy.
    """
    if not answer.startswith(b"HTTP/"[: len(answer)]) or len(answer) > MAX_ANSWER_BYTES:
        raise AgentError("handshake", f"{proxy_place} does not speak HTTP: check the proxy settings of the environment")
    if END_OF_HEAD.search(answer) is None:
        return False
    line = STATUS_LINE.match(answer)
    status = int(line[1]) if line else 0
    if 200 <= status < 300:
        return True
    hint = {
        "auth": "put user and password into the proxy's address, or the agent's host into no_proxy",
        "refused": "the proxy can't reach the agent: check host and port, or put the host into no_proxy",
        "limited": "the proxy takes no more connections: put the agent's host into no_proxy to go around it",
    }.get(reason_of_proxy_status(status), "put the agent's host into no_proxy to go around it")
    raise AgentError(
        reason_of_proxy_status(status), f"{proxy_place} answered CONNECT with HTTP {status_name(status)}: {hint}"
    )


def _parse(address: str, variable: str) -> HttpProxy:
    if "://" not in address:
        address = f"http://{address}"
    # Never the address itself in a message: it may hold a password.
    try:
        parsed = urllib.parse.urlsplit(address)
        host, port = parsed.hostname, parsed.port or 80
    except ValueError as error:
        raise AdapterError(f"{variable} in the environment is no address: expected http://HOST:PORT") from error
    if parsed.scheme != "http":
        raise AdapterError(
            f"{variable} in the environment names a {parsed.scheme} proxy; only http:// ones (CONNECT) can be used."
            " Unset it, or put the agent's host into no_proxy"
        )
    if not host:
        raise AdapterError(f"{variable} in the environment names no host: expected http://HOST:PORT")
    return HttpProxy(host, port, _basic(parsed.username, parsed.password))


def _basic(user: str | None, password: str | None) -> str | None:
    if user is None:
        return None
    pair = f"{urllib.parse.unquote(user)}:{urllib.parse.unquote(password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode("ascii")
