"""A whole run in one process: plan in, sessions held, report out."""

from __future__ import annotations

import gc
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
from gevent.hub import get_hub
from gevent.lock import BoundedSemaphore

from voicebench import bundle
from voicebench.bundle_files import write_files
from voicebench.clock import cpu_s, realtime_s
from voicebench.distribution import Distribution
from voicebench.errors import AdapterError, UsageError
from voicebench.load_files import PreparedScenario
from voicebench.master.collector import Collector
from voicebench.master.report import RunFacts, report_document
from voicebench.master.verdict import RunEnd, RunVerdict, judge
from voicebench.records import FINISHED, SessionRecord
from voicebench.scenario.adapter_options import mock_options, websocket_options
from voicebench.scenario.model import Plan
from voicebench.scenario.secrets import expand_variables, redact_document
from voicebench.scoring import score
from voicebench.session import Script, Session, prepare
from voicebench.worker.adapters.base import Adapter, SessionInfo, describe, load_adapter_class
from voicebench.worker.adapters.mock import MockAdapter
from voicebench.worker.adapters.websocket import WebSocketTransport
from voicebench.worker.call import make_ready
from voicebench.worker.engine import Engine, EngineLoad, Placed
from voicebench.worker.pacer import Pacer
from voicebench.worker.routes import AdapterRoute, Route, SocketRoute, VirtualRoute

WORKER = "local"
ADAPTER_CONNECT_TIMEOUT_S = 10.0
KEEP = Literal["all", "failed", "none"]


@dataclass(slots=True)
class RunSettings:
    """What a run is told beside plan and load."""

    realtime: bool = False
    keep: KEEP = "failed"
    directory: Path | None = None
    """Where bundles and the report go; None: nothing is written."""
    environment: Mapping[str, str] = field(default_factory=dict)
    preflight: bool = True


class LocalRun:
    """One run. `engine` and `collector` may be read while it goes on."""

    def __init__(
        self, run_id: str, plan: Plan, scenarios: Sequence[PreparedScenario], load: EngineLoad, settings: RunSettings
    ) -> None:
        """Raises:
        AdapterError, ScenarioError: An agent's options do not fit, or its adapter can't be loaded.
        """
        self.id = run_id
        self._plan = plan
        self._settings = settings
        self._scenarios = scenarios
        self._pacer: Pacer | None = None
        self.collector = Collector()
        self._trouble: list[str] = []
        self._aborted: str | None = None
        self._disk = BoundedSemaphore(1)
        self.notes: list[str] = []
        scripts = [prepare(prepared.scenario, prepared.clips) for prepared in scenarios]
        self.virtual = not settings.realtime and all(prepared.scenario.adapter.type == "mock" for prepared in scenarios)
        self._routes = [self._route(script) for script in scripts]
        weights = [entry.weight for entry in plan.scenarios]
        self.engine = Engine(self._routes, weights, load, run_id=run_id, take=self._take)

    @property
    def clock(self) -> str:
        return "virtual" if self.virtual else "real"

    def preflight(self) -> None:
        """One call that says nothing, to each scenario's agent: is anyone there?

        Raises:
            AgentError: No.
        """
        for route in self._routes:
            scenario = route.script.scenario
            started_at = datetime.fromtimestamp(realtime_s(), UTC).isoformat(timespec="milliseconds")
            route.knock(
                SessionInfo(
                    f"{self.id}-preflight",
                    0,
                    scenario.sample_rate,
                    route.script.frame_samples,
                    scenario.name,
                    started_at,
                )
            )

    def run(self) -> None:
        """Hold all sessions; returns when each has ended. What it raises has voided the run, and `finish` says so."""
        self.started_at = datetime.fromtimestamp(realtime_s(), UTC).isoformat(timespec="seconds")
        _get_ready(self._routes[0].script)
        cpu_before_s = cpu_s()
        try:
            self.engine.run()
        except BaseException as error:
            self._aborted = describe(error)
            raise
        finally:
            gc.unfreeze()
            self.duration_s = self.engine.elapsed_s
            self.cpu_s = cpu_s() - cpu_before_s
            if self._pacer is not None:
                self._pacer.close()

    def finish(
        self, *, signal_exit: int | None, events: Sequence[Mapping[str, Any]]
    ) -> tuple[dict[str, Any], RunVerdict]:
        """The report and the verdict, also of a run that was interrupted."""
        collector = self.collector
        assertions = collector.total.check(self._plan.limits)
        for prepared in self._scenarios:
            sums = collector.by_scenario.get(prepared.scenario.name)
            if sums is None:
                sums = type(collector.total)()
            own = prepared.scenario.name if len(self._scenarios) > 1 else None
            assertions += sums.check(prepared.scenario.limits, own)
        started = self.engine.counts["started"]
        verdict = judge(
            RunEnd(
                assertions=assertions,
                started=started,
                accounted=collector.n_taken,
                with_frames=collector.with_frames,
                failed=collector.outcomes["failed"],
                lost=collector.outcomes["lost"],
                overloaded=collector.generator_overloaded,
                generator_failures=collector.reasons["generator"],
                signal_exit=signal_exit,
                trouble=tuple(self._trouble),
                aborted=self._aborted,
            )
        )
        facts = RunFacts(
            id=self.id,
            name=self._plan.name,
            started_at=self.started_at,
            duration_s=self.duration_s,
            plan=self._plan_document(),
            seed=self.engine.load.seed,
            clock=self.clock,
            cpu_s=self.cpu_s,
            worker=WORKER,
            adapters=tuple(prepared.scenario.adapter.type for prepared in self._scenarios),
            notes=(*self.notes, *self.engine.notes),
            events=tuple(sorted([*events, *self.engine.events], key=lambda event: event["t_s"])),
        )
        return report_document(facts, collector, started, assertions, verdict), verdict

    def _plan_document(self) -> dict[str, Any]:
        return {
            "plan": redact_document(self._plan.document),
            "scenarios": [redact_document(prepared.scenario.document) for prepared in self._scenarios],
        }

    def _route(self, script: Script) -> Route:
        spec = script.scenario.adapter
        options = expand_variables(dict(spec.options), self._settings.environment)
        if spec.type == "mock":
            if self.virtual:
                return VirtualRoute(script, mock_options(options))
            mock_options(options)
            return AdapterRoute(script, _mock_maker(script, options), ADAPTER_CONNECT_TIMEOUT_S)
        if spec.type == "websocket":
            transport = WebSocketTransport(websocket_options(options))
            if self._pacer is None:
                self._pacer = Pacer(on_error=lambda error: self.engine.fail(error))
            return SocketRoute(make_ready(script, transport.ready_frame), transport, self._pacer)
        if ":" in spec.type:
            return AdapterRoute(script, _class_maker(spec.type, options), ADAPTER_CONNECT_TIMEOUT_S)
        raise AdapterError(f"adapter {spec.type!r} is not known: mock, websocket or module:Class")

    def _take(self, placed: Placed) -> None:
        name = None
        if self._keeps(placed):
            name = self._write_bundle(placed)
        lateness = placed.recording.lateness
        self.collector.take(
            placed.record,
            worker=WORKER,
            started_s=placed.started_s,
            warmup=placed.warmup,
            bundle=name,
            frames_sent=placed.sent_frames,
            lateness_ms=_lateness_distribution(lateness.send_ms) if lateness is not None else Distribution(),
        )

    def _keeps(self, placed: Placed) -> bool:
        if self._settings.directory is None or self._settings.keep == "none" or not placed.sent_frames:
            return False  # a session that never sent a frame is nothing to listen to
        return self._settings.keep == "all" or went_wrong(placed.record)

    def _write_bundle(self, placed: Placed) -> str | None:
        assert self._settings.directory is not None
        name = f"bundles/{placed.record.session_id}"
        document = redact_document(placed.recording.scenario.document)
        try:
            files = bundle.encode(placed.recording, document)
            # Off the loop: a disk may take its time. One at a time: threads that want the interpreter stall the pacer.
            with self._disk:
                error = get_hub().threadpool.apply(_try_to_write, (self._settings.directory / name, files))
            if error is not None:
                raise error
        except Exception as error:  # noqa: BLE001 - a recording is lost, which is no reason to lose the run
            why = getattr(error, "strerror", None) or describe(error)
            why = f"recordings could not be written ({why}); the numbers are whole"
            if why not in self._trouble:
                self._trouble.append(why)
            return None
        return name


