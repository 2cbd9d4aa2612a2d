"""`voicebench master`: the same as `run`, with workers on other machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from voicebench.cli.help import Advanced, Command, Whole
from voicebench.cli.plan_options import duration, not_empty, plan_options
from voicebench.wire.address import DEFAULT_PORT


@click.command("master", cls=Command)
@plan_options
@click.option(
    "--bind", metavar="ADDRESS[:PORT]", default=f"127.0.0.1:{DEFAULT_PORT}", show_default=True, callback=not_empty,
    help="Where workers find the master; 0.0.0.0 for all addresses of this machine, with --insecure.",
)  # fmt: skip
@click.option(
    "-w", "--expect-workers", type=Whole(1, 1000), default=1, show_default=True,
    help="Start once so many workers are ready; further ones may join at any time.",
)  # fmt: skip
@click.option("--wait", is_flag=True, help="Start when Enter is pressed, with the workers that are ready then.")
@click.option(
    "--join-timeout", cls=Advanced, callback=duration, metavar="DURATION", default="10m", show_default=True,
    help="Give up when the expected workers are not ready by then.",
)  # fmt: skip
@click.option(
    "--insecure", cls=Advanced, is_flag=True,
    help="Listen beyond this machine without authentication or encryption: whoever reaches the port can read the test "
    "and forge its results. Every report says so.",
)  # fmt: skip
def command(plan_file: str, out: str | None, **flags: Any) -> int:
    """Run PLAN with workers on this and other machines, and report how the agent treated the callers.

    \b
    Examples:
      voicebench master plan.yaml                                  then, in another terminal: voicebench worker
      voicebench master plan.yaml -u 400 -t 10m -w 4 --bind 10.0.0.7 --insecure
      voicebench worker --master 10.0.0.7                          on each of four machines

    The load is that of the whole run: callers are spread evenly over the workers. Each worker calls the agent from
    where it is, with the environment variables of its own.

    Workers may start before the master, join while the run goes on, and leave (Ctrl-C there) when their sessions are
    over; only sessions that have not started move. What a worker had started when it was killed counts as lost.

    Ctrl-C lets the sessions that are going on finish; again, it cuts them; a third time, the master waits for no worker
    any more. The report is written either way.
    """
    from voicebench.cli.master_command import master_command
    from voicebench.cli.settle import MasterFlags, RunFlags

    own = {name: flags.pop(name) for name in ("bind", "expect_workers", "wait", "join_timeout", "insecure")}
    run = RunFlags(plan_file=plan_file, out=Path(out) if out else None, realtime=True, dry_run=False, **flags)
    return master_command(run, MasterFlags(**own))
