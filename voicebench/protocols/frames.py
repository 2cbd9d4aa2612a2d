"""RFC 6455 framing where it has to be fast: frames encoded once and shared, and whole messages out of raw bytes.

Everything that is not an unfragmented binary message (pings, closes, fragments, texts) goes through the `websockets`
library's parser, which knows the rules; audio takes the short way, some 10 times cheaper.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeAlias

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol

try:
    from websockets.speedups import apply_mask
except ImportError:  # a platform without the compiled part
    from websockets.utils import apply_mask

__all__ = [
    "Message", "MessageReader", "Opcode", "apply_mask", "client_frame", "masked_with", "server_frame", "whole_binary",
]  # fmt: skip

FINAL_BINARY: Final = 0x82
MASK_BIT: Final = 0x80
RESERVED_BITS: Final = 0x70
CONTROL_BIT: Final = 0x08
KNOWN_OPCODES: Final = frozenset(int(opcode) for opcode in Opcode)
MASK_BYTES: Final = 4

Message: TypeAlias = tuple[Opcode, bytes]
"""TEXT or BINARY with the whole payload, or CLOSE with the payload of the close frame."""


def _header(opcode: int, n_bytes: int, mask_bit: int) -> bytes:
    first = 0x80 | opcode
    if n_bytes < 126:
        return struct.pack("!BB", first, mask_bit | n_bytes)
    if n_bytes < 65536:
        return struct.pack("!BBH", first, mask_bit | 126, n_bytes)
    return struct.pack("!BBQ", first, mask_bit | 127, n_bytes)


def client_frame(payload: bytes, mask: bytes, opcode: int = Opcode.BINARY) -> bytes:
    """An unfragmented frame as a client sends it: header, the 4 mask bytes, masked payload.

    >>> client_frame(b"ab", b"abcd").hex(" ")
    '82 82 61 62 63 64 00 00'
    """
    return _header(opcode, len(payload), MASK_BIT) + mask + apply_mask(payload, mask)


def server_frame(payload: bytes, opcode: int = Opcode.BINARY) -> bytes:
    """An unfragmented frame as a server sends it, unmasked."""
    return _header(opcode, len(payload), 0) + payload


def masked_with(frame: bytes, mask: bytes) -> bytes:
    """The same client frame under another mask, without unmasking it first: the two masks are applied as one.

    >>> masked_with(client_frame(b"hello", b"1234"), b"abcd") == client_frame(b"hello", b"abcd")
    True
    """
    length = frame[1] & 0x7F
    at = 2 if length < 126 else 4 if length == 126 else 10
    body = at + MASK_BYTES
    return frame[:at] + mask + apply_mask(frame[body:], apply_mask(frame[at:body], mask))


def whole_binary(data: bytes) -> int:
    """Where the payload begins if `data` is exactly one unfragmented binary frame of a server; 0: it is not.

    >>> whole_binary(server_frame(b"ab")), whole_binary(server_frame(b"ab") + b"x")
    (2, 0)
    """
    n_bytes = len(data)
    if n_bytes < 4 or data[0] != FINAL_BINARY:
        return 0
    length = data[1]
    if length == 126:
        return 4 if data[2] << 8 | data[3] == n_bytes - 4 else 0
    return 2 if length < 126 and length == n_bytes - 2 else 0


class _Extent(NamedTuple):
    """Where a frame's payload lies in a buffer; a mask stands right before it."""

    body: int
    end: int


