from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from voicebench.errors import FAILURE_REASONS
from voicebench.events import AgentAudio, AgentClear, AgentClosed, AgentTranscript
from voicebench.protocols.frames import client_frame, server_frame
from voicebench.protocols.pcm import PcmCodec
from voicebench.protocols.websocket import MAX_TEXT_BYTES, WebSocketLine

PLACE = "the agent at agent:80"


def a_line(**more) -> WebSocketLine:
    protocol = ClientProtocol(parse_uri("ws://agent/"), state=State.OPEN, max_size=None)
    return WebSocketLine(protocol, PcmCodec(agent_rate_hz=16000, session_rate_hz=16000), place=PLACE, **more)


def close_frame(code: int, reason: str = "") -> bytes:
    return server_frame(Close(code, reason).serialize(), Opcode.CLOSE)


def as_server_sees(data: bytes) -> list[Frame]:
    server = ServerProtocol(state=State.OPEN, max_size=None)
    server.receive_data(data)
    return server.events_received()


def drawn(events: list) -> list[tuple]:
    """Events as plain values: arrays don't compare."""
    return [
        ("audio", event.samples.tolist(), event.time_s) if isinstance(event, AgentAudio) else event for event in events
    ]


RECORDED = (
    server_frame(bytes(640))
    + server_frame(b"\x01\x02\x03")  # a cut sample
    + server_frame(b"p", Opcode.PING)
    + server_frame(b"\x04\x05\x00")
    + server_frame(b'{"type":"transcript","role":"user","text":"b\xc3\xa4h"}', Opcode.TEXT)
    + Frame(Opcode.TEXT, b'{"type":', fin=False).serialize(mask=False)
    + server_frame(b"q", Opcode.PING)
    + Frame(Opcode.CONT, b'"clear"}').serialize(mask=False)
    + Frame(Opcode.BINARY, b"\x07", fin=False).serialize(mask=False)
    + Frame(Opcode.CONT, b"\x00").serialize(mask=False)
    + server_frame(bytes(70_000))
    + close_frame(1013, "full")
    + server_frame(b"after the close")
)


def test_a_conversation_becomes_events_in_order():
    line = a_line()
    events = line.receive(RECORDED, 1.5)
    why = f"{PLACE} closed the WebSocket, code 1013 (try again later), saying 'full'"
    assert drawn(events) == [
        ("audio", [0] * 320, 1.5),
        ("audio", [0x0201], 1.5),
        ("audio", [0x0403, 0x0005], 1.5),
        AgentTranscript("user", "bäh", 1.5, True),
        AgentClear(1.5),
        ("audio", [7], 1.5),
        ("audio", [0] * 35_000, 1.5),
        AgentClosed(1.5, 1013, why, "limited"),
    ]
    answers = as_server_sees(line.outgoing())
    assert [(frame.opcode, bytes(frame.data)[:2]) for frame in answers] == [
        (Opcode.PONG, b"p"),
        (Opcode.PONG, b"q"),
        (Opcode.CLOSE, b"\x03\xf5"),
    ]


@given(st.lists(st.integers(0, len(RECORDED)), max_size=20))
def test_events_do_not_depend_on_where_the_stream_is_cut(cuts: list[int]):
    whole, pieces = a_line(), a_line()
    edges = sorted({0, len(RECORDED), *cuts})
    events = [event for start, stop in itertools.pairwise(edges) for event in pieces.receive(RECORDED[start:stop], 0.0)]
    assert drawn(events) == drawn(whole.receive(RECORDED, 0.0))
    assert pieces.closed


def test_events_are_the_same_with_a_cut_at_any_byte():
    whole = drawn(a_line().receive(RECORDED, 0.0))
    # Inside of the long message every place is alike.
    for at in [*range(1, 1000), *range(len(RECORDED) - 100, len(RECORDED))]:
        line = a_line()
        assert drawn(line.receive(RECORDED[:at], 0.0) + line.receive(RECORDED[at:], 0.0)) == whole, f"cut at {at}"


USUAL = RECORDED[:644] * 3 + server_frame(b"ab") + RECORDED + server_frame(bytes(640)) * 2


def hear_quickly(line: WebSocketLine, data: bytes) -> list:
    """As the pacer does: the short way where there is one."""
    samples = line.audio(data)
    return line.receive(data, 0.0) if samples is None else [AgentAudio(samples, 0.0)]


@given(st.lists(st.integers(0, len(USUAL)), max_size=20), st.booleans())
def test_the_short_way_hears_what_the_long_one_does(cuts: list[int], at_frames: bool):
    if at_frames:
        cuts = [*cuts, *range(0, 4 * 644, 644)]
    edges = sorted({0, len(USUAL), *cuts})
    quick, thorough = a_line(), a_line()
    events = [event for start, stop in itertools.pairwise(edges) for event in hear_quickly(quick, USUAL[start:stop])]
    assert drawn(events) == drawn(thorough.receive(USUAL, 0.0))
    assert as_server_sees(quick.outgoing()) == as_server_sees(thorough.outgoing())


def test_a_whole_message_goes_the_short_way_and_nothing_else_does():
    line, whole = a_line(), server_frame(bytes(640))
    assert line.audio(whole) is not None
    assert line.audio(whole + b"\x82") is None
    assert line.audio(server_frame(b"odd")) is None  # half a sample is left over
    line.receive(server_frame(b"odd"), 0.0)
    assert line.audio(whole) is None  # that half begins it
    line.receive(server_frame(b"!"), 0.0)
    assert line.audio(whole) is not None
    line.receive(whole[:3], 0.0)
    assert line.audio(whole) is None  # inside of another frame
    line.receive(whole[3:], 0.0)
    line.receive(Frame(Opcode.BINARY, b"ab", fin=False).serialize(mask=False), 0.0)
    assert line.audio(whole) is None  # inside of another message: it breaks a rule, which `receive` tells
    assert line.receive(whole, 0.0)[0].reason == "protocol"
    assert line.audio(whole) is None  # closed


