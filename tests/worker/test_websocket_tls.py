"""wss against a real TLS server: verification, client certificates, and the conversation through memory buffers."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any

import gevent.ssl
import numpy as np
import pytest
import trustme

from tests.support.sockets import SESSION, accepting, calling, listening, read_head, transport, until_closed
from voicebench.errors import AdapterError, AgentError
from voicebench.events import AgentAudio, AgentClosed
from voicebench.mock_server import serve
from voicebench.protocols.frames import server_frame
from voicebench.scenario.adapter_options import MockOptions
from voicebench.worker.adapters.base import LiveSocket
from voicebench.worker.adapters.tls import TlsLine

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(ca: trustme.CA, tmp_path: Path) -> str:
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    return str(tmp_path / "ca.pem")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


def server_context(ca: trustme.CA, *names: str) -> Any:
    context = gevent.ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(*(names or ("127.0.0.1",))).configure_cert(context)
    return context


def secured(context: Any, handle: Any) -> Any:
    def handle_tls(sock: Any) -> None:
        with context.wrap_socket(sock, server_side=True) as tls:
            handle(tls)

    return handle_tls


def failure(url: str, **options: Any) -> AgentError:
    with pytest.raises(AgentError) as caught:
        transport(url, **options).open(SESSION)
    return caught.value


def test_a_conversation_with_the_mock_agent_over_tls(ca: trustme.CA, ca_file: str):
    options = MockOptions(greeting_ms=200)
    server = serve("127.0.0.1", 0, sample_rate_hz=16000, options=options, ssl=server_context(ca))
    try:
        assert server.url.startswith("wss://")
        to = transport(server.url, ca_file=ca_file)
        ready = to.ready_frame(np.zeros(320, dtype=np.int16))
        with calling(to) as caller:
            assert isinstance(caller.live.line, TlsLine)
            for _ in range(10):
                caller.send(caller.live.line.wrap(ready))
            events = caller.listen_until(lambda events: sum(len(event.samples) for event in events) >= 3200)
            assert {type(event) for event in events} == {AgentAudio}
            caller.send(caller.live.line.hang_up())
            (closed,) = [event for event in caller.listen_until(lambda _: False) if isinstance(event, AgentClosed)]
            assert closed.code == 1000
            assert caller.live.line.failure is None
    finally:
        server.stop()


def test_with_a_mask_of_its_own_for_every_frame_too(ca: trustme.CA, ca_file: str):
    options = MockOptions(greeting_ms=100)
    server = serve("127.0.0.1", 0, sample_rate_hz=16000, options=options, ssl=server_context(ca))
    try:
        to = transport(server.url, ca_file=ca_file, mask_per_session=True)
        with calling(to) as caller:
            caller.send(caller.live.line.wrap(to.ready_frame(np.zeros(320, dtype=np.int16))))
            assert caller.listen_until(lambda events: events)
    finally:
        server.stop()


def test_a_greeting_in_the_records_of_the_handshake_is_heard_at_time_zero(ca: trustme.CA, ca_file: str):
    # 40 kB are three records: one comes with the handshake's answer, the others may be read with it undecrypted.
    handle = secured(server_context(ca), accepting(server_frame(bytes(40_000))))
    with listening(handle) as port, calling(transport(f"wss://127.0.0.1:{port}", ca_file=ca_file)) as caller:
        (audio,) = caller.listen_until(lambda events: events)
        assert len(audio.samples) == 20_000


def test_an_unknown_ca_fails_the_handshake_and_says_what_to_do(ca: trustme.CA):
    with listening(secured(server_context(ca), until_closed)) as port:
        error = failure(f"wss://127.0.0.1:{port}")
    assert error.reason == "handshake"
    assert "ca_file" in str(error)


def test_the_wrong_ca_fails_the_handshake(ca: trustme.CA, tmp_path: Path):
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    with listening(secured(server_context(ca), until_closed)) as port:
        assert failure(f"wss://127.0.0.1:{port}", ca_file=str(tmp_path / "other.pem")).reason == "handshake"


def test_a_certificate_for_another_host_fails_the_handshake(ca: trustme.CA, ca_file: str):
    with listening(secured(server_context(ca, "agent.example"), until_closed)) as port:
        error = failure(f"wss://127.0.0.1:{port}", ca_file=ca_file)
    assert error.reason == "handshake"
    assert "name the certificate is for" in str(error)


def test_the_servers_name_is_told_to_the_server(ca: trustme.CA, ca_file: str):
    told = []
    context = server_context(ca, "localhost")
    context.sni_callback = lambda _sock, name, _context: told.append(name)
    with (
        listening(secured(context, accepting())) as port,
        calling(transport(f"wss://localhost:{port}", ca_file=ca_file)),
    ):
        pass
    assert told == ["localhost"]


def test_a_client_certificate_is_shown(ca: trustme.CA, ca_file: str, tmp_path: Path):
    context = server_context(ca)
    context.verify_mode = ssl.CERT_REQUIRED
    ca.configure_trust(context)
    shown = []

    def handle(tls: Any) -> None:
        shown.append(tls.getpeercert()["subjectAltName"])
        accepting()(tls)

    mine = ca.issue_cert("tester@example.org")
    mine.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    mine.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    mine.private_key_pem.write_to_path(tmp_path / "key.pem")
    one_file = {"client_cert_file": str(tmp_path / "both.pem")}
    two_files = {"client_cert_file": str(tmp_path / "cert.pem"), "client_key_file": str(tmp_path / "key.pem")}
    with listening(secured(context, handle)) as port:
        for files in (one_file, two_files):
            with calling(transport(f"wss://127.0.0.1:{port}", ca_file=ca_file, **files)):
                pass
    assert shown == [(("email", "tester@example.org"),)] * 2


def test_a_missing_client_certificate_fails_the_handshake_and_names_the_option(ca: trustme.CA, ca_file: str):
    context = server_context(ca)
    context.verify_mode = ssl.CERT_REQUIRED
    ca.configure_trust(context)
    with listening(secured(context, until_closed)) as port:
        error = failure(f"wss://127.0.0.1:{port}", ca_file=ca_file)
    assert error.reason == "handshake"
    assert "client_cert_file" in str(error)


def test_a_key_that_does_not_fit_is_found_before_the_first_session(ca: trustme.CA, tmp_path: Path):
    ca.issue_cert("a@b.org").cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    ca.issue_cert("a@b.org").private_key_pem.write_to_path(tmp_path / "key.pem")
    with pytest.raises(AdapterError, match="client_cert_file"):
        transport("wss://host/", client_cert_file=str(tmp_path / "cert.pem"), client_key_file=str(tmp_path / "key.pem"))


def test_tls_to_a_plain_server_is_a_handshake_failure_that_says_so():
    def handle(sock: Any) -> None:
        sock.recv(1000)
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with listening(handle) as port:
        error = failure(f"wss://127.0.0.1:{port}")
    assert error.reason == "handshake"
    assert "ws:// instead of wss://" in str(error)


def test_plain_to_a_tls_server_is_a_failure_with_a_hint(ca: trustme.CA):
    with listening(secured(server_context(ca), until_closed)) as port:
        error = failure(f"ws://127.0.0.1:{port}")
    assert error.reason in ("handshake", "dropped")


def test_a_server_that_never_shakes_hands_times_out():
    with listening(until_closed) as port:
        error = failure(f"wss://127.0.0.1:{port}", connect_timeout_s=0.2)
    assert error.reason == "timeout"
    assert "TLS" in str(error)


def test_a_server_that_closes_during_the_tls_handshake_is_dropped():
    with listening(lambda sock: sock.recv(10_000)) as port:
        assert failure(f"wss://127.0.0.1:{port}").reason == "dropped"


def test_an_upgrade_refused_under_tls_has_its_reason(ca: trustme.CA, ca_file: str):
    def handle(tls: Any) -> None:
        read_head(tls)
        tls.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        until_closed(tls)

    with listening(secured(server_context(ca), handle)) as port:
        assert failure(f"wss://127.0.0.1:{port}", ca_file=ca_file).reason == "auth"


def open_then(ca: trustme.CA, ca_file: str, use: Any) -> None:
    with (
        listening(secured(server_context(ca), accepting())) as port,
        calling(transport(f"wss://127.0.0.1:{port}", ca_file=ca_file)) as caller,
    ):
        use(caller.live)


def test_bytes_that_are_no_tls_end_the_line_with_reason_protocol(ca: trustme.CA, ca_file: str):
    def use(live: LiveSocket) -> None:
        (closed,) = live.line.receive(b"\x17\x03\x03\x00\x20" + bytes(32), 1.0)
        assert (closed.reason, closed.time_s) == ("protocol", 1.0)
        assert live.line.closed
        assert live.line.failure is not None
        assert live.line.receive(b"more", 2.0) == []
        assert live.line.outgoing()  # the alert that tells the agent so
        assert live.line.wrap(b"frame") == b""

    open_then(ca, ca_file, use)


def test_an_end_without_close_under_tls_is_dropped(ca: trustme.CA, ca_file: str):
    def use(live: LiveSocket) -> None:
        (closed,) = live.line.receive(b"", 1.0)
        assert closed.reason == "dropped"
        assert live.line.closed
        assert live.line.broken("again", 1.0) == []

    open_then(ca, ca_file, use)
