"""Agents that misbehave, each under a path of its own, in a process of their own: `python -m tests.support.hostile_agents HOST`.

The first line on stdout is the port. The upgrade is answered as it should be, unless the path says otherwise.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gevent
import gevent.server
from websockets.http11 import Request
from websockets.server import ServerProtocol

from tests.support.uneven_talk import (
    RATE_HZ,
    SPEAK_AFTER_S,
    TWO_SENTENCES,
    drain,
    halves_carried_over,
    speech,
    talking,
)
from voicebench.clock import monotonic_s
from voicebench.protocols.frames import Opcode, client_frame, server_frame

REPLY_MS = 600
READY = "listening on "
FULL_FOR_S = 0.3
"""Its system took nothing for so long: it is full."""


def close_frame(code: int | None) -> bytes:
    return server_frame(b"" if code is None else struct.pack("!H", code), Opcode.CLOSE)


def reset(sock: Any) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def saying(*frames: bytes, after_s: float = SPEAK_AFTER_S, every_s: float = 0.0) -> Callable[[Any], None]:
    """Listens, and sends these bytes one after the other from `after_s` on."""

    def behave(sock: Any) -> None:
        reader = gevent.spawn(drain, sock)
        gevent.sleep(after_s)
        for frame in frames:
            sock.sendall(frame)
            gevent.sleep(every_s)
        reader.join()

    return behave


def packets(packet_ms: float, frame: Callable[[bytes], bytes] = server_frame) -> list[bytes]:
    """The reply in packets of this length."""
    whole, step = speech(REPLY_MS), 2 * round(packet_ms * RATE_HZ / 1000)
    return [frame(whole[at : at + step]) for at in range(0, len(whole), step)]


def reply_with(*around: bytes, every_s: float) -> Callable[[Any], None]:
    """Says its reply as it should, and all the time something beside it."""

    def behave(sock: Any) -> None:
        def beside() -> None:
            with contextlib.suppress(OSError):
                while True:
                    sock.sendall(b"".join(around))
                    gevent.sleep(every_s)

        other = gevent.spawn(beside)
        try:
            saying(*packets(20), every_s=0.02)(sock)
        finally:
            other.kill()

    return behave


def closing(code: int | None, *, wait: bool = True) -> Callable[[Any], None]:
    def behave(sock: Any) -> None:
        reader = gevent.spawn(drain, sock)
        gevent.sleep(0.3)
        if not wait:
            reader.kill()
        sock.sendall(close_frame(code))
        if wait:
            reader.join()

    return behave


def resetting(sock: Any) -> None:
    reader = gevent.spawn(drain, sock)
    gevent.sleep(0.3)
    reader.kill()
    reset(sock)


def odd(piece: bytes) -> bytes:
    """One packet as three messages that cut samples in halves, and an empty one."""
    return server_frame(piece[:101]) + server_frame(b"") + server_frame(piece[101:102]) + server_frame(piece[102:])


def fragmented(piece: bytes) -> bytes:
    """One packet as a fragmented message with a ping in between."""
    first, second, third = piece[:7], piece[7:300], piece[300:]
    bare = [server_frame(part, opcode) for part, opcode in ((first, 2), (second, 0), (third, 0))]
    begin, middle, end = bare[0][1:], bare[1][1:], bare[2]
    return bytes([0x02]) + begin + server_frame(b"?", Opcode.PING) + bytes([0x00]) + middle + end


def text(message: Any) -> bytes:
    return server_frame((message if isinstance(message, str) else json.dumps(message)).encode(), Opcode.TEXT)


def vanishing(sock: Any) -> None:
    """Ends the connection in the middle, orderly as far as TCP goes, without a word of WebSocket."""
    reader = gevent.spawn(drain, sock)
    gevent.sleep(0.3)
    sock.shutdown(socket.SHUT_WR)
    reader.join()


def reading_for(read_s: float) -> Callable[[Any], None]:
    """Reads so long and then no more; tells when that was, and when its system had taken all it would for it."""

    def behave(sock: Any) -> None:
        with contextlib.suppress(gevent.Timeout), gevent.Timeout(read_s):
            drain(sock)
        stopped_s = full_s = monotonic_s()
        held = -1
        while monotonic_s() - full_s < FULL_FOR_S:
            gevent.sleep(0.01)
            (now_held,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.FIONREAD, b"\0\0\0\0"))
            if now_held != held:
                full_s, held = monotonic_s(), now_held
        said = {"type": "transcript", "role": "agent", "text": json.dumps([stopped_s, full_s, held])}
        with contextlib.suppress(OSError):
            sock.sendall(text(said))
        gevent.sleep(60)

    return behave


def flooding(block: bytes, *, first: bytes = b"") -> Callable[[Any], None]:
    """Sends the same bytes as fast as it can, for ever."""

    def behave(sock: Any) -> None:
        reader = gevent.spawn(drain, sock)
        gevent.sleep(0.3)
        with contextlib.suppress(OSError):
            sock.sendall(first)
            while not reader.dead:
                sock.sendall(block)
                gevent.sleep(0)
        reader.kill()

    return behave


TRANSCRIPT = {"type": "transcript", "role": "user", "final": True}
AGENTS: dict[str, Callable[[Any], None]] = {
    "good": saying(*packets(20), every_s=0.02),
    "silent": drain,
    "never-reads": reading_for(0.0),
    "stops-reading": reading_for(1.0),
    "talk-10-ms": talking(10),
    "talk-20-ms": talking(20),
    "talk-100-ms": talking(100),
    "talk-1000-ms": talking(1000),
    "talk-2-times": talking(20, speed=2),
    "talk-20-times": talking(20, speed=20),
    "talk-halves-carried-over": talking(20, cut=halves_carried_over),
    "talk-silence-sent": talking(20, pattern=TWO_SENTENCES),
    "talk-silence-left-out": talking(20, pattern=TWO_SENTENCES, silence_sent=False),
    "talk-silence-streamed": talking(20, pattern=TWO_SENTENCES, streams_silence=True),
    "resets": resetting,
    "vanishes": vanishing,
    "close-1000": closing(1000),
    "close-1001": closing(1001),
    "close-1013": closing(1013),
    "close-1011": closing(1011),
    "close-4000": closing(4000),
    "close-1005": closing(None),
    "close-1011-and-gone": closing(1011, wait=False),
    "garbage": saying(bytes(range(256)) * 40, after_s=0.3),
    "reserved-bits": saying(b"\xf2\x02ab", after_s=0.3),
    "masked": saying(client_frame(b"ab", b"1234"), after_s=0.3),
    "unknown-opcode": saying(b"\x83\x02ab", after_s=0.3),
    "long-ping": saying(b"\x89\x7e\x00\x80" + b"p" * 128, after_s=0.3),
    "not-utf8": saying(server_frame(b"\xff\xfe", Opcode.TEXT), after_s=0.3),
    "orphan-fragment": saying(b"\x80\x02ab", after_s=0.3),
    "text-10-mb": saying(text("[" + "1," * 5_000_000 + "1]"), *packets(20), every_s=0.02),
    "deep-json": saying(text("[" * 100_000), text('{"a":' * 30_000), *packets(20), every_s=0.02),
    "surrogates": saying(
        text('{"type": "transcript", "text": "a\\ud800\\u0000b"}'),
        text('{"type": "transcript", "text": {"no": "text"}}'),
        text('{"type": "transcript", "text": "c", "final": 1e999, "role": ["user"]}'),
        text('{"type": ["clear"]}'),
        *packets(20),
        every_s=0.02,
    ),
    "burst-60-s": saying(server_frame(speech(60_000))),
    "packets-10-ms": saying(*packets(10), every_s=0.01),
    "packets-600-ms": saying(*packets(600)),
    "odd-bytes": saying(*packets(20, odd), every_s=0.02),
    "fragments": saying(*packets(20, fragmented), every_s=0.02),
    "pings-100": reply_with(server_frame(b"are you there", Opcode.PING), every_s=0.01),
    "texts-3000": reply_with(*[text({"type": "level", "db": -30})] * 15, every_s=0.005),
    "flood-audio": flooding(server_frame(speech(100)) * 8),
    "flood-tiny-audio": flooding(server_frame(b"ab") * 4000),
    "flood-empty-audio": flooding(server_frame(b"") * 4000),
    "flood-pings": flooding(server_frame(b"", Opcode.PING) * 4000),
    "flood-texts": flooding(text("{}") * 4000),
    "flood-transcripts": flooding(text({**TRANSCRIPT, "text": "blah " * 1000}) * 10),
    "flood-clears": flooding((server_frame(speech(20)) + text({"type": "clear"})) * 100),
    "flood-one-message": flooding(b"a" * 65536, first=b"\x82\x7f" + struct.pack("!Q", 1 << 62)),
    "flood-fragments": flooding(server_frame(b"a" * 60000, 0).replace(b"\x80", b"\x00", 1), first=b"\x02\x02ab"),
}


def upgrade(sock: Any) -> str:
    """Answer the upgrade; returns the path."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += sock.recv(4096) or b"\r\n\r\n"
    protocol = ServerProtocol()
    protocol.receive_data(head)
    (request,) = protocol.events_received()
    assert isinstance(request, Request)
    path = request.path.strip("/")
    if path == "never-upgrades":
        gevent.sleep(60)
    if path.startswith("upgrades-after-"):
        gevent.sleep(float(path.removeprefix("upgrades-after-")))
        path = "good"
    protocol.send_response(protocol.accept(request))
    sock.sendall(b"".join(protocol.data_to_send()))
    return path


def answer(sock: Any, _address: object) -> None:
    with contextlib.suppress(OSError):
        AGENTS[upgrade(sock)](sock)
    sock.close()


@contextlib.contextmanager
def hostile_agents(host: str = "127.0.0.1", through: Sequence[str] = ()) -> Iterator[Any]:
    """The process, with its `port` as an attribute; `through`: the command that starts it somewhere else."""
    process: Any = subprocess.Popen(
        [*through, sys.executable, "-m", "tests.support.hostile_agents", host], stdout=subprocess.PIPE, text=True
    )
    try:
        first = process.stdout.readline()
        assert first.startswith(READY), first
        process.port = int(first.removeprefix(READY))
        yield process
    finally:
        process.kill()
        process.wait(timeout=10)
        process.stdout.close()


if __name__ == "__main__":
    server = gevent.server.StreamServer((sys.argv[1], 0), answer)
    server.start()
    print(f"{READY}{server.server_port}", flush=True)
    server.serve_forever()
