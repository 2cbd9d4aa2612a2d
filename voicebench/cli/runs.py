"""`voicebench runs`: what runs there are on disk."""

from __future__ import annotations

from pathlib import Path

import click

from voicebench.cli.help import Command


@click.command("runs", cls=Command)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(readable=False))
@click.option("--json", "as_json", is_flag=True, help="As JSON, one object a run.")
def command(folder: str | None, as_json: bool) -> int:
    """List the runs on disk, newest first: when, how long, what was started, what came of it.

    \b
    Examples:
      voicebench runs
      voicebench runs old-results --json

    DIR holds the runs' folders; without it voicebench-results does.
    """
    from voicebench.cli.runs_command import runs_command

    return runs_command(Path(folder) if folder else None, as_json=as_json)
