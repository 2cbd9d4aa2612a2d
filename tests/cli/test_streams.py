"""Where output goes: to people, to files, to programs, to nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import gevent
import pytest

from tests.support.processes import VOICEBENCH
from voicebench.cli import live, main
from voicebench.cli.format import fit, wants_ascii

ASK = """\
name: ask
turns: [{id: ask, audio: {synth: speech, duration_ms: 300}}]
tail_ms: 300
assert: {max_response_latency_ms: 1}
"""
RUN = [*VOICEBENCH, "run", "ask.yaml", "--no-write"]
FAILED = "exit 1: max_response_latency_ms"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ask.yaml").write_text(ASK)
    return tmp_path


def run_in_shell(folder: Path, redirection: str, **environment: str) -> subprocess.CompletedProcess[str]:
    line = f'exec "$@" {redirection}'
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LC_ALL", "LC_CTYPE")}
    return subprocess.run(
        ["sh", "-c", line, "sh", *RUN], cwd=folder, env={**inherited, **environment},
        capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("redirection", [">&-", "<&- >&- 2>&-"])
def test_a_closed_stream_changes_no_exit_code(folder, redirection):
    done = run_in_shell(folder, redirection)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert (FAILED in done.stderr) == ("2>&-" not in redirection)


@pytest.mark.parametrize(("redirection", "exit_code"), [("> /dev/full", 4), ("2> /dev/full", 1)])
def test_results_that_cannot_be_written_are_an_error_and_remarks_are_not(folder, redirection, exit_code):
    done = run_in_shell(folder, redirection)
    assert done.returncode == exit_code
    assert "Traceback" not in done.stderr
    if exit_code == 4:
        assert "output can't be written: No space left on device" in done.stderr


@pytest.mark.parametrize("arguments", [RUN, [*VOICEBENCH, "-h"], [*VOICEBENCH, "run", "-h"]])
def test_a_reader_that_has_left_ends_the_program_without_a_word(folder, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(arguments, cwd=folder, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("locale", [{"LANG": "C"}, {"PYTHONIOENCODING": "ascii"}])
def test_marks_are_ascii_where_others_would_be_garbage(folder, locale):
    done = run_in_shell(folder, "", **locale)
    assert done.stdout.isascii()
    assert " x FAIL  max_response_latency_ms" in done.stdout


def test_names_that_users_gave_are_left_alone_in_the_locale_c(folder):
    (folder / "ask.yaml").write_text(ASK.replace("name: ask", "name: Grüße"))
    assert run_in_shell(folder, "", LANG="C").stdout.startswith("Grüße: 1 session ")


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 140])
def test_tables_fit_the_columns_there_are(folder, columns, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["run", "ask.yaml", "--no-write"]) == 1
    lines = capsys.readouterr().out.splitlines()
    tables = [line for line in lines if " ms" in line and "limit" not in line and "late" not in line]
    assert tables
    assert all(len(line) <= columns for line in tables)
    assert not any(line != line.rstrip() for line in lines)


def test_nothing_but_json_is_on_stdout_when_json_is_asked_for(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(["run", "ask.yaml", "--no-write", "--json", "-"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["run"]["verdict"] == "fail"
    assert err.startswith(FAILED)


def test_quiet_leaves_the_reason_of_a_failure(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(["run", "ask.yaml", "--no-write", "-q"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(FAILED)


class Stream:
    def __init__(self, encoding: str | None) -> None:
        self.encoding = encoding


@pytest.mark.parametrize(
    ("encoding", "environment", "expected"),
    [
        ("utf-8", {}, False),
        ("UTF8", {"LANG": "en_US.UTF-8"}, False),
        ("utf-8", {"LANG": "C"}, True),
        ("utf-8", {"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),  # set by Python itself
        ("utf-8", {"LANG": "C", "LC_ALL": "de_DE.UTF-8"}, False),
        ("utf-8", {"LANG": "de_DE.UTF-8", "LC_ALL": "POSIX"}, True),
        ("utf-8", {"LANG": "C.UTF-8"}, False),
        ("latin-1", {"LANG": "de_DE"}, True),
        (None, {}, False),
    ],
)
def test_who_wants_ascii(encoding, environment, expected):
    assert wants_ascii(Stream(encoding), environment) is expected  # type: ignore[arg-type]


def test_ascii_marks_are_as_wide_as_what_they_stand_for():
    text = "✓ pass – ✗ FAIL …"
    assert len(fit(text, Stream("ascii"))) == len(text)  # type: ignore[arg-type]


def test_elsewhere_than_on_a_terminal_progress_is_a_plain_line_now_and_then(capsys, monkeypatch):
    monkeypatch.setattr(live, "LINE_EVERY_S", 0.01)
    state = {"elapsed_s": 9.0, "left_s": None, "to_place": None, "state": "running", "live": 3, "started": 3,
             "finished": 0, "failed": 0, "cut": 0, "turns": 0}  # fmt: skip
    view = live.choose_view(lambda: state, quiet=False)
    view.start()
    err = ""
    while err.count("\n") < 2:
        gevent.sleep(0.005)
        err += capsys.readouterr().err
    view.stop()
    assert set(err.splitlines()) == {"9 s: running; 3 live, 3 started, 0 finished, 0 failed"}


def test_the_painter_loads_nothing_heavy():
    code = "import sys, voicebench.cli.painter; sys.exit(str({'numpy', 'gevent', 'msgspec'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "set()"
