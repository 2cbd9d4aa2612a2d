"""Every file in `examples/` is what its page says: it reads, it runs, and its script finds what a log tells."""

from __future__ import annotations

import copy
import doctest
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import mock_server, voicebench, went_well
from voicebench.load_files import load_plan
from voicebench.scenario.parse import any_of
from voicebench.scenario.yaml_text import read_document

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
CUSTOM = EXAMPLES / "custom_adapter.yaml"
PIPECAT = EXAMPLES / "pipecat"
SHIPPED = ROOT / "voicebench" / "examples"
NEEDS_FILES_OF_ITS_OWN = SHIPPED / "plan.yaml"  # names scenarios that the user writes first (tests/cli/test_example.py)
SCENARIOS = sorted((PIPECAT / "scenarios").glob("*.yaml"))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _script(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


compare_with_log = _script(PIPECAT / "compare_with_log.py")


@pytest.mark.parametrize("path", sorted([*EXAMPLES.rglob("*.yaml"), *SHIPPED.glob("*.yaml")]), ids=_name)
def test_an_example_reads_without_a_warning(path):
    if path == NEEDS_FILES_OF_ITS_OWN:
        any_of(read_document(path.read_bytes(), source=path.name))
        return
    assert load_plan(path).warnings == ()


def test_the_pipecat_scenarios_hold_every_kind_of_turn():
    turns = [turn for path in SCENARIOS for turn in load_plan(path).scenarios[0].scenario.turns]
    assert {turn.expect for turn in turns} == {"respond", "stop", "ignore"}
    assert {"question", "barge-in", "cough", "backchannel"} <= {turn.id for turn in turns}


@pytest.mark.parametrize("path", SCENARIOS, ids=_name)
def test_a_pipecat_session_tells_the_agent_its_id(path):
    scenario = load_plan(path).scenarios[0].scenario
    assert scenario.adapter.options["url"].endswith("?call={session_id}")


def test_every_prompt_is_used_listed_and_has_its_licence():
    there = {path.name for path in (PIPECAT / "prompts").glob("*.wav")}
    turns = [turn for path in SCENARIOS for turn in load_plan(path).scenarios[0].scenario.turns]
    listed = json.loads((PIPECAT / "prompts" / "prompts.json").read_text())["prompts"]
    licences = (PIPECAT / "LICENSES.md").read_text()
    assert there == {Path(turn.audio.file).name for turn in turns}
    assert there == {prompt["file"] for prompt in listed}
    assert [name for name in there if f"`{name.removesuffix('.wav')}`" not in licences] == []


@pytest.mark.parametrize("page", ["README.md", "LICENSES.md"])
def test_what_a_page_of_the_pipecat_example_names_is_there(page):
    text = (PIPECAT / page).read_text()
    named = set(re.findall(r"examples/pipecat/[\w./-]*\w|(?<=\]\()[\w.-]+\.md(?=\))", text))
    missing = [name for name in named if not (ROOT / name).exists() and not (PIPECAT / name).exists()]
    assert missing == []
    assert page == "LICENSES.md" or named


# ---------------------------------------------------------------- compare_with_log.py, on a log written by hand

ZERO_S = 100.0
BUNDLE = {
    "zero_monotonic_s": ZERO_S,
    "scenario": {
        "turns": [{"id": "question"}, {"id": "barge-in", "max_stop_ms": 700}, {"id": "door"}],
        "defaults": {"max_stop_ms": 900},
    },
    "clears": [{"time_s": 0.8}, {"time_s": 5.401}],
}
SCORED = {
    "session_id": "talk-000000",
    "bundle": "bundles/talk-000000",
    "duration_s": 20.0,
    "agent_segments": [[3.11, 5.41], [8.12, 12.1]],
    "turns": [
        {"id": "question", "expect": "respond", "start_s": 0.5, "user_onset_s": 0.5, "user_offset_s": 2.0,
         "response_latency_ms": 1110.0, "ttfa_ms": 1100.6, "stopped": None, "false_barge_in": None},
        {"id": "barge-in", "expect": "stop", "start_s": 5.0, "user_onset_s": 5.0, "user_offset_s": 7.0,
         "response_latency_ms": 1120.0, "ttfa_ms": 1101.0, "stopped": True, "false_barge_in": None},
        {"id": "door", "expect": "ignore", "start_s": 9.0, "user_onset_s": 9.0, "user_offset_s": 9.5,
         "response_latency_ms": None, "ttfa_ms": None, "stopped": None, "false_barge_in": False},
    ],
}  # fmt: skip
LOG = [
    (0.80, "vad_start"), (0.80, "interruption", False),
    (2.20, "vad_stop"), (2.80, "turn_stop"), (3.09, "answer"), (3.1, "bot_start"),
    (5.39, "vad_start"), (5.40, "interruption", True), (5.402, "bot_stop"),
    (7.20, "vad_stop"), (7.80, "turn_stop"), (8.09, "answer"), (8.1, "bot_start"), (12.06, "bot_stop"),
]  # fmt: skip


def _lines(log, call="talk-000000"):
    rows = [
        {"t": ZERO_S + t, "call": call, "event": name, "speaking": bool(more and more[0])} for t, name, *more in log
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def run(tmp_path):
    """A run's folder with one recorded session, and its log beside it."""
    (tmp_path / SCORED["bundle"]).mkdir(parents=True)
    (tmp_path / SCORED["bundle"] / "session.json").write_text(json.dumps(BUNDLE))
    (tmp_path / "report.json").write_text(json.dumps({"sessions": [SCORED]}))
    (tmp_path / "events.jsonl").write_text(_lines(LOG))
    return tmp_path


def _compare(run, *flags):
    return compare_with_log.main([str(run), str(run / "events.jsonl"), *flags])


def test_times_of_log_and_run_stand_side_by_side(run, capsys):
    assert _compare(run, "--within-ms", "20") == 0
    shown = capsys.readouterr().out
    question, barge_in = (
        re.search(rf"^  {turn} .*$", shown, re.MULTILINE)[0].split()[1:]
        for turn in ("question", r"barge-in +5\.000")  # the second line of the turn: how it stopped
    )
    assert question == ["2.000", "2.200", "2.800", "3.090", "3.100", "3.101", "3.110", "1110.0", "0.6", "10.0"]
    assert barge_in == ["5.000", "5.390", "5.400", "5.402", "5.401", "5.410", "410.0", "1.0", "10.0"]
    assert re.search(r"first packet - bot_start +n 2 +min \+0\.6 +p50 \+0\.8", shown)
    assert "end of segment - interruption            n 1" in shown


def test_a_noise_that_stopped_nobody_has_no_interruption(run, capsys):
    _compare(run)
    door = next(line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("  door"))
    assert door == ["door", "9.000", "–", "–", "12.060", "–", "12.100", "–", "–", "–"]


def _with(name, t_s, *, at):
    return [(t_s, *row[1:]) if row[1] == name and row[0] == at else row for row in LOG]


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (_with("bot_start", 3.07, at=3.1), "further than 20 ms from the log: 1"),
        (_with("interruption", 5.36, at=5.4), "further than 20 ms from the log: 1"),
        ([row for row in LOG if row[2:] != (True,)], "differ on whether the agent stopped: 1"),
        ([*LOG, (9.3, "interruption", True)], "differ on whether the agent stopped: 1"),
        ([row for row in LOG if row[0] < 8.1], "answers that the log does not know: 1"),
        ([*LOG, (14.0, "bot_start")], "answers in the log that were not heard: 1 talk-000000"),
    ],
)
def test_where_log_and_run_do_not_agree_it_says_so_and_exits_1(run, capsys, log, told):
    (run / "events.jsonl").write_text(_lines(sorted(log)))
    assert _compare(run, "--within-ms", "20") == 1
    assert told in capsys.readouterr().out


