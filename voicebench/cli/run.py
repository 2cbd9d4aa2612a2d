"""`voicebench run`: place calls with a scenario or plan, and report how the agent did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from voicebench.cli.help import Advanced, Command, Number, Whole

DEFAULT_STOP_TIMEOUT = "30s"
MAX_CALLERS = 100_000
MAX_SESSIONS = 1_000_000_000


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


def _not_empty(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value == "":
        raise click.BadParameter("an empty name: write that of a file or folder")
    return value


@click.command("run", cls=Command)
@click.argument("plan_file", metavar="PLAN", type=click.Path(allow_dash=True, readable=False), callback=_not_empty)
@click.option("--url", help="The agent's URL (the same as -o url=URL).")
@click.option("-u", "--callers", type=Whole(1, MAX_CALLERS), help="Callers at once; each places calls back to back.")
@click.option("-n", "--sessions", type=Whole(1, MAX_SESSIONS), help="Stop after so many sessions in all.")
@click.option("-t", "--run-time", callback=_duration, metavar="DURATION", help="Start no session after this (90s, 5m).")
@click.option(
    "-r", "--spawn-rate", callback=_parsed("parse_rate_per_s"), metavar="RATE",
    help="Callers join at this rate (2/s); without it all at once.",
)  # fmt: skip
@click.option(
    "--record",
    "keep",
    type=click.Choice(["all", "failed", "none"]),
    help="Which recordings to keep (failed: a session failed or one of its turns did).  [default: failed]",
)
@click.option(
    "--out", type=click.Path(readable=False), metavar="DIR", callback=_not_empty,
    help="Folder for report and recordings.  [default: voicebench-results/NAME-TIME]",
)  # fmt: skip
@click.option(
    "--json", "json_to", type=click.Path(allow_dash=True, readable=False), metavar="FILE|-", callback=_not_empty,
    help="Write the report as JSON; - is stdout, instead of tables.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="No progress and no tables.")
@click.option(
    "-a", "--adapter", cls=Advanced, help="What to call by: mock, websocket or module:Class, whatever the file says."
)
@click.option(
    "-o", "--option", "options", cls=Advanced, multiple=True, metavar="KEY=VALUE", callback=_options,
    help="Option of the adapter, whatever the file says. May be given several times.",
)  # fmt: skip
@click.option(
    "--warmup", cls=Advanced, callback=_duration, metavar="DURATION",
    help="Sessions that start within this are placed, and counted in no number.",
)  # fmt: skip
@click.option(
    "--stop-timeout", cls=Advanced, callback=_duration, metavar="DURATION", default=DEFAULT_STOP_TIMEOUT,
    show_default=True, help="After the run time or Ctrl-C sessions may go on this long before they are cut.",
)  # fmt: skip
@click.option(
    "--max-minutes", cls=Advanced, type=Number(min=0, min_open=True),
    help="Budget in minutes of conversation, all sessions together: none starts that would exceed it.",
)  # fmt: skip
@click.option("--dry-run", cls=Advanced, is_flag=True, help="Say how many sessions would take place; call nobody.")
@click.option("--no-preflight", cls=Advanced, is_flag=True, help="Do not ring the agent once before the load.")
@click.option("--no-write", cls=Advanced, is_flag=True, help="Write no files.")
@click.option(
    "--realtime", cls=Advanced, is_flag=True, help="Run the mock agent on the wall clock instead of the virtual one."
)
@click.option("--seed", cls=Advanced, type=Whole(0), help="Of the mix of scenarios and the pauses between sessions.")
def command(plan_file: str, out: str | None, **flags: Any) -> int:
    """Place calls as PLAN says and report how the agent treated the callers.

    \b
    Examples:
      voicebench run my.yaml --url ws://127.0.0.1:8765             one call
      voicebench run my.yaml -u 50 -r 5/s -t 5m --warmup 30s       fifty callers for five minutes
      voicebench run plan.yaml --json report.json --record all

    PLAN is a scenario file, or a plan that mixes several and describes the load; - is standard input.

    Without a load one session is placed. With -u alone each caller places one, with -t or -n alone one caller places
    them one after another. Load flags (-u, -n, -t, -r) replace the plan's load as a whole.

    Ctrl-C lets the sessions that are going on finish; again, it cuts them. The report is written either way.

    Files override environment variables (VOICEBENCH_CALLERS, VOICEBENCH_SESSIONS, VOICEBENCH_RUN_TIME,
    VOICEBENCH_SPAWN_RATE, VOICEBENCH_URL, VOICEBENCH_OUT), flags override both.
    """
    from voicebench.cli.run_command import run_command
    from voicebench.cli.settle import RunFlags

    return run_command(RunFlags(plan_file=plan_file, out=Path(out) if out else None, **flags))
