"""The two seams to an agent: a transport hands its socket to the pacer, an adapter keeps its own.

A *transport* (mock-server, profiles, everything with a URL) connects, shakes hands and then hands over a native
non-blocking socket with a sans-I/O line; the pacer does the rest for hundreds of sessions at once. An *adapter* is the
seam for agents that no URL reaches: a class of the user's own, `module:Class`, one greenlet for each session.
"""

from __future__ import annotations

import difflib
import importlib
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from voicebench.errors import AdapterError, AgentError
from voicebench.events import AgentAudio, AgentClear, AgentClosed, AgentEvent, AgentTranscript, Samples
from voicebench.worker.stamps import Ancillary

RecvMsg: TypeAlias = Callable[[int, int], tuple[bytes, Ancillary, int, Any]]
"""`socket.recvmsg`: at most so many bytes, and so many of ancillary data."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What a transport may need to know of the session it opens."""

    session_id: str
    number: int
    """From 0, unique in the run."""
    sample_rate_hz: int
    frame_samples: int
    scenario: str
    started_at: str
    """UTC, ISO 8601."""


class Line(Protocol):
    """One session's conversation with the agent as bytes, without a socket. Nothing here blocks or raises.

    Bytes go on the wire in the order in which `wrap`, `outgoing` and `hang_up` returned them (under TLS each
    is a record with a number).
    """

    @property
    def closed(self) -> bool:
        """Both directions are over: send `outgoing` once more, then close the socket."""

    @property
    def failure(self) -> AgentError | None:
        """Why the agent's side ended, in one reason and a sentence; None while it has not, or when we hung up first.

        Set with the `AgentClosed` event. `agent_hangup` is a failure only if the script was not through.
        """

    @property
    def sends_as_is(self) -> bool:
        """Whether `wrap` changes nothing, so that ready frames go on the wire without asking."""

    def audio(self, data: bytes) -> Samples | None:
        """The usual case, cheaply: what `data` says if it is one whole message of audio and nothing more, at a moment
        when nothing else is under way. None: take it to `receive`."""

    def head(self, data: bytes) -> bytes:
        """How `data`, which `audio` has just taken, begins before its samples (int16, little-endian). Until `receive`
        has seen something, whatever begins so and is as long would be taken by `audio` as well. b"": nobody knows."""

    def receive(self, data: bytes, time_s: float) -> list[AgentEvent]:
        """Take bytes read from the socket, b"" for its end, and return what they mean, stamped `time_s`."""

    def broken(self, why: str, time_s: float) -> list[AgentEvent]:
        """As `receive(b"")`, when the socket failed: `why` says how, in a sentence for people."""

    def wrap(self, ready: bytes) -> bytes:
        """What must go on the wire for one of the transport's ready frames."""

    def outgoing(self) -> bytes:
        """What must be sent now, between two frames (pongs, the answer to a close); b"" when nothing."""

    def hang_up(self) -> bytes:
        """Begin an orderly close and return what to send; b"" when the line has ended or we hung up before."""


@dataclass(frozen=True, slots=True)
class LiveSocket:
    """An open line to the agent, for the pacer to own: nobody else touches the socket any more."""

    sock: socket.socket
    """Native and unpatched, non-blocking."""
    line: Line
    early: tuple[AgentEvent, ...] = ()
    """What the agent said with the end of the handshake, before session time 0: stamped 0.0, where it is placed."""
    read: RecvMsg | None = None
    """The line's own way to read the socket, if it has one: what it returns must be what `line` is given next."""


class Transport(Protocol):
    """How one scenario's sessions reach the agent. One per scenario and worker; it holds nothing of a session."""

    def ready_frame(self, samples: Samples) -> bytes:
        """A frame of user audio as it goes on the wire, encoded once and shared by all sessions."""

    def open(self, session: SessionInfo) -> LiveSocket:
        """Connect and shake hands, in a greenlet of its own; waits cooperatively, within the options' time-outs.

        Raises:
            AgentError: The agent can't be reached or won't talk; `reason` is one of `errors.FAILURE_REASONS`.
            TesterError: This machine ran out of something (ports, file descriptors): never the agent's fault.
        """


