"""The options that say what is to be run and what becomes of it: those that `run` and `master` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from voicebench.cli.help import Advanced, Number, Whole

DEFAULT_STOP_TIMEOUT = "30s"
MAX_CALLERS = 100_000
MAX_SESSIONS = 1_000_000_000


def parsed(parse_name: str) -> Callable[[click.Context, click.Parameter, str | None], Any]:
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


duration = parsed("parse_duration_s")


def _options(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    from voicebench.scenario.yaml_text import read_value

    options: dict[str, Any] = {}
    for pair in values:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter("write KEY=VALUE, for instance -o connect_timeout_s=5")
        options[key.strip()] = read_value(text)
    return options


def not_empty(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value == "":
        raise click.BadParameter("an empty name: write that of a file or folder")
    return value


def not_blank(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise click.BadParameter("nothing is written there: give a value, or leave the option out")
    return value


_SHARED: tuple[Callable[[Any], Any], ...] = (
    click.argument("plan_file", metavar="PLAN", type=click.Path(allow_dash=True, readable=False), callback=not_empty),
    click.option("--url", help="The agent's URL (the same as -o url=URL)."),
    click.option(
        "-u", "--callers", type=Whole(1, MAX_CALLERS), help="Callers at once; each places calls back to back."
    ),
    click.option("-n", "--sessions", type=Whole(1, MAX_SESSIONS), help="Stop after so many sessions in all."),
    click.option(
        "-t", "--run-time", callback=duration, metavar="DURATION", help="Start no session after this (90s, 5m)."
    ),
    click.option(
        "-r",
        "--spawn-rate",
        callback=parsed("parse_rate_per_s"),
        metavar="RATE",
        help="Callers join at this rate (2/s); without it all at once.",
    ),
    click.option(
        "--record",
        "keep",
        type=click.Choice(["all", "failed", "none"]),
        help="Which recordings to keep (failed: a session failed or one of its turns did).  [default: failed]",
    ),
    click.option(
        "--out",
        type=click.Path(readable=False),
        metavar="DIR",
        callback=not_empty,
        help="Folder for report and recordings.  [default: voicebench-results/NAME-TIME]",
    ),
    click.option(
        "--json",
        "json_to",
        type=click.Path(allow_dash=True, readable=False),
        metavar="FILE|-",
        callback=not_empty,
        help="Write the report as JSON; - is stdout, instead of tables.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="No progress and no tables."),
    click.option(
        "--page",
        cls=Advanced,
        metavar="ADDRESS[:PORT]",
        callback=not_blank,
        help="Where the status page is, on this machine.  [default: 127.0.0.1:8089, or a free port if that is taken]",
    ),
    click.option("--headless", cls=Advanced, is_flag=True, help="No status page (also: VOICEBENCH_HEADLESS=1)."),
    click.option(
        "--stay", cls=Advanced, is_flag=True, help="Keep the page after the run, with Run again, until Ctrl-C."
    ),
    click.option(
        "-a",
        "--adapter",
        cls=Advanced,
        help="What to call by: mock, websocket or module:Class, whatever the file says.",
    ),
    click.option(
        "-o",
        "--option",
        "options",
        cls=Advanced,
        multiple=True,
        metavar="KEY=VALUE",
        callback=_options,
        help="Option of the adapter, whatever the file says. May be given several times.",
    ),
    click.option(
        "--warmup",
        cls=Advanced,
        callback=duration,
        metavar="DURATION",
        help="Sessions that start within this are placed, and counted in no number.",
    ),
    click.option(
        "--stop-timeout",
        cls=Advanced,
        callback=duration,
        metavar="DURATION",
        default=DEFAULT_STOP_TIMEOUT,
        show_default=True,
        help="After the run time or Ctrl-C sessions may go on this long before they are cut.",
    ),
    click.option(
        "--max-minutes",
        cls=Advanced,
        type=Number(min=0, min_open=True),
        help="Budget in minutes of conversation, all sessions together: none starts that would exceed it.",
    ),
    click.option("--no-preflight", cls=Advanced, is_flag=True, help="Do not ring the agent once before the load."),
    click.option("--no-write", cls=Advanced, is_flag=True, help="Write no files."),
    click.option(
        "--seed", cls=Advanced, type=Whole(0), help="Of the mix of scenarios and the pauses between sessions."
    ),
)


def plan_options(command: Any) -> Any:
    """A decorator: PLAN and all options that go with it, in the order of their help."""
    for option in reversed(_SHARED):
        command = option(command)
    return command
