"""`voicebench report`: a run's report again, from its database."""

from __future__ import annotations

from pathlib import Path

import click

from voicebench.cli.help import Command
from voicebench.cli.plan_options import not_empty


@click.command("report", cls=Command)
@click.argument("run", metavar="RUN", type=click.Path(readable=False), callback=not_empty)
@click.option(
    "--json", "json_to", type=click.Path(allow_dash=True, readable=False), metavar="FILE|-", callback=not_empty,
    help="Write the report as JSON to this file as well; - is stdout, instead of tables.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="No tables.")
def command(run: str, json_to: str | None, quiet: bool) -> int:
    """Make a run's report again, from everything that was stored, and show it.

    \b
    Examples:
      voicebench report voicebench-results/booking-20260131-101500
      voicebench report booking-20260131-101500 --json - | jq .summary

    RUN is the folder of a run, or its name in voicebench-results. report.json, report.html, report.md and junit.xml in
    it are written anew.

    A run whose master was killed gets the report of everything that had been acknowledged, which says that it is
    incomplete. One that still goes on is shown as it stands, and nothing is written.

    The exit code is the run's: 0, 1, 3, 4, 130 or 143. 2: there is no such run.
    """
    from voicebench.cli.report_command import report_command

    return report_command(Path(run), json_to, quiet=quiet)
