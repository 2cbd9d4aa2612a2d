"""What `voicebench run` and `voicebench master` do with their flags: settle what is to be run, hold the run, write and
show the report.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from voicebench.bundle_files import write_file
from voicebench.cli.dry_run import print_dry_run, session_bounds_s
from voicebench.cli.output import emit_json, json_bytes, say
from voicebench.cli.settle import (
    RunFlags,
    fit_the_virtual_clock,
    idle_callers,
    refuse_conflicts,
    refuse_unfilled,
    refuse_unsupported,
    settle_load,
    with_adapter,
)
from voicebench.cli.show import show_report
from voicebench.errors import TesterError, UsageError
from voicebench.load_files import LoadedPlan, load_plan
from voicebench.master.verdict import RunVerdict
from voicebench.run_folder import RESULTS, fresh_directory, new_run_id, run_id_of
from voicebench.scenario.prepared import PreparedScenario
from voicebench.worker.engine import EngineLoad

Keep = Literal["all", "failed", "none"]


@dataclass(frozen=True, slots=True)
class Settled:
    """Everything about a run that is known before it begins."""

    run_id: str
    loaded: LoadedPlan
    scenarios: tuple[PreparedScenario, ...]
    """With the adapter of the command line."""
    load: EngineLoad
    keep: Keep
    virtual: bool
    """On the virtual clock, in this process."""
    notes: tuple[str, ...]


def settle(flags: RunFlags, environment: Mapping[str, str], *, agent_is_called_here: bool) -> Settled:
    """From the command line to what is to be run.

    Args:
        agent_is_called_here: Whether the variables in an agent's options must be set on this machine.

    Raises:
        UsageError, ScenarioError: Whatever does not fit.
    """
    refuse_conflicts(flags)
    loaded = load_plan(flags.plan_file)
    refuse_unsupported(loaded.plan)
    scenarios = with_adapter(loaded, flags, environment)
    if agent_is_called_here:
        refuse_unfilled(scenarios, environment)
    load, notes = settle_load(loaded.plan, flags, environment)
    for warning in () if flags.quiet else loaded.warnings:
        say(f"warning: {warning}")
    virtual = not flags.realtime and all(each.scenario.adapter.type == "mock" for each in scenarios)
    if virtual:
        load, further = fit_the_virtual_clock(load)
    else:
        further = idle_callers(load)
    _refuse_small_budget(load.max_audio_s, scenarios)
    return Settled(
        run_id=name_of_run(flags, loaded),
        loaded=loaded,
        scenarios=tuple(scenarios),
        load=load,
        keep=flags.keep or loaded.plan.record.keep,
        virtual=virtual,
        notes=(*notes, *further),
    )


def name_of_run(flags: RunFlags, loaded: LoadedPlan) -> str:
    """After its folder, or after the plan and the time."""
    return run_id_of(flags.out) if flags.out is not None else new_run_id(loaded.plan.name)


def run_command(flags: RunFlags) -> int:
    """Run on this machine, and return the exit code."""
    settled = settle(flags, os.environ, agent_is_called_here=True)
    if flags.dry_run:
        print_dry_run(settled.load, settled.scenarios, virtual=settled.virtual, notes=settled.notes)
        return 0
    if settled.virtual:
        if flags.page is not None or flags.stay:
            say("a run on the virtual clock is over in no time and has no status page (--realtime has one)")
        from voicebench.cli.virtual_command import hold_virtual

        return hold_virtual(settled, flags)
    from voicebench.cli.distributed import hold_with_children

    return hold_with_children(settled, flags)


def _refuse_small_budget(max_audio_s: float | None, scenarios: list[PreparedScenario]) -> None:
    if max_audio_s is None:
        return
    shortest_s = min(session_bounds_s(prepared)[0] for prepared in scenarios)
    if max_audio_s < shortest_s:
        raise UsageError(
            f"--max-minutes: {max_audio_s / 60:g} allows no session: the shortest takes {shortest_s / 60:.3g} minutes"
        )


def make_directory(flags: RunFlags, run_id: str, environment: Mapping[str, str]) -> Path | None:
    """The run's folder, new and empty; None when nothing is to be written.

    Raises:
        UsageError: It holds something, or can't be made.
    """
    if flags.no_write:
        return None
    if flags.out is not None:
        return fresh_directory(flags.out)
    if environment.get("VOICEBENCH_OUT"):
        return fresh_directory(Path(environment["VOICEBENCH_OUT"]))
    wanted, further = RESULTS / run_id, 2
    while wanted.exists():
        wanted = RESULTS / f"{run_id}-{further}"
        further += 1
    return fresh_directory(wanted)


def write_and_show(
    report: Mapping[str, Any],
    verdict: RunVerdict,
    flags: RunFlags,
    *,
    directory: Path | None,
    details: Mapping[str, str],
    trouble: BaseException | None,
) -> int:
    """The report to where it was asked for, the tables to the terminal; returns the exit code.

    Args:
        details: What the first session that failed for each reason had to say.
        trouble: What voided the run, to be told once the report is written.
    """
    try:
        _write(report, flags, directory)
    finally:  # of several files each may be the only one that there is room for
        write_further(report, details, directory)
    if not flags.quiet and flags.json_to != "-":
        show_report(report, details=details, directory=directory)
    if trouble is not None:
        raise TesterError(f"the load generator failed; the report has what was measured: {trouble!r}") from trouble
    if verdict.exit_code:
        say(f"exit {verdict.exit_code}: {verdict.reasons[0]}")
    return verdict.exit_code


def write_further(report: Mapping[str, Any], details: Mapping[str, str], directory: Path | None) -> None:
    """The reports for people and pipelines. What can't be written is said, and changes no verdict."""
    from voicebench.reports.writing import append_summary, write_reports

    troubles = [] if directory is None else write_reports(directory, report, details)
    for trouble in troubles + append_summary(report, details, os.environ):
        say(f"warning: {trouble}")


def _write(report: Mapping[str, Any], flags: RunFlags, directory: Path | None) -> None:
    targets = [] if directory is None else [directory / "report.json"]
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
