from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from voicebench.errors import AgentError
from voicebench.protocols.upgrade import Upgrade

PLACE = "the agent at agent:80"


def upgrade(url: str = "ws://agent/talk?key=SECRET", **more) -> Upgrade:
    return Upgrade(parse_uri(url), headers=more.pop("headers", {}), place=PLACE, **more)


def answer_to(request: bytes, **more) -> bytes:
    server = ServerProtocol(**more)
    server.receive_data(request)
    (event,) = server.events_received()
    server.send_response(server.accept(event))
    return b"".join(server.data_to_send())


def test_the_request_carries_path_query_and_our_headers():
    request = upgrade(headers={"X-Call": "7", "Host": "other"}).request.decode()
    assert request.startswith("GET /talk?key=SECRET HTTP/1.1\r\n")
    assert "\r\nX-Call: 7\r\n" in request
    assert "\r\nHost: other\r\n" in request
    assert "agent" not in request.split("\r\n", 1)[1]
    assert "Sec-WebSocket-Extensions" not in request


def test_user_info_becomes_basic_authorization():
    assert "Authorization: Basic dTpw" in upgrade("ws://u:p@agent/").request.decode()


@given(st.lists(st.integers(0, 200)))
def test_it_opens_however_the_answer_is_cut_and_keeps_what_comes_behind(cuts: list[int]):
    handshake = upgrade()
    stream = answer_to(handshake.request) + b"\x82\x02ab"
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    opened, late = False, b""
    for start, stop in itertools.pairwise(edges):
        if opened:
            late += stream[start:stop]
        else:
            opened = handshake.receive(stream[start:stop])
    assert opened
    assert handshake.protocol.state is State.OPEN
    assert handshake.leftover + late == b"\x82\x02ab"


@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", "auth", "401 (Unauthorized)"),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\n", "auth", "403 (Forbidden)"),
        (b"HTTP/1.1 429 Slow down\r\n\r\n", "limited", "429"),
        (b"HTTP/1.1 503\r\n\r\n", "limited", "503"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>", "handshake", "200 (OK)"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "handshake", "path"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://x/?token=SECRET\r\n\r\n", "handshake", "302"),
        (b"HTTP/1.1 101 Fine\r\n\r\n", "handshake", "without upgrading"),
        (
            b"HTTP/1.1 101 Fine\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            "handshake",
            "Sec-WebSocket-Accept",
        ),
        (b"HTTP/2 101 Fine\r\n\r\n", "handshake", "HTTP/1.1"),
        (b"SSH-2.0-OpenSSH\r\n", "handshake", "does not speak HTTP"),
        (b"\x15\x03\x01\x00\x02", "handshake", "does not speak HTTP"),
        (b"HTTP/1.1 101 X\r\n" + b"A: b\r\n" * 20_000, "handshake", "does not speak HTTP"),
        (b"", "dropped", "without answering"),
    ],
)
def test_a_refusal_names_its_reason_before_any_body_comes(answer: bytes, reason: str, words: str):
    with pytest.raises(AgentError) as caught:
        upgrade().receive(answer)
    assert caught.value.reason == reason
    assert PLACE in str(caught.value)
    assert words in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_a_wrong_accept_header_is_no_websocket_and_its_value_is_not_repeated():
    handshake = upgrade()
    with pytest.raises(AgentError, match="Sec-WebSocket-Accept") as caught:
        handshake.receive(answer_to(upgrade().request))
    assert caught.value.reason == "handshake"
    assert "=" not in str(caught.value)


def test_an_offered_sub_protocol_is_taken():
    handshake = upgrade(subprotocols=("pcm16", "pcm8"))
    assert handshake.receive(answer_to(handshake.request, subprotocols=["pcm8"]))
    assert handshake.protocol.subprotocol == "pcm8"


def test_a_sub_protocol_that_was_not_offered_fails_the_handshake():
    handshake = upgrade(subprotocols=("pcm16",))
    wrong = answer_to(handshake.request).replace(b"\r\n\r\n", b"\r\nSec-WebSocket-Protocol: other\r\n\r\n")
    with pytest.raises(AgentError, match="pcm16") as caught:
        handshake.receive(wrong)
    assert caught.value.reason == "handshake"


@given(st.binary(max_size=200), st.booleans())
def test_no_answer_raises_anything_but_an_agent_error(data: bytes, framed: bool):
    with contextlib.suppress(AgentError):
        upgrade().receive(b"HTTP/1.1 101 X\r\n" + data + b"\r\n\r\n" if framed else data)
