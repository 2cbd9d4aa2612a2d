"""Messages to bytes and back. Whatever arrives, decoding raises nothing but `WireError`."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import msgspec

from voicebench.errors import WireError, WrongProtocolError
from voicebench.records import SessionRecord, TurnRecord
from voicebench.wire.messages import PROTOCOL, Beat, FilePiece, Final, FromMaster, FromWorker, Message, Results, Welcome

MAX_BYTES = 2 << 20
"""Of a message: the largest is a session's record with thousands of turns."""
MAX_NUMBER = 1e9
"""Of any time or rate in a record: eleven days in ms. Sums of them stay exact."""


class _Head(msgspec.Struct, frozen=True):
    kind: str
    v: int
    version: str = ""


_encoder = msgspec.msgpack.Encoder()
_head = msgspec.msgpack.Decoder(_Head)
_from_worker = msgspec.msgpack.Decoder(FromWorker)
_from_master = msgspec.msgpack.Decoder(FromMaster)


def encode(message: Message) -> bytes:
    """A message as msgpack.

    Raises:
        WireError: It can't be packed (a lone surrogate, a number beyond 64 bits), or is longer than any reader takes.
    """
    try:
        data = _encoder.encode(message)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WireError(f"a {type(message).__name__} can't be packed: {error}") from None
    if len(data) > MAX_BYTES:
        raise WireError(f"a {type(message).__name__} of {len(data)} bytes is longer than {MAX_BYTES}")
    return data


def decode_from_worker(data: bytes) -> FromWorker:
    """What a worker sent.

    Raises:
        WrongProtocolError: It speaks another version of the protocol.
        WireError: It is no message of ours, or says what can't be.
    """
    message: FromWorker = _decode(data, _from_worker)
    if isinstance(message, Results):
        _check_number("start", message.session.started_s)
        _check_record(message.session.record)
        _check_lateness(message.session.lateness)
    elif isinstance(message, Beat):
        if not all(each is None or _finite(each) for each in (message.health, message.blocked)):
            raise WireError("a beat with a number that is none")
    elif isinstance(message, Final):
        for t_s, _, _ in message.events:
            _check_number("event", t_s)
    elif isinstance(message, FilePiece) and not message.data and not message.why:
        raise WireError("an empty piece of a recording without a reason")
    return message


def decode_from_master(data: bytes) -> FromMaster:
    """What the master sent. Raises as `decode_from_worker`."""
    message: FromMaster = _decode(data, _from_master)
    if isinstance(message, Welcome):
        _check_welcome(message)
    return message


def _decode(data: bytes, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
    if len(data) > MAX_BYTES:
        raise WireError(f"a message of {len(data)} bytes: at most {MAX_BYTES} are taken")
    try:
        head = _head.decode(data)
        if head.v != PROTOCOL and head.kind != "refuse":
            raise WrongProtocolError(head.v, head.version[:100])
        message = decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError) as error:
        raise WireError(f"not a message of ours: {str(error)[:200]}") from None
    if not _finite(message):
        raise WireError(f"a {type(message).__name__} with a number that is none")
    return message


def _finite(message: msgspec.Struct) -> bool:
    return all(math.isfinite(value) for value in msgspec.structs.astuple(message) if isinstance(value, float))


def _check_welcome(welcome: Welcome) -> None:
    plan = welcome.plan
    if not 0 < welcome.beat_s < welcome.lease_s < welcome.lost_s:
        raise WireError("a welcome whose beat, lease and lost don't ascend")
    if not _finite(plan) or not all(map(math.isfinite, (*plan.weights, *plan.pause_s))):
        raise WireError("a plan with a number that is none")


_RECORD_NUMBERS = tuple(field.name for field in fields(SessionRecord) if field.type == "float")
_TURN_NUMBERS = tuple(
    field.name for field in fields(TurnRecord) if field.type in ("float", "float | None", "int | None", "int")
)


def _check_record(record: SessionRecord) -> None:
    for name in _RECORD_NUMBERS:
        _check_number(name, getattr(record, name))
    for turn in record.turns:
        for name in _TURN_NUMBERS:
            _check_number(name, getattr(turn, name))
    for segment in (*record.user_segments, *record.agent_segments):
        _check_number("segment", segment.start_s)
        _check_number("segment", segment.end_s)


def _check_number(name: str, value: float | None) -> None:
    if value is not None and not abs(value) <= MAX_NUMBER:  # `not`: a NaN compares false
        raise WireError(f"the {name} of a session is {value}")


def _check_lateness(counts: dict[int, int]) -> None:
    if any(not 0 < count <= MAX_NUMBER or abs(tick) > MAX_NUMBER for tick, count in counts.items()):
        raise WireError("a lateness that nothing can have had")