@dataclass(frozen=True, slots=True)
class Audio:
    """Agent audio at the session's sample rate, as an adapter returns it."""

    samples: Samples


@dataclass(frozen=True, slots=True)
class Clear:
    """The agent wants dropped what has not been played."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """Text the agent reports: what it heard (`user`) or said (`agent`)."""

    role: Literal["user", "agent"]
    text: str
    final: bool = True


@dataclass(frozen=True, slots=True)
class HangUp:
    """The agent has ended the session; 1000 and 1001 are an orderly end, as on a WebSocket."""

    code: int | None = 1000
    text: str = ""


Said: TypeAlias = Audio | Clear | Transcript | HangUp
"""What an adapter returns: events without a time, so that it can neither forget nor fake the clock."""


class Adapter(Protocol):
    """A user-written way to an agent, named in a scenario as `adapter: {type: "module:Class", options: {...}}`.

    One object a session, made as `Class(**options)`, used by one greenlet. `connect` comes first and once.
    It may wait only cooperatively: gevent's sockets and queues, or monkey-patched ones, never a C library's.
    """

    def connect(self, timeout_s: float) -> None:
        """Reach the agent. Raises AgentError with a reason; anything else counts as `refused`, with its text."""

    def send(self, samples: Samples) -> None:
        """Send one frame of user audio, int16 at the session's rate. Never blocks longer than one frame."""

    def receive(self, timeout_s: float) -> Said | None:
        """What the agent does next; None: nothing within `timeout_s`. The time of return is the time of arrival."""

    def close(self) -> None:
        """Hang up. May be called twice, and from another greenlet."""


ADAPTER_METHODS = ("connect", "send", "receive", "close")


def stamped(said: Said, time_s: float) -> AgentEvent:
    """What an adapter returned, as a session event that arrived at `time_s`.

    Raises:
        AdapterError: It returned something else.

    >>> stamped(Clear(), 1.5)
    AgentClear(time_s=1.5)
    """
    match said:
        case Audio(samples):
            return AgentAudio(samples, time_s)
        case Clear():
            return AgentClear(time_s)
        case Transcript(role, text, final):
            return AgentTranscript(role, text, time_s, final)
        case HangUp(code, text):
            return AgentClosed(time_s, code, text)
    raise AdapterError(
        f"the adapter's receive() returned a {type(said).__name__}; it must return Audio, Clear, Transcript, HangUp"
        " (voicebench.worker.adapters) or None"
    )


def load_adapter_class(name: str) -> type[Any]:
    """The class behind `module:Class`, which must be installed where the worker runs.

    Raises:
        AdapterError: It can't be loaded, or lacks a method of `Adapter`: which, and what to do.
    """
    module_name, colon, class_name = name.partition(":")
    if not (colon and module_name and class_name):
        raise AdapterError(f"adapter {name!r} is not of the form 'module:Class'")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise AdapterError(
                f"adapter {name!r}: there is no module {error.name!r} here; install it where the worker runs, or"
                " put its folder on PYTHONPATH"
            ) from error
        raise AdapterError(f"adapter {name!r}: {module_name} needs the module {error.name!r}: install it") from error
    except Exception as error:
        raise AdapterError(f"adapter {name!r}: importing {module_name} failed: {describe(error)}") from error
    adapter = getattr(module, class_name, None)
    if not isinstance(adapter, type):
        raise AdapterError(f"adapter {name!r}: {module_name} has no class {class_name!r}{_near(class_name, module)}")
    missing = [method for method in ADAPTER_METHODS if not callable(getattr(adapter, method, None))]
    if missing:
        raise AdapterError(f"adapter {name!r}: {class_name} lacks {', '.join(f'{method}()' for method in missing)}")
    return adapter


def describe(error: BaseException) -> str:
    """An exception as part of a sentence: its type, and its text if it has one."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _near(name: str, module: object) -> str:
    classes = [other for other in vars(module) if isinstance(getattr(module, other), type)]
    near = difflib.get_close_matches(name, classes, n=1)
    return f". Did you mean {near[0]!r}?" if near else ""
