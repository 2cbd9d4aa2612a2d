"""`voicebench example`: a working file to start from."""

from __future__ import annotations

import click

from voicebench.cli.help import Command
from voicebench.errors import UsageError


@click.command("example", cls=Command)
@click.argument("name", required=False)
@click.option("-O", "--output", metavar="FILE", help="Write to this file instead of printing.")
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
def command(name: str | None, output: str | None, force: bool) -> int:
    """Print a working example scenario or plan; without NAME, list them.

    \b
    Examples:
      voicebench example
      voicebench example websocket > my.yaml
      voicebench example plan -O plan.yaml
    """
    from voicebench.examples import EXAMPLES, example_text
    from voicebench.scenario.mistakes import clip_text, did_you_mean

    if name is None:
        if output is not None:
            raise UsageError(f"-O needs the name of an example: {', '.join(EXAMPLES)}")
        width = max(len(known) for known in EXAMPLES)
        for known, description in EXAMPLES.items():
            click.echo(f"{known:{width}}  {description}")
        return 0
    if name not in EXAMPLES:
        guess = did_you_mean(name, EXAMPLES) or f" There are {', '.join(EXAMPLES)}."
        raise UsageError(f"there is no example '{clip_text(name)}'.{guess}")
    if output is None or output == "-":
        click.echo(example_text(name), nl=False)
        return 0
    _write(output, example_text(name), force=force)
    click.echo(f"wrote {output}", err=True)
    return 0


def _write(path: str, text: str, *, force: bool) -> None:
    try:
        with open(path, "w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} exists already: choose another name, or overwrite it with --force") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
