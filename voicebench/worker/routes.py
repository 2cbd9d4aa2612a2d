"""How the sessions of one scenario reach their agent: three ways to hold a session, one result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gevent import socket as gevent_socket

from voicebench.clock import monotonic_s
from voicebench.errors import AgentError
from voicebench.mock_agent import session_seed
from voicebench.recording import Lateness
from voicebench.records import Outcome
from voicebench.scenario.adapter_options import MockOptions
from voicebench.script import Script
from voicebench.session import Session
from voicebench.virtual import run_virtual
from voicebench.worker.adapter_call import AdapterCall, LoopWatch
from voicebench.worker.adapters.base import Adapter, LiveSocket, SessionInfo, Transport
from voicebench.worker.call import Call, ReadyScript, close_socket
from voicebench.worker.pacer import Pacer

GOODBYE_S = 1.0
"""How long the agent may take to answer our close before the socket is closed all the same."""
GOODBYE_READ_BYTES = 1024
GOODBYE_READING_S = 0.02
"""What it still sends is read in small pieces, since live sessions wait for their turn, and not without end."""


@dataclass(frozen=True, slots=True)
class Held:
    """A session that has ended, as its route held it."""

    session: Session
    zero_s: float
    """Session time 0 on the monotonic clock."""
    lateness: Lateness | None


class Hold(Protocol):
    """What the engine keeps of a session while it goes on."""

    session: Session
    ending: Outcome | None
    """To end it from outside."""


class Route(Protocol):
    """A scenario and a way to its agent."""

    @property
    def script(self) -> Script: ...

    @property
    def clock(self) -> Literal["virtual", "real"]: ...

    def hold(self, info: SessionInfo, opened: Callable[[Hold], None]) -> Held:
        """Hold one session to its end.

        `opened` is called once the line is open. Until then an exception thrown into the greenlet ends it, from then on
        the hold's `ending`.

        Raises:
            AgentError: The line never opened.
            TesterError: This machine could not open it.
        """

    def knock(self, info: SessionInfo) -> None:
        """Open the line and close it again: is anyone there? Raises as `hold`."""


@dataclass(frozen=True, slots=True)
class VirtualRoute:
    """The mock agent on the virtual clock."""

    script: Script
    options: MockOptions
    clock: Literal["virtual"] = "virtual"

    def hold(self, info: SessionInfo, opened: Callable[[Hold], None]) -> Held:
        session = run_virtual(self.script, self.options, seed=session_seed(self.options.seed, info.number))
        return Held(session, 0.0, None)

    def knock(self, info: SessionInfo) -> None:
        """The mock agent is always there."""


@dataclass(frozen=True, slots=True)
class SocketRoute:
    """A transport whose open sockets belong to the pacer."""

    ready: ReadyScript
    transport: Transport
    pacer: Pacer
    clock: Literal["real"] = "real"

    @property
    def script(self) -> Script:
        return self.ready.script

    def hold(self, info: SessionInfo, opened: Callable[[Hold], None]) -> Held:
        live = self.transport.open(info)
        try:
            call = Call(self.ready, live)
            opened(call)
            self.pacer.add(call)
            call.done.wait()
            _say_goodbye(live, call.unsent)
            return Held(call.session, call.zero_s, call.lateness())
        finally:
            close_socket(live.sock)

    def knock(self, info: SessionInfo) -> None:
        live = self.transport.open(info)
        try:
            live.sock.send(live.line.hang_up())
            _say_goodbye(live, bytearray())
        except OSError as error:
            raise AgentError("dropped", f"the agent accepted the call and broke it at once: {error.strerror}") from None
        finally:
            close_socket(live.sock)


def _say_goodbye(live: LiveSocket, unsent: bytearray) -> None:
    """Send what is left and read until the agent has answered our close, within a time."""
    until_s = monotonic_s() + GOODBYE_S
    reading_s = 0.0
    try:
        while reading_s < GOODBYE_READING_S and (left_s := until_s - monotonic_s()) > 0:
            unsent += live.line.outgoing()
            if unsent:
                with contextlib.suppress(BlockingIOError):
                    del unsent[: live.sock.send(unsent)]
            if live.line.closed and not unsent:
                return
            wait = gevent_socket.wait_readwrite if unsent else gevent_socket.wait_read
            wait(live.sock.fileno(), timeout=left_s)
            began_s = monotonic_s()
            with contextlib.suppress(BlockingIOError):
                data = live.sock.recv(GOODBYE_READ_BYTES)
                live.line.receive(data, 0.0)
                if not data:
                    return
            reading_s += monotonic_s() - began_s
    except OSError:  # it is gone, or has not answered in time
        return


@dataclass(frozen=True, slots=True)
class AdapterRoute:
    """An adapter object for each session, one greenlet each."""

    script: Script
    make: Callable[[SessionInfo], Adapter]
    connect_timeout_s: float
    clock: Literal["real"] = "real"
    watch: LoopWatch = field(default_factory=LoopWatch)

    def hold(self, info: SessionInfo, opened: Callable[[Hold], None]) -> Held:
        call = AdapterCall(self.script, self.make(info), connect_timeout_s=self.connect_timeout_s, watch=self.watch)
        call.run(opened)
        return Held(call.session, call.zero_s, call.lateness())

    def knock(self, info: SessionInfo) -> None:
        AdapterCall(self.script, self.make(info), connect_timeout_s=self.connect_timeout_s).knock()
