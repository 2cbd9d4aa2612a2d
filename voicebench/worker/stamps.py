"""When bytes arrived, by the kernel's own stamp instead of the moment we came to read them."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import TypeAlias

from voicebench.clock import monotonic_s, realtime_s

SO_TIMESTAMPNS = 35
"""Linux, all common architectures; Python's `socket` does not name it."""
_TIMESPEC = struct.Struct("ll")
ANCILLARY_BYTES = 64
Ancillary: TypeAlias = Sequence[tuple[int, int, bytes]]
"""As `recvmsg` returns it."""
TOGETHER_S = 50e-6
"""Two clocks read within this have been read together; a process that loses its core between the two takes longer."""


def ask_for_stamps(sock: socket.socket) -> bool:
    """Have the kernel stamp what it receives on this socket; False where it can't."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


def realtime_ahead_s() -> float:
    """How far the real-time clock, which stamps are taken from, is ahead of the monotonic one."""
    for _ in range(3):
        before_s, realtime_now_s, after_s = monotonic_s(), realtime_s(), monotonic_s()
        if after_s - before_s < TOGETHER_S:
            break
    return realtime_now_s - after_s


def arrival_s(ancillary: Ancillary, *, now_s: float, realtime_now_s: float, since_s: float) -> float:
    """When what was just read arrived, on the monotonic clock.

    Args:
        ancillary: As `recvmsg` returned it. A read of TCP carries the stamp of its last segment.
        now_s, realtime_now_s: The monotonic and the real-time clock, read together.
        since_s: When the socket is known to have been empty; nothing of what was read can have arrived earlier.

    Returns:
        The stamp translated to the monotonic clock, clamped to [since_s, now_s], so that a step of the real-time clock
        does no harm; `now_s` without a stamp.
    """
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(data) == _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack(data)
            age_s = realtime_now_s - (seconds + nanoseconds * 1e-9)
            return min(max(now_s - age_s, since_s), now_s)
    return now_s
