"""`voicebench --help` and its kin."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import click
import pytest

from voicebench import __version__
from voicebench.cli import COMMANDS, EXIT_CODES, group, main


def text_of(capsys, *arguments: str) -> str:
    assert main(list(arguments)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_stand_before_options_and_the_fine_print_behind_them(capsys, name):
    out = text_of(capsys, name, "-h")
    places = [out.index(word) for word in ("Usage:", "Examples:", "Options:", "--help")]
    assert places == sorted(places)
    assert f"    voicebench {name}" in out[places[1] : places[2]]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_paragraph_of_a_help_text_is_printed_once(capsys, name):
    printed = re.sub(r"\s+", " ", text_of(capsys, name, "-h"))
    command = group.get_command(click.Context(group, **group.context_settings), name)
    for paragraph in (command.help or "").replace("\b", "").split("\n\n"):
        words = re.sub(r"\s+", " ", paragraph).strip()
        assert printed.count(words) == 1, words


def test_the_common_flags_of_run_are_few_and_the_others_apart(capsys):
    common, further = text_of(capsys, "run", "-h").partition("More options:")[::2]
    flags = re.findall(r"^  (?:-\w, )?(--[\w-]+)", common, flags=re.MULTILINE)
    assert flags[0] == "--url"
    assert {"--callers", "--sessions", "--run-time", "--out", "--json"} < set(flags)
    assert len(flags) <= 10
    assert {"--adapter", "--option", "--warmup", "--realtime"} < set(re.findall(r"--[\w-]+", further))


@pytest.mark.parametrize("arguments", [["help"], ["help", "exit-codes"], ["-h"], ["--help"]])
def test_the_exit_codes_are_part_of_the_help(capsys, arguments):
    out = text_of(capsys, *arguments)
    assert all(line in out for line in EXIT_CODES.splitlines() if line.strip("\b"))


def test_help_of_a_command_may_be_asked_for_in_both_ways(capsys):
    assert text_of(capsys, "help", "run") == text_of(capsys, "run", "-h")


def test_no_command_at_all_is_a_mistake_that_prints_the_help(capsys):
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "voicebench example websocket > my.yaml" in err


def test_the_version_names_what_a_bug_report_needs(capsys):
    out = text_of(capsys, "--version")
    assert re.fullmatch(
        rf"voicebench {re.escape(__version__)} \(Python 3[\d.]+, gevent [\d.]+, numpy [\d.]+, Linux .+\)\n", out
    )


@pytest.mark.parametrize(
    ("words", "at", "offered"),
    [
        ("voicebench s", 1, ["plain,score", "plain,schema", "plain,synth"]),
        ("voicebench run --spawn", 2, ["plain,--spawn-rate"]),
        ("voicebench run my", 2, ["file,my"]),
    ],
)
def test_a_shell_completes_commands_flags_and_files(words, at, offered):
    environment = {**os.environ, "COMP_WORDS": words, "COMP_CWORD": str(at), "_VOICEBENCH_COMPLETE": "bash_complete"}
    code = "import sys; from voicebench.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == offered, done.stderr
