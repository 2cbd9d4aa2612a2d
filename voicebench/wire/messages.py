"""The messages between master and workers.

Everything the master orders is a state, not an event: `Orders` and `Share` say how things should be, and are said again
until a `Beat` echoes them, so one that is lost does no harm. What a worker has measured (`Results`, `Final`) it keeps
and sends again until `Orders` acknowledges it. Recordings and audio are pulled in pieces over the bulk socket, each
piece asked for by offset, so they wait for nobody and nobody waits for them.

Every message of a worker that has been welcomed carries its `epoch`, so that a connection made anew needs no ceremony:
the master answers where it heard the worker last.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from voicebench.records import SessionRecord

PROTOCOL = 1
"""Raised with every change that the other side would not understand."""

MAX_CALLERS = 100_000
MAX_SESSIONS = 1_000_000_000
PIECE_BYTES = 256 * 1024
MAX_FILE_BYTES = 1 << 30

Epoch = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
Seq = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Caller = Annotated[int, msgspec.Meta(ge=0, lt=MAX_CALLERS)]
Placed = Annotated[int, msgspec.Meta(ge=0, le=MAX_SESSIONS)]
"""How many sessions of a caller have been started so far: the next is number caller + placed * callers."""
Number = Annotated[int, msgspec.Meta(ge=0, le=2 * MAX_SESSIONS)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Text = Annotated[str, msgspec.Meta(max_length=4000)]
Sha = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
Incarnation = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$")]
Seconds = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]
TimeShare = Annotated[float, msgspec.Meta(ge=0.0, le=1e4)]
"""Of a stretch of time: 1.0 is one core, or the whole machine, all along."""
Span = Annotated[float, msgspec.Meta(ge=0.0, le=1e12)]
"""A length of time."""
FileName = Literal["session.json", "user.wav", "agent.wav"]
SessionId = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,200}$")]

Phase = Literal["gather", "run", "finish", "drain", "cut"]
"""gather: workers are awaited. run: place sessions. finish: nothing is left to place. drain: place nothing, cut what
still goes on after the stop time-out. cut: end everything now."""
WorkerState = Literal["joining", "ready", "running", "leaving", "done"]
"""joining: fetching what it needs. leaving: it was asked to go and lets its sessions end. done: all are over."""


class Message(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True):
    """`v` is the protocol of whoever wrote it."""

    v: int = PROTOCOL


# --- joining -----------------------------------------------------------------------------------------------------


class Hello(Message, frozen=True, tag="hello", kw_only=True):
    """worker -> master, until welcomed or refused. A repeat with the same incarnation is the same worker."""

    version: Name
    incarnation: Incarnation
    """Made anew whenever a worker starts: neither name nor address tells two of them apart."""
    name: Name
    host: Name
    python: Name
    platform: Name
    cpus: Count


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run, the same for all workers."""

    run_id: SessionId
    scenarios: Annotated[tuple[Sha, ...], msgspec.Meta(min_length=1, max_length=1000)]
    weights: Annotated[tuple[float, ...], msgspec.Meta(min_length=1, max_length=1000)]
    callers: Annotated[int, msgspec.Meta(ge=1, le=MAX_CALLERS)]
    sessions: Annotated[int, msgspec.Meta(ge=1, le=MAX_SESSIONS)] | None
    spawn_rate_per_s: float | None
    run_time_s: float | None
    stop_timeout_s: float
    pause_s: tuple[float, float]
    warmup_s: float
    seed: int
    keep: Literal["all", "failed", "none"]
    preflight: bool


class Welcome(Message, frozen=True, tag="welcome", kw_only=True):
    """master -> worker, the answer to `Hello`. Said again to a repeat, with the same epoch."""

    epoch: Epoch
    worker: Name
    """The name it goes by in this run, unlike any other's."""
    term: Count
    plan: RunPlan
    beat_s: float
    lost_s: float
    lease_s: float


class Refuse(Message, frozen=True, tag="refuse", kw_only=True):
    """master -> worker: not here, not like this. The sentence is for whoever started the worker.

    Its form never changes, whatever the protocol: it is what a worker of another version must be able to read.
    """

    reason: Text
    exit_code: int = 2


class Unable(Message, frozen=True, tag="unable", kw_only=True):
    """worker -> master, until its `Orders` say `over`: it can't take part, since an adapter can't be loaded, a variable
    is not set, or the agent can't be reached from there."""

    epoch: Epoch
    reason: Text
    exit_code: int


# --- while it runs -----------------------------------------------------------------------------------------------


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker fared in the last second or so: what the machine did to it, and how late that made it. None: not
    known there. Every beat says the newest again, so that a beat which is lost takes none with it."""

    n: Annotated[int, msgspec.Meta(ge=1, le=1 << 53)]
    """Counts from 1."""
    over_s: Span
    """How long that second was."""
    calls: Count
    """Sessions going on; 0 unless there were some when it began, too."""
    loop_cpu: TimeShare | None = None
    """Of the thread whose loop holds the sessions: on a CPU."""
    process_cpu: TimeShare | None = None
    waited: TimeShare | None = None
    """Of the same thread: ready to run, while others had the CPU."""
    throttled_ms: Span | None = None
    """By the CPU limit of its control group, all threads added up."""
    steal: TimeShare | None = None
    """Of the machine's CPUs: taken by its host."""
    widest_gap_ms: Span | None = None
    """Between two looks at the agents."""
    worst_late_ms: Span | None = None
    """Of a frame behind its due time."""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """What holds a worker's sessions stands still, right now."""

    what: Literal["loop", "pacer"]
    """loop: nothing in it runs. pacer: the loop turns, and nobody looks at the sockets."""
    for_s: Span
    where: Annotated[str, msgspec.Meta(max_length=1000)]
    """What the loop's thread is at."""