def test_a_stop_later_than_the_turns_own_limit_is_no_stop_for_either(run):
    scored = copy.deepcopy(SCORED)
    scored["turns"][1]["stopped"] = False
    scored["agent_segments"][0][1] = 5.8
    late = _with("interruption", 5.75, at=5.4)
    log = compare_with_log.log_of([json.loads(line) for line in _lines(late).splitlines()], ZERO_S)
    stops = compare_with_log.compare(scored, BUNDLE, log).stops
    assert [stop.agrees for stop in stops] == [True, True]


def test_a_line_that_the_agent_is_still_writing_is_left_out(run):
    with (run / "events.jsonl").open("a") as file:
        file.write('{"t": 112.1, "call": "talk-0000')
    assert _compare(run) == 0


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ("not json\n" + _lines(LOG), r"events\.jsonl:1: not a line of the agent's --events log: not json"),
        (_lines(LOG, call="pcm-1"), r"talk-000000: not in the agent's log; the url needs \?call=\{session_id\}"),
    ],
)
def test_a_log_that_does_not_fit_is_refused_by_name(run, events, told):
    (run / "events.jsonl").write_text(events)
    with pytest.raises(SystemExit, match=told):
        _compare(run)


def test_a_run_without_recordings_says_how_to_get_them(run):
    (run / "report.json").write_text(json.dumps({"sessions": [{**SCORED, "bundle": None}]}))
    with pytest.raises(SystemExit, match="run again with --record all"):
        _compare(run)