def test_a_line_that_resamples_or_masks_afresh_has_no_short_way():
    protocol = ClientProtocol(parse_uri("ws://agent/"), state=State.OPEN, max_size=None)
    resampling = WebSocketLine(protocol, PcmCodec(agent_rate_hz=24000, session_rate_hz=16000), place=PLACE)
    assert resampling.audio(server_frame(bytes(960))) is None
    assert a_line().sends_as_is
    assert not a_line(fresh_mask=lambda: b"1234").sends_as_is


@pytest.mark.parametrize(
    ("code", "reason"),
    [(1000, "agent_hangup"), (1001, "agent_hangup"), (1011, "dropped"), (1013, "limited"), (4000, "dropped")],
)
def test_a_close_by_the_agent_is_answered_and_has_a_reason(code: int, reason: str):
    line = a_line()
    (event,) = line.receive(close_frame(code), 2.0)
    assert (event.code, event.reason, event.time_s) == (code, reason, 2.0)
    assert line.failure is not None
    assert line.failure.reason == reason
    assert str(code) in str(line.failure)
    assert line.closed
    (answer,) = as_server_sees(line.outgoing())
    assert answer.opcode is Opcode.CLOSE
    assert line.hang_up() == b""


def test_a_close_without_a_code_is_dropped():
    line = a_line()
    (event,) = line.receive(server_frame(b"", Opcode.CLOSE), 0.0)
    assert (event.code, event.reason) == (1005, "dropped")


def test_an_end_without_a_close_is_dropped():
    line = a_line()
    (event,) = line.receive(b"", 3.0)
    assert (event.code, event.reason) == (None, "dropped")
    assert "without a WebSocket close" in str(line.failure)
    assert line.closed
    assert line.receive(b"", 4.0) == []
    assert line.receive(server_frame(bytes(4)), 4.0) == []
    assert line.outgoing() == b""


def test_an_end_inside_a_message_is_dropped_too():
    line = a_line()
    assert line.receive(server_frame(bytes(640))[:100], 0.0) == []
    assert line.receive(b"", 0.0)[0].reason == "dropped"


def test_a_broken_socket_says_how():
    line = a_line()
    (event,) = line.broken("the agent at agent:80 reset the connection", 1.0)
    assert event.reason == "dropped"
    assert "reset" in event.text
    assert line.broken("again", 2.0) == []


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"HTTP/1.1 500 Oops\r\n", 1002),
        (client_frame(b"ab", b"1234"), 1002),
        (server_frame(b"\xff\xfe", Opcode.TEXT), 1007),
        (server_frame(b"\x03\xe8\xff", Opcode.CLOSE), 1007),
    ],
)
def test_broken_rules_end_the_line_with_reason_protocol(data: bytes, code: int):
    line = a_line()
    (event,) = line.receive(data, 0.5)
    assert (event.code, event.reason) == (code, "protocol")
    assert line.failure is not None
    assert line.failure.reason == "protocol"
    assert line.closed
    (answer,) = as_server_sees(line.outgoing())
    assert answer.opcode is Opcode.CLOSE


def test_audio_before_a_broken_rule_is_still_heard():
    events = a_line().receive(server_frame(bytes(4)) + b"\xff\xff", 0.0)
    assert [type(event) for event in events] == [AgentAudio, AgentClosed]


def test_hanging_up_is_an_orderly_close_and_no_failure():
    line = a_line()
    (ours,) = as_server_sees(line.hang_up())
    assert (ours.opcode, bytes(ours.data)) == (Opcode.CLOSE, b"\x03\xe8")
    assert not line.closed
    assert line.hang_up() == b""
    assert len(line.receive(server_frame(bytes(4)), 0.5)) == 1  # audio under way
    (event,) = line.receive(close_frame(1000), 1.0)
    assert (event.code, event.reason) == (1000, None)
    assert line.closed
    assert line.failure is None


def test_an_agent_that_just_goes_after_our_goodbye_is_no_failure():
    line = a_line()
    line.hang_up()
    line.receive(b"", 1.0)
    assert line.closed
    assert line.failure is None


def test_a_huge_text_is_left_unread():
    line = a_line()
    assert line.receive(server_frame(b" " * (MAX_TEXT_BYTES + 1), Opcode.TEXT), 0.0) == []
    assert line.oversized_texts == 1


def test_ready_frames_are_shared_as_they_are():
    ready = client_frame(bytes(640), b"mask")
    assert a_line().wrap(ready) is ready


def test_with_fresh_masks_every_frame_differs_on_the_wire_and_means_the_same():
    masks = iter([b"1111", b"2222"])
    line = a_line(fresh_mask=lambda: next(masks))
    ready = client_frame(b"hello", b"mask")
    first, second = line.wrap(ready), line.wrap(ready)
    assert len({first, second, ready}) == 3
    assert [bytes(frame.data) for frame in as_server_sees(first + second)] == [b"hello", b"hello"]


@given(st.lists(st.binary(max_size=100), max_size=6))
def test_no_bytes_raise_and_every_end_has_a_reason(pieces: list[bytes]):
    line = a_line()
    for piece in pieces:
        line.receive(piece, 0.0)
        line.outgoing()
    line.receive(b"", 0.0)
    assert line.closed
    assert line.failure is not None
    assert line.failure.reason in FAILURE_REASONS
    assert line.hang_up() == b""
