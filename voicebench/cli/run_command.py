"""What `voicebench run` does with its flags: settle the load, hold the run, show and write the report."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gevent

from voicebench.bundle_files import write_file
from voicebench.cli.format import duration, number
from voicebench.cli.live import choose_view
from voicebench.cli.output import console, emit_json, json_bytes, print_assertions, print_numbers, print_turns
from voicebench.errors import TesterError, UsageError
from voicebench.load_files import LoadedPlan, PreparedScenario, apply_adapter, load_plan
from voicebench.local_run import KEEP, LocalRun, RunSettings, fresh_directory, new_run_id
from voicebench.scenario.model import AdapterSpec, Load, Plan
from voicebench.scenario.quantities import parse_duration_s, parse_rate_per_s
from voicebench.session import prepare, shortest_session_s
from voicebench.worker.engine import EngineLoad

SUPPORTED_LOAD = frozenset({"callers", "sessions", "pause", "seed"})
SUPPORTED_RECORD = frozenset({"keep"})
RESULTS = Path("voicebench-results")


@dataclass(frozen=True, slots=True)
class RunFlags:
    """The command line as typed; None where nothing was."""

    plan_file: str
    url: str | None
    adapter: str | None
    options: dict[str, Any]
    callers: int | None
    sessions: int | None
    run_time: float | None
    spawn_rate: float | None
    warmup: float | None
    stop_timeout: float
    max_minutes: float | None
    seed: int | None
    realtime: bool
    keep: KEEP | None
    out: Path | None
    no_write: bool
    json_to: str | None
    dry_run: bool
    no_preflight: bool
    quiet: bool


def run_command(flags: RunFlags) -> int:
    """Run, and return the exit code."""
    loaded = load_plan(flags.plan_file)
    _refuse_unsupported(loaded.plan)
    environment = os.environ
    scenarios = _with_adapter(loaded, flags, environment)
    load, notes = _settle_load(loaded.plan, flags, environment)
    for warning in loaded.warnings:
        _say(flags, f"warning: {warning}")
    run_id = flags.out.name if flags.out is not None and flags.out.name else new_run_id(loaded.plan.name)
    settings = RunSettings(
        realtime=flags.realtime,
        keep=flags.keep or loaded.plan.record.keep,
        environment=environment,
        preflight=not flags.no_preflight,
    )
    run = LocalRun(run_id, loaded.plan, scenarios, load, settings)
    run.notes += notes
    if run.virtual:
        _on_the_virtual_clock(run)
    if flags.dry_run:
        return _dry_run(run, scenarios)
    if settings.preflight:
        run.preflight()
    if not flags.no_write:
        settings.directory = _directory(flags, run_id, environment)
    return _hold(run, flags, settings)


def _hold(run: LocalRun, flags: RunFlags, settings: RunSettings) -> int:
    events: list[Mapping[str, Any]] = []
    signals = _Signals(run, events, flags)
    view = choose_view(lambda: snapshot(run), quiet=flags.quiet)
    view.start()
    trouble: BaseException | None = None
    try:
        events.append({"t_s": 0.0, "event": "start", "detail": f"{run.engine.load.callers} callers"})
        run.run()
    except Exception as error:  # noqa: BLE001 - whatever voids the run, what was measured until then is reported
        trouble = error
        events.append({"t_s": round(run.engine.elapsed_s, 3), "event": "error", "detail": str(error)})
    finally:
        view.stop()
        signals.close()
    events.append({"t_s": round(run.duration_s, 3), "event": "end", "detail": ""})
    report, verdict = run.finish(signal_exit=signals.exit_code, events=events)
    _write(report, settings, flags)
    if not flags.quiet and flags.json_to != "-":
        _show(run, report, settings, verdict.reasons)
    if trouble is not None:
        raise TesterError(f"the load generator failed; the report has what was measured: {trouble!r}") from trouble
    if verdict.exit_code:
        _say(flags, f"exit {verdict.exit_code}: {verdict.reasons[0]}", even_quiet=True)
    return verdict.exit_code


def _refuse_unsupported(plan: Plan) -> None:
    for block, given, supported in (
        ("load", plan.load.given, SUPPORTED_LOAD),
        ("record", plan.record.given, SUPPORTED_RECORD),
    ):
        extra = sorted(given - supported)
        if extra:
            raise UsageError(
                f"{block}.{extra[0]}: understood, but not supported by this version's run; "
                f"what runs now: {', '.join(sorted(supported))}"
            )
    if plan.abort_on is not None:
        raise UsageError("abort_on: understood, but not supported by this version's run")


def _with_adapter(loaded: LoadedPlan, flags: RunFlags, environment: Mapping[str, str]) -> list[PreparedScenario]:
    override = AdapterSpec(flags.adapter) if flags.adapter else None
    options = dict(flags.options)
    if flags.url is not None:
        options["url"] = flags.url
    prepared = []
    for each in loaded.scenarios:
        scenario = each.scenario
        if flags.url is not None and flags.adapter is None and scenario.adapter.type == "mock":
            # A URL says that a real agent is meant; the mock has none.
            scenario = apply_adapter(scenario, AdapterSpec("websocket"), options)
        elif override is not None or options:
            scenario = apply_adapter(scenario, override, options)
        elif "url" not in scenario.adapter.options and scenario.adapter.type == "websocket":
            url = environment.get("VOICEBENCH_URL")
            scenario = apply_adapter(scenario, None, {"url": url}) if url else scenario
        prepared.append(replace(each, scenario=scenario))
    return prepared


def _settle_load(plan: Plan, flags: RunFlags, environment: Mapping[str, str]) -> tuple[EngineLoad, list[str]]:
    """Flags replace the plan's load as a whole; the plan's stands before the environment's."""
    typed = any(value is not None for value in (flags.callers, flags.sessions, flags.run_time, flags.spawn_rate))
    load = Load(callers=flags.callers, sessions=flags.sessions) if typed else plan.load
    callers, sessions, run_time_s, spawn_rate = load.callers, load.sessions, flags.run_time, flags.spawn_rate
    if not typed and not plan.load.given:
        callers = _from_environment(environment, "VOICEBENCH_CALLERS", _count)
        sessions = _from_environment(environment, "VOICEBENCH_SESSIONS", _count)
        run_time_s = _from_environment(environment, "VOICEBENCH_RUN_TIME", parse_duration_s)
        spawn_rate = _from_environment(environment, "VOICEBENCH_SPAWN_RATE", parse_rate_per_s)
    notes = []
    if sessions is None and run_time_s is None:
        sessions = callers or 1
        if callers is not None:
            notes.append(f"neither sessions nor a run time was given: each of the {callers} callers places one session")
    return (
        EngineLoad(
            callers=callers or 1,
            sessions=sessions,
            spawn_rate_per_s=spawn_rate,
            run_time_s=run_time_s,
            stop_timeout_s=flags.stop_timeout,
            pause_s=load.pause_s,
            warmup_s=flags.warmup or 0.0,
            max_audio_s=None if flags.max_minutes is None else 60.0 * flags.max_minutes,
            seed=plan.load.seed if flags.seed is None else flags.seed,
        ),
        notes,
    )


