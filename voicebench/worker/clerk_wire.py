"""What a worker and its sibling process say to each other, over a socket pair of their own: a length, then msgpack.

Everything is taken in the order in which it was said, and answered in that order. What has not been answered when the
sibling dies is said again to the next one: a piece that is written twice is the same, and so is a session.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from voicebench.errors import TesterError
from voicebench.scenario.shipping import MAX_ASSET_BYTES
from voicebench.worker.settling import Case, Keep, Settled

LENGTH = struct.Struct("<I")
MAX_FRAME_BYTES = MAX_ASSET_BYTES + (1 << 20)
"""The longest is a turn's audio; of a session, what ten hours leave."""


class Asset(msgspec.Struct, frozen=True, tag="asset"):
    """A scenario's audio, before `Open`."""

    name: str
    data: bytes


class Open(msgspec.Struct, frozen=True, tag="open"):
    """What all sessions share; the sibling answers `Ready`."""

    scenarios: tuple[bytes, ...]
    keep: Keep
    folder: str
    """Of the spool; empty: there is none."""
    kept_bytes: int
    """So much may lie in it."""
    why_no_folder: str
    going_on: tuple[str, ...]
    """Sessions whose pieces are in the folder and are still wanted."""


class Piece(msgspec.Struct, frozen=True, tag="piece"):
    """What an agent was heard to say, from a place on."""

    seq: int
    session_id: str
    offset: int
    """In bytes."""
    data: bytes


class HandedIn(msgspec.Struct, frozen=True, tag="case"):
    seq: int
    case: Case


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    pass


class Took(msgspec.Struct, frozen=True, tag="took"):
    """Everything up to this one is done."""

    seq: int


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """The session handed in as `seq` is settled, and everything before it done."""

    seq: int
    settled: Settled


ToClerk = Asset | Open | Piece | HandedIn
FromClerk = Ready | Took | Answered

_encoder = msgspec.msgpack.Encoder()


def frame_of(message: ToClerk | FromClerk) -> bytes:
    """A message as it goes over the socket.

    Raises:
        TesterError: It can't be packed, or is too long.
    """
    try:
        data = _encoder.encode(message)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TesterError(f"a {type(message).__name__} can't be sent between processes: {error}") from None
    if len(data) > MAX_FRAME_BYTES:
        raise TesterError(f"a {type(message).__name__} of {len(data)} bytes is longer than {MAX_FRAME_BYTES}")
    return LENGTH.pack(len(data)) + data


class Frames:
    """Bytes as they come, cut into messages."""

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kind)
        self._bytes = bytearray()

    def push(self, data: bytes) -> list[Any]:
        """The messages that are whole now.

        Raises:
            TesterError: It is no message.
        """
        self._bytes += data
        messages, at = [], 0
        while len(self._bytes) - at >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._bytes, at)
            if length > MAX_FRAME_BYTES:
                raise TesterError(f"a message of {length} bytes between processes: at most {MAX_FRAME_BYTES} are sent")
            end = at + LENGTH.size + length
            if end > len(self._bytes):
                break
            try:
                messages.append(self._decoder.decode(memoryview(self._bytes)[at + LENGTH.size : end].tobytes()))
            except msgspec.MsgspecError as error:
                raise TesterError(f"what came between processes is no message: {error}") from None
            at = end
        del self._bytes[:at]
        return messages
