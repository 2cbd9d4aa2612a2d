"""The report of a whole run on the virtual clock, and of runs made by hand, against spec and docs/report.md."""

import json
from pathlib import Path

import pytest

from tests.support.made import a_head, a_worker, respond, result, session
from voicebench.load_files import load_plan
from voicebench.local_run import LocalRun, LocalSettings
from voicebench.master.collector import Collector
from voicebench.master.ending import conclude
from voicebench.master.report import RunTail, run_head
from voicebench.records import Outcome
from voicebench.worker.engine import EngineLoad

CANARY = "c4nary"
SCENARIO = """\
name: {name}
turns:
  - {{id: ask, audio: {{synth: speech, duration_ms: 400}}}}
  - {{id: more, audio: {{synth: speech, duration_ms: 400, seed: 1}}, start: {{after: agent_speech_end}}}}
assert: {{max_missed_responses: 0}}
"""
PLAN = """\
name: both
scenarios: [{file: a.yaml}, {file: b.yaml}]
adapter: {type: mock, options: {seed: 3}}
assert: {max_failed_session_rate: 0.0}
"""
SUMMARY_KEYS = {
    "sessions", "turns", "turns_passed", "response_latency_ms", "ttfa_ms", "barge_in_stop_ms", "missed_responses",
    "talk_overs", "barge_in_turns", "barge_in_success_rate", "noise_turns", "false_barge_ins", "spurious_responses",
    "mean_wer", "pooled_wer", "overlap_ms", "talk_over_ms",
}  # fmt: skip
SESSION_KEYS = {
    "session_id", "duration_s", "user_speech_ms", "agent_speech_ms", "overlap_ms", "talk_over_ms", "truncated",
    "user_segments", "agent_segments", "turns", "worker", "started_s", "outcome", "reliable", "bundle",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(SCENARIO.format(name=name))
    (tmp_path / "plan.yaml").write_text(PLAN)
    return tmp_path


def made_run(folder: Path, *, sessions: int = 6, **settings) -> LocalRun:
    loaded = load_plan(folder / "plan.yaml")
    load = EngineLoad(callers=1, sessions=sessions, seed=5)
    head = run_head("run-1", loaded.plan, loaded.scenarios, seed=5, clock="virtual")
    return LocalRun(head, loaded.plan, loaded.scenarios, load, LocalSettings(**{"environment": {}, **settings}))


def report_of(run: LocalRun, signal_exit: int | None = None) -> dict:
    run.run()
    report, _ = run.finish(signal_exit=signal_exit, events=[(0.0, "start", "")])
    return json.loads(json.dumps(report))  # it is JSON as it stands


def test_the_report_has_what_the_specification_lists(folder):
    report = report_of(made_run(folder))
    assert set(report) >= {
        "schema", "voicebench", "run", "accounting", "summary", "assertions", "workers", "events", "sessions",
        "sessions_listed",
    }  # fmt: skip
    run = report["run"]
    assert set(run) >= {
        "id", "name", "started_at", "duration_s", "plan", "seed", "clock", "complete", "verdict", "reasons",
    }  # fmt: skip
    assert (run["id"], run["name"], run["seed"], run["clock"], run["verdict"]) == (
        "run-1",
        "both",
        5,
        "virtual",
        "pass",
    )
    assert run["complete"] is True
    assert set(report["summary"]) >= SUMMARY_KEYS
    assert set(report["summary_reliable"]) == set(report["summary"])
    assert set(report["workers"][0]) >= {"id", "voicebench", "python", "sessions", "cpu_s", "frame_lateness_ms"}
    assert all(set(each) >= SESSION_KEYS for each in report["sessions"])
    assert report["events"] == [{"t_s": 0.0, "event": "start", "detail": ""}]


def test_accounting_is_in_total_and_by_worker(folder):
    accounting = report_of(made_run(folder))["accounting"]
    by_worker = accounting.pop("by_worker")
    assert by_worker == {"local": accounting}
    assert accounting["maybe_started"] == 0
    assert accounting["started"] == accounting["finished"] == 6
    assert accounting["reasons"] == {}


def test_the_same_summary_is_there_by_scenario_and_by_turn(folder):
    report = report_of(made_run(folder))
    parts = report["by_scenario"]
    assert set(parts) == {"a", "b"}
    for key in ("sessions", "turns", "turns_passed"):
        assert sum(part["summary"][key] for part in parts.values()) == report["summary"][key]
    assert set(parts["a"]["by_turn"]) == {"ask", "more"}
    assert set(parts["a"]["by_turn"]["ask"]) == set(report["summary"])
    assert parts["a"]["by_turn"]["ask"]["turns"] == parts["a"]["summary"]["sessions"]


def test_limits_name_the_scenario_they_speak_of(folder):
    limits = report_of(made_run(folder))["assertions"]
    assert [(each["name"], each["scenario"], each["passed"]) for each in limits] == [
        ("max_failed_session_rate", None, True),
        ("max_missed_responses", "a", True),
        ("max_missed_responses", "b", True),
    ]


def test_a_scenario_of_the_mix_that_ran_no_session_fails_what_it_can_not_have_measured(folder):
    (folder / "b.yaml").write_text(SCENARIO.format(name="b").replace("max_missed_responses: 0", "p50_ttfa_ms: 9999"))
    report = report_of(made_run(folder, sessions=1))
    assert set(report["by_scenario"]) == {"a"}
    (limit,) = [each for each in report["assertions"] if each["scenario"] == "b"]
    assert (limit["actual"], limit["passed"]) == (None, False)
    assert report["run"]["verdict"] == "fail"


def test_sessions_are_listed_in_order_of_their_start(folder):
    sessions = report_of(made_run(folder))["sessions"]
    assert [each["session_id"] for each in sessions] == [f"run-1-{number:06d}" for number in range(6)]
    assert [each["started_s"] for each in sessions] == sorted(each["started_s"] for each in sessions)


@pytest.mark.parametrize(
    ("secret", "where"),
    [
        ("wss://me:c4nary@host/path?token=c4nary", "url"),
        ("Bearer c4nary", "headers"),
    ],
)
def test_secrets_are_in_no_report(folder, secret, where):
    value = secret if where == "url" else {"Authorization": secret}
    options = json.dumps({"url": "ws://host/", where: value})
    plan = PLAN.replace("{type: mock, options: {seed: 3}}", f"{{type: websocket, options: {options}}}")
    (folder / "plan.yaml").write_text(plan)
    loaded = load_plan(folder / "plan.yaml")
    head = run_head("run-1", loaded.plan, loaded.scenarios, seed=0, clock="real")
    report, _ = conclude(head, RunTail(0.0, (a_worker(started=0),), (), ()), Collector())
    assert CANARY in json.dumps(loaded.plan.document)
    assert CANARY not in json.dumps(report)
    assert "REDACTED" in json.dumps(report["run"]["plan"])


def test_a_variables_value_is_nowhere_and_its_name_is_kept(folder):
    (folder / "plan.yaml").write_text(PLAN.replace("seed: 3", 'seed: 3, transcripts: ["${CANARY}"]'))
    report = report_of(made_run(folder, environment={"CANARY": CANARY}))
    report["sessions"] = [{**each, "turns": []} for each in report["sessions"]]  # what the agent heard is a result
    assert CANARY not in json.dumps(report)
    assert "${CANARY}" in json.dumps(report["run"]["plan"])


def test_a_run_that_broke_off_says_so_and_reports_what_it_has(folder, monkeypatch):
    run = made_run(folder)
    take = run.collector.take

    def failing(*args, **kwargs):
        if run.collector.n_taken == 3:
            raise ZeroDivisionError("made to fail")
        take(*args, **kwargs)

    monkeypatch.setattr(run.collector, "take", failing)
    with pytest.raises(ZeroDivisionError):
        run.run()
    report, verdict = run.finish(signal_exit=None, events=[])
    assert (verdict.exit_code, report["run"]["verdict"], report["run"]["complete"]) == (4, "incomplete", False)
    assert "ZeroDivisionError: made to fail" in report["run"]["reasons"][0]
    assert report["summary"]["sessions"] == 3
    assert report["accounting"]["started"] == 4


def test_an_interrupted_run_is_incomplete_and_has_all_its_numbers(folder):
    report = report_of(made_run(folder), signal_exit=130)
    assert (report["run"]["verdict"], report["run"]["complete"]) == ("interrupted", False)
    assert report["summary"]["sessions"] == 6


def test_a_recording_that_cannot_be_written_is_told_and_costs_no_number(folder, monkeypatch):
    def full(directory, files):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("voicebench.local_run.write_files", full)
    report = report_of(made_run(folder, keep="all", directory=folder / "out"))
    assert report["run"]["verdict"] == "incomplete"
    assert report["run"]["reasons"] == [
        "recordings could not be written (No space left on device); the numbers are whole"
    ]
    assert report["summary"]["sessions"] == 6
    assert all(each["bundle"] is None for each in report["sessions"])


def test_kept_recordings_are_where_the_report_says(folder):
    report = report_of(made_run(folder, keep="all", directory=folder / "out"))
    for each in report["sessions"]:
        assert sorted(path.name for path in (folder / "out" / each["bundle"]).iterdir()) == [
            "agent.wav",
            "session.json",
            "user.wav",
        ]


def test_what_does_not_exist_is_null_and_lateness_names_its_frames():
    collector = Collector()
    collector.take(result(session(respond()), started_s=0.12345, lateness={2: 2, 12: 1}), worker="w")
    report, _ = conclude(a_head(), RunTail(1.0, (a_worker(started=1),), (), ()), collector)
    assert report["summary"]["mean_wer"] is None
    assert report["summary"]["barge_in_stop_ms"]["p50"] is None
    assert report["workers"][0]["frame_lateness_ms"] == {"count": 3, "p50": 0.2, "p99": pytest.approx(1.18), "max": 1.2}
    assert report["workers"][0]["left_s"] is None
    assert report["sessions"][0]["started_s"] == 0.123
    assert report["sessions_listed"] == "all"


def test_every_worker_has_its_own_account_and_lateness():
    collector = Collector()
    collector.take(result(session(respond()), number=0, lateness={1: 5}), worker="w")
    collector.take(result(session(outcome=Outcome("failed", "refused", "no")), number=1, frames_sent=0), worker="v")
    workers = (a_worker(started=1), a_worker("v", started=1))
    report, _ = conclude(a_head(), RunTail(1.0, workers, (), ()), collector)
    by_worker = report["accounting"]["by_worker"]
    assert (by_worker["w"]["finished"], by_worker["w"]["failed"]) == (1, 0)
    assert (by_worker["v"]["finished"], by_worker["v"]["failed"], by_worker["v"]["reasons"]) == (0, 1, {"refused": 1})
    assert [each["frame_lateness_ms"]["count"] for each in report["workers"]] == [5, 0]


def test_a_lost_worker_makes_the_run_incomplete_and_is_named_with_what_went_with_it():
    collector = Collector()
    collector.take(result(session(respond()), number=0), worker="w")
    collector.take_lost(1, worker="v", session_id="run-000001", scenario="made")
    lost = a_worker("v", state="lost", why="silent for 5 s", started=1, maybe_started=1)
    tail = RunTail(9.0, (a_worker(started=1), lost), (), (), not_placed=1)
    report, verdict = conclude(a_head(), tail, collector)
    assert (verdict.verdict, verdict.exit_code, verdict.complete) == ("incomplete", 4, False)
    assert any("worker v was lost (silent for 5 s)" in reason for reason in verdict.reasons)
    assert report["accounting"]["lost"] == 1
    assert report["accounting"]["maybe_started"] == 1
    assert report["summary"]["failed_session_rate"] == 0.0
    assert [each["outcome"]["state"] for each in report["sessions"]] == ["finished", "lost"]


def test_a_master_that_listened_without_authentication_says_so_in_the_report():
    report, _ = conclude(a_head(insecure=True), RunTail(1.0, (a_worker(started=0),), ("n",), ()), Collector())
    assert report["run"]["insecure"] is True
    assert "without authentication" in report["run"]["notes"][0]
