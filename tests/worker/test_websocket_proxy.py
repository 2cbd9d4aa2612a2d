"""Through the proxies of the environment: tunnels, refusals, and when there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import gevent.socket
import pytest
import trustme

from tests.support.sockets import SESSION, accepting, calling, listening, read_head, transport, until_closed
from voicebench.errors import AdapterError, AgentError
from voicebench.worker.adapters.proxy import HttpProxy, proxy_for, tunnel_opened


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


class Tunnels:
    """A CONNECT proxy that leads every name to one port of this machine, and keeps the requests."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[bytes] = []

    def __call__(self, sock: Any) -> None:
        self.requests.append(read_head(sock))
        with gevent.socket.create_connection(("127.0.0.1", self.port)) as agent:
            sock.sendall(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
            back = gevent.spawn(self.copy, agent, sock)
            self.copy(sock, agent)
            back.join(timeout=2)

    @staticmethod
    def copy(source: Any, sink: Any) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(gevent.socket.SHUT_WR)
        except OSError:
            pass


@pytest.fixture
def tunnelled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tunnels]:
    with listening(accepting()) as agent_port:
        tunnels = Tunnels(agent_port)
        with listening(tunnels) as proxy_port:
            monkeypatch.setenv("http_proxy", f"http://me:p%40ss@127.0.0.1:{proxy_port}")
            yield tunnels


@pytest.mark.slow
def test_a_session_goes_through_the_proxy_which_resolves_the_name(tunnelled: Tunnels):
    with calling(transport("ws://agent.test:8765/talk")):
        pass
    (request,) = tunnelled.requests
    assert request.startswith(b"CONNECT agent.test:8765 HTTP/1.1\r\nHost: agent.test:8765\r\n")
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in request


@pytest.mark.slow
def test_tls_goes_through_the_tunnel_end_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    import gevent.ssl

    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = gevent.ssl.SSLContext(gevent.ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("agent.test").configure_cert(context)

    def handle(sock: Any) -> None:
        with context.wrap_socket(sock, server_side=True) as tls:
            accepting()(tls)

    with listening(handle) as agent_port:
        tunnels = Tunnels(agent_port)
        with listening(tunnels) as proxy_port:
            monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{proxy_port}")
            with calling(transport("wss://agent.test/", ca_file=str(tmp_path / "ca.pem"))):
                pass
    assert tunnels.requests[0].startswith(b"CONNECT agent.test:443 HTTP/1.1\r\n")


@pytest.mark.slow
def test_no_proxy_leads_straight_to_the_agent(tunnelled: Tunnels, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with calling(transport(f"ws://127.0.0.1:{tunnelled.port}")):
        pass
    assert tunnelled.requests == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "reason"),
    [("407 Proxy Authentication Required", "auth"), ("502 Bad Gateway", "refused"), ("405 No", "handshake")],
)
def test_a_proxy_that_refuses_has_its_reason(status: str, reason: str, monkeypatch: pytest.MonkeyPatch):
    def handle(sock: Any) -> None:
        read_head(sock)
        sock.sendall(f"HTTP/1.1 {status}\r\n\r\n".encode())
        until_closed(sock)

    with listening(handle) as port:
        monkeypatch.setenv("http_proxy", f"http://me:SECRET@127.0.0.1:{port}")
        with pytest.raises(AgentError) as caught:
            transport("ws://agent.test/").open(SESSION)
    assert caught.value.reason == reason
    assert f"the proxy 127.0.0.1:{port}" in str(caught.value)
    assert "SECRET" not in str(caught.value)


@pytest.mark.slow
def test_a_proxy_that_does_not_answer_times_out(monkeypatch: pytest.MonkeyPatch):
    with listening(until_closed) as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        with pytest.raises(AgentError, match=r"opened no tunnel within 0\.1 s") as caught:
            transport("ws://agent.test/", connect_timeout_s=0.1).open(SESSION)
    assert caught.value.reason == "timeout"


@pytest.mark.slow
def test_a_proxy_that_hangs_up_is_dropped(monkeypatch: pytest.MonkeyPatch):
    with listening(read_head) as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        with pytest.raises(AgentError) as caught:
            transport("ws://agent.test/").open(SESSION)
    assert caught.value.reason == "dropped"


@pytest.mark.parametrize(
    ("environment", "secure", "expected"),
    [
        ({}, False, None),
        ({"http_proxy": "http://p:1"}, False, ("p", 1)),
        ({"http_proxy": "http://p:1"}, True, None),
        ({"https_proxy": "http://p:2"}, True, ("p", 2)),
        ({"HTTPS_PROXY": "http://p:2/"}, True, ("p", 2)),
        ({"all_proxy": "http://p:3"}, True, ("p", 3)),
        ({"all_proxy": "http://p:3", "http_proxy": "http://q"}, False, ("q", 80)),
        ({"http_proxy": "p:4"}, False, ("p", 4)),
        ({"http_proxy": "http://p:1", "no_proxy": "*"}, False, None),
        ({"http_proxy": "http://p:1", "NO_PROXY": "other, .test"}, False, None),
        ({"http_proxy": "http://p:1", "no_proxy": "agent.test:81"}, False, ("p", 1)),
        ({"http_proxy": "http://p:1", "no_proxy": "agent.test:80"}, False, None),
        ({"http_proxy": ""}, False, None),
    ],
)
def test_the_environment_says_which_proxy(
    environment: dict, secure: bool, expected: tuple | None, monkeypatch: pytest.MonkeyPatch
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    proxy = proxy_for(secure=secure, host="agent.test", port=80)
    assert expected == (proxy and (proxy.host, proxy.port))


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("socks5://user:SECRET@p:1080", "names a socks5 proxy"),
        ("https://p:443", "names a https proxy"),
        ("http://p:notaport", "is no address"),
        ("http://:80", "names no host"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_refused_in_a_sentence(
    address: str, words: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("http_proxy", address)
    with pytest.raises(AdapterError, match=words) as caught:
        transport("ws://agent.test/")
    assert "http_proxy" in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_an_ipv6_agent_is_bracketed_in_the_request():
    assert HttpProxy("p", 1).connect_request("::1", 80).startswith(b"CONNECT [::1]:80 HTTP/1.1\r\nHost: [::1]:80\r\n")


def test_a_proxys_password_is_not_in_its_repr():
    assert "secret" not in repr(HttpProxy("p", 1, "Basic secret"))


@pytest.mark.parametrize("cut", range(1, 40))
def test_an_answer_may_come_in_pieces(cut: int):
    answer = b"HTTP/1.1 200 Connection established\r\n\r\n"
    assert tunnel_opened(answer[:cut], "the proxy p:1") is (cut >= len(answer))