class MessageReader:
    """Raw bytes of an open WebSocket in, whole messages out, however the bytes were cut.

    Never raises. A broken rule fails the protocol object (which then holds our close frame to send) and is told in
    `violation`; whatever follows is dropped, as it is after a close.
    """

    def __init__(self, protocol: Protocol, *, masked: bool) -> None:
        """`protocol` must be open and stand between two frames; `masked`: we are the server."""
        self._protocol = protocol
        self._mask_bit = MASK_BIT if masked else 0
        self._rest = bytearray()
        self._need = 0
        self._parts: list[bytes] | None = None
        self._kind = Opcode.BINARY
        self._deaf = False
        self.violation: str | None = None

    @property
    def at_rest(self) -> bool:
        """Whether it stands between two messages of a conversation that goes on."""
        return not (self._rest or self._deaf or self._parts is not None or self.violation is not None)

    def feed(self, data: bytes) -> list[Message]:
        """Take the next bytes and return the messages they complete, in order."""
        if self._deaf:
            return []
        if self._rest:
            # A message of megabytes comes in many reads: it is looked at once, when it is whole.
            self._rest += data
            if len(self._rest) < self._need:
                return []
            data = bytes(self._rest)
            self._rest.clear()
        messages: list[Message] = []
        at = 0
        while at < len(data) and not self._deaf:
            frame = self._frame_at(data, at)
            if frame is None:
                self._rest += data[at:]
                break
            if data[at] == FINAL_BINARY and self._parts is None and self.violation is None:
                payload = data[frame.body : frame.end]
                if self._mask_bit:
                    payload = apply_mask(payload, data[frame.body - MASK_BYTES : frame.body])
                messages.append((Opcode.BINARY, payload))
            else:
                self._read_with_library(data[at : frame.end], messages)
            at = frame.end
        return messages

    def fail(self, code: CloseCode, why: str) -> None:
        """The other side broke a rule that only a higher layer can see: close with `code`, hear nothing more."""
        self._protocol.fail(code, why)
        self.violation = why
        self._deaf = True

    def _frame_at(self, data: bytes, at: int) -> _Extent | None:
        """The frame that begins at `at`, or None while it is not whole (`_need`: bytes from `at` that it takes)."""
        if len(data) - at < 2:
            self._need = 2
            return None
        first, second = data[at], data[at + 1]
        length = second & 0x7F
        wrong = self._wrong(first, second, length)
        if wrong is not None:
            self.fail(CloseCode.PROTOCOL_ERROR, wrong)
            return _Extent(len(data), len(data))
        body = at + 2
        if length >= 126:
            n_bytes = 2 if length == 126 else 8
            if len(data) < body + n_bytes:
                self._need = body + n_bytes - at
                return None
            length = int.from_bytes(data[body : body + n_bytes], "big")
            body += n_bytes
        if self._mask_bit:
            body += MASK_BYTES
        end = body + length
        if end > len(data):
            self._need = end - at
            return None
        return _Extent(body, end)

    def _wrong(self, first: int, second: int, length: int) -> str | None:
        """What a frame's first two bytes break, seen before the rest of a bogus length is waited for."""
        if first & RESERVED_BITS:
            return "reserved bits must be 0"
        if first & 0x0F not in KNOWN_OPCODES:
            return "invalid opcode"
        if second & MASK_BIT != self._mask_bit:
            return "incorrect masking"
        if first & CONTROL_BIT and length > 125:
            return "control frame too long"
        return None

    def _read_with_library(self, frame_bytes: bytes, messages: list[Message]) -> None:
        if self._deaf:
            return
        self._protocol.receive_data(frame_bytes)
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._take(event.opcode, bytes(event.data), event.fin, messages)
        if self._protocol.parser_exc is not None:
            self.violation = str(self._protocol.parser_exc)
            self._deaf = True
        elif self._protocol.close_rcvd is not None:
            self._deaf = True

    def _take(self, opcode: Opcode, payload: bytes, final: bool, messages: list[Message]) -> None:
        if opcode is Opcode.CLOSE:
            messages.append((opcode, payload))
        elif opcode is Opcode.TEXT or opcode is Opcode.BINARY:
            if final:
                messages.append((opcode, payload))
            else:
                self._kind, self._parts = opcode, [payload]
        elif opcode is Opcode.CONT and self._parts is not None:
            self._parts.append(payload)
            if final:
                messages.append((self._kind, b"".join(self._parts)))
                self._parts = None
