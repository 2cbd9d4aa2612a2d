"""Writes docs/cli.md from the commands themselves; `tests/test_docs.py` says when it is behind them.

.venv/bin/python -m tests.support.cli_reference
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from voicebench.cli import COMMANDS, EXIT_CODES, group

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "docs" / "cli.md"

HEAD = """\
# Command line

```
voicebench COMMAND ...
```

`voicebench --help`, and `-h` or `--help` after every command, print what stands here. Results go to standard output,
everything else (progress, warnings, errors) to standard error. This page is made from the program by
`python -m tests.support.cli_reference`.

"""

STREAMS = """\

When several hold, `run` ends with the first of 2, 3, 4, 130 or 143, 1. Errors are one sentence on standard error, those of
scenario and plan files one line for each mistake. A reader of our output that goes away (`| head`) ends the program with
141, without a word.

## Environment variables

Flags override files, and files override these.

| variable | meaning |
|---|---|
"""

VARIABLES = {
    "VOICEBENCH_URL": "the agent's URL, for `websocket` scenarios that have none",
    "VOICEBENCH_CALLERS": "callers at once, where neither flags nor the plan say how much load",
    "VOICEBENCH_SESSIONS": "stop after so many sessions, likewise",
    "VOICEBENCH_RUN_TIME": "start no sessions after this, likewise",
    "VOICEBENCH_SPAWN_RATE": "rate at which callers join, likewise",
    "VOICEBENCH_OUT": "folder for report and recordings",
    "GITHUB_STEP_SUMMARY": "a file that the report in Markdown is appended to, as GitHub's jobs have it",
    "VOICEBENCH_HEADLESS": "1: no status page, unless `--page` asks for one",
    "NO_COLOR": "no colours",
    "TERM=dumb": "progress as lines instead of a live block, as wherever standard error is no terminal",
}
PROXIES = "`http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`"


def pages() -> Iterator[str]:
    """The document, piece by piece."""
    yield HEAD
    yield "| command | what it does |\n|---|---|\n"
    for name, (_, line) in COMMANDS.items():
        yield f"| [`{name}`](#voicebench-{name}) | {line} |\n"
    yield "\n## Exit codes\n\n| code | meaning |\n|---|---|\n"
    for code, meaning in exit_codes():
        yield f"| {code} | {meaning} |\n"
    yield STREAMS
    for name, meaning in VARIABLES.items():
        yield f"| `{name}` | {meaning} |\n"
    yield f"| {PROXIES} | how WebSocket agents are reached: [websocket.md](websocket.md#proxies) |\n"
    context = click.Context(group, info_name="voicebench", **group.context_settings)
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        yield "".join(section(name, command, context))


def exit_codes() -> Iterator[tuple[str, str]]:
    """Codes with their meaning, from the text that `--help` prints."""
    for line in EXIT_CODES.splitlines():
        match = re.fullmatch(r"  (\d+) +(.+)", line)
        if match is None:
            continue
        meanings = re.split(r", (?=\d{3} )", f"{match[1]} {match[2]}")
        for meaning in meanings:
            code, _, text = meaning.partition(" ")
            yield code, text


def section(name: str, command: click.Command, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    yield f"\n## `voicebench {name}`\n\n"
    yield f"```\n{' '.join(['voicebench', name, *command.collect_usage_pieces(context)])}\n```\n"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield "\n" + written(paragraph) + "\n"
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    if options:
        yield "\n| option | default | meaning |\n|---|---|---|\n"
        yield from (row(option) for option in options)


def written(paragraph: str) -> str:
    """A paragraph of a help text as Markdown: one that must not be rewrapped is code, behind the line that leads to it."""
    lines = paragraph.splitlines()
    if lines[0] != "\b":
        return "\n".join(lines).replace("|", "\\|")
    lead = [lines[1]] if lines[1].endswith(":") and not lines[1].startswith(" ") else []
    code = inspect.cleandoc("\n".join(lines[1 + len(lead) :]))
    return "".join(f"{line}\n\n" for line in lead) + f"```\n{code}\n```"


def row(option: click.Option) -> str:
    flags = ", ".join(f"`{flag}`" for flag in sorted([*option.opts, *option.secondary_opts], key=len))
    value = "" if option.is_flag else f" {value_of(option)}"
    text = option.help or ""
    default, text = default_of(option, text)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (flags + value, default, text)) + " |\n"


def value_of(option: click.Option) -> str:
    """What an option wants, in our words: click's own change from version to version."""
    kind = option.type
    if option.metavar:
        return option.metavar
    if isinstance(kind, click.Choice):
        return "|".join(map(str, kind.choices))
    if isinstance(kind, click.IntRange | click.FloatRange):
        return f"NUMBER ({limits_of(kind)})"
    if isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
        return "NUMBER"
    return "FILE" if isinstance(kind, click.Path) else "TEXT"


def limits_of(kind: click.IntRange | click.FloatRange) -> str:
    if kind.min_open:
        return f"above {kind.min:g}"
    return f"{kind.min or 0:g} or more" if kind.max is None else f"{kind.min or 0:g} to {kind.max:g}"


def default_of(option: click.Option, text: str) -> tuple[str, str]:
    """The default and the help without it, for help texts that name their own."""
    match = re.search(r"\s*\[default: (.+)\]$", text)
    if match:
        return f"`{match[1]}`", text[: match.start()]
    if option.is_flag or not option.show_default or option.default is None:
        return "", text
    return f"`{option.default:g}`" if isinstance(option.default, float) else f"`{option.default}`", text


def document() -> str:
    return "".join(pages())


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
    print(f"wrote {TARGET.relative_to(ROOT)}", file=sys.stderr)