def _from_environment(environment: Mapping[str, str], name: str, parse: Any) -> Any:
    if not environment.get(name):
        return None
    try:
        return parse(environment[name])
    except ValueError as error:
        raise UsageError(f"environment variable {name}: {error}") from None


def _count(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise ValueError(f"{text!r} is not a whole number above 0")
    return value


def _on_the_virtual_clock(run: LocalRun) -> None:
    load = run.engine.load
    if load.sessions is None:
        raise UsageError(
            "-t: the mock agent runs on the virtual clock, where time is no measure: give -n, or --realtime"
        )
    ignored = [
        name
        for name, given in (
            ("callers", load.callers > 1),
            ("spawn rate", load.spawn_rate_per_s is not None),
            ("run time", load.run_time_s is not None),
            ("pause", load.pause_s != (0.0, 0.0)),
            ("warm-up", load.warmup_s > 0),
        )
        if given
    ]
    if ignored:
        run.notes.append(f"on the virtual clock sessions run one after another: {', '.join(ignored)} ignored")
    run.engine.load = replace(load, callers=1, spawn_rate_per_s=None, run_time_s=None, pause_s=(0.0, 0.0), warmup_s=0.0)


def _dry_run(run: LocalRun, scenarios: list[PreparedScenario]) -> int:
    load = run.engine.load
    out = console()
    out.print(f"{run.engine.load.callers} callers, {run.clock} clock")
    lengths = []
    for prepared in scenarios:
        script = prepare(prepared.scenario, prepared.clips)
        shortest_s, longest_s = shortest_session_s(script), prepared.scenario.max_duration_ms / 1000.0
        lengths.append((shortest_s, longest_s))
        out.print(
            f"{prepared.scenario.name}: {len(script.clips)} turns, at least {shortest_s:.1f} s, "
            f"at most {longest_s:.1f} s a session, agent {prepared.scenario.adapter.type}"
        )
    shortest_s, longest_s = min(low for low, _ in lengths), max(high for _, high in lengths)
    sessions_low, sessions_high = _session_bounds(load, shortest_s, longest_s)
    count = str(sessions_low) if sessions_low == sessions_high else f"{sessions_low} to {sessions_high}"
    minutes_low, minutes_high = sessions_low * shortest_s / 60, sessions_high * longest_s / 60
    if load.max_audio_s is not None:
        minutes_high = min(minutes_high, load.max_audio_s / 60)
    out.print(f"would place {count} sessions, {minutes_low:.1f} to {minutes_high:.1f} audio minutes")
    for note in run.notes:
        out.print(f"note: {note}")
    return 0


def _session_bounds(load: EngineLoad, shortest_s: float, longest_s: float) -> tuple[int, int]:
    if load.run_time_s is None:
        assert load.sessions is not None
        return load.sessions, load.sessions
    # Each caller has at least begun one, and at most begun one more than fit.
    least = load.callers if load.spawn_rate_per_s is None else 1
    most = load.callers * (int(load.run_time_s / shortest_s) + 1)
    return (least, most) if load.sessions is None else (min(least, load.sessions), min(most, load.sessions))


def snapshot(run: LocalRun) -> dict[str, Any]:
    """What the live view shows, as plain data."""
    engine, collector, load = run.engine, run.collector, run.engine.load
    tally = collector.total.all
    latency = tally.response_latency_ms
    left_s = None if load.run_time_s is None else max(0.0, load.run_time_s - engine.elapsed_s)
    return {
        "elapsed_s": engine.elapsed_s,
        "left_s": left_s,
        "state": "draining" if engine.draining else "running",
        "live": engine.live,
        "started": engine.counts["started"],
        "finished": collector.outcomes["finished"],
        "failed": collector.outcomes["failed"],
        "cut": collector.outcomes["cut"],
        "reasons": dict(collector.reasons),
        "turns": tally.counts["judged_turns"],
        "missed": tally.counts["missed_responses"],
        "unreliable": tally.counts["unreliable_turns"],
        "p50_ms": latency.percentile(50),
        "p95_ms": latency.percentile(95),
        "max_ms": latency.max,
        "late_p99_ms": collector.lateness_ms.percentile(99),
    }


class _Signals:
    """First Ctrl-C or SIGTERM drains, the second cuts; the exit code remembers the first."""

    def __init__(self, run: LocalRun, events: list[Mapping[str, Any]], flags: RunFlags) -> None:
        self.exit_code: int | None = None
        self._run = run
        self._events = events
        self._flags = flags
        self._watchers = [
            gevent.signal_handler(number, self._on_signal, number)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        ]

    def close(self) -> None:
        for watcher in self._watchers:
            watcher.cancel()

    def _on_signal(self, number: int) -> None:
        engine = self._run.engine
        name = signal.Signals(number).name
        again = self.exit_code is not None
        self._events.append({"t_s": round(engine.elapsed_s, 3), "event": "cut" if again else "drain", "detail": name})
        if again:
            engine.cut()
            return
        self.exit_code = 128 + int(signal.SIGTERM if number == signal.SIGHUP else number)
        engine.drain()
        left = f"letting {engine.live} sessions finish, up to {duration(engine.load.stop_timeout_s)}; again to cut"
        _say(self._flags, left, even_quiet=True)


def _directory(flags: RunFlags, run_id: str, environment: Mapping[str, str]) -> Path:
    if flags.out is not None:
        return fresh_directory(flags.out)
    wanted = Path(environment["VOICEBENCH_OUT"]) if environment.get("VOICEBENCH_OUT") else RESULTS / run_id
    try_next = 2
    while wanted.exists() and not environment.get("VOICEBENCH_OUT"):
        wanted = RESULTS / f"{run_id}-{try_next}"
        try_next += 1
    return fresh_directory(wanted)


def _write(report: Mapping[str, Any], settings: RunSettings, flags: RunFlags) -> None:
    try:
        if settings.directory is not None:
            write_file(settings.directory / "report.json", json_bytes(report))
        if flags.json_to not in (None, "-"):
            assert flags.json_to is not None
            write_file(Path(flags.json_to), json_bytes(report))
    except OSError as error:
        emit_json(report)  # the numbers must not be lost with the disk
        raise TesterError(
            f"{error.filename}: the report cannot be written: {error.strerror}; it is on stdout"
        ) from None
    if flags.json_to == "-":
        emit_json(report)


def _show(run: LocalRun, report: Mapping[str, Any], settings: RunSettings, reasons: tuple[str, ...]) -> None:
    out = console()
    verdict = report["run"]["verdict"]
    if verdict not in ("pass", "fail"):
        out.print(f"[bold red]! {verdict}: {reasons[0]}[/]")
    account = report["accounting"]
    out.print(
        f"{report['run']['name']}: {account['started']} sessions in {duration(run.duration_s)} ({run.clock} clock): "
        f"{account['finished']} finished, {account['failed']} failed, {account['cut']} cut"
    )
    for reason, count in account["reasons"].items():
        out.print(f"  {count} {reason}: {_first_detail(run, reason)}", markup=False)
    print_turns(out, run.collector.by_turn)
    print_numbers(out, run.collector.total.all)
    late = report["workers"][0]["frame_lateness_ms"]
    if late["count"]:
        out.print(
            f" This machine: frames sent late p50 {late['p50']:.1f}, p99 {late['p99']:.1f}, max {late['max']:.1f} ms; "
            f"{number(round(report['workers'][0]['cpu_s'], 1))} s of CPU"
        )
    print_assertions(out, _assertions(run, report))
    for note in report["run"]["notes"]:
        out.print(f"note: {note}", markup=False)
    if settings.directory is not None:
        kept = sum(1 for session in report["sessions"] if session["bundle"] is not None)
        out.print(f"\nreport {settings.directory / 'report.json'}", markup=False)
        if kept:
            out.print(f"{kept} recorded sessions in {settings.directory / 'bundles'}", markup=False)


def _assertions(run: LocalRun, report: Mapping[str, Any]) -> list[Any]:
    from voicebench.assertions import AssertionResult

    return [AssertionResult(**result) for result in report["assertions"]]


def _first_detail(run: LocalRun, reason: str) -> str:
    details = (taken.record.outcome.detail for taken in run.collector.listed if taken.record.outcome.reason == reason)
    return next((detail for detail in details if detail), "")


def _say(flags: RunFlags, text: str, *, even_quiet: bool = False) -> None:
    if even_quiet or not flags.quiet:
        print(text, file=sys.stderr, flush=True)
