"""A live session on its socket, as the pacer owns it: ready frames out, bytes in, lateness of every frame."""

from __future__ import annotations

import contextlib
import select
import socket
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from gevent.event import Event

from voicebench.clock import monotonic_s, realtime_s
from voicebench.errors import AgentError
from voicebench.events import AgentClosed, AgentEvent
from voicebench.recording import Lateness
from voicebench.records import Outcome
from voicebench.session import Script, Session, Step
from voicebench.worker.adapters.base import LiveSocket
from voicebench.worker.stamps import ANCILLARY_BYTES, arrival_s, ask_for_stamps

READ_BYTES = 65536
READS_PER_LOOK = 4
"""One agent that sends a flood must not keep the others waiting."""
GENERATOR_LATE_S = 1.0
"""Owing a session more than this, we end it: catching up would send a burst that no caller ever speaks."""
BACKLOG_S = 1.0
"""An agent that leaves this much of the user's audio unread does not listen."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadyScript:
    """A script whose frames are encoded once, as they go on the wire, for all its sessions."""

    script: Script
    frames: tuple[tuple[bytes, ...], ...]
    silence: bytes

    def frame(self, step: Step, tick: int, since: int) -> bytes:
        """The frame of `tick`, when `step` was taken at tick `since`."""
        if step.clip is not None:
            at = step.at + tick - since
            if at < len(self.frames[step.clip]):
                return self.frames[step.clip][at]
        return self.silence


def make_ready(script: Script, encode: Callable[[np.ndarray], bytes]) -> ReadyScript:
    """Encode all frames of a script. Equal frames share their bytes."""
    frames = tuple(
        tuple(encode(script.frame(clip, at)) for at in range(count)) for clip, count in enumerate(script.clip_frames)
    )
    return ReadyScript(script, frames, encode(np.zeros(script.frame_samples, dtype=np.int16)))


class Call:
    """One session and its socket. The pacer calls `due` at every tick and `look` when the socket has something."""

    def __init__(self, ready: ReadyScript, live: LiveSocket) -> None:
        self.session = Session(ready.script)
        self.done = Event()
        """Set once the session has ended and the pacer has let go of the socket."""
        self.zero_s = 0.0
        """Session time 0 on the monotonic clock: the due time of the first frame."""
        self.tick = 0
        self.ending: Outcome | None = None
        """Set from outside (cut): the pacer ends the session at its next tick."""
        self._ready = ready
        self.live = live
        self._frame_s = ready.script.frame_s
        self._step = Step(None, 0, 0)
        self._since = 0
        self._woken = True
        self._unsent = bytearray()
        self._unsent_limit = int(BACKLOG_S / self._frame_s) * len(ready.silence)
        self._send_ms = array("d")
        self._drain_gap_ms = array("d")
        self._kernel_stamps = ask_for_stamps(live.sock)
        self._looked_s = 0.0
        for event in live.early:
            self.session.hear(event)

    def start(self, zero_s: float) -> None:
        """Fix session time 0."""
        self.zero_s = zero_s
        self._looked_s = zero_s

    @property
    def due_s(self) -> float:
        """When the next frame should go out, on the monotonic clock."""
        return self.zero_s + self.tick * self._frame_s

    def look(self, now_s: float, looked_s: float) -> None:
        """Read what has come. `looked_s`: when the pacer looked at the sockets before this."""
        realtime_now_s = realtime_s()
        for _ in range(READS_PER_LOOK):
            try:
                data, ancillary, _, _ = self.live.sock.recvmsg(
                    READ_BYTES, ANCILLARY_BYTES if self._kernel_stamps else 0
                )
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._take(self.live.line.broken(f"the connection broke: {error.strerror}", now_s - self.zero_s))
                return
            arrived_s = arrival_s(ancillary, now_s=now_s, realtime_now_s=realtime_now_s, since_s=looked_s)
            self._take(self.live.line.receive(data, arrived_s - self.zero_s))
            self._send(self.live.line.outgoing())
            if len(data) < READ_BYTES:
                return

    def _take(self, events: Sequence[AgentEvent]) -> None:
        for event in events:
            failure = self.live.line.failure
            if isinstance(event, AgentClosed) and failure is not None:
                event = replace(event, reason=failure.reason, text=str(failure))
            self.session.hear(event)
            self._woken = True

    def due(self, now_s: float, drain_gap_ms: float) -> bool:
        """Take the tick that is due: decide, send. False when the session has ended.

        Args:
            now_s: Now; how far it lies behind `due_s` is the frame's lateness.
            drain_gap_ms: The widest time between two looks at the sockets since the frame before.
        """
        late_s = now_s - self.due_s
        if self.ending is not None:
            self.session.end(self.ending, self.tick)
        elif late_s > GENERATOR_LATE_S:
            why = f"this load generator was {1000 * late_s:.0f} ms late at {self.tick * self._frame_s:.1f} s"
            self.session.end(Outcome("failed", "generator", f"{why}; fewer sessions or a faster machine"), self.tick)
        elif self._woken or self.tick >= self._step.wake:
            self._step, self._since, self._woken = self.session.step(self.tick), self.tick, False
        if self.session.ended:
            return False
        self._send(self.live.line.wrap(self._ready.frame(self._step, self.tick, self._since)))
        self._send_ms.append(max(0.0, 1000.0 * (monotonic_s() - self.due_s)))
        self._drain_gap_ms.append(drain_gap_ms)
        self.tick += 1
        if len(self._unsent) > self._unsent_limit:
            why = f"the agent does not read: {BACKLOG_S:g} s of the user's audio waits unsent"
            self.session.end(Outcome("failed", "protocol", f"{why}, in {self.session.turn_name}"), self.tick)
        return not self.session.ended

    def _send(self, data: bytes) -> None:
        """Hand bytes to the kernel, in order; what it does not take waits for the next tick."""
        if self._unsent:
            self._unsent += data
            data = bytes(self._unsent)
        elif not data:
            return
        try:
            sent = self.live.sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            # What the agent sent before it went is still to be read, and tells more than our failed send.
            self._unsent.clear()
            if not select.select([self.live.sock], [], [], 0)[0]:
                self._take(
                    self.live.line.broken(f"the connection broke: {error.strerror}", monotonic_s() - self.zero_s)
                )
            return
        self._unsent = bytearray(data[sent:])

    def hang_up(self) -> None:
        """Begin the orderly close; never raises."""
        self._send(self.live.line.hang_up())

    def lateness(self) -> Lateness:
        """How late we were, one value for each frame sent."""
        return Lateness(np.array(self._send_ms), np.array(self._drain_gap_ms))


def failed_before_start(error: AgentError) -> Outcome:
    """The outcome of a session whose line never opened."""
    return Outcome("failed", error.reason, str(error))


def close_socket(sock: socket.socket) -> None:
    """Close, whatever state it is in."""
    with contextlib.suppress(OSError):  # a reset that arrives with our close has closed it all the same
        sock.close()
