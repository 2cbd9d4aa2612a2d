"""A whole run in one process, on the virtual clock: the mock agent alone, as fast as it can be computed."""

from __future__ import annotations

import gc
import os
import platform
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from voicebench import __version__, bundle
from voicebench.bundle_files import write_files
from voicebench.clock import cpu_s, monotonic_s, realtime_s
from voicebench.errors import VoicebenchError
from voicebench.master.collector import Collector
from voicebench.master.coordinator import Fresh
from voicebench.master.ending import conclude
from voicebench.master.report import RunHead, RunTail, WorkerFacts
from voicebench.master.store import Placing, Store
from voicebench.master.verdict import RunVerdict
from voicebench.scenario.model import Plan
from voicebench.scenario.prepared import PreparedScenario
from voicebench.scenario.secrets import redact_document
from voicebench.script import prepare
from voicebench.worker.adapters.base import describe
from voicebench.worker.building import Routes, get_ready
from voicebench.worker.engine import Engine, EngineLoad, Placed
from voicebench.worker.settling import is_wanted
from voicebench.worker.supply import result_of

WORKER, EPOCH = "local", 1
STORE_EVERY_S = 0.25
"""A session takes 5 ms here, and to have one on disk for certain takes longer than that."""


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """What a run is told beside plan and load."""

    environment: Mapping[str, str]
    keep: Literal["all", "failed", "none"] = "failed"
    directory: Path | None = None
    """Where database, bundles and report go; None: nothing is written."""


class LocalRun:
    """One run. `engine` and `collector` may be read while it goes on."""

    def __init__(
        self,
        head: RunHead,
        plan: Plan,
        scenarios: Sequence[PreparedScenario],
        load: EngineLoad,
        settings: LocalSettings,
        notes: Sequence[str] = (),
    ) -> None:
        """
        Raises:
            AdapterError, ScenarioError: An agent's options do not fit.
        """
        self.collector = Collector()
        self._head = head
        self._settings = settings
        self._notes = tuple(notes)
        self._trouble: list[str] = []
        self._aborted: str | None = None
        self._unstored: list[Fresh] = []
        self._unstored_bundles: list[tuple[int, str]] = []
        self._seq = 0
        self._stored_s = 0.0
        self._store: Store | None = None
        scripts = [prepare(prepared.scenario, prepared.clips) for prepared in scenarios]
        self._script = scripts[0]
        routes = Routes(scripts, settings.environment, virtual=True, on_pacer_error=lambda error: None)
        weights = [entry.weight for entry in plan.scenarios]
        names = [prepared.scenario.name for prepared in scenarios]
        self._placing = Placing(tuple(zip(names, weights, strict=True)), load.callers, load.seed)
        self.engine = Engine(routes.routes, weights, load, run_id=head.id, take=self._take)

    def run(self) -> None:
        """Hold all sessions; returns when each has ended. What it raises has voided the run, and `finish` says so."""
        started_at = datetime.fromtimestamp(realtime_s(), UTC).isoformat(timespec="seconds")
        self._head = replace(self._head, started_at=started_at)
        self._open_store()
        get_ready(self._script)
        cpu_before_s = cpu_s()
        self._cpu_s = 0.0
        try:
            self.engine.run()
        except BaseException as error:
            self._aborted = describe(error)
            raise
        finally:
            gc.unfreeze()
            self.duration_s = round(self.engine.elapsed_s, 3)
            self._cpu_s = cpu_s() - cpu_before_s
            self._store_batch()

    def finish(
        self, *, signal_exit: int | None, events: Sequence[tuple[float, str, str]]
    ) -> tuple[dict[str, Any], RunVerdict]:
        """The report and the verdict, also of a run that was interrupted."""
        own = [(each["t_s"], each["event"], each["detail"]) for each in self.engine.events]
        tail = RunTail(
            duration_s=self.duration_s,
            workers=(self._facts("done"),),
            notes=(*self._notes, *self.engine.notes),
            events=tuple(sorted([*events, *own], key=lambda event: event[0])),
            signal_exit=signal_exit,
            aborted=self._aborted,
            trouble=tuple(self._trouble),
        )
        report, verdict = conclude(self._head, tail, self.collector)
        n_trouble = len(self._trouble)
        self._keep(lambda store: store.set_workers([(EPOCH, self._facts("done"))]))
        self._keep(lambda store: store.add_events(tail.events))
        self._keep(lambda store: store.end(tail, verdict, report["summary"]))
        self._keep(lambda store: store.close())
        if len(self._trouble) > n_trouble:
            report, verdict = conclude(self._head, replace(tail, trouble=tuple(self._trouble)), self.collector)
        return report, verdict

    # --- keeping -----------------------------------------------------------------------------------------------------

    def _open_store(self) -> None:
        if self._settings.directory is None:
            return
        try:
            self._store = Store(self._settings.directory, self._head, self._placing)
        except VoicebenchError as error:
            self._trouble.append(str(error))
        self._keep(lambda store: store.set_workers([(EPOCH, self._facts("here"))]))

    def _keep(self, what: Callable[[Store], object]) -> None:
        if self._store is None:
            return
        try:
            what(self._store)
        except VoicebenchError as error:
            self._trouble.append(str(error))
            self._store.give_up()
            self._store = None

    def _store_batch(self) -> None:
        results, bundles = self._unstored, self._unstored_bundles
        if results:
            self._keep(lambda store: store.add_results(results))
        if bundles:
            self._keep(lambda store: store.set_bundles(bundles))
        self._unstored, self._unstored_bundles = [], []
        self._stored_s = monotonic_s()

    def _take(self, placed: Placed) -> None:
        name = self._write_bundle(placed) if self._keeps(placed) else None
        result = result_of(placed, None)
        self.collector.take(result, worker=WORKER, bundle=name)
        self._seq += 1
        self._unstored.append(Fresh(EPOCH, WORKER, self._seq, result))
        if name is not None:
            self._unstored_bundles.append((placed.number, name))
        if monotonic_s() - self._stored_s > STORE_EVERY_S:
            self._store_batch()

    def _keeps(self, placed: Placed) -> bool:
        wanted = is_wanted(self._settings.keep, placed.record, placed.sent_frames)
        return self._settings.directory is not None and wanted

    def _write_bundle(self, placed: Placed) -> str | None:
        assert self._settings.directory is not None
        assert placed.recording is not None  # on the virtual clock it is made here
        name = f"bundles/{placed.record.session_id}"
        document = redact_document(placed.recording.scenario.document)
        try:
            write_files(self._settings.directory / name, bundle.encode(placed.recording, document))
        except OSError as error:
            why = f"recordings could not be written ({error.strerror}); the numbers are whole"
            if why not in self._trouble:
                self._trouble.append(why)
            return None
        return name

    def _facts(self, state: Literal["here", "done"]) -> WorkerFacts:
        return WorkerFacts(
            name=WORKER,
            host=socket.gethostname(),
            voicebench=__version__,
            python=platform.python_version(),
            platform=platform.platform(),
            cpus=len(os.sched_getaffinity(0)),
            state=state,
            left_s=self.duration_s if state == "done" else None,
            cpu_s=round(self._cpu_s, 3) if state == "done" else 0.0,
            started=self.engine.counts["started"],
        )
