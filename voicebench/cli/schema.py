"""`voicebench schema`: the JSON Schema of our files, for editors."""

from __future__ import annotations

from typing import Literal

import click

from voicebench.cli.help import Command


@click.command("schema", cls=Command)
@click.argument("kind", metavar="[scenario|plan]", type=click.Choice(["scenario", "plan"]), required=False)
def command(kind: Literal["scenario", "plan"] | None) -> int:
    """Print the JSON Schema (draft 2020-12) of scenario files or plan files; without an argument, one for both.

    \b
    Examples:
      voicebench schema scenario > voicebench-scenario.schema.json
      voicebench schema plan > voicebench-plan.schema.json

    An editor with a YAML language server completes and checks a file whose first line names the schema:

    \b
      # yaml-language-server: $schema=voicebench-scenario.schema.json
    """
    import json

    from voicebench.scenario.schema import json_schema

    click.echo(json.dumps(json_schema(kind), indent=2, ensure_ascii=False))
    return 0
