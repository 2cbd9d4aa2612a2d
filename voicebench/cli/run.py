"""`voicebench run`: place calls with a scenario or plan, and report how the agent did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from voicebench.errors import UsageError

DEFAULT_STOP_TIMEOUT = "30s"


def _parsed(parse_name: str) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """A callback that reads a quantity by a parser of `scenario.quantities`, imported when a value is given."""

    def read(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Any:
        if value is None:
            return None
        from voicebench.scenario import quantities

        try:
            return getattr(quantities, parse_name)(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return read


_duration = _parsed("parse_duration_s")


def _options(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    from voicebench.scenario.yaml_text import read_value

    options: dict[str, Any] = {}
    for pair in values:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter("write KEY=VALUE, for instance -o connect_timeout_s=5")
        options[key.strip()] = read_value(text)
    return options


@click.command("run")
@click.argument("plan_file", metavar="PLAN")
@click.option("--url", help="The agent's URL (the same as -o url=URL).")
@click.option("-a", "--adapter", help="mock, websocket or module:Class; overrides the scenarios'.")
@click.option(
    "-o", "--option", "options", multiple=True, metavar="KEY=VALUE", callback=_options, help="Adapter option."
)
@click.option(
    "-u", "--callers", type=click.IntRange(1, 100_000), help="Callers at once; each places calls back to back."
)
@click.option("-n", "--sessions", type=click.IntRange(1), help="Stop after so many sessions.")
@click.option(
    "-t", "--run-time", callback=_duration, metavar="DURATION", help="Start no sessions after this (90s, 5m)."
)
@click.option(
    "-r", "--spawn-rate", callback=_parsed("parse_rate_per_s"), metavar="RATE", help="Callers join at this rate (2/s)."
)
@click.option(
    "--warmup", callback=_duration, metavar="DURATION", help="Sessions started before this stay out of the numbers."
)
@click.option("--stop-timeout", callback=_duration, metavar="DURATION", default=DEFAULT_STOP_TIMEOUT, show_default=True,
              help="How long sessions may go on after the end before they are cut.")  # fmt: skip
@click.option(
    "--max-minutes",
    type=click.FloatRange(min=0, min_open=True),
    help="Start no session that could exceed these audio minutes.",
)
@click.option("--seed", type=click.IntRange(0), help="Of the mix and the pauses.")
@click.option("--realtime", is_flag=True, help="Run the mock agent on the wall clock instead of the virtual one.")
@click.option(
    "--record",
    "keep",
    type=click.Choice(["all", "failed", "none"]),
    help="Which recordings to keep (failed: a session failed or one of its turns did).",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for report and recordings.  [default: voicebench-results/NAME-TIME]",
)
@click.option("--no-write", is_flag=True, help="Write no files.")
@click.option("--json", "json_to", metavar="FILE|-", help="Write the report as JSON; - is stdout, instead of tables.")
@click.option("--dry-run", is_flag=True, help="Say what would be placed, and place nothing.")
@click.option("--no-preflight", is_flag=True, help="Do not ring the agent once before the load.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no tables.")
def command(**flags: Any) -> int:
    """Place calls as PLAN says and report how the agent treated the callers.

    PLAN is a scenario file, or a plan that mixes several and describes the load. Without a load one session is placed.
    Load flags (-u, -n, -t, -r) replace the plan's load as a whole. -u alone: each caller places one session.

    \b
    Examples:
      voicebench run my.yaml --url ws://127.0.0.1:8765
      voicebench run my.yaml -u 50 -r 5/s -t 5m --warmup 30s
      voicebench run plan.yaml --json report.json --record all

    Ctrl-C lets the sessions that are going on finish; again, it cuts them. The report is written either way.
    Files override environment variables (VOICEBENCH_CALLERS, VOICEBENCH_SESSIONS, VOICEBENCH_RUN_TIME,
    VOICEBENCH_SPAWN_RATE, VOICEBENCH_URL, VOICEBENCH_OUT), flags override both.
    """
    from voicebench.cli.run_command import RunFlags, run_command

    if flags["no_write"] and flags["out"] is not None:
        raise UsageError("--out and --no-write exclude each other")
    return run_command(RunFlags(**flags))
