"""How help and usage errors read: examples first, the common options before the others, one sentence a mistake."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Sequence
from typing import Any

import click

EXAMPLES = "\b\nExamples:"
WIDTH = 100


class Command(click.Command):
    """A command whose help begins with its examples and ends with the fine print.

    Its docstring has a sentence, the examples, and whatever else there is to say. Options of the class `Advanced` stand
    in a section of their own.
    """

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        begin, _ = self._parts()
        _write(formatter, begin)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        common = [each for each in options if not isinstance(each, Advanced)]
        further = [each for each in options if isinstance(each, Advanced)]
        for title, group in (("Options", common), ("More options", further)):
            lines = [line for option in group if (line := option.get_help_record(ctx)) is not None]
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _, rest = self._parts()
        _write(formatter, rest)

    def _parts(self) -> tuple[list[str], list[str]]:
        """Paragraphs up to the examples, and those behind them."""
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        end = next((n + 1 for n, each in enumerate(paragraphs) if each.startswith(EXAMPLES)), len(paragraphs))
        examples = paragraphs[end - 1 : end] if end > 1 else []
        return [paragraphs[0], *examples], [*paragraphs[1 : end - 1], *paragraphs[end:]]


class Advanced(click.Option):
    """An option that a first acquaintance can do without."""


class Whole(click.IntRange):
    """A whole number, refused in words."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"'{value}' is not a whole number{_limits(self.min, self.max)}", param, ctx)

    def _describe_range(self) -> str:
        return ""  # `[1<=x<=100000]` is of little use in a help text; whoever leaves it is told


class Number(click.FloatRange):
    """A finite number, refused in words."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = math.nan
        with contextlib.suppress(click.BadParameter):
            number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            above = " above 0" if self.min_open else _limits(self.min, self.max)
            self.fail(f"'{value}' is not a number{above}", param, ctx)
        return number

    def _describe_range(self) -> str:
        return ""


def _limits(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f" from {least:.15g} to {most:.15g}"
    return "" if least is None else f" of {least:.15g} or more"


def _write(formatter: click.HelpFormatter, paragraphs: Sequence[str]) -> None:
    for paragraph in paragraphs:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(paragraph)


def sentence(error: click.ClickException) -> str:
    """A mistake on the command line in one sentence: the flag, what is wrong, what would be right.

    >>> sentence(click.BadParameter("'x' is not a number.", param=click.Option(["-n", "--sessions"])))
    "-n/--sessions: 'x' is not a number"
    """
    command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "voicebench"
    if isinstance(error, click.NoSuchOption):
        return f"there is no option {error.option_name}.{_near_option(error)} `{command} -h` lists them"
    if isinstance(error, click.MissingParameter):
        return f"{_name(error)} is missing: `{command} -h` has examples"
    message = error.format_message() if not isinstance(error, click.BadParameter) else error.message
    message = message.strip().removesuffix(".")
    if message.startswith("Got unexpected extra argument"):
        return f"{message[4:]}: a path that holds spaces wants quotes, `{command} -h` has examples"
    return f"{_name(error)}: {message}" if isinstance(error, click.BadParameter) and error.param else message


def _name(error: click.BadParameter) -> str:
    if isinstance(error.param, click.Option):
        return "/".join(sorted(error.param.opts, key=len))
    if error.param is None:
        return str(error.param_hint or "")
    return (error.param.metavar or error.param.human_readable_name).strip("[]")


def _near_option(error: click.NoSuchOption) -> str:
    from voicebench.scenario.mistakes import nearest

    known = [flag for each in error.ctx.command.params for flag in each.opts] if error.ctx else []
    near = nearest(error.option_name, [flag for flag in known if flag.startswith("--")])
    return f" Did you mean {near}?" if near else ""
