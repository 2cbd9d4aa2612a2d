"""What people type wrongly: one sentence on stderr that names the flag or file, nothing on stdout, exit 2."""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path

import pytest

from voicebench.cli import main

GOLDEN = Path(__file__).parents[1] / "golden"
ASK = "name: ask\nturns: [{audio: {synth: speech, duration_ms: 300}}]\ntail_ms: 300\n"
SECRET = "hunter2-c4nary"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [each for each in os.environ if each.startswith("VOICEBENCH_")]:
        monkeypatch.delenv(name)
    (tmp_path / "ask.yaml").write_text(ASK)
    (tmp_path / "two words.yaml").write_text(ASK)
    (tmp_path / "plan.yaml").write_text("name: p\nscenarios: [{file: ask.yaml}]\n")
    (tmp_path / "unset.yaml").write_text(ASK + 'adapter: {type: websocket, options: {url: "${NOBODY_SET_THIS}"}}\n')
    (tmp_path / "strange.yaml").write_text(ASK + 'adapter: {type: websocket, options: {url: "${SOME_URL}"}}\n')
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "latin.yaml").write_bytes("name: Müller\n".encode("latin-1"))
    (tmp_path / "binary.yaml").write_bytes(b"\x7fELF\x02\x01\x01\x00\x00\x00")
    (tmp_path / "report.json").write_text('{"schema": "voicebench-report/1"}')
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "run" / "bundles").mkdir(parents=True)
    shutil.copytree(GOLDEN / "cough", tmp_path / "bundle")
    return tmp_path


def refused(capsys, *arguments: str, exit_code: int = 2, lines: int = 1) -> str:
    assert main(list(arguments)) == exit_code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == lines, err
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        # wrong words
        ("rnu ask.yaml", "there is no command 'rnu'. Did you mean 'run'?"),
        ("zebra", "there is no command 'zebra'. There are run, master, worker, score, report,"),
        ("ask.yaml", "'ask.yaml' is a file, not a command: write voicebench run ask.yaml"),
        ("run", "PLAN is missing: `voicebench run -h` has examples"),
        ("run ask.yaml two words.yaml", "unexpected extra arguments (two words.yaml): a path that holds spaces"),
        ("run ask.yaml --sesions 4", "there is no option --sesions. Did you mean --sessions?"),
        ("run ask.yaml --format md", "there is no option --format."),
        ("run ask.yaml --record some", "--record: 'some' is not one of 'all', 'failed', 'none'"),
        ("schema bundle", "scenario|plan: 'bundle' is not one of 'scenario', 'plan'"),
        # numbers
        ("run ask.yaml -n 0", "-n/--sessions: '0' is not a whole number from 1 to 1000000000"),
        ("run ask.yaml -n -3", "-n/--sessions: '-3' is not a whole number"),
        ("run ask.yaml -n many", "-n/--sessions: 'many' is not a whole number"),
        ("run ask.yaml -n 99999999999999999999", "-n/--sessions: '99999999999999999999' is not a whole number from"),
        ("run ask.yaml -u 1000000", "-u/--callers: '1000000' is not a whole number from 1 to 100000"),
        ("run ask.yaml -t -5s", "-t/--run-time: '-5s' is not a duration: write a number and its unit"),
        ("run ask.yaml -t 5", "-t/--run-time: '5' has no unit: write 5s"),
        ("run ask.yaml -t 0s --realtime", "-t/--run-time: no session could start in no time"),
        ("run ask.yaml -t 9999999h", "-t/--run-time: '9999999h' is more than 30 days"),
        ("run ask.yaml -r 0/s", "-r/--spawn-rate: '0/s' is no rate: it must be above 0"),
        ("run ask.yaml --max-minutes nan", "--max-minutes: 'nan' is not a number above 0"),
        ("run ask.yaml --max-minutes 1e-6", "--max-minutes: 1e-06 allows no session: the shortest takes"),
        ("mock-server --port 99999", "--port: '99999' is not a whole number from 0 to 65535"),
        ("mock-server -o jitter=5", "-o jitter: unknown key. Did you mean 'jitter_ms'?"),
        # files that are something else
        ("run nowhere.yaml", "nowhere.yaml: does not exist"),
        ("run asc.yaml", "asc.yaml: does not exist. Did you mean 'ask.yaml'?"),
        ("run folder", "folder: is a folder, not a file"),
        ("run bundle", "bundle: is a folder, not a file: `voicebench score` is for recordings"),
        ("run bundle/session.json", "bundle/session.json: is a recording, not a scenario: score its folder"),
        ("run bundle/user.wav", "bundle/user.wav: is audio: name it in a scenario"),
        ("run report.json", "report.json: is a run's report, not a scenario"),
        ("run binary.yaml", "binary.yaml: is a binary file, not YAML text"),
        ("run latin.yaml", "latin.yaml:1:8: byte 0xfc is not UTF-8: save the file as UTF-8"),
        ("run empty.yaml", "empty.yaml:1:1: the file is empty: it must be a scenario"),
        ("score ask.yaml", "ask.yaml: is not a directory; give the folder that holds session.json"),
        ("score run", "run is not a recording but a folder of them: write run/bundles/*"),
        ("score run/bundles", "run/bundles is not a recording but a folder of them: write run/bundles/*"),
        ("score run/bundles/*", "run/bundles/* matches no recording: `voicebench run --record all` keeps also"),
        ("score bundle --scenario nowhere.yaml", "--scenario: nowhere.yaml cannot be read: No such file"),
        # the agent
        ("run ask.yaml --url 127.0.0.1:8765", "--url: is not a WebSocket URL: it must begin with ws:// or wss://"),
        ("run ask.yaml --url http://x/", "--url: is not a WebSocket URL"),
        (f"run ask.yaml --url http://me:{SECRET}@x/", "--url: is not a WebSocket URL"),
        (f"run ask.yaml --url ws://me:{SECRET}@x:99999/", "--url: is not a URL: check brackets and port"),
        (f"run ask.yaml -a websocket -o url=x:{SECRET}", "-o url: is not a WebSocket URL"),
        ("run ask.yaml -a websockets", "-a/--adapter: 'websockets' is not one of mock, websocket, module:Class"),
        ("run ask.yaml -o jitter=5", "-o jitter: unknown key. Did you mean 'jitter_ms'?"),
        ("run ask.yaml -o jitter_ms", "-o/--option: write KEY=VALUE"),
        ("run unset.yaml", "unset.yaml: adapter.options.url: the environment variable NOBODY_SET_THIS is not set"),
        ("run strange.yaml", "strange.yaml: adapter.options.url: is not a WebSocket URL"),
        # where results go
        ("run ask.yaml --out taken", "taken: exists and is not an empty folder; results are never overwritten"),
        ("run ask.yaml --out run", "run: exists and is not an empty folder"),
        ("run ask.yaml --json folder", "--json: folder is a folder: name a file in it"),
        ("run ask.yaml --json no/where.json", "--json: no/where.json can't be written: there is no folder"),
        # what does not go together
        ("run ask.yaml --out x --no-write", "--out and --no-write exclude each other"),
        ("run ask.yaml --record all --no-write", "--record all and --no-write exclude each other"),
        ("run ask.yaml -t 10s --warmup 10s", "--warmup: as long as the run time"),
        ("run ask.yaml -t 10s", "-t: the mock agent runs on the virtual clock"),
        ("mock-server --host 0.0.0.0", "--host 0.0.0.0 may be reached by other machines"),
    ],
)
def test_a_wrong_call_is_one_sentence_that_names_the_culprit(capsys, monkeypatch, arguments, told):
    monkeypatch.setenv("SOME_URL", f"http://{SECRET}")
    assert told in refused(capsys, *arguments.split())