def test_the_scripts_own_examples_hold():
    assert doctest.testmod(compare_with_log).failed == 0


@pytest.mark.slow
def test_the_script_reads_what_a_run_writes(tmp_path, capsys):
    scenario = SHIPPED / "mock-conversation.yaml"
    done = voicebench("run", scenario, "--record", "all", "--out", "out", "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    session = json.loads((tmp_path / "out" / "report.json").read_text())["sessions"][0]
    starts = [(start_s, "bot_start") for start_s, _ in session["agent_segments"]]
    stops = [
        (turn["user_onset_s"] + turn["stop_ms"] / 1000.0, "interruption", True)
        for turn in session["turns"]
        if turn["stopped"]
    ]
    rows = [json.loads(line) for line in _lines(sorted([*starts, *stops]), session["session_id"]).splitlines()]
    on_its_clock = [{**row, "t": row["t"] - ZERO_S} for row in rows]  # the virtual clock starts at 0
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in on_its_clock))
    assert compare_with_log.main([str(tmp_path / "out"), str(tmp_path / "events.jsonl"), "--within-ms", "20"]) == 0
    assert f"agent onset - bot_start                  n {len(starts)} " in capsys.readouterr().out


# ---------------------------------------------------------------- the examples that run by themselves


@pytest.mark.slow
def test_the_custom_adapter_measures_what_the_built_in_one_does(tmp_path):
    with mock_server("-o", "endpoint_silence_ms=600", "-o", 'transcripts=["hi there", "yes"]') as url:
        flags = ("--url", url, "-u", "3", "--record", "none")
        own = _run_example(tmp_path, "own", *flags)
        built_in = _run_example(tmp_path, "built-in", *flags, "-a", "websocket")
    assert [turn["transcript"] for turn in own["sessions"][0]["turns"]] == ["hi there", "yes"]
    for metric in ("response_latency_ms", "ttfa_ms", "barge_in_stop_ms"):
        assert own["summary"][metric]["count"] == 3
        assert own["summary"][metric]["p50"] == pytest.approx(built_in["summary"][metric]["p50"], abs=20.0)


def _with_examples():
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])}


def _run_example(folder, name, *flags):
    out = folder / name
    # A library that waits uncooperatively would block for ever, and no timeout inside the run could end it.
    done = voicebench("run", CUSTOM, *flags, "-q", "--out", out, cwd=folder, env=_with_examples(), timeout_s=60)
    assert went_well(done.returncode, done.stderr), done.stdout + done.stderr
    return json.loads((out / "report.json").read_text())


@pytest.mark.slow
def test_the_custom_adapter_without_an_agent_is_exit_3_and_names_the_trouble(tmp_path):
    flags = ("--url", "ws://127.0.0.1:9", "--no-write")
    done = voicebench("run", CUSTOM, *flags, cwd=tmp_path, env=_with_examples(), timeout_s=60)
    assert done.returncode == 3
    assert "Connection refused" in done.stderr


@pytest.mark.slow
def test_the_demo_ends_with_a_report_of_two_workers(tmp_path):
    demo = [sys.executable, str(EXAMPLES / "demo.py"), str(tmp_path / "results")]
    done = subprocess.run(demo, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False)
    report = json.loads(next((tmp_path / "results").rglob("report.json")).read_text())
    assert report["accounting"]["finished"] == 32, done.stderr
    assert [each["finished"] for each in report["accounting"]["by_worker"].values()] == [16, 16]
    assert [turn["expect"] for turn in report["sessions"][0]["turns"]] == ["respond", "stop", "ignore", "respond"]
    assert done.returncode == 0, done.stdout + done.stderr
    assert "report.json" in done.stdout
