"""The master's side of the protocol, as a machine: who is here, who holds which callers, what has been handed in.

    GATHER -> RUN -> FINISH, DRAIN or CUT -> over

What it is told comes in calls with the time; what it wants sent and stored is taken from it. Results are acknowledged
only when the shell has said that they are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from voicebench import __version__
from voicebench.load.budget import AudioBudget
from voicebench.load.closed import session_name
from voicebench.load.shares import Shares
from voicebench.wire.liveness import DEFAULT, Liveness
from voicebench.wire.messages import (
    PIECE_BYTES,
    PROTOCOL,
    AssetPiece,
    Beat,
    BulkHello,
    Final,
    FromMaster,
    FromWorker,
    Gone,
    Hello,
    Orders,
    Phase,
    Refuse,
    Results,
    RunPlan,
    SessionResult,
    Share,
    Unable,
    WantAsset,
    Welcome,
)

MAX_WORKERS = 1000
START_AHEAD_S = 0.3
"""Run time 0 lies so far in the future that every worker has heard of it by then."""
STALL_S = 0.5
"""A master that did not turn for this long blames no worker for the silence."""

Standing = Literal["here", "done", "left", "lost", "unable"]
"""done: it handed everything in at the end of the run. left: it did so before, on its own wish."""


@dataclass(slots=True)
class Peer:
    """One worker, as the master knows it."""

    epoch: int
    name: str
    hello: Hello
    joined_s: float
    heard_s: float
    control: bytes
    bulk: bytes | None = None
    standing: Standing = "here"
    state: str = "joining"
    beat: Beat | None = None
    beat_heard_s: float = 0.0
    joined_shares: bool = False
    leaving: bool = False
    have: int = 0
    """`seq` of the last result taken in; `stored` of the last that is on disk."""
    stored: int = 0
    granted: int = 0
    """How many sessions it may have started, where there is a budget."""
    final: Final | None = None
    left_s: float | None = None
    expelled: bool = False
    """It said what can't be: nothing of it is taken in any more."""
    gone: bool = False
    """It has heard that it may go, or is known to be dead."""
    why: str = ""

    @property
    def settled(self) -> bool:
        """Nothing more is expected of it."""
        return self.standing != "here"


@dataclass(frozen=True, slots=True)
class Fresh:
    """A result to be stored."""

    epoch: int
    worker: str
    seq: int
    session: SessionResult


@dataclass(frozen=True, slots=True)
class RunEvent:
    at_s: float
    """On the master's monotonic clock."""
    event: str
    detail: str


@dataclass(slots=True)
class Sends:
    """What is to be sent, in order: to whom (a routing id), what."""

    queue: list[tuple[bytes, FromMaster]] = field(default_factory=list)

    def take(self) -> list[tuple[bytes, FromMaster]]:
        taken, self.queue = self.queue, []
        return taken


