"""Whatever arrives, decoding raises nothing but `WireError`; whatever was encoded comes back."""

from __future__ import annotations

import contextlib
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import made
from voicebench.errors import WireError, WrongProtocolError
from voicebench.wire import codec
from voicebench.wire.messages import (
    PROTOCOL,
    Beat,
    Block,
    Final,
    FromMaster,
    Health,
    Hello,
    Orders,
    Refuse,
    Results,
    Share,
)

HELLO = Hello(version="1", incarnation="0" * 32, name="w", host="h", python="3", platform="p", cpus=2)
BEAT = Beat(
    epoch=1, n=1, sent_s=1.5, share_version=1, state="ready", placed=((0, 1),), released=(), live=0, hub_age_s=0.0, cpu_s=0.0
)  # fmt: skip
RESULTS = Results(epoch=1, seq=1, session=made.result(made.session(made.respond(), made.stop())))
FINAL = Final(epoch=1, seq=3, cpu_s=1.0, notes=("a",), events=((1.0, "late", "x"),))
ORDERS = Orders(
    epoch=1, term=1, phase="run", phase_s=None, t0_s=1.0, share_version=1, acked=0, may_start=None, leave=False,
    over=False, echo_n=1, echo_sent_s=0.0, received_s=0.0, sent_s=0.0,
)  # fmt: skip
HEALTH = Health(n=1, over_s=1.0, calls=3, loop_cpu=0.5, waited=0.0, steal=0.1, widest_gap_ms=3.0)
FULL_BEAT = msgspec.structs.replace(BEAT, health=HEALTH, blocked=Block(what="loop", for_s=1.5, where="in receive()"))
FROM_WORKER = (HELLO, BEAT, FULL_BEAT, RESULTS, FINAL)
FROM_MASTER: tuple[FromMaster, ...] = (
    ORDERS, Refuse(reason="no"), Share(epoch=1, term=1, share_version=1, callers=((0, 0),)),
)  # fmt: skip


@pytest.mark.parametrize("message", FROM_WORKER, ids=lambda message: type(message).__name__)
def test_what_a_worker_says_comes_back_as_it_was(message):
    assert codec.decode_from_worker(codec.encode(message)) == message


@pytest.mark.parametrize("message", FROM_MASTER, ids=lambda message: type(message).__name__)
def test_what_the_master_says_comes_back_as_it_was(message):
    assert codec.decode_from_master(codec.encode(message)) == message


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, -1.0, 1e15])
@pytest.mark.parametrize(
    "key", ["over_s", "loop_cpu", "waited", "throttled_ms", "steal", "widest_gap_ms", "worst_late_ms"]
)
def test_a_beat_that_says_of_a_worker_what_can_not_be_is_refused(key, number):
    beat = msgspec.structs.replace(BEAT, health=msgspec.structs.replace(HEALTH, **{key: number}))
    with pytest.raises(WireError):
        codec.decode_from_worker(codec.encode(beat))


@pytest.mark.parametrize("rest", [{"for_s": math.nan}, {"for_s": -1.0}, {"where": "x" * 1001}])
def test_a_block_that_can_not_be_is_refused(rest):
    block = Block(**{"what": "loop", "for_s": 1.0, "where": "", **rest})
    with pytest.raises(WireError):
        codec.decode_from_worker(codec.encode(msgspec.structs.replace(BEAT, blocked=block)))


def decode_both(data: bytes) -> None:
    with contextlib.suppress(WireError):
        codec.decode_from_worker(data)
    with contextlib.suppress(WireError):
        codec.decode_from_master(data)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_raise_nothing_but_wire_errors(data):
    decode_both(data)


@given(st.sampled_from([codec.encode(each) for each in (*FROM_WORKER, *FROM_MASTER)]), st.data())
def test_damaged_messages_raise_nothing_but_wire_errors(data, draw):
    at = draw.draw(st.integers(0, len(data) - 1))
    decode_both(data[:at] + draw.draw(st.binary(max_size=8)) + data[at + draw.draw(st.integers(0, 8)) :])


def test_deep_nesting_is_a_wire_error():
    with pytest.raises(WireError):
        codec.decode_from_worker(b"\x91" * 100_000)


def test_an_oversize_message_is_neither_sent_nor_taken():
    with pytest.raises(WireError, match="longer than"):
        codec.encode(msgspec.structs.replace(FINAL, notes=("x" * codec.MAX_BYTES,)))
    with pytest.raises(WireError, match="at most"):
        codec.decode_from_worker(b"\0" * (codec.MAX_BYTES + 1))


def test_a_lone_surrogate_is_a_wire_error():
    with pytest.raises(WireError, match="can't be packed"):
        codec.encode(Refuse(reason="\udc80"))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda number: msgspec.structs.replace(BEAT, cpu_s=number),
        lambda number: msgspec.structs.replace(BEAT, sent_s=number),
        lambda number: msgspec.structs.replace(FINAL, events=((number, "late", "x"),)),
        lambda number: Results(epoch=1, seq=1, session=made.result(made.session(duration_s=number))),
        lambda number: Results(epoch=1, seq=1, session=made.result(made.session(), started_s=number)),
        lambda number: Results(epoch=1, seq=1, session=made.result(made.session(made.respond(number)))),
    ],
)
def test_a_number_that_is_none_is_a_wire_error(spoil, number):
    with pytest.raises(WireError):
        codec.decode_from_worker(codec.encode(spoil(number)))


def test_another_protocol_is_told_from_garbage():
    with pytest.raises(WrongProtocolError):
        codec.decode_from_worker(codec.encode(msgspec.structs.replace(HELLO, v=PROTOCOL + 1)))


def test_a_refusal_is_readable_whatever_the_protocol():
    refusal = Refuse(v=PROTOCOL + 7, reason="upgrade the worker")
    assert codec.decode_from_master(codec.encode(refusal)) == refusal
