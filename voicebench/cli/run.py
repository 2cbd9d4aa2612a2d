"""`voicebench run`: place calls with a scenario or plan, and report how the agent did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from voicebench.cli.help import Advanced, Command, Whole
from voicebench.cli.plan_options import plan_options

MAX_CHILDREN = 256


@click.command("run", cls=Command)
@plan_options
@click.option(
    "--workers", cls=Advanced, type=Whole(1, MAX_CHILDREN),
    help="Processes that hold the sessions.  [default: a core less than there are]",
)  # fmt: skip
@click.option("--dry-run", cls=Advanced, is_flag=True, help="Say how many sessions would take place; call nobody.")
@click.option(
    "--realtime", cls=Advanced, is_flag=True, help="Run the mock agent on the wall clock instead of the virtual one."
)
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
