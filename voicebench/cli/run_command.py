"""What `voicebench run` does with its flags: settle what is to be run, hold the run, write and show the report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voicebench.bundle_files import write_file
from voicebench.cli.dry_run import print_dry_run, session_bounds_s
from voicebench.cli.format import count, duration
from voicebench.cli.live import Progress, choose_view
from voicebench.cli.output import emit_json, json_bytes, say
from voicebench.cli.settle import (
    RunFlags,
    fit_the_virtual_clock,
    idle_callers,
    refuse_conflicts,
    refuse_unsupported,
    settle_load,
    with_adapter,
)
from voicebench.cli.show import show_report
from voicebench.cli.signals import Signals
from voicebench.errors import TesterError, UsageError
from voicebench.load_files import PreparedScenario, load_plan
from voicebench.local_run import LocalRun, RunSettings, fresh_directory, new_run_id

RESULTS = Path("voicebench-results")


def run_command(flags: RunFlags) -> int:
    """Run, and return the exit code."""
    refuse_conflicts(flags)
    loaded = load_plan(flags.plan_file)
    refuse_unsupported(loaded.plan)
    environment = os.environ
    scenarios = with_adapter(loaded, flags, environment)
    load, notes = settle_load(loaded.plan, flags, environment)
    for warning in () if flags.quiet else loaded.warnings:
        say(f"warning: {warning}")
    run_id = flags.out.name if flags.out is not None and flags.out.name else new_run_id(loaded.plan.name)
    settings = RunSettings(
        realtime=flags.realtime,
        keep=flags.keep or loaded.plan.record.keep,
        environment=environment,
        preflight=not flags.no_preflight,
    )
    run = LocalRun(run_id, loaded.plan, scenarios, load, settings)
    if run.virtual:
        run.engine.load, further = fit_the_virtual_clock(load)
    else:
        further = idle_callers(load)
    run.notes += [*notes, *further]
    _refuse_small_budget(run.engine.load.max_audio_s, scenarios)
    if flags.dry_run:
        print_dry_run(run, scenarios)
        return 0
    if settings.preflight:
        run.preflight()
    if not flags.no_write:
        settings.directory = _directory(flags, run_id, environment)
    return _hold(run, flags, settings)


def _refuse_small_budget(max_audio_s: float | None, scenarios: list[PreparedScenario]) -> None:
    if max_audio_s is None:
        return
    shortest_s = min(session_bounds_s(prepared)[0] for prepared in scenarios)
    if max_audio_s < shortest_s:
        raise UsageError(
            f"--max-minutes: {max_audio_s / 60:g} allows no session: the shortest takes {shortest_s / 60:.3g} minutes"
        )


def _hold(run: LocalRun, flags: RunFlags, settings: RunSettings) -> int:
    events: list[Mapping[str, Any]] = []
    engine = run.engine
    progress = Progress(run)
    view = choose_view(progress, quiet=flags.quiet)

    def drain(name: str) -> None:
        events.append({"t_s": round(engine.elapsed_s, 3), "event": "drain", "detail": name})
        engine.drain()
        progress.drained_s()
        going_on = count(engine.live, "session")
        view.note(f"{name}: letting {going_on} finish, up to {duration(engine.load.stop_timeout_s)}; again to cut")

    def cut(name: str) -> None:
        events.append({"t_s": round(engine.elapsed_s, 3), "event": "cut", "detail": name})
        engine.cut()

    signals = Signals(drain, cut)
    view.start()
    trouble: BaseException | None = None
    try:
        events.append({"t_s": 0.0, "event": "start", "detail": f"{engine.load.callers} callers"})
        run.run()
    except Exception as error:  # noqa: BLE001 - whatever voids the run, what was measured until then is reported
        trouble = error
        events.append({"t_s": round(engine.elapsed_s, 3), "event": "error", "detail": str(error)})
    finally:
        view.stop()
        signals.close()
    events.append({"t_s": round(run.duration_s, 3), "event": "end", "detail": ""})
    report, verdict = run.finish(signal_exit=signals.exit_code, events=events)
    _write(report, settings, flags)
    if not flags.quiet and flags.json_to != "-":
        show_report(report, details=_details(run), directory=settings.directory)
    if trouble is not None:
        raise TesterError(f"the load generator failed; the report has what was measured: {trouble!r}") from trouble
    if verdict.exit_code:
        say(f"exit {verdict.exit_code}: {verdict.reasons[0]}")
    return verdict.exit_code


def _directory(flags: RunFlags, run_id: str, environment: Mapping[str, str]) -> Path:
    if flags.out is not None:
        return fresh_directory(flags.out)
    if environment.get("VOICEBENCH_OUT"):
        return fresh_directory(Path(environment["VOICEBENCH_OUT"]))
    wanted, further = RESULTS / run_id, 2
    while wanted.exists():
        wanted = RESULTS / f"{run_id}-{further}"
        further += 1
    return fresh_directory(wanted)


def _write(report: Mapping[str, Any], settings: RunSettings, flags: RunFlags) -> None:
    targets = [] if settings.directory is None else [settings.directory / "report.json"]
    targets += [] if flags.json_to in (None, "-") else [Path(str(flags.json_to))]
    for path in targets:
        try:
            write_file(path, json_bytes(report))
        except OSError as error:
            emit_json(report)  # the numbers must not be lost with the disk
            raise TesterError(
                f"{path}: the report cannot be written: {error.strerror}; it is on standard output"
            ) from None
    if flags.json_to == "-":
        emit_json(report)


def _details(run: LocalRun) -> dict[str, str]:
    """What the first session that failed for each reason had to say."""
    details: dict[str, str] = {}
    for taken in run.collector.listed:
        outcome = taken.record.outcome
        if outcome.reason is not None and outcome.detail:
            details.setdefault(outcome.reason, outcome.detail)
    return details
