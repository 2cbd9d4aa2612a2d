"""What is to be run: the plan, changed by flags and environment. Everything that does not fit is refused here, before
the first call.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from voicebench.errors import Problem, ScenarioError, UsageError
from voicebench.load_files import LoadedPlan, apply_adapter
from voicebench.scenario.adapter_options import option_mistakes
from voicebench.scenario.mistakes import path_text
from voicebench.scenario.model import AdapterSpec, Load, Plan, Scenario
from voicebench.scenario.prepared import PreparedScenario
from voicebench.scenario.quantities import parse_duration_s, parse_rate_per_s
from voicebench.scenario.secrets import expand_variables
from voicebench.worker.engine import EngineLoad

SUPPORTED_LOAD = frozenset({"callers", "sessions", "pause", "seed"})
SUPPORTED_RECORD = frozenset({"keep"})
Environment = Mapping[str, str]


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
    keep: Literal["all", "failed", "none"] | None
    out: Path | None
    no_write: bool
    json_to: str | None
    dry_run: bool
    no_preflight: bool
    quiet: bool
    workers: int | None = None
    """Processes that hold the sessions, of `run`."""
    page: str | None = None
    """Where the status page listens; None: nothing was said."""
    headless: bool = False
    stay: bool = False


@dataclass(frozen=True, slots=True)
class MasterFlags:
    """What `master` is told beside that."""

    bind: str
    expect_workers: int
    wait: bool
    join_timeout: float
    insecure: bool


def refuse_unsupported(plan: Plan) -> None:
    """Raises:
    UsageError: The plan asks for what is understood and can't be run yet.
    """
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
        raise UsageError("abort_on: understood, but not supported by this version's run; leave it out")


def refuse_conflicts(flags: RunFlags) -> None:
    """Raises:
    UsageError: Flags that exclude each other, or a file that could not be written after an hour's run.
    """
    if flags.no_write and flags.out is not None:
        raise UsageError("--out and --no-write exclude each other")
    if flags.no_write and flags.keep in ("all", "failed"):
        raise UsageError(f"--record {flags.keep} and --no-write exclude each other: recordings are files")
    if flags.run_time is not None and flags.run_time <= 0:
        raise UsageError("-t/--run-time: no session could start in no time: write 90s or 5m")
    if None not in (flags.warmup, flags.run_time) and flags.warmup >= flags.run_time:  # type: ignore[operator]
        raise UsageError("--warmup: as long as the run time, so that nothing would be counted: make -t longer")
    if flags.headless and (flags.page is not None or flags.stay):
        raise UsageError(f"{'--page' if flags.page is not None else '--stay'} and --headless exclude each other")
    if flags.json_to not in (None, "-"):
        refuse_unwritable(Path(str(flags.json_to)))


def refuse_unwritable(path: Path) -> None:
    """Raises:
    UsageError: A file for `--json` that could not be written.
    """
    folder = path.absolute().parent
    if path.is_dir():
        raise UsageError(f"--json: {path} is a folder: name a file in it")
    if not folder.is_dir():
        raise UsageError(f"--json: {path} can't be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--json: {path} can't be written: permission denied")


def with_adapter(loaded: LoadedPlan, flags: RunFlags, environment: Environment) -> list[PreparedScenario]:
    """The scenarios with the adapter of the command line, where it has one.

    Raises:
        UsageError: A flag's value that does not fit, by the flag's name.
    """
    return [replace(each, scenario=_called_by(each.scenario, flags, environment)) for each in loaded.scenarios]


def _called_by(scenario: Scenario, flags: RunFlags, environment: Environment) -> Scenario:
    options, names = dict(flags.options), {key: f"-o {key}" for key in flags.options}
    if flags.url is not None:
        options["url"], names["url"] = flags.url, "--url"
    override = AdapterSpec(flags.adapter) if flags.adapter is not None else None
    if override is None and flags.url is not None and scenario.adapter.type == "mock":
        override = AdapterSpec("websocket")  # a URL says that a real agent is meant; the mock has none
    if override is None and not options and scenario.adapter.type == "websocket":
        url = environment.get("VOICEBENCH_URL")
        if url and "url" not in scenario.adapter.options:
            options["url"], names["url"] = url, "environment variable VOICEBENCH_URL"
    if override is None and not options:
        return scenario
    try:
        return apply_adapter(scenario, override, options)
    except ScenarioError as error:
        raise UsageError("\n".join(_by_flag(problem, names) for problem in error.problems)) from None


def _by_flag(problem: Problem, names: Mapping[str, str]) -> str:
    if problem.path == "adapter.type":
        return f"-a/--adapter: {problem.message}"
    key, dot, inner = problem.path.removeprefix("adapter.options.").partition(".")
    if problem.path.startswith("adapter.options.") and key in names:
        return f"{names[key]}{dot}{inner}: {problem.message}"
    return f"{problem.path}: {problem.message}"


def refuse_unfilled(scenarios: Sequence[PreparedScenario], environment: Environment) -> None:
    """Variables are filled in where sessions run; that they can be is checked here, where the file has a name.

    Raises:
        ScenarioError: A variable in a file's options is not set, or its value does not fit.
    """
    for each in scenarios:
        _refuse_unfilled(each, environment)


def _refuse_unfilled(prepared: PreparedScenario, environment: Environment) -> None:
    spec = prepared.scenario.adapter
    try:
        options = expand_variables(dict(spec.options), environment)
    except ScenarioError as error:
        raise ScenarioError([replace(problem, source=prepared.file) for problem in error.problems]) from None
    wrong = option_mistakes(spec.type, options, waiting=False)
    if wrong:
        paths = [path_text(("adapter", "options", *each.path)) for each in wrong]
        problems = zip(paths, wrong, strict=True)
        raise ScenarioError([Problem(prepared.file, None, None, path, each.message) for path, each in problems])


def settle_load(plan: Plan, flags: RunFlags, environment: Environment) -> tuple[EngineLoad, list[str]]:
    """The load with notes on what was made of it.

    Flags replace the plan's load as a whole; the plan's stands before the environment's.
    """
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
        if callers is not None and callers > 1:
            notes.append(f"neither sessions nor a run time was given: one session for each of the {callers} callers")
    settled = EngineLoad(
        callers=callers or 1,
        sessions=sessions,
        spawn_rate_per_s=spawn_rate,
        run_time_s=run_time_s,
        stop_timeout_s=flags.stop_timeout,
        pause_s=load.pause_s,
        warmup_s=flags.warmup or 0.0,
        max_audio_s=None if flags.max_minutes is None else 60.0 * flags.max_minutes,
        seed=plan.load.seed if flags.seed is None else flags.seed,
    )
    return settled, notes


def idle_callers(load: EngineLoad) -> list[str]:
    """A note on callers that will never place a session: probably not what was meant."""
    if load.sessions is not None and load.sessions < load.callers:
        return [f"{load.sessions} sessions keep only {load.sessions} of the {load.callers} callers busy"]
    if load.spawn_rate_per_s is not None and load.run_time_s is not None:
        joined = int(load.run_time_s * load.spawn_rate_per_s) + 1
        if joined < load.callers:
            return [f"only {joined} of the {load.callers} callers join within the run time, at that rate"]
    return []


def _from_environment(environment: Environment, name: str, parse: Any) -> Any:
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


def fit_the_virtual_clock(load: EngineLoad) -> tuple[EngineLoad, list[str]]:
    """The load as the virtual clock can place it: one session after another, as fast as they are computed.

    Raises:
        UsageError: Only a run time was given, which the virtual clock can't measure.
    """
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
    notes = [f"on the virtual clock sessions run one after another: {', '.join(ignored)} ignored"] if ignored else []
    alone = replace(load, callers=1, spawn_rate_per_s=None, run_time_s=None, pause_s=(0.0, 0.0), warmup_s=0.0)
    return alone, notes
