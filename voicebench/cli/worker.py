"""`voicebench worker`: hold sessions for a master, on this machine or another."""

from __future__ import annotations

import click

from voicebench.cli.help import Command
from voicebench.cli.plan_options import not_blank
from voicebench.wire.address import DEFAULT_PORT


@click.command("worker", cls=Command)
@click.option(
    "--master", "address", metavar="HOST[:PORT]", default=f"127.0.0.1:{DEFAULT_PORT}", show_default=True,
    callback=not_blank, help="Where the master listens.",
)  # fmt: skip
@click.option("--name", callback=not_blank, help="What the report calls this worker.  [default: host and process]")
@click.option("--stay", is_flag=True, help="Wait for the next run when one is over, until Ctrl-C.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@click.option("--parent", type=int, hidden=True)
def command(address: str, name: str | None, stay: bool, quiet: bool, parent: int | None) -> int:
    """Hold sessions for a master: wait for it, take part in its run, hand everything in, go.

    \b
    Examples:
      voicebench worker                          for a master on this machine
      voicebench worker --master 10.0.0.7        for one on another
      AGENT_KEY=... voicebench worker --master load-1:5557

    What is to be said comes from the master, audio included. What an agent's options take from the environment
    (${AGENT_KEY}) comes from this worker's, and an adapter module:Class must be installed where the worker runs.

    Ctrl-C: no more sessions are started, those that go on may finish (again: they are cut), and their results are
    handed in; the other workers take over what has not begun.

    Exit code 0 after a run, whatever its verdict; 2 when the master refused, 3 when the agent could not be reached from
    here, 4 when the master went away; 130 and 143 after signals.
    """
    from voicebench.cli.worker_command import worker_command

    return worker_command(address, name, quiet=quiet, parent=parent, stay=stay)
