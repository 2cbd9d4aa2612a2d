"""The master's own thread: the socket, the machine that coordinates, the store and the numbers, in one loop.

Everything that a run comes to goes through here in one order: a result is heard, stored, counted, and only then
acknowledged. The program's main thread (signals, terminal, page) gives orders by `tell` and reads the snapshot that is
made here every quarter of a second. The loop never waits for anybody but the disk.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from voicebench.clock import monotonic_s, realtime_s
from voicebench.errors import VoicebenchError, WrongProtocolError
from voicebench.load.closed import session_name
from voicebench.master.collector import Collector
from voicebench.master.coordinator import Coordinator, Fresh, Peer
from voicebench.master.ending import conclude
from voicebench.master.link import MasterLink
from voicebench.master.picture import PageFacts, Painter, Picture, time_left_s
from voicebench.master.recordings import Recordings
from voicebench.master.report import RunHead, RunTail, WorkerFacts
from voicebench.master.store import NOTHING_KNOWN, Placing, Sample, Store
from voicebench.master.strain import Strain
from voicebench.master.telling import Result
from voicebench.master.verdict import RunVerdict
from voicebench.wire.messages import FilePiece

POLL_S = 0.05
SNAPSHOT_EVERY_S = 0.25
SAMPLE_EVERY_S = 1.0
PICTURE_EVERY_S = 1.0
LAST_WORDS_S = 2.0
"""When all is over, the master stays at most so long for workers that have not heard of it yet."""


class Core:
    """The thread. Once `done`, `report` and `verdict` are there, if the run ever began."""

    def __init__(
        self,
        link: MasterLink,
        coordinator: Coordinator,
        head: RunHead,
        placing: Placing,
        directory: Path | None,
        signal_exit: Callable[[], int | None],
        notes: Sequence[str] = (),
        page: PageFacts | None = None,
    ) -> None:
        """
        Args:
            head: What the run is; its `started_at` is filled in here.
            directory: The run's folder; None: nothing is written.
            signal_exit: The exit code of the signal that ended the run early, if one did.
            notes: What else is good to know.
            page: What the status page shows of the run; None: there is no page.
        """
        self.coordinator = coordinator
        self.collector = Collector()
        self.error: BaseException | None = None
        """What broke the loop itself."""
        self.snapshot: dict[str, Any] = {}
        self.done = False
        self.picture: Picture | None = None
        """What the status page shows, renewed once a second."""
        self.report: dict[str, Any] | None = None
        self.verdict: RunVerdict | None = None
        self._link = link
        self._head = head
        self._placing = placing
        self._directory = directory
        self._signal_exit = signal_exit
        self._notes = list(notes)
        self._trouble: list[str] = []
        self._store: Store | None = None
        self._recordings = Recordings(directory) if directory is not None else None
        self._told: deque[Callable[[Coordinator, float], None]] = deque()
        self._n_events_kept = 0
        self._workers_kept: set[int] = set()
        self._begun = False
        self._strain = Strain()
        self._painter = None if page is None else Painter(page, head, coordinator, self.collector, self._strain)
        self._histories: deque[Callable[[bytes], None]] = deque()
        self._ended_s: float | None = None
        self._snapshot_due_s = self._sample_due_s = self._picture_due_s = float("-inf")
        self._sampled_s = float("-inf")
        self._thread = threading.Thread(target=self._run, name="voicebench-core", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def tell(self, order: Callable[[Coordinator, float], None]) -> None:
        """Have something done to the coordinator, in the core's thread; it is handed the time as well."""
        self._told.append(order)
        self._link.ring()

    def ask_history(self, take: Callable[[bytes], None]) -> None:
        """Have all that the page shows handed to `take`, in whichever thread."""
        self._histories.append(take)
        if self.done:
            self._hand_out_histories()
        else:
            self._link.ring()

    def conclude_page(self, result: Result) -> None:
        """The last picture, once the reports are written and the thread is done."""
        if self._painter is not None:
            self._painter.result = result
            self._paint(self._ended_s or monotonic_s())

    @property
    def may_run_again(self) -> bool:
        """Whether the page offers to place the same plan once more."""
        return self._painter is not None and self._painter.may_run_again

    def fetching(self, epoch: int) -> bool:
        """Whether recordings of a worker are still to come. In the core's thread."""
        return self._recordings is not None and self._recordings.pending(epoch)

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self.coordinator.over:
                self._turn()
            self._end()
            self._say_goodbye()
        except BaseException as error:  # noqa: BLE001 - a core that dies unheard would leave the run without an end
            self.error = error
        finally:
            self._close()
            self.done = True
            self._hand_out_histories()

    def _turn(self) -> None:
        heard = self._link.receive(POLL_S)
        now_s = monotonic_s()
        for sender, message in heard:
            if isinstance(message, WrongProtocolError):
                self.coordinator.wrong_protocol(sender, message.protocol, message.version)
            elif isinstance(message, FilePiece):
                self._take_piece(message)
            else:
                self.coordinator.hear(sender, message, now_s)
        while self._told:
            self._told.popleft()(self.coordinator, now_s)
        self.coordinator.tick(now_s)
        self._feel_strain(now_s)
        self._take_in(self.coordinator.take_fresh())
        self._ask_for_recordings(now_s)
        self._send()
        self._keep_up(now_s)

    def _feel_strain(self, now_s: float) -> None:
        run_s = self.coordinator.run_s(now_s)
        for peer in self.coordinator.peers.values():
            if peer.beat is not None:
                self.coordinator.events += self._strain.hear(
                    peer.epoch, peer.name, peer.beat, now_s, run_s, is_here=not peer.settled
                )

    def _send(self) -> None:
        for receiver, message in self.coordinator.sends.take():
            self._link.send(receiver, message)

    def _take_in(self, fresh: list[Fresh]) -> None:
        if not fresh:
            return
        self._keep_workers(monotonic_s(), only_new=True)
        self._keep(lambda store: store.add_results(fresh))
        for each in fresh:
            self.collector.take(each.session, worker=each.worker)
            if self._recordings is not None and each.session.files:
                self._recordings.offer(each.epoch, each.session)
        self.coordinator.stored()

    def _take_piece(self, piece: FilePiece) -> None:
        kept = self._recordings.hear(piece) if self._recordings is not None else None
        if kept is not None:
            number, bundle = kept
            self.collector.kept(number, bundle)
            self._keep(lambda store: store.set_bundle(number, bundle))

    def _ask_for_recordings(self, now_s: float) -> None:
        if self._recordings is None:
            return
        for peer in self.coordinator.peers.values():
            if peer.standing == "lost" and self._recordings.pending(peer.epoch):
                self._recordings.gone(peer.epoch)
        for epoch, message in self._recordings.sends(now_s):
            bulk = self.coordinator.peers[epoch].bulk
            if bulk is not None:
                self._link.send(bulk, message)

    # --- keeping -----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        started_s = realtime_s() + (self.coordinator.t0_s or 0.0) - monotonic_s()
        started_at = datetime.fromtimestamp(started_s, UTC).isoformat(timespec="seconds")
        self._head = replace(self._head, started_at=started_at)
        if self._painter is not None:
            self._painter.head = self._head
        self._begun = True
        if self._directory is not None:
            try:
                self._store = Store(self._directory, self._head, self._placing)
            except VoicebenchError as error:
                self._trouble.append(str(error))

    def _keep(self, what: Callable[[Store], object]) -> None:
        """A disk that fails is no reason to stop measuring: the numbers go on in memory, and the report says so."""
        if not self._begun:
            self._begin()
        if self._store is None:
            return
        try:
            what(self._store)
        except VoicebenchError as error:
            self._trouble.append(str(error))
            self._store.give_up()
            self._store = None

    def _keep_workers(self, now_s: float, *, only_new: bool = False) -> None:
        peers = [
            peer for peer in self.coordinator.peers.values() if not only_new or peer.epoch not in self._workers_kept
        ]
        if not peers:
            return
        self._workers_kept.update(peer.epoch for peer in peers)
        facts = [(peer.epoch, self._facts(peer)) for peer in peers]
        samples = [] if only_new else self._samples(peers, now_s)
        for sample in samples:
            self.collector.timeline.sample(sample.t_s, live=sample.live, started=sample.started)
        self._keep(lambda store: store.set_workers(facts, samples))

    def _keep_up(self, now_s: float) -> None:
        """What is not urgent: events, samples, the snapshot."""
        if now_s >= self._snapshot_due_s:
            self._snapshot_due_s = now_s + SNAPSHOT_EVERY_S
            self.snapshot = self._picture(now_s)
        self._serve_page(now_s)
        if self.coordinator.t0_s is None:
            return
        if not self._begun:
            self._begin()
        if now_s >= self._sample_due_s:
            self._sample_due_s = now_s + SAMPLE_EVERY_S
            self._keep_workers(now_s)
        self._keep_events()

    def _serve_page(self, now_s: float) -> None:
        if self._painter is not None and now_s >= self._picture_due_s:
            self._picture_due_s = now_s + PICTURE_EVERY_S
            self._paint(now_s)
        self._hand_out_histories()

    def _paint(self, now_s: float) -> None:
        with self._drawing() as painter:
            painter.trouble = self._trouble
            self.picture = painter.paint(now_s, realtime_s())

    def _hand_out_histories(self) -> None:
        while self._histories and self._painter is not None:
            with self._drawing() as painter, contextlib.suppress(IndexError):  # at the end both threads may be at it
                self._histories.popleft()(painter.history())

    @contextlib.contextmanager
    def _drawing(self) -> Iterator[Painter]:
        """A page that can't be drawn is no reason to stop measuring, and is told."""
        assert self._painter is not None
        try:
            yield self._painter
        except Exception as error:  # noqa: BLE001
            self._notes.append(f"the status page stood still: {error!r}")
            self._painter = None

    def _keep_events(self) -> None:
        events = self._events()[self._n_events_kept :]
        if events:
            self._n_events_kept += len(events)
            self._keep(lambda store: store.add_events(events))

    def _events(self) -> list[tuple[float, str, str]]:
        run_s = self.coordinator.run_s
        return [(round(run_s(event.at_s), 3), event.event, event.detail) for event in self.coordinator.events]

    def _samples(self, peers: Sequence[Peer], now_s: float) -> list[Sample]:
        """How the workers fare, at an instant later than the last."""
        t_s = round(self.coordinator.run_s(now_s), 3)
        if t_s <= self._sampled_s:
            return []
        self._sampled_s = t_s
        return [
            Sample(
                epoch=peer.epoch,
                t_s=t_s,
                started=self.coordinator.started(peer.epoch),
                # What a worker that was lost had open goes on nowhere.
                live=0 if peer.settled else len(self.coordinator.shares.open(peer.epoch)),
                loop_age_s=round(peer.beat.hub_age_s, 3),
                cpu_s=round(peer.beat.cpu_s, 3),
                health=self._strain.take_recent(peer.epoch) or NOTHING_KNOWN,
            )
            for peer in peers
            if peer.beat is not None
        ]

    def _facts(self, peer: Peer) -> WorkerFacts:
        hello, run_s = peer.hello, self.coordinator.run_s
        may = self.coordinator.shares.maybe_started.values()
        return WorkerFacts(
            name=peer.name,
            host=hello.host,
            voicebench=hello.version,
            python=hello.python,
            platform=hello.platform,
            cpus=hello.cpus,
            state=peer.standing,
            why=peer.why,
            joined_s=round(run_s(peer.joined_s), 3),
            left_s=None if peer.left_s is None else round(run_s(peer.left_s), 3),
            cpu_s=round(peer.final.cpu_s if peer.final is not None else peer.beat.cpu_s if peer.beat else 0.0, 3),
            started=self.coordinator.started(peer.epoch),
            maybe_started=sum(epoch == peer.epoch for epoch in may),
            health=self._strain.worst(peer.epoch),
        )

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Account for everything and conclude. A run that never began has nothing to conclude."""
        if self.coordinator.t0_s is None:
            return
        now_s = monotonic_s()
        self._take_in(self.coordinator.take_fresh())
        self._keep_workers(now_s)
        self._account_for_the_lost()
        if self._recordings is not None:
            self._recordings.close()
            self._trouble += self._recordings.trouble
        finals = [(peer.name, peer.final) for peer in self.coordinator.peers.values() if peer.final is not None]
        self._trouble += [f"{name}: {final.trouble}" for name, final in finals if final.trouble]
        self._ended_s = now_s
        tail = self._tail(now_s)
        self._keep_events()
        self._keep(lambda store: store.add_events([(tail.duration_s, "end", "")]))
        tail = replace(tail, trouble=tuple(self._trouble))
        report, verdict = conclude(self._head, tail, self.collector)
        self._keep(lambda store: store.end(tail, verdict, report["summary"]))
        self.report, self.verdict = conclude(self._head, replace(tail, trouble=tuple(self._trouble)), self.collector)
        self.snapshot = self._picture(now_s)

    def _account_for_the_lost(self) -> None:
        lost = []
        for peer in self.coordinator.peers.values():
            for number in sorted(self.coordinator.lost_sessions(peer.epoch)):
                session_id, scenario = session_name(self._head.id, number), self._placing.scenario_of(number)
                if self.collector.take_lost(number, worker=peer.name, session_id=session_id, scenario=scenario):
                    lost.append((number, session_id, peer.epoch, scenario))
        if lost:
            self._keep(lambda store: store.add_lost(lost))

    def _tail(self, now_s: float) -> RunTail:
        coordinator = self.coordinator
        duration_s = round(max(0.0, coordinator.run_s(now_s)), 3)
        several = len(coordinator.peers) > 1
        notes, events = list(self._notes) + coordinator.notes, self._events()
        for peer in coordinator.peers.values():
            if peer.final is not None:
                prefix = f"{peer.name}: " if several else ""
                notes += [prefix + note for note in peer.final.notes]
                events += [(t_s, event, prefix + detail) for t_s, event, detail in peer.final.events]
        not_placed = coordinator.shares.not_placed if coordinator.shares.exhausted else 0
        return RunTail(
            duration_s=duration_s,
            workers=tuple(self._facts(peer) for peer in coordinator.peers.values()),
            notes=tuple(notes),
            events=(*events, (duration_s, "end", "")),
            signal_exit=self._signal_exit(),
            aborted=coordinator.aborted,
            trouble=tuple(self._trouble),
            not_placed=not_placed or 0,
        )

    def _say_goodbye(self) -> None:
        """Tell workers that everything is stored, as they ask."""
        until_s = monotonic_s() + LAST_WORDS_S
        while monotonic_s() < until_s and any(_waits(peer) for peer in self.coordinator.peers.values()):
            for sender, message in self._link.receive(POLL_S):
                if not isinstance(message, WrongProtocolError | FilePiece):
                    self.coordinator.hear(sender, message, monotonic_s())
            self._send()
            self._serve_page(monotonic_s())

    def _close(self) -> None:
        self._link.close()
        if self._store is not None:
            try:
                self._store.close()
            except VoicebenchError as error:
                self.error = self.error or error

    def _picture(self, now_s: float) -> dict[str, Any]:
        """How the run stands, as plain data: what views show."""
        coordinator, account = self.coordinator, self.collector.account
        tally = self.collector.total.all
        latency = tally.response_latency_ms
        elapsed_s = max(0.0, coordinator.run_s(now_s))
        return {
            "elapsed_s": elapsed_s,
            "left_s": time_left_s(coordinator, elapsed_s),
            "state": _STATES[coordinator.phase],
            "to_place": coordinator.plan.sessions,
            "workers": len(coordinator.here),
            "ready": coordinator.ready,
            "live": sum(len(coordinator.shares.open(peer.epoch)) for peer in coordinator.here),
            "started": coordinator.shares.started.total(),
            "finished": account.outcomes["finished"],
            "failed": account.outcomes["failed"],
            "cut": account.outcomes["cut"],
            "reasons": dict(account.reasons),
            "turns": tally.counts["judged_turns"],
            "missed": tally.counts["missed_responses"],
            "unreliable": tally.counts["unreliable_turns"],
            "p50_ms": latency.percentile(50),
            "p95_ms": latency.percentile(95),
            "max_ms": latency.max,
            "late_p99_ms": account.lateness_ms.percentile(99),
        }


_STATES = {"gather": "gathering", "run": "running", "finish": "running", "drain": "draining", "cut": "draining"}


def _waits(peer: Peer) -> bool:
    """Whether a worker has yet to hear that it may go."""
    return peer.standing != "lost" and not peer.gone