class Beat(Message, frozen=True, tag="beat", kw_only=True):
    """worker -> master, every `beat_s` and as soon as a session has started."""

    epoch: Epoch
    n: Count
    """Counts from 1; `Orders.echo_n` says which one the master answers."""
    sent_s: Seconds
    """On the worker's monotonic clock."""
    share_version: Count
    state: WorkerState
    placed: tuple[tuple[Caller, Placed], ...]
    """Callers it holds whose count has grown since the beat that the master echoed last."""
    released: tuple[tuple[Caller, Placed], ...]
    """Callers taken from it by a share that it holds no more, until the master has echoed them."""
    live: Count
    settling: Count = 0
    """Sessions that have ended and are being scored."""
    hub_age_s: float
    """How long ago the loop that holds the sessions was last seen to turn."""
    cpu_s: float
    health: Health | None = None
    blocked: Block | None = None


class Orders(Message, frozen=True, tag="orders", kw_only=True):
    """master -> worker, the answer to each `Beat`, and at once when the phase changes."""

    epoch: Epoch
    term: Count
    phase: Phase
    phase_s: Seconds | None
    """When this phase began, on the master's monotonic clock."""
    t0_s: Seconds | None
    """Run time 0 on the master's monotonic clock; None until the run starts."""
    share_version: Count
    """Of the share that the worker should hold; `Share` comes with it when the beat named an older one."""
    acked: Seq
    """All `Results` up to this one are stored."""
    may_start: Count | None
    """How many sessions this worker may have started in all; None: no limit."""
    leave: bool
    """Let the sessions end, then say `Final`, whatever the phase."""
    over: bool
    """The worker's `Final` is stored and its recordings are fetched: it may go."""
    echo_n: Count
    echo_sent_s: Seconds
    received_s: Seconds
    """When that beat came, and (`sent_s`) when this left, on the master's monotonic clock."""
    sent_s: Seconds


class Share(Message, frozen=True, tag="share", kw_only=True):
    """master -> worker: the callers it should hold from now on, each with how many of its sessions were started."""

    epoch: Epoch
    term: Count
    share_version: Count
    callers: tuple[tuple[Caller, Placed], ...]


class SessionResult(msgspec.Struct, frozen=True, kw_only=True):
    """One session that was started, whatever became of it."""

    number: Number
    index: Count
    """Which scenario of the mix."""
    started_s: Seconds
    """Run time."""
    warmup: bool
    frames_sent: Count
    lateness: dict[int, int]
    """Of sent frames: ticks of 0.1 ms to how many."""
    record: SessionRecord
    files: dict[FileName, Annotated[int, msgspec.Meta(ge=1, le=MAX_FILE_BYTES)]] | None
    """Its recording, kept at the worker until fetched: file to bytes. None: there is none to be had."""


class Results(Message, frozen=True, tag="results", kw_only=True):
    """worker -> master, kept until acked. The same (epoch, seq) again is dropped; one that leaves a gap too: the worker
    sends on from what `Orders` acknowledge."""

    epoch: Epoch
    seq: Annotated[int, msgspec.Meta(ge=1, le=1 << 53)]
    """Counts from 1."""
    session: SessionResult


class Final(Message, frozen=True, tag="final", kw_only=True):
    """worker -> master, when all its sessions are over, until its `Orders` say `over`."""

    epoch: Epoch
    seq: Seq
    """Of its last `Results`."""
    cpu_s: float
    notes: Annotated[tuple[Text, ...], msgspec.Meta(max_length=1000)]
    events: Annotated[tuple[tuple[Seconds, Name, Text], ...], msgspec.Meta(max_length=1000)]
    """Changes of state that the worker made by itself: run time, what, why."""
    trouble: Text = ""
    """What could not be kept (recordings): the numbers are whole."""
    error: Text = ""
    """What broke its load generator, so that the run is void."""


class Gone(Message, frozen=True, tag="gone", kw_only=True):
    """worker -> master, the last word: it has heard that it may go. Until then the master stays, for a while: what is
    still under way when it closes a connection may never be read."""

    epoch: Epoch


# --- bulk ----------------------------------------------------------------------------------------------------------


class BulkHello(Message, frozen=True, tag="bulk_hello", kw_only=True):
    """worker -> master: this is my bulk socket. Said again now and then, for a connection made anew."""

    epoch: Epoch


class WantAsset(Message, frozen=True, tag="want_asset", kw_only=True):
    """worker -> master: a piece of a scenario or of a turn's audio."""

    epoch: Epoch
    sha: Sha
    offset: Count


class AssetPiece(Message, frozen=True, tag="asset_piece", kw_only=True):
    """master -> worker. `size` is that of the whole."""

    sha: Sha
    offset: Count
    size: Count
    data: bytes


class WantFile(Message, frozen=True, tag="want_file", kw_only=True):
    """master -> worker: a piece of a recording."""

    session_id: SessionId
    file: FileName
    offset: Count


class FilePiece(Message, frozen=True, tag="file_piece", kw_only=True):
    """worker -> master. Empty data: the file can't be read, and `why` says so."""

    epoch: Epoch
    session_id: SessionId
    file: FileName
    offset: Count
    data: bytes
    why: Text = ""


class Fetched(Message, frozen=True, tag="fetched", kw_only=True):
    """master -> worker: the recording is on the master's disk, or is not wanted; the worker may drop it."""

    session_id: SessionId


FromWorker = Hello | Unable | Beat | Results | Final | Gone | BulkHello | WantAsset | FilePiece
FromMaster = Welcome | Refuse | Orders | Share | AssetPiece | WantFile | Fetched
