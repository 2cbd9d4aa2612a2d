from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from voicebench.protocols.frames import MessageReader, client_frame, masked_with, server_frame, whole_binary

PAYLOAD_SIZES = st.sampled_from([0, 1, 125, 126, 640, 65535, 65536, 70001])
MASKS = st.binary(min_size=4, max_size=4)


def server() -> ServerProtocol:
    return ServerProtocol(state=State.OPEN, max_size=None)


def client() -> ClientProtocol:
    return ClientProtocol(parse_uri("ws://agent/"), state=State.OPEN, max_size=None)


def payload_of(n_bytes: int) -> bytes:
    return (bytes(range(251)) * (n_bytes // 251 + 1))[:n_bytes]


@given(PAYLOAD_SIZES, MASKS)
def test_the_library_reads_our_client_frames(n_bytes: int, mask: bytes):
    protocol = server()
    protocol.receive_data(client_frame(payload_of(n_bytes), mask))
    (frame,) = protocol.events_received()
    assert (frame.opcode, bytes(frame.data), frame.fin) == (Opcode.BINARY, payload_of(n_bytes), True)


@given(PAYLOAD_SIZES)
def test_the_library_reads_our_server_frames(n_bytes: int):
    protocol = client()
    protocol.receive_data(server_frame(payload_of(n_bytes)))
    (frame,) = protocol.events_received()
    assert bytes(frame.data) == payload_of(n_bytes)


@given(PAYLOAD_SIZES, MASKS, MASKS)
def test_another_mask_gives_the_frame_that_mask_would_have_given(n_bytes: int, old: bytes, new: bytes):
    assert masked_with(client_frame(payload_of(n_bytes), old), new) == client_frame(payload_of(n_bytes), new)


def in_pieces(first: bytes, second: bytes, third: bytes) -> list[tuple[Opcode, bool, bytes]]:
    """A fragmented message with a ping between its fragments."""
    return [
        (Opcode.BINARY, False, first),
        (Opcode.PING, True, b"!"),
        (Opcode.CONT, False, second),
        (Opcode.CONT, True, third),
    ]


SHORT = st.binary(max_size=200)
FRAMES = st.lists(
    st.one_of(
        st.builds(lambda data: [(Opcode.BINARY, True, data)], st.binary(max_size=300)),
        st.builds(lambda text: [(Opcode.TEXT, True, text.encode())], st.text(max_size=20)),
        st.builds(lambda data: [(Opcode.PING, True, data)], st.binary(max_size=5)),
        st.builds(lambda data: [(Opcode.PONG, True, data)], st.binary(max_size=5)),
        st.builds(in_pieces, SHORT, SHORT, SHORT),
    ),
    max_size=8,
)


@given(FRAMES, st.booleans(), st.data())
def test_messages_do_not_depend_on_how_the_bytes_are_cut(conversation: list, masked: bool, data: st.DataObject):
    frames = [frame for group in conversation for frame in group]
    stream = b"".join(Frame(opcode, body, fin).serialize(mask=masked) for opcode, fin, body in frames)
    expected = [
        (group[0][0], b"".join(body for opcode, _, body in group if opcode is not Opcode.PING or len(group) == 1))
        for group in conversation
        if group[0][0] in (Opcode.BINARY, Opcode.TEXT)
    ]
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
    edges = sorted({0, len(stream), *cuts})
    protocol = server() if masked else client()
    reader = MessageReader(protocol, masked=masked)
    messages = [message for start, stop in itertools.pairwise(edges) for message in reader.feed(stream[start:stop])]
    assert messages == expected
    assert reader.violation is None
    pongs = sum(opcode is Opcode.PING for opcode, _, _ in frames)
    assert len(protocol.data_to_send()) == pongs


def test_every_single_byte_may_come_alone():
    stream = server_frame(payload_of(70000)) + server_frame(b"ab") + server_frame(b"{}", Opcode.TEXT)
    reader = MessageReader(client(), masked=False)
    messages = [message for at in range(len(stream)) for message in reader.feed(stream[at : at + 1])]
    assert messages == [(Opcode.BINARY, payload_of(70000)), (Opcode.BINARY, b"ab"), (Opcode.TEXT, b"{}")]


@pytest.mark.parametrize(
    ("what", "first_bytes", "words"),
    [
        ("text of another protocol", b"HTTP/1.1 200 OK\r\n\r\n", "reserved bits"),
        ("an unknown opcode", bytes([0x83, 0x00]), "opcode"),
        ("a masked frame from a server", client_frame(b"ab", b"1234"), "masking"),
        ("a control frame that is too long", bytes([0x89, 126, 0, 200]), "too long"),
        ("a fragmented ping", bytes([0x09, 0x00]), "fragmented control"),
        ("a continuation of nothing", bytes([0x80, 0x00]), "continuation"),
        ("a new message inside of another", bytes([0x02, 0x00, 0x82, 0x00]), "continuation"),
        ("a close code that must not be sent", bytes([0x88, 0x02, 0x03, 0xED]), "status code"),
        ("half a close code", bytes([0x88, 0x01, 0x03]), "too short"),
    ],
)
def test_a_broken_rule_is_seen_at_once_and_answered_with_a_close(what: str, first_bytes: bytes, words: str):
    protocol = client()
    reader = MessageReader(protocol, masked=False)
    assert reader.feed(first_bytes) == []
    assert words in (reader.violation or ""), what
    assert protocol.data_to_send(), "no close frame to send"
    assert reader.feed(server_frame(b"later")) == []


@given(st.binary(max_size=400), st.booleans())
def test_no_bytes_raise(data: bytes, masked: bool):
    reader = MessageReader(server() if masked else client(), masked=masked)
    reader.feed(data)
    reader.feed(data)


@given(PAYLOAD_SIZES)
def test_a_whole_binary_frame_is_known_by_its_first_bytes(n_bytes: int):
    at = whole_binary(server_frame(payload_of(n_bytes)))
    usual = 2 <= n_bytes <= 65535
    assert server_frame(payload_of(n_bytes))[at:] == payload_of(n_bytes) if usual else at == 0


@given(FRAMES, st.binary(max_size=3), st.integers(0, 400))
def test_what_looks_like_one_binary_frame_is_exactly_that(conversation: list, more: bytes, until: int):
    frames = [frame for group in conversation for frame in group]
    stream = b"".join(Frame(opcode, body, fin).serialize(mask=False) for opcode, fin, body in frames)
    data = (stream + more)[:until]
    at = whole_binary(data)
    if at:
        assert MessageReader(client(), masked=False).feed(data) == [(Opcode.BINARY, data[at:])]
