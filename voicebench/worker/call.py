"""A live session on its socket, as the pacer owns it: ready frames out, bytes in, lateness of every frame."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

import numpy as np
from gevent.event import Event

from voicebench.audio import pcm
from voicebench.clock import monotonic_s, thread_cpu_s
from voicebench.errors import FailureReason
from voicebench.events import AgentClosed, AgentEvent
from voicebench.recording import Lateness, lateness_of
from voicebench.records import Outcome
from voicebench.script import Script
from voicebench.session import NEVER, Session
from voicebench.worker.adapters.base import LiveSocket
from voicebench.worker.stamps import ANCILLARY_BYTES, Ancillary, arrival_s, ask_for_stamps

FIRST_READ_BYTES, READ_BYTES = 1024, 65536
"""A look begins with a small read and doubles it while there is more: a packet takes one, a second of audio six, and a
heap of tiny messages, 10 us each, is left for the next look before it has kept the others waiting."""
LONG_PACKET_BYTES, QUICK_LOOK_S = 8192, 0.0003
"""An agent whose packets are longer, and quickly read, is read with so much at first."""
LOOK_S = 0.001
"""After this much reading the rest waits for the next look."""
MAX_READING_S = 0.2
"""An agent whose messages take longer to read, in any second, floods the line: audio takes 1 or 2 ms. Counted by this
thread's own time, since the machine may have been away meanwhile."""
MAX_BYTES, MAX_BYTES_PER_S = 64 << 20, 1 << 20
"""Ten minutes of 48 kHz, and ten times that rate: more is no conversation, and an endless message fills the memory."""
GENERATOR_LATE_S = 1.0
"""Owing a session more than this, we end it: catching up would send a burst that no caller ever speaks."""
BACKLOG_S = 1.0
"""An agent whose system takes no more of the user's audio for this long does not listen."""
QUEUE_TICKS = 10
"""Every so many frames the kernel is asked how much it still holds: 0.5 us."""
INBOX_PACKETS, INBOX_BYTES = 64, 1 << 16
"""So much waits to be heard at most: a second or two of a conversation, little memory, 0.2 ms to hear."""
_SIOCOUTQ = 0x5411


@dataclass(frozen=True, slots=True, eq=False)
class ReadyScript:
    """A script whose frames are encoded once, as they go on the wire, for all its sessions."""

    script: Script
    frames: tuple[tuple[bytes, ...], ...]
    """By turn, then by frame of the turn's clip."""
    silence: bytes


def make_ready(script: Script, encode: Callable[[np.ndarray], bytes]) -> ReadyScript:
    """Encode all frames of a script."""
    frames = tuple(
        tuple(encode(script.frame(clip, at)) for at in range(count)) for clip, count in enumerate(script.clip_frames)
    )
    return ReadyScript(script, frames, encode(np.zeros(script.frame_samples, dtype=np.int16)))