class Coordinator:
    """One run and its workers."""

    def __init__(
        self,
        plan: RunPlan,
        assets: Mapping[str, bytes],
        *,
        term: int = 1,
        liveness: Liveness = DEFAULT,
        budget: AudioBudget | None = None,
        fetching: Callable[[int], bool] = lambda epoch: False,
    ) -> None:
        """
        Args:
            plan: What is to be run.
            assets: Scenarios and audio, by SHA-256.
            budget: Of minutes of conversation.
            fetching: Whether recordings of a worker (by epoch) are still being fetched.
        """
        self.plan = plan
        self.shares = Shares(plan.callers, plan.sessions)
        self.peers: dict[int, Peer] = {}
        self.phase: Phase = "gather"
        self.phase_s: float | None = None
        self.t0_s: float | None = None
        self.over = False
        self.failure: tuple[str, int] | None = None
        """Why the run can't begin, and the exit code that follows."""
        self.aborted: str | None = None
        """Why it ended before its time, on our side."""
        self.events: list[RunEvent] = []
        self.notes: list[str] = []
        self.sends = Sends()
        self._assets = assets
        self._term = term
        self._liveness = liveness
        self._budget = budget
        self._fetching = fetching
        self._by_incarnation: dict[str, Peer] = {}
        self._fresh: list[Fresh] = []
        self._storing: dict[int, int] = {}
        """What is on its way to the disk: the last `seq`, by epoch."""
        self._ticked_s: float | None = None

    # --- read by the shell -------------------------------------------------------------------------------------------

    @property
    def ready(self) -> int:
        """Workers that could begin."""
        return sum(peer.standing == "here" and peer.state == "ready" for peer in self.peers.values())

    @property
    def here(self) -> list[Peer]:
        """Workers of which something is still expected."""
        return [peer for peer in self.peers.values() if not peer.settled]

    def started(self, epoch: int) -> int:
        """Sessions a worker is known to have started."""
        return self.shares.started[epoch]

    def lost_sessions(self, epoch: int) -> frozenset[int]:
        """Numbers of sessions that started at a worker that is gone, of which no result has come."""
        return self.shares.open(epoch) if self.peers[epoch].settled else frozenset()

    def run_s(self, now_s: float) -> float:
        """Run time."""
        return 0.0 if self.t0_s is None else now_s - self.t0_s

    def take_fresh(self) -> list[Fresh]:
        """Results that came since the last call: to be stored, then `stored`."""
        taken, self._fresh = self._fresh, []
        self._storing.update((each.epoch, each.seq) for each in taken)
        return taken

    def stored(self) -> None:
        """What `take_fresh` gave is on disk. What was heard since is not."""
        for epoch, seq in self._storing.items():
            self.peers[epoch].stored = seq
        self._storing.clear()

    # --- what the user wants -----------------------------------------------------------------------------------------

    def start(self, now_s: float) -> None:
        """Begin with the workers that are ready."""
        if self.phase != "gather":
            return
        self.t0_s = now_s + START_AHEAD_S
        for peer in self.peers.values():
            if peer.standing == "here" and peer.state == "ready":
                self._take_part(peer)
        self.shares.begin()
        n_workers = len([peer for peer in self.peers.values() if peer.joined_shares])
        self._enter("run", self.t0_s)
        self._mark(self.t0_s, "start", f"{_n(self.plan.callers, 'caller')} on {_n(n_workers, 'worker')}")

    def drain(self, now_s: float, why: str) -> None:
        """Start nothing more; what goes on may end within the stop time-out."""
        if self.phase == "gather":
            self._abandon_gathering(now_s, why)
        elif self.phase in ("run", "finish"):
            self._enter("drain", now_s)
            self._mark(now_s, "drain", why)

    def cut(self, now_s: float, why: str) -> None:
        """End everything now."""
        if self.phase == "gather":
            self._abandon_gathering(now_s, why)
        elif self.phase != "cut":
            self._enter("cut", now_s)
            self._mark(now_s, "cut", why)

    def abandon(self, now_s: float, why: str) -> None:
        """Wait for no worker any more: what has not been handed in is lost."""
        for peer in self.here:
            self._lose(peer, now_s, why)
        self.aborted = self.aborted or why
        self.over = True

    def gone(self, epoch: int, now_s: float, why: str) -> None:
        """A worker is known to have died (a child process was reaped): it can't start anything any more."""
        peer = self.peers.get(epoch)
        if peer is None:
            return
        peer.gone = True
        if not peer.settled:
            self._lose(peer, now_s, why)

    # --- what is heard -----------------------------------------------------------------------------------------------

    def hear(self, sender: bytes, message: FromWorker, now_s: float) -> None:
        """Take one message in. `sender` is where an answer goes."""
        if isinstance(message, Hello):
            self._hello(sender, message, now_s)
            return
        peer = self.peers.get(message.epoch)
        if peer is None:
            self._send(sender, Refuse(reason="this master does not know this worker: it belonged to another run"))
            return
        if peer.expelled:
            self._send(sender, Refuse(reason=peer.why, exit_code=4))
            return
        if isinstance(message, BulkHello | WantAsset):
            peer.bulk = sender
            if isinstance(message, WantAsset):
                self._want_asset(sender, message)
            return
        peer.heard_s = now_s
        if isinstance(message, Beat):
            self._beat(peer, sender, message, now_s)
        elif isinstance(message, Results):
            self._results(peer, message, now_s)
        elif isinstance(message, Final):
            self._final(peer, message, now_s)
        elif isinstance(message, Unable):
            self._unable(peer, message, now_s)
        elif isinstance(message, Gone):
            peer.gone = True

    def wrong_protocol(self, sender: bytes, protocol: int, version: str) -> None:
        """Somebody speaks another version of the protocol."""
        newer = protocol > PROTOCOL
        self._send(sender, Refuse(reason=_upgrade(version or f"of protocol {protocol}", worker_is_newer=newer)))

    def tick(self, now_s: float) -> None:
        """Let time pass: who is lost, whether the run time is over, whether all is done."""
        if self._ticked_s is not None and now_s - self._ticked_s > STALL_S:
            for peer in self.peers.values():
                peer.heard_s = min(now_s, peer.heard_s + now_s - self._ticked_s)
        self._ticked_s = now_s
        for peer in self.here:
            if now_s - peer.heard_s > self._liveness.lost_s:
                self._lose(peer, now_s, f"silent for {self._liveness.lost_s:g} s")
        self._watch_the_clock(now_s)
        self._settle_ending(now_s)

    # --- how ---------------------------------------------------------------------------------------------------------

    def _hello(self, sender: bytes, hello: Hello, now_s: float) -> None:
        peer = self._by_incarnation.get(hello.incarnation)
        if peer is None:
            refusal = self._refusal(hello)
            if refusal is not None:
                self._send(sender, refusal)
                return
            peer = self._admit(sender, hello, now_s)
        peer.control, peer.heard_s = sender, now_s
        self._send(
            sender,
            Welcome(
                epoch=peer.epoch,
                worker=peer.name,
                term=self._term,
                plan=self.plan,
                beat_s=self._liveness.beat_s,
                lost_s=self._liveness.lost_s,
                lease_s=self._liveness.lease_s,
            ),
        )

    def _refusal(self, hello: Hello) -> Refuse | None:
        if hello.version != __version__:
            newer = _version_key(hello.version) > _version_key(__version__)
            return Refuse(reason=_upgrade(hello.version, worker_is_newer=newer))
        if self.over or self.phase not in ("gather", "run"):
            return Refuse(reason="the run is ending: there is nothing left to place", exit_code=0)
        if len(self.peers) >= MAX_WORKERS:
            return Refuse(reason=f"this master has taken {MAX_WORKERS} workers and takes no more", exit_code=4)
        return None

    def _admit(self, sender: bytes, hello: Hello, now_s: float) -> Peer:
        names = {peer.name for peer in self.peers.values()}
        hello = msgspec.structs.replace(hello, name=shown(hello.name), host=shown(hello.host))
        name, further = hello.name, 2
        while name in names:
            name, further = f"{hello.name[:190]}-{further}", further + 1
        epoch = len(self.peers) + 1
        peer = Peer(epoch, name, hello, joined_s=now_s, heard_s=now_s, control=sender)
        self.peers[epoch] = self._by_incarnation[hello.incarnation] = peer
        self._mark(now_s, "join", f"{name} on {hello.host}")
        return peer

    def _take_part(self, peer: Peer) -> None:
        peer.joined_shares = True
        self.shares.join(peer.epoch)

    def _beat(self, peer: Peer, sender: bytes, beat: Beat, now_s: float) -> None:
        if peer.beat is not None and beat.n <= peer.beat.n:
            return  # an old one, from a connection that is gone
        peer.control = sender
        peer.beat, peer.beat_heard_s, peer.state = beat, now_s, beat.state
        if self._came_back(peer):
            peer.standing, peer.left_s, peer.why = "here", None, ""
            self._mark(now_s, "join", f"{peer.name} is back")
        self.shares.heard(peer.epoch, beat.share_version, beat.placed, beat.released)
        if peer.standing == "here":
            if beat.state in ("ready", "running") and self.phase == "run" and not peer.joined_shares:
                self._take_part(peer)
            if beat.state == "leaving" and not peer.leaving:
                peer.leaving = True
                self.shares.leave(peer.epoch)
                self._mark(now_s, "leave", f"{peer.name} starts no more sessions")
        self._answer(peer, now_s, beat)

    def _came_back(self, peer: Peer) -> bool:
        """Whether a worker that fell silent before the run, so that nothing is missing, can take part after all."""
        silent_only = peer.standing == "left" and peer.final is None and not peer.gone
        return silent_only and self.phase in ("gather", "run") and not self.over

    def _answer(self, peer: Peer, now_s: float, beat: Beat | None) -> None:
        """Tell a worker how things should be; `beat`: in answer to this one."""
        version = self.shares.version(peer.epoch)
        orders = Orders(
            epoch=peer.epoch,
            term=self._term,
            phase=self.phase,
            phase_s=self.phase_s,
            t0_s=self.t0_s,
            share_version=version,
            acked=peer.stored,
            may_start=self._may_start(peer),
            leave=peer.standing in ("lost", "unable"),
            over=self._may_go(peer),
            echo_n=beat.n if beat is not None else 0,
            echo_sent_s=beat.sent_s if beat is not None else 0.0,
            received_s=now_s,
            sent_s=now_s,
        )
        self._send(peer.control, orders)
        heard = beat or peer.beat
        if heard is None or heard.share_version != version:
            callers = self.shares.share(peer.epoch)
            self._send(peer.control, Share(epoch=peer.epoch, term=self._term, share_version=version, callers=callers))

    def _may_go(self, peer: Peer) -> bool:
        if peer.standing == "unable":
            return True
        return peer.final is not None and peer.stored >= peer.final.seq and not self._fetching(peer.epoch)

    def _results(self, peer: Peer, message: Results, now_s: float) -> None:
        if not self._can_be(message.session):
            self._expel(peer, now_s, "it handed in a session that is none of this run")
            return
        if message.seq != peer.have + 1:
            return  # a repeat, or one that comes too early: the worker sends on from what is acknowledged
        if not self.shares.result(peer.epoch, message.session.number):
            self._expel(peer, now_s, "it handed in a session that it was not given, or one for the second time")
            return
        peer.have = message.seq
        if self._budget is not None:
            self._budget.spend(message.session.record.duration_s)
        self._fresh.append(Fresh(peer.epoch, peer.name, message.seq, message.session))

    def _can_be(self, session: SessionResult) -> bool:
        """Whether a result is of a session of this plan, under its own name."""
        in_plan = self.plan.sessions is None or session.number < self.plan.sessions
        named = session.record.session_id == session_name(self.plan.run_id, session.number)
        return in_plan and named and session.index < len(self.plan.scenarios)

    def _expel(self, peer: Peer, now_s: float, why: str) -> None:
        if not peer.settled:
            self._lose(peer, now_s, why)
        peer.expelled, peer.why = True, why

    def _final(self, peer: Peer, final: Final, now_s: float) -> None:
        if final.seq > peer.have or peer.final is not None:
            return
        peer.final = final = _shown_final(final)
        self.shares.retire(peer.epoch)
        if final.error:
            self.aborted = self.aborted or f"worker {peer.name}: {final.error}"
            self._mark(now_s, "error", f"{peer.name}: {final.error}")
        if peer.standing == "here":
            ended = self.phase in ("finish", "drain", "cut")
            standing: Standing = "done" if ended and not peer.leaving else "left"
            self._settle(peer, standing, now_s)
            if standing == "left":
                self._mark(now_s, "left", f"{peer.name} has handed everything in")

    def _unable(self, peer: Peer, message: Unable, now_s: float) -> None:
        if peer.standing in ("done", "unable"):
            return
        message = msgspec.structs.replace(message, reason=shown(message.reason))
        self._settle(peer, "unable", now_s)
        peer.why = message.reason
        self.shares.retire(peer.epoch)
        self._mark(now_s, "unable", f"{peer.name}: {message.reason}")
        if self.phase == "gather":
            self.failure = self.failure or (message.reason, message.exit_code)
        else:
            self.notes.append(f"worker {peer.name} could not take part: {message.reason}")

    def _lose(self, peer: Peer, now_s: float, why: str) -> None:
        peer.why = why
        if self.t0_s is None:  # it had started nothing, so nothing is missing
            self._settle(peer, "left", now_s)
            self._mark(now_s, "left", f"{peer.name}: {why}")
            return
        self._settle(peer, "lost", now_s)
        self.shares.lose(peer.epoch)
        n_open = len(self.shares.open(peer.epoch))
        self._mark(now_s, "lost", f"{peer.name}: {why}; {_n(n_open, 'session')} had started and not been reported")

    def _settle(self, peer: Peer, standing: Standing, now_s: float) -> None:
        peer.standing = standing
        peer.left_s = now_s

    def _want_asset(self, sender: bytes, want: WantAsset) -> None:
        whole = self._assets.get(want.sha)
        if whole is None or want.offset > len(whole):
            return  # nothing of this run; who asks for it goes without
        data = bytes(whole[want.offset : want.offset + PIECE_BYTES])
        self._send(sender, AssetPiece(sha=want.sha, offset=want.offset, size=len(whole), data=data))

    def _watch_the_clock(self, now_s: float) -> None:
        if self.phase not in ("run", "finish") or self.t0_s is None:
            return
        run_time_s = self.plan.run_time_s
        if run_time_s is not None and now_s >= self.t0_s + run_time_s:
            self._enter("drain", self.t0_s + run_time_s)
            self._mark(self.t0_s + run_time_s, "drain", "the run time is over")
        elif self.phase == "finish":
            return
        elif self.shares.exhausted:
            self._enter("finish", now_s)
        elif self._budget is not None and not self._affordable and not self._outstanding:
            self.notes.append("no more sessions: the audio minutes are used up")
            self._enter("finish", now_s)
            self._mark(now_s, "finish", "the audio minutes are used up")

    def _settle_ending(self, now_s: float) -> None:
        if self.phase == "run" and self.peers and not self.here:
            # Nobody is left to place what is left; whoever came now would find a run with a hole in it.
            if self.aborted is None:
                self.aborted = "no worker was left before the plan was through"
                self._mark(now_s, "error", self.aborted)
            self._enter("cut", now_s)
        if self.phase in ("drain", "cut") and self.phase_s is not None:
            stop_s = self.plan.stop_timeout_s if self.phase == "drain" else 0.0
            if now_s > self.phase_s + stop_s + self._liveness.final_s:
                for peer in self.here:
                    self._lose(peer, now_s, f"its last results had not come {self._liveness.final_s:g} s after the end")
        if self.phase in ("finish", "drain", "cut") and not self.over:
            unkept = self._fresh or self._storing
            self.over = not (self.here or unkept or any(self._waited_for(peer) for peer in self.peers.values()))

    def _waited_for(self, peer: Peer) -> bool:
        """Whether a worker that has delivered has yet to be told that it may go."""
        return peer.standing in ("done", "left") and peer.final is not None and self._fetching(peer.epoch)

    def _abandon_gathering(self, now_s: float, why: str) -> None:
        self.aborted = self.aborted or why
        self._enter("cut", now_s)
        self.over = True

    def _enter(self, phase: Phase, now_s: float) -> None:
        self.phase, self.phase_s = phase, now_s
        for peer in self.peers.values():
            if peer.standing == "here":
                self._answer(peer, now_s, None)

    # The budget: a worker may start as many as it was granted, and all grants together fit what is left.

    @property
    def _outstanding(self) -> int:
        granted = [(peer.granted, self.shares.started[peer.epoch]) for peer in self.here]
        return sum(max(0, granted - started) for granted, started in granted)

    @property
    def _affordable(self) -> int:
        assert self._budget is not None
        return self._budget.affordable(self.shares.live + len(self.shares.maybe_started) + self._outstanding)

    def _may_start(self, peer: Peer) -> int | None:
        if self._budget is None:
            return None
        if self.phase == "run" and peer.joined_shares and not peer.settled:
            # It can't use more, nor have used more: each caller it holds starts one that was not heard of at most. What
            # it was granted for callers that it holds no more goes to others.
            usable = self.shares.started[peer.epoch] + self.shares.n_startable(peer.epoch)
            peer.granted = min(peer.granted, usable)
            fair = -(-self._affordable // max(1, len(self.here)))
            peer.granted += min(usable - peer.granted, fair)
        return peer.granted

    def _mark(self, at_s: float, event: str, detail: str) -> None:
        self.events.append(RunEvent(at_s, event, detail))

    def _send(self, receiver: bytes, message: FromMaster) -> None:
        self.sends.queue.append((receiver, message))


def shown(text: str) -> str:
    """A worker's words as they can be shown on any terminal: it may be anybody who found the port."""
    one_line = "; ".join(line.strip() for line in text.splitlines() if line.strip())
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in one_line) or "?"


def _shown_final(final: Final) -> Final:
    return msgspec.structs.replace(
        final,
        notes=tuple(map(shown, final.notes)),
        events=tuple((t_s, shown(event), shown(detail)) for t_s, event, detail in final.events),
        trouble=shown(final.trouble) if final.trouble else "",
        error=shown(final.error) if final.error else "",
    )


def _upgrade(version: str, *, worker_is_newer: bool) -> str:
    side = "master" if worker_is_newer else "worker"
    versions = f"this worker is voicebench {version}, the master is {__version__}"
    return f"{versions}: upgrade the {side}, so that both measure alike"


def _version_key(version: str) -> tuple[Any, ...]:
    return tuple((int(part), "") if part.isdecimal() else (0, part) for part in version.replace("-", ".").split("."))


def _n(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