@pytest.mark.parametrize("flag", ["--out", "--json"])
def test_an_empty_name_is_no_file(capsys, flag):
    assert f"{flag}: an empty name" in refused(capsys, "run", "ask.yaml", flag, "")


def test_an_empty_plan_is_no_file_either(capsys):
    assert "PLAN: an empty name" in refused(capsys, "run", "")


@pytest.mark.parametrize("arguments", [["--url", f"http://me:{SECRET}@x/"], ["-o", f"url=http://{SECRET}"]])
def test_what_may_be_a_password_is_not_repeated(capsys, arguments):
    assert SECRET not in refused(capsys, "run", "ask.yaml", *arguments)


def test_all_mistakes_of_a_file_are_told_one_a_line(capsys):
    Path("bad.yaml").write_text("name: bad\nturns: [{audio: {synth: speach}}]\ntail_ms: x\n")
    err = refused(capsys, "run", "bad.yaml", lines=2)
    assert [line.removeprefix("error: ").split(": ")[0] for line in err.splitlines()] == [
        "bad.yaml:2:25",
        "bad.yaml:3:10",
    ]


def test_an_environment_variable_is_named_as_a_flag_is(capsys, monkeypatch):
    monkeypatch.setenv("VOICEBENCH_SESSIONS", "many")
    assert "environment variable VOICEBENCH_SESSIONS: 'many'" in refused(capsys, "run", "ask.yaml")
    monkeypatch.delenv("VOICEBENCH_SESSIONS")
    monkeypatch.setenv("VOICEBENCH_URL", f"http://{SECRET}")
    Path("far.yaml").write_text(ASK + "adapter: {type: websocket}\n")
    err = refused(capsys, "run", "far.yaml")
    assert "environment variable VOICEBENCH_URL: is not a WebSocket URL" in err
    assert SECRET not in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_says_so(capsys):
    os.chmod("ask.yaml", 0)
    assert "ask.yaml: cannot be read: permission denied" in refused(capsys, "run", "ask.yaml")


@pytest.mark.parametrize(("text", "exit_code"), [(ASK, 0), ("", 2)])
def test_a_dash_reads_the_plan_from_standard_input(capsys, monkeypatch, text, exit_code):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(["run", "-", "--dry-run"]) == exit_code
    assert ("<stdin>:1:1: the file is empty" in capsys.readouterr().err) == (exit_code == 2)


@pytest.mark.parametrize("name", ["two words.yaml", "ünï cödé.yaml", "-dash.yaml"])
def test_a_file_may_have_any_name(capsys, name):
    Path(name).write_text(ASK)
    assert main(["run", "--dry-run", "--", name]) == 0
    assert "ask: 1 turn" in capsys.readouterr().out