class Call:
    """One session and its socket. The pacer calls `due` at every tick and `look` when the socket has something.

    While `tick < plain_until` a tick is no more than one frame sent, and the pacer does by itself what `due` would.
    """

    def __init__(self, ready: ReadyScript, live: LiveSocket) -> None:
        self.session = Session(ready.script)
        self.done = Event()
        """Set once the session has ended and the pacer has let go of the socket."""
        self.zero_s = 0.0
        """Session time 0 on the monotonic clock: the due time of the first frame."""
        self.tick = 0
        self.plain_until = 0
        self.live = live
        self.unsent = bytearray()
        """What the kernel has not taken yet, in order."""
        self.send_ms = array("d")
        """By frame: how late it was."""
        self.drain_gap_ms = array("d")
        """By frame: the widest time between two looks at the socket since the frame before."""
        self.frames: Iterator[bytes] = iter(())
        """What goes out at the next ticks."""
        self._ending: Outcome | None = None
        self._ready = ready
        self._frame_s = ready.script.frame_s
        self._wake = 0
        self._backlog_bytes = int(BACKLOG_S / self._frame_s) * len(ready.silence)
        self._ancillary_bytes = ANCILLARY_BYTES if ask_for_stamps(live.sock) else 0
        self._arrived_s = 0.0
        self._recvmsg = live.read or live.sock.recvmsg
        self.send = live.sock.send
        """Of the socket, for a frame of a tick at which nothing else is to be done."""
        self._usual_head, self._usual_bytes = b"", -1
        self._inbox: list[bytes] = []
        """Usual packets that the session has not heard yet, since nothing is decided by them before the next step.
        Heard together they cost a worker with 400 sessions 7 % less CPU than one by one."""
        self._inbox_s = array("d")
        self._inbox_bytes = 0
        self._unread_since_s: float | None = None
        self._first_read_bytes = FIRST_READ_BYTES
        self._read_bytes = 0
        self._reading_s = 0.0
        self._reading_since_s = 0.0
        for event in live.early:
            self.session.hear(event)

    @property
    def ending(self) -> Outcome | None:
        """Set from outside (cut): the pacer ends the session at its next tick."""
        return self._ending

    @ending.setter
    def ending(self, outcome: Outcome | None) -> None:
        self._ending = outcome
        self.plain_until = 0

    @property
    def due_s(self) -> float:
        """When the next frame should go out, on the monotonic clock."""
        return self.zero_s + self.tick * self._frame_s

    def start(self, zero_s: float) -> None:
        """Fix session time 0."""
        self.zero_s = zero_s

    # --- listening -------------------------------------------------------------------------------------------------

    def look(self, looked_s: float, realtime_ahead_s: float) -> None:
        """Read what has come, for a millisecond at most.

        Args:
            looked_s: When the pacer looked at the sockets before: unless something was left, this one was empty then.
            realtime_ahead_s: The real-time clock minus the monotonic one.
        """
        if self.session.over:
            return
        if self._unread_since_s is not None:
            since_s, self._unread_since_s = self._unread_since_s, None
            self._read_on(monotonic_s(), since_s, realtime_ahead_s, thread_cpu_s())
            return
        now_s, size = monotonic_s(), self._first_read_bytes
        try:
            data, stamps, _, _ = self._recvmsg(size, self._ancillary_bytes)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._broke(error, now_s)
            return
        arrived_s = self._arrival_s(stamps, now_s, now_s + realtime_ahead_s, looked_s)
        n_bytes = len(data)
        if n_bytes == self._usual_bytes and data.startswith(self._usual_head):
            self._inbox.append(data)
            self._inbox_s.append(arrived_s)
            self._inbox_bytes += n_bytes
            if self.session.idle:
                self._wake = self.plain_until = self.tick
            if len(self._inbox) >= INBOX_PACKETS or self._inbox_bytes >= INBOX_BYTES:
                self._empty_inbox()
        elif n_bytes < size and (samples := self.live.line.audio(data)) is not None:
            self._empty_inbox()
            self._usual_head = self.live.line.head(data) if len(samples) else b""
            self._usual_bytes = n_bytes if self._usual_head else -1
            self._heard(self.session.hear_audio(samples, arrived_s - self.zero_s))
        else:
            cpu_began_s = thread_cpu_s()
            self._hear(data, arrived_s)
            self._read_on(now_s, looked_s, realtime_ahead_s, cpu_began_s, n_bytes, whole=n_bytes < size)

    def _empty_inbox(self) -> None:
        """Let the session hear what it has been kept from."""
        if self._inbox:
            head = len(self._usual_head)
            packets = pcm.from_bytes(b"".join(self._inbox)).reshape(len(self._inbox), -1)[:, head // 2 :]
            times_s = [arrived_s - self.zero_s for arrived_s in self._inbox_s]
            self._inbox.clear()
            del self._inbox_s[:]
            self._inbox_bytes = 0
            self._heard(self.session.hear_packets(packets, times_s))

    def _heard(self, news: bool) -> None:
        if news:
            self._wake = self.plain_until = self.tick

    def _read_on(
        self,
        began_s: float,
        since_s: float,
        realtime_ahead_s: float,
        cpu_began_s: float,
        n_bytes: int = 0,
        *,
        whole: bool = False,
    ) -> None:
        """Read what there is.

        Args:
            began_s: When this look began.
            cpu_began_s: The same by this thread's time.
            n_bytes: What it has read before.
            whole: That was all.
        """
        size, now_s, more = self._first_read_bytes, monotonic_s(), not whole
        while more and not self.session.over:
            if now_s - began_s > LOOK_S:
                self._unread_since_s = since_s
                break
            try:
                data, stamps, _, _ = self.live.sock.recvmsg(size, self._ancillary_bytes)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self._broke(error, now_s)
                break
            self._hear(data, self._arrival_s(stamps, now_s, now_s + realtime_ahead_s, since_s))
            n_bytes += len(data)
            now_s = monotonic_s()
            more = len(data) == size
            size = min(2 * size, READ_BYTES)
        quick = n_bytes < LONG_PACKET_BYTES and now_s - began_s < QUICK_LOOK_S
        self._first_read_bytes = max(FIRST_READ_BYTES, 1 << n_bytes.bit_length()) if quick else FIRST_READ_BYTES
        self._account(began_s, thread_cpu_s() - cpu_began_s, n_bytes)

    def _arrival_s(self, stamps: Ancillary, now_s: float, realtime_now_s: float, since_s: float) -> float:
        since_s = max(since_s, self._arrived_s)
        self._arrived_s = arrival_s(stamps, now_s=now_s, realtime_now_s=realtime_now_s, since_s=since_s)
        return self._arrived_s

    def _hear(self, data: bytes, arrived_s: float) -> None:
        self._usual_bytes = -1
        self._take(self.live.line.receive(data, arrived_s - self.zero_s))
        self._send(self.live.line.outgoing())

    def _take(self, events: Sequence[AgentEvent]) -> None:
        self._empty_inbox()
        for event in events:
            failure = self.live.line.failure
            if isinstance(event, AgentClosed) and failure is not None:
                event = replace(event, reason=failure.reason, text=str(failure))
            self._heard(self.session.hear(event))

    def _account(self, began_s: float, spent_s: float, n_bytes: int) -> None:
        """Keep an agent that floods the line from taking memory and time that the other sessions need."""
        self._read_bytes += n_bytes
        if began_s - self._reading_since_s > 1.0:
            self._reading_since_s, self._reading_s = began_s, 0.0
        self._reading_s += spent_s
        if self._reading_s > MAX_READING_S:
            self._fail("protocol", "the agent floods the line with more messages than any caller could make use of")
        elif self._read_bytes > MAX_BYTES + MAX_BYTES_PER_S * (began_s - self.zero_s):
            self._fail("protocol", f"the agent floods the line: {self._read_bytes >> 20} MiB")

    # --- speaking --------------------------------------------------------------------------------------------------

    def due(self, now_s: float, drain_gap_ms: float) -> bool:
        """Take the tick that is due: decide, send. False when the session has ended.

        Args:
            now_s: Now; how far it lies behind `due_s` is how late the frame is at least.
            drain_gap_ms: The widest time between two looks at the sockets since the frame before.
        """
        due_s = self.due_s
        if self._ending is not None:
            self.end(self._ending)
        elif now_s - due_s > GENERATOR_LATE_S:
            late_ms = 1000 * (now_s - due_s)
            self._fail(
                "generator", f"this load generator was {late_ms:.0f} ms late; fewer sessions or a faster machine"
            )
        elif self.tick >= self._wake:
            self._decide()
        if self.session.ended:
            return False
        self._send(next(self.frames))
        self.send_ms.append(max(0.0, 1000.0 * (monotonic_s() - due_s)))
        self.drain_gap_ms.append(drain_gap_ms)
        self.tick += 1
        if self.unsent or self.tick % QUEUE_TICKS == 0:
            self.check_backlog()
        self.plain_until = self._wake if not self.unsent else 0
        return not self.session.ended

    def not_taken(self, frame: bytes, error: OSError | None = None, n_sent: int = 0) -> None:
        """The kernel took only so much of a frame that the pacer sent by itself, or nothing and said why."""
        self.plain_until = 0
        if error is not None and not isinstance(error, BlockingIOError | InterruptedError):
            self._not_sent(error)
        else:
            self.unsent += frame[n_sent:]

    def _decide(self) -> None:
        self._empty_inbox()
        self._wake = NEVER  # before the step: if it raises, it is not asked again for this tick
        step = self.session.step(self.tick)
        self._wake = step.wake
        frames = () if step.clip is None else self._ready.frames[step.clip][step.at :]
        self.frames = chain(frames, repeat(self._ready.silence))
        if not self.live.line.sends_as_is:
            self.frames = map(self.live.line.wrap, self.frames)  # each when its turn to be sent has come

    def check_backlog(self) -> None:
        """End the session if the agent has not taken the user's audio for too long."""
        if len(self.unsent) + _queued_bytes(self.live.sock) > self._backlog_bytes:
            why = f"the agent does not read: {BACKLOG_S:g} s of the user's audio waits behind what its system has taken"
            self._fail("protocol", why)

    def _send(self, data: bytes) -> None:
        """Hand bytes to the kernel, in order; what it does not take waits for the next tick."""
        if self.unsent:
            self.unsent += data
            data = bytes(self.unsent)
            self.unsent.clear()
        elif not data:
            return
        try:
            sent = self.live.sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._not_sent(error)
            return
        if sent < len(data):
            self.unsent += data[sent:]
            self.plain_until = 0

    def _not_sent(self, error: OSError) -> None:
        # What the agent sent before it went is still to be read, and tells more than our failed send.
        if not _has_something_to_read(self.live.sock):
            self._broke(error, monotonic_s())

    def hang_up(self) -> None:
        """Begin the orderly close; never raises."""
        self._send(self.live.line.hang_up())

    # --- the end ---------------------------------------------------------------------------------------------------

    def _broke(self, error: OSError, now_s: float) -> None:
        self._take(self.live.line.broken(f"the connection broke: {error.strerror}", now_s - self.zero_s))

    def _fail(self, reason: FailureReason, why: str) -> None:
        place = f"at {self.tick * self._frame_s:.1f} s, in {self.session.turn_name}"
        self.end(Outcome("failed", reason, f"{why}, {place}"))

    def end(self, outcome: Outcome) -> None:
        """End the session from outside, at this tick."""
        try:
            self._empty_inbox()
        finally:
            self.session.end(outcome, self.tick)

    def lateness(self) -> Lateness:
        """How late we were, one value for each frame sent."""
        return lateness_of(self.send_ms, self.drain_gap_ms)


def _queued_bytes(sock: socket.socket) -> int:
    """What the kernel has taken and the other side's has not acknowledged; 0 where the system doesn't tell."""
    with contextlib.suppress(OSError):
        return int(struct.unpack("i", fcntl.ioctl(sock, _SIOCOUTQ, b"\0\0\0\0"))[0])
    return 0


def _has_something_to_read(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


def close_socket(sock: socket.socket) -> None:
    """Close, whatever state it is in."""
    with contextlib.suppress(OSError):  # a reset that arrives with our close has closed it all the same
        sock.close()
