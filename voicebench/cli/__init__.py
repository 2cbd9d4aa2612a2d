"""The roof: arguments, exit codes, and nothing else. Each command lives in its own module and is imported when it runs,
so that `voicebench --help` needs neither numpy nor gevent.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from voicebench import __version__
from voicebench.cli.help import WIDTH, sentence
from voicebench.errors import VoicebenchError

# name -> (module, one line of help); the order is the order of a first acquaintance.
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("voicebench.cli.run", "Place calls with a scenario or plan, and report how the agent did."),
    "master": ("voicebench.cli.master", "The same, with workers on several machines."),
    "worker": ("voicebench.cli.worker", "Hold sessions for a master, on this machine or another."),
    "score": ("voicebench.cli.score", "Metrics from recorded sessions, again."),
    "report": ("voicebench.cli.report", "A run's report again, from its database."),
    "runs": ("voicebench.cli.runs", "What runs there are on disk, and what came of them."),
    "validate": ("voicebench.cli.validate", "Check scenario and plan files, all mistakes at once."),
    "schema": ("voicebench.cli.schema", "Print the JSON Schema of scenario or plan files, for editors."),
    "example": ("voicebench.cli.example", "Print a working example scenario to start from."),
    "mock-server": ("voicebench.cli.mock_server", "Serve the mock agent over WebSocket, to have something to call."),
    "synth": ("voicebench.cli.synth", "Write a test signal to a WAV file."),
}

EXIT_CODES = """\
Exit codes:

\b
  0    all assertions pass
  1    an assertion failed
  2    usage, scenario or bundle error
  3    the agent could not be reached or the adapter not loaded
  4    the run is incomplete or can't be trusted
  130  interrupted (Ctrl-C), 143 terminated
"""
COMPLETION = """\
`voicebench COMMAND -h` explains a command. Completion in bash (zsh, fish alike):
eval "$(_VOICEBENCH_COMPLETE=bash_source voicebench)"
"""
NOBODY_READS = (errno.EPIPE, errno.EIO)
"""`| head` has seen enough; the terminal was closed."""
READER_LEFT = 141
"""As a shell shows a program that SIGPIPE ended."""


class ReaderLeftError(Exception):
    """A broken pipe. Click ends the program with 1 at the bare one, and 1 is a failed assertion here."""


@contextlib.contextmanager
def _ours() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderLeftError from error


class LazyGroup(click.Group):
    """A group whose commands are imported when called for; its help comes from the table above."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _ours():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _ours():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] == ["help"]:  # as other tools have it; the exit codes are part of the help
            args = [*(name for name in args[1:2] if name in COMMANDS), "--help"]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in COMMANDS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        raise click.UsageError(_no_command(name), ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])
        click.Command.format_options(self, ctx, formatter)


def _no_command(name: str) -> str:
    from voicebench.scenario.mistakes import clip_text, nearest

    if name.endswith((".yaml", ".yml")):
        return f"'{clip_text(name)}' is a file, not a command: write voicebench run {clip_text(name)}"
    near = nearest(name, COMMANDS)
    remedy = f"Did you mean '{near}'?" if near else f"There are {', '.join(COMMANDS)}"
    return f"there is no command '{clip_text(name)}'. {remedy}"


def _version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    """What a bug report needs, without importing any of it."""
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    parts = [f"Python {'.'.join(map(str, sys.version_info[:3]))}"]
    for package in ("gevent", "numpy"):
        try:
            parts.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            parts.append(f"{package} missing")
    system = os.uname()
    click.echo(f"voicebench {__version__} ({', '.join(parts)}, {system.sysname} {system.release} {system.machine})")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
    epilog=f"{EXIT_CODES}\n{COMPLETION}",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version,
    help="Show the versions that a bug report needs.",
)  # fmt: skip
def group() -> None:
    """Load tests for real-time voice agents: scripted calls, recorded on both sides, scored exactly.

    \b
    Start here:
      voicebench example websocket > my.yaml
      voicebench run my.yaml --url ws://127.0.0.1:8765
    """


def entry() -> int:
    """The program itself: `main` in a process of its own, where gevent may stand in for what blocks, so that an adapter
    written with ordinary sockets and locks waits without holding the other sessions up."""
    asked = sys.argv[1:]
    if asked[:1] == ["worker"] and not {"-h", "--help"} & set(asked):
        import gevent.monkey

        gevent.monkey.patch_all()
    return main()


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code; our own errors become one sentence on stderr."""
    _open_what_is_closed()
    try:
        result: Any = group.main(args=argv, prog_name="voicebench", standalone_mode=False)
        sys.stdout.flush()  # what can't be written is told here, not by the interpreter as it goes
    except VoicebenchError as error:
        return _fail(f"error: {error}", error.exit_code)
    except click.exceptions.Abort:
        return _fail("interrupted", 130)
    except click.ClickException as error:
        return _fail(error.format_message() if _is_help(error) else f"error: {sentence(error)}", 2)
    except (ReaderLeftError, OSError) as error:
        if isinstance(error, ReaderLeftError) or error.errno in NOBODY_READS:
            return _leave(READER_LEFT)
        return _fail(f"error: output can't be written: {error.strerror or error}", 4)
    return result if isinstance(result, int) else 0


def _is_help(error: click.ClickException) -> bool:
    """`voicebench` alone, which click takes for a mistake with the whole help as its message."""
    return type(error).__name__ == "NoArgsIsHelpError"


def _fail(text: str, exit_code: int) -> int:
    with contextlib.suppress(OSError):
        click.echo(text, err=True)
    return _leave(exit_code)


def _leave(exit_code: int) -> int:
    """Let go of a stream that can't be written, lest the interpreter complain about it at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return exit_code


def _open_what_is_closed() -> None:
    """Streams closed by whoever started us (`>&-`) lead nowhere: or the next file we open would take their place."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):
                opened = os.open(os.devnull, os.O_RDWR)
                if opened != number:
                    os.dup2(opened, number)
                    os.close(opened)
                setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