def _try_to_write(directory: Path, files: Mapping[str, bytes]) -> OSError | None:
    """In a thread of the hub's, which would print what it raises."""
    try:
        write_files(directory, files)
    except OSError as error:
        return error
    return None


def _get_ready(script: Script) -> None:
    """Do beforehand what would stall live sessions the first time: imports at first use, and the garbage collector's
    walk through everything that was loaded until here (measured: 25 and 50 ms)."""
    session = Session(script)
    session.end(FINISHED, 1)
    recording = session.recording("rehearsal", clock="virtual")
    score(recording)
    bundle.encode(recording, {})
    gc.collect()
    gc.freeze()


def went_wrong(record: SessionRecord) -> bool:
    """Whether a session is worth listening to: it failed, or a turn that was judged did not pass."""
    if record.outcome.state in ("failed", "lost"):
        return True
    return any(not turn.passed and turn.status in ("measured", "missed") for turn in record.turns)


def _lateness_distribution(send_ms: Any) -> Distribution:
    ticks, counts = np.unique(np.rint(send_ms * 10).astype(int), return_counts=True)
    return Distribution.from_counts(dict(zip(ticks.tolist(), counts.tolist(), strict=True)))


def _mock_maker(script: Script, options: Mapping[str, Any]) -> Callable[[SessionInfo], Adapter]:
    return lambda info: MockAdapter(sample_rate_hz=script.scenario.sample_rate, session_number=info.number, **options)


def _class_maker(name: str, options: Mapping[str, Any]) -> Callable[[SessionInfo], Adapter]:
    adapter_class = load_adapter_class(name)

    def make(info: SessionInfo) -> Adapter:
        try:
            made: Adapter = adapter_class(**options)
        except Exception as error:
            raise AdapterError(
                f"adapter {name!r} can't be made with these options: {type(error).__name__}: {error}"
            ) from error
        return made

    return make


def new_run_id(name: str) -> str:
    """A name for the run that sorts by time and can be a folder."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()[:40] or "run"
    return f"{slug}-{datetime.fromtimestamp(realtime_s()).strftime('%Y%m%d-%H%M%S')}"


def fresh_directory(wanted: Path) -> Path:
    """A folder for a new run: never one that holds something.

    Raises:
        UsageError: It exists and is not empty, or can't be made or written to.
    """
    try:
        if wanted.exists() and (not wanted.is_dir() or any(wanted.iterdir())):
            raise UsageError(f"{wanted}: exists and is not an empty folder; results are never overwritten")
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted):
            pass
    except OSError as error:
        raise UsageError(f"{wanted}: cannot be made or written to: {error.strerror}") from None
    return wanted
