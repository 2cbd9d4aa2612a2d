"""The WebSocket transport against real sockets: what opens, what fails, and with which reason."""

from __future__ import annotations

import errno
import os
import select
import socket
from typing import Any

import gevent
import gevent.socket
import numpy as np
import pytest
from websockets.frames import Close, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from tests.support.sockets import SESSION, accepting, calling, listening, read_head, reset, transport, until_closed
from voicebench import errors
from voicebench.errors import AdapterError, AgentError
from voicebench.events import AgentAudio, AgentClear, AgentClosed
from voicebench.protocols.frames import server_frame
from voicebench.worker.adapters import connect

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


def failure(url: str, **options: Any) -> AgentError:
    with pytest.raises(AgentError) as caught:
        transport(url, **options).open(SESSION)
    return caught.value


def close_frame(code: int) -> bytes:
    return server_frame(Close(code, "").serialize(), Opcode.CLOSE)


class Agent:
    """Accepts, and keeps what it was sent: the request and all frames."""

    def __init__(self) -> None:
        self.request = b""
        self.frames: list = []

    def __call__(self, sock: Any) -> None:
        protocol = ServerProtocol(max_size=None)
        self.request = read_head(sock)
        protocol.receive_data(self.request)
        protocol.send_response(protocol.accept(protocol.events_received()[0]))
        while protocol.state is not State.CLOSED:
            data = b"".join(protocol.data_to_send())
            if data:
                sock.sendall(data)
            if protocol.state is State.CLOSING:
                break
            data = sock.recv(65536)
            if not data:
                break
            protocol.receive_data(data)
            self.frames += protocol.events_received()


def test_a_live_socket_is_native_non_blocking_and_tuned():
    with listening(accepting()) as port, calling(transport(f"ws://127.0.0.1:{port}")) as caller:
        sock = caller.live.sock
        assert type(sock) is socket.socket
        assert sock.getblocking() is False
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        # The kernel doubles what was asked for.
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * connect.SEND_BUFFER_BYTES


def test_ready_frames_and_start_message_arrive_as_they_should():
    agent = Agent()
    with listening(agent) as port:
        to = transport(
            f"ws://127.0.0.1:{port}/talk/{{session_number}}?id={{session_id}}",
            headers={"X-Call": "{session_id}"},
            start_message={"call": "{session_id}"},
        )
        with calling(to) as caller:
            caller.send(caller.live.line.wrap(to.ready_frame(np.arange(320, dtype=np.int16))))
    assert agent.request.startswith(b"GET /talk/1?id=s-1 HTTP/1.1\r\n")
    assert b"\r\nX-Call: s-1\r\n" in agent.request
    assert b"\r\nUser-Agent: voicebench/" in agent.request
    start, audio, goodbye = agent.frames
    assert bytes(start.data) == b'{"sample_rate": 16000, "call": "s-1"}'
    assert np.frombuffer(audio.data, "<i2").tolist() == list(range(320))
    assert bytes(goodbye.data) == b"\x03\xe8"


def test_without_a_start_message_the_first_thing_sent_is_audio():
    agent = Agent()
    with listening(agent) as port:
        to = transport(f"ws://127.0.0.1:{port}", mask_per_session=True)
        with calling(to) as caller:
            ready = to.ready_frame(np.arange(320, dtype=np.int16))
            caller.send(caller.live.line.wrap(ready) + caller.live.line.wrap(ready))
    first, second, _ = agent.frames
    assert first.opcode is Opcode.BINARY
    assert bytes(first.data) == bytes(second.data)


def test_the_users_headers_replace_ours():
    agent = Agent()
    with listening(agent) as port, calling(transport(f"ws://127.0.0.1:{port}", headers={"user-agent": "me"})):
        pass
    assert agent.request.lower().count(b"user-agent:") == 1
    assert b"user-agent: me" in agent.request


def test_what_comes_with_the_handshake_is_heard_at_time_zero_and_pings_are_answered():
    got = []
    greeting = (
        server_frame(bytes(640)),
        server_frame(b"hello?", Opcode.PING),
        server_frame(b'{"type":"clear"}', Opcode.TEXT),
    )
    answering = accepting(*greeting, server_frame(bytes(640))[:100], then=lambda sock: got.append(sock.recv(100)))
    with listening(answering) as port, calling(transport(f"ws://127.0.0.1:{port}")) as caller:
        audio, clear = caller.live.early
        assert isinstance(audio, AgentAudio)
        assert audio.time_s == 0.0
        assert clear == AgentClear(0.0)
        caller.listen_until(lambda _: got)
    protocol = ServerProtocol(state=State.OPEN)
    protocol.receive_data(got[0])
    (pong,) = protocol.events_received()
    assert (pong.opcode, bytes(pong.data)) == (Opcode.PONG, b"hello?")


