"""Agents that talk at their own pace, and tell at the end when they sent what: the truth to hold a score against.

The log comes as an agent transcript, behind the last packet of the reply, so that no file has to be found again.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gevent
import numpy as np

from voicebench.clock import monotonic_s
from voicebench.protocols.frames import Opcode, server_frame

RATE_HZ = 16000
SPEAK_AFTER_S = 1.0
"""Later than the user of the tests has ended, so that what is said is the answer."""
LONG_REPLY = ((2400, True),)
TWO_SENTENCES = ((800, True), (800, False), (800, True))
HANGOVER_S = 0.15
"""Shorter than the detector's, longer than what an unpunctual sender leaves between two packets."""
TICKS_PER_S = 10_000
"""The log counts tenths of a millisecond."""


def speech(duration_ms: float) -> bytes:
    """A loud square wave as PCM."""
    half = RATE_HZ // 400
    samples = np.where(np.arange(round(duration_ms * RATE_HZ / 1000)) // half % 2, 4000, -4000)
    return samples.astype("<i2").tobytes()


def in_packets(pattern: Sequence[tuple[int, bool]], packet_ms: float) -> Iterator[tuple[bytes, bool]]:
    """The reply cut into packets, each loud or silent as a whole."""
    n_bytes = 2 * round(packet_ms * RATE_HZ / 1000)
    for duration_ms, loud in pattern:
        audio = speech(duration_ms) if loud else bytes(len(speech(duration_ms)))
        for at in range(0, len(audio), n_bytes):
            yield audio[at : at + n_bytes], loud


def halves_carried_over(packets: Sequence[tuple[bytes, bool]]) -> list[tuple[bytes, bool]]:
    """The same bytes in packets of an odd length: each second one begins in the middle of a sample."""
    moved = []
    for number, (packet, loud) in enumerate(packets):
        if number % 2:
            packet = packets[number - 1][0][-1:] + packet
        elif number + 1 < len(packets):
            packet = packet[:-1]
        moved.append((packet, loud))
    return moved


def talking(
    packet_ms: float,
    *,
    speed: float = 1.0,
    pattern: Sequence[tuple[int, bool]] = LONG_REPLY,
    silence_sent: bool = True,
    streams_silence: bool = False,
    cut: Callable[[Sequence[tuple[bytes, bool]]], Sequence[tuple[bytes, bool]]] = lambda packets: packets,
) -> Callable[[Any], None]:
    """Says its reply in packets of this length, `speed` times as fast as it is heard, each at its own due time.

    Args:
        silence_sent: Silence inside the reply is sent as packets too; otherwise it is left out.
        streams_silence: So is all the silence around the reply.
    """
    reply = list(cut(list(in_packets(pattern, packet_ms))))
    quiet = bytes(len(reply[0][0]))
    n_before = round(SPEAK_AFTER_S * 1000 / packet_ms) if streams_silence else 0

    def behave(sock: Any) -> None:
        # Else a packet waits in the agent's own system until the one before is acknowledged, and the log is wrong.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began_s = monotonic_s()
        reader = gevent.spawn(drain, sock)
        start_s = began_s if streams_silence else began_s + SPEAK_AFTER_S
        log: list[list[int]] = []
        for number, (packet, loud) in enumerate([(quiet, False)] * n_before + reply):
            gevent.sleep(max(0.0, start_s + number * packet_ms / 1000 / speed - monotonic_s()))
            if loud or silence_sent:
                before_s = monotonic_s()
                sock.sendall(server_frame(packet))
                since = [round((at_s - began_s) * TICKS_PER_S) for at_s in (before_s, monotonic_s())]
                log.append([*since, len(packet), int(loud)])
        said = {"type": "transcript", "role": "agent", "text": json.dumps([began_s, log], separators=(",", ":"))}
        sock.sendall(server_frame(json.dumps(said).encode(), Opcode.TEXT))
        while streams_silence and not reader.dead:
            sock.sendall(server_frame(quiet))
            gevent.sleep(packet_ms / 1000)
        reader.join()

    return behave


def drain(sock: Any) -> None:
    """Read until the caller is gone."""
    with contextlib.suppress(OSError):
        while sock.recv(65536):
            pass


@dataclass(frozen=True)
class TrueSegment:
    """Speech as a user would hear it: from when on and until when, each as early and as late as the log allows."""

    start_s: tuple[float, float]
    end_s: tuple[float, float]


def heard(transcript: str, zero_monotonic_s: float) -> list[TrueSegment]:
    """What a log says of a session whose time 0 was then: each packet plays when it is sent, or behind the one before."""
    began_s, log = json.loads(transcript)
    early, late = (
        _segments([(began_s - zero_monotonic_s + row[column] / TICKS_PER_S, row[2] / 2, row[3]) for row in log])
        for column in (0, 1)
    )
    assert len(early) == len(late), "the sender itself was held up inside an utterance"
    return [TrueSegment((a[0], b[0]), (a[1], b[1])) for a, b in zip(early, late, strict=True)]


def _segments(packets: Sequence[tuple[float, float, int]]) -> list[tuple[float, float]]:
    segments: list[tuple[float, float]] = []
    queued_s = 0.0
    for sent_s, n_samples, loud in packets:
        start_s = max(sent_s, queued_s)
        queued_s = start_s + n_samples / RATE_HZ
        if loud and segments and start_s - segments[-1][1] < HANGOVER_S:
            segments[-1] = (segments[-1][0], queued_s)
        elif loud:
            segments.append((start_s, queued_s))
    return segments
