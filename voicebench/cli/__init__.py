"""The roof: arguments, exit codes, and nothing else. Each command lives in its own module and is imported when it runs,
so that `voicebench --help` needs neither numpy nor gevent.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from voicebench import __version__
from voicebench.errors import VoicebenchError

# name -> (module, one line of help); the order is the order of a first acquaintance.
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("voicebench.cli.run", "Place calls with a scenario or plan, and report how the agent did."),
    "score": ("voicebench.cli.score", "Metrics from recorded sessions, again."),
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


class LazyGroup(click.Group):
    """A group whose commands are imported when called for; its help comes from the table above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXIT_CODES,
)
@click.version_option(__version__, "--version", prog_name="voicebench")
def group() -> None:
    """Load tests for real-time voice agents: scripted calls, recorded on both sides, scored exactly.

    \b
    Start here:
      voicebench example websocket > my.yaml
      voicebench run my.yaml --url ws://127.0.0.1:8765
    """


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code; our own errors become one sentence on stderr."""
    try:
        result: Any = group.main(args=argv, prog_name="voicebench", standalone_mode=False)
    except VoicebenchError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        return 130
    except click.ClickException as error:
        error.show()
        return 2
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            click.echo(f"error: output can't be written: {error.strerror or error}", err=True)
            return 4
        # The reader of our output (`| head`) has left: nothing to say, and nobody to say it to.
        sys.stderr.close()
        return 141
    return result if isinstance(result, int) else 0