@pytest.mark.parametrize(
    ("code", "reason"), [(1000, "agent_hangup"), (1001, "agent_hangup"), (1011, "dropped"), (1013, "limited")]
)
def test_a_close_by_the_agent_has_its_reason(code: int, reason: str):
    def talk_then_close(sock: Any) -> None:
        sock.recv(10)
        sock.sendall(server_frame(bytes(640)) + close_frame(code))
        until_closed(sock)

    with listening(accepting(then=talk_then_close)) as port:
        to = transport(f"ws://127.0.0.1:{port}")
        with calling(to) as caller:
            caller.send(to.ready_frame(np.zeros(320, dtype=np.int16)))
            events = caller.listen_until(lambda _: False)
    assert [type(event) for event in events] == [AgentAudio, AgentClosed]
    assert events[-1].reason == reason
    assert caller.live.line.failure.reason == reason


def test_a_close_right_behind_the_handshake_fails_the_opening():
    with listening(accepting(close_frame(1013))) as port:
        error = failure(f"ws://127.0.0.1:{port}")
    assert error.reason == "limited"
    assert "1013 (try again later)" in str(error)


def test_a_reset_in_the_conversation_is_dropped():
    with listening(accepting(then=reset)) as port, calling(transport(f"ws://127.0.0.1:{port}")) as caller:
        caller.listen_until(lambda _: False)
        assert caller.live.line.failure.reason == "dropped"


def answering(answer: bytes) -> Any:
    def handle(sock: Any) -> None:
        read_head(sock)
        sock.sendall(answer)
        until_closed(sock)  # the connection stays open: a refusal must not wait for its end

    return handle


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", "auth"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "auth"),
        (b"HTTP/1.1 429 Too Many Requests\r\n\r\n", "limited"),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "limited"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "handshake"),
        (b"220 mail.example ESMTP\r\n", "handshake"),
        (bytes(range(256)), "handshake"),
    ],
)
def test_a_refused_upgrade_has_its_reason_and_tells_no_secret(answer: bytes, reason: str):
    with listening(answering(answer)) as port:
        error = failure(f"ws://me:SECRET@127.0.0.1:{port}/?key=SECRET", headers={"Authorization": "Bearer SECRET"})
    assert error.reason == reason
    assert f"127.0.0.1:{port}" in str(error)
    assert "SECRET" not in str(error)


def test_an_agent_that_hangs_up_instead_of_answering_is_dropped():
    with listening(read_head) as port:
        assert failure(f"ws://127.0.0.1:{port}").reason == "dropped"


def test_an_agent_that_resets_instead_of_answering_is_dropped():
    def handle(sock: Any) -> None:
        read_head(sock)
        reset(sock)

    with listening(handle) as port:
        error = failure(f"ws://127.0.0.1:{port}")
    assert error.reason == "dropped"
    assert "reset" in str(error)


def test_an_agent_that_never_answers_the_upgrade_times_out():
    with listening(until_closed) as port:
        error = failure(f"ws://127.0.0.1:{port}", handshake_timeout_s=0.1)
    assert error.reason == "timeout"
    assert "did not answer the WebSocket upgrade within 0.1 s" in str(error)


def test_an_agent_that_answers_byte_by_byte_times_out_as_well():
    def drip(sock: Any) -> None:
        for byte in b"HTTP/1.1 101 Switching Protocols and so on":
            sock.sendall(bytes([byte]))
            gevent.sleep(0.02)

    with listening(drip) as port:
        assert failure(f"ws://127.0.0.1:{port}", handshake_timeout_s=0.15).reason == "timeout"


def test_a_port_where_nobody_listens_is_refused():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        error = failure(f"ws://127.0.0.1:{unused.getsockname()[1]}")
    assert error.reason == "refused"
    assert "is the agent running" in str(error)


def test_a_connection_that_is_never_accepted_times_out():
    # A full backlog: the kernel leaves further SYNs unanswered.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        waiting = [gevent.socket.socket() for _ in range(3)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
        gevent.sleep(0.05)
        error = failure(f"ws://127.0.0.1:{port}", connect_timeout_s=0.2)
        for sock in waiting:
            sock.close()
    assert error.reason == "timeout"
    assert "no connection within 0.2 s" in str(error)


