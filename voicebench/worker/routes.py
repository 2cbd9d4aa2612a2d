"""How the sessions of one scenario reach their agent: three ways to hold a session, one result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import gevent
from gevent import socket as gevent_socket

from voicebench.clock import monotonic_s
from voicebench.errors import AgentError
from voicebench.mock_agent import session_seed
from voicebench.recording import Lateness
from voicebench.records import Outcome
from voicebench.scenario.adapter_options import MockOptions
from voicebench.session import Script, Session
from voicebench.virtual import run_virtual
from voicebench.worker.adapter_call import AdapterCall
from voicebench.worker.adapters.base import Adapter, LiveSocket, SessionInfo, Transport
from voicebench.worker.call import Call, ReadyScript, close_socket
from voicebench.worker.pacer import Pacer

GOODBYE_S = 1.0
"""How long the agent may take to answer our close before the socket is closed all the same."""


@dataclass(frozen=True, slots=True)
class Held:
    """A session that has ended, as its route held it."""

    session: Session
    zero_s: float
    """Session time 0 on the monotonic clock."""
    lateness: Lateness | None


class Hold(Protocol):
    """What the engine keeps of a session while it goes on, to end it from outside."""

    ending: Outcome | None


class Route(Protocol):
    """A scenario and a way to its agent."""

    @property
    def script(self) -> Script: ...

    @property
    def clock(self) -> Literal["virtual", "real"]: ...

    def hold(self, info: SessionInfo, opened: Callable[[Hold], None]) -> Held:
        """Hold one session to its end; `opened` is called once the line is open.

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
            _say_goodbye(live)
            return Held(call.session, call.zero_s, call.lateness())
        finally:
            close_socket(live.sock)

    def knock(self, info: SessionInfo) -> None:
        live = self.transport.open(info)
        try:
            live.sock.send(live.line.hang_up())
            _say_goodbye(live)
        except OSError as error:
            raise AgentError("dropped", f"the agent accepted the call and broke it at once: {error.strerror}") from None
        finally:
            close_socket(live.sock)


def _say_goodbye(live: LiveSocket) -> None:
    """Read until the agent has answered our close, within a time."""
    until_s = monotonic_s() + GOODBYE_S
    while not live.line.closed and (left_s := until_s - monotonic_s()) > 0:
        try:
            gevent_socket.wait_read(live.sock.fileno(), timeout=left_s)
            data = live.sock.recv(65536)
            live.line.receive(data, 0.0)
            reply = live.line.outgoing()
            if reply:
                live.sock.send(reply)
        except BlockingIOError:
            continue
        except (OSError, TimeoutError):
            return


@dataclass(frozen=True, slots=True)
class AdapterRoute:
    """An adapter object for each session, one greenlet each."""

    script: Script
    make: Callable[[SessionInfo], Adapter]
    connect_timeout_s: float
    clock: Literal["real"] = "real"

    def hold(self, info: SessionInfo, opened: Callable[[Hold], None]) -> Held:
        call = AdapterCall(self.script, self.make(info), connect_timeout_s=self.connect_timeout_s)
        opened(call)
        call.run()
        return Held(call.session, call.zero_s, call.lateness())

    def knock(self, info: SessionInfo) -> None:
        adapter: Any = self.make(info)
        try:
            with gevent.Timeout(self.connect_timeout_s, TimeoutError("no answer in time")):
                adapter.connect(self.connect_timeout_s)
        except AgentError:
            raise
        except Exception as error:
            raise AgentError("refused", f"the adapter could not connect: {error}") from error
        finally:
            adapter.close()