def test_an_unknown_name_is_refused(monkeypatch: pytest.MonkeyPatch):
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(gevent.socket, "getaddrinfo", unknown)
    error = failure("ws://agent.invalid:80/")
    assert error.reason == "refused"
    assert "agent.invalid:80" in str(error)
    assert "Name or service not known" in str(error)


def test_a_name_that_the_resolver_had_no_descriptors_for_is_our_own_failure(monkeypatch: pytest.MonkeyPatch):
    """What it says then is what it says of a name that does not exist."""

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(gevent.socket, "getaddrinfo", unknown)
    monkeypatch.setattr(connect.os, "open", none_left)
    with pytest.raises(errors.TesterError, match=r"out of file descriptors .*: agent\.test:80 could not be called"):
        connect.connect_tcp("agent.test", 80, deadline=connect.Deadline(1.0), place="agent.test:80")


def test_a_resolver_that_does_not_answer_times_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gevent.socket, "getaddrinfo", lambda *_, **__: gevent.sleep(10))
    error = failure("ws://agent.invalid:80/", connect_timeout_s=0.1)
    assert error.reason == "timeout"
    assert "not resolved within 0.1 s" in str(error)


def test_the_second_address_of_a_name_is_tried_when_the_first_refuses(monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as unused, listening(accepting()) as port:
        unused.bind(("127.0.0.1", 0))
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", unused.getsockname()),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
        ]
        monkeypatch.setattr(gevent.socket, "getaddrinfo", lambda *_, **__: found)
        with calling(transport(f"ws://agent.test:{port}")):
            pass


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EADDRNOTAVAIL])
def test_what_this_machine_runs_out_of_is_not_the_agents_fault(number: int, monkeypatch: pytest.MonkeyPatch):
    def exhausted(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(connect, "_connect_to", exhausted)
    with pytest.raises(errors.TesterError, match="this machine is out of"):
        transport("ws://127.0.0.1:9/").open(SESSION)


def test_a_failed_opening_leaves_no_socket_behind():
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    with listening(answering(b"HTTP/1.1 503 No\r\n\r\n")) as port:
        to = transport(f"ws://127.0.0.1:{port}")
        with pytest.raises(AgentError):
            to.open(SESSION)
        gevent.sleep(0.05)
        before = descriptors()
        for _ in range(20):
            with pytest.raises(AgentError):
                to.open(SESSION)
        gevent.sleep(0.05)
        assert descriptors() <= before


def test_a_session_that_is_given_up_while_it_connects_leaves_no_socket_behind():
    closed = []

    def handle(sock: Any) -> None:
        until_closed(sock)
        closed.append(True)

    with listening(handle) as port:
        opening = gevent.spawn(transport(f"ws://127.0.0.1:{port}").open, SESSION)
        gevent.sleep(0.05)
        opening.kill()
        gevent.sleep(0.05)
    assert closed == [True]


def test_a_hundred_sessions_open_at_once():
    with listening(accepting(), backlog=256) as port:
        to = transport(f"ws://127.0.0.1:{port}")
        opening = [gevent.spawn(to.open, SESSION) for _ in range(100)]
        gevent.joinall(opening, raise_error=True)
        for greenlet in opening:
            live = greenlet.get()
            live.sock.send(live.line.hang_up())
            live.sock.close()


def test_agent_audio_at_another_rate_is_heard_at_ours():
    with (
        listening(accepting(server_frame(bytes(960)))) as port,
        calling(transport(f"ws://127.0.0.1:{port}", agent_sample_rate=24000)) as caller,
    ):
        (audio,) = caller.listen_until(lambda events: events)
        assert len(audio.samples) == 320


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "ws://user@host/"}, "url"),
        ({"start_message": {"x": float("nan")}}, "start_message"),
        ({"url": "wss://host/", "ca_file": "/no/such/file.pem"}, "ca_file: /no/such/file.pem"),
        ({"url": "wss://host/", "client_cert_file": "/no/cert.pem"}, "client_cert_file: /no/cert.pem"),
    ],
)
def test_what_can_never_work_is_said_before_the_first_session(options: dict, words: str):
    url = options.pop("url", "ws://host/")
    with pytest.raises(AdapterError, match=words):
        transport(url, **options)


def test_nothing_is_readable_before_the_agent_speaks():
    with listening(accepting()) as port, calling(transport(f"ws://127.0.0.1:{port}")) as caller:
        assert select.select([caller.live.sock], [], [], 0)[0] == []
