"""`voicebench run` as people run it: a process of its own, real sockets, real time where a socket is."""

import contextlib
import json
import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from tests.support.processes import children_of, mock_server, start, voicebench, wait_for, wait_until_started, went_well
from tests.support.truth import errors_ms, read_truth
from voicebench.cli import main

pytestmark = pytest.mark.slow  # each test is a process or more

FRAME_MS = 20.0
TALK = """\
name: talk
tail_ms: 300
defaults: {response_timeout_ms: 2000}
turns:
  - {id: ask, audio: {synth: speech, duration_ms: 600}, start: {after: session_start, delay_ms: 100}}
  - {id: barge-in, audio: {synth: speech, duration_ms: 500, seed: 1}, start: {after: agent_speech_start, delay_ms: 300}, expect: stop}
adapter: {type: websocket, options: {url: "ws://127.0.0.1:9"}}
"""
VIRTUAL = TALK.replace(
    'adapter: {type: websocket, options: {url: "ws://127.0.0.1:9"}}', "adapter: {type: mock, options: {jitter_ms: 200}}"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "talk.yaml").write_text(TALK)
    (tmp_path / "virtual.yaml").write_text(VIRTUAL)
    return tmp_path


def report_of(folder: Path) -> dict:
    return json.loads((folder / "out" / "report.json").read_text())


def account(report: dict) -> dict:
    found = report["accounting"]
    assert found["started"] == found["finished"] + found["failed"] + found["cut"] + found["lost"]
    return found


def test_measured_times_are_within_a_frame_of_what_the_agent_itself_logged(folder):
    with mock_server("--truth", str(folder / "truth.jsonl"), "-o", "jitter_ms=150") as url:
        done = voicebench("run", "talk.yaml", "--url", url + "?session={session_id}", "-u", "6", "-r", "10/s",
                          "--out", "out", "--record", "all", cwd=folder)  # fmt: skip
    report = report_of(folder)
    assert account(report)["finished"] == 6, done.stderr
    # What the tester does not vouch for proves nothing on a busy machine; what it vouches for must be true.
    errors = errors_ms(report, read_truth(folder / "truth.jsonl"), FRAME_MS, reliable_only=True)
    assert all(abs(error) <= FRAME_MS for error in errors), errors
    assert errors or report["summary"]["unreliable_turns"] == 12


def test_scoring_the_kept_recordings_again_gives_the_runs_numbers(folder):
    with mock_server() as url:
        voicebench("run", "talk.yaml", "--url", url, "-u", "3", "--out", "out", "--record", "all", cwd=folder)
    report = report_of(folder)
    bundles = [f"out/{session['bundle']}" for session in report["sessions"]]
    again = json.loads(voicebench("score", *bundles, "--json", cwd=folder).stdout)
    extra = ("worker", "started_s", "warmup", "bundle")
    assert again["sessions"] == [{k: v for k, v in s.items() if k not in extra} for s in report["sessions"]]
    assert again["summary"] == report["summary"]
    assert again["summary_reliable"] == report["summary_reliable"]


def test_a_burst_of_a_whole_reply_is_heard_as_one_in_real_time(folder):
    (folder / "ask.yaml").write_text(
        "name: ask\ntail_ms: 300\nturns: [{id: ask, audio: {synth: speech, duration_ms: 600}}]\n"
    )
    lengths = []
    for burst in ("1", "0"):
        with mock_server("--burst", burst, "-o", "response_ms=900") as url:
            voicebench("run", "ask.yaml", "--url", url, "--out", f"out{burst}", cwd=folder)
        (session,) = json.loads((folder / f"out{burst}" / "report.json").read_text())["sessions"]
        if session["reliable"]:  # where the tester itself was late it says so, and vouches for nothing
            lengths.append(session["agent_speech_ms"])
    # Arrival is not on the detector's grid of 10 ms: up to one frame more is heard, at whatever pace it was sent.
    assert all(900.0 <= length <= 910.0 for length in lengths), lengths


def test_refused_connections_are_failed_sessions_with_their_reason(folder):
    with mock_server("--fail-rate", "0.5", "--truth", str(folder / "truth.jsonl")) as url:
        voicebench("run", "talk.yaml", "--url", url, "-n", "8", "-u", "4", "--no-preflight", "--out", "out", cwd=folder)
    report = report_of(folder)
    refused = sum('"refused"' in line for line in (folder / "truth.jsonl").read_text().splitlines())
    found = account(report)
    assert found["started"] == 8
    assert found["reasons"] == {"limited": refused}
    assert report["summary"]["turns"] == 2 * (8 - refused)


def test_an_agent_that_hangs_up_is_told_apart_from_a_dropped_line(folder):
    with mock_server("--hangup-after-ms", "500") as url:
        voicebench("run", "talk.yaml", "--url", url, "--no-preflight", "--out", "out", cwd=folder)
    (session,) = report_of(folder)["sessions"]
    assert session["outcome"]["reason"] == "agent_hangup"
    assert "code 1000" in session["outcome"]["detail"]
    assert [turn["status"] for turn in session["turns"]] == ["missed", "not_played"]
    assert session["bundle"], "a failed session's recording is kept by default"


def test_a_killed_agent_drops_its_sessions_and_open_turns_are_unfinished(folder):
    with mock_server() as url:
        server_pid = _pid_listening(url)
        run = start("run", "talk.yaml", "--url", url, "-u", "3", "--out", "out", cwd=folder)
        wait_until_started(folder / "out", 3)
        os.kill(server_pid, signal.SIGKILL)
        run.communicate(timeout=60)
    report = report_of(folder)
    assert account(report)["reasons"].get("dropped") == 3
    assert report["summary"]["missed_responses"] == 0


def _pid_listening(url: str) -> int:
    port = int(url.rsplit(":", 1)[1].split("/")[0])
    inode = next(
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
    )
    for fd in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(fd) == f"socket:[{inode}]":
                return int(fd.parts[2])
        except OSError:
            continue
    raise AssertionError("nobody listens")


def test_nobody_there_is_exit_3_within_seconds_and_a_sentence(folder):
    began = time.monotonic()
    done = voicebench("run", "talk.yaml", cwd=folder)
    assert done.returncode == 3
    assert "127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr
    assert time.monotonic() - began < 10
    assert not (folder / "voicebench-results").exists()


def test_no_session_reaching_its_first_frame_is_exit_3_with_a_report(folder):
    done = voicebench("run", "talk.yaml", "--no-preflight", "-n", "2", "-u", "2", "--out", "out", cwd=folder)
    report = report_of(folder)
    assert (done.returncode, report["run"]["verdict"]) == (3, "unreachable")
    assert account(report)["reasons"] == {"refused": 2}


def told_of(report: dict) -> list[str]:
    """What happened in the run. What the machine did to it, in the middle of other tests, is not what is tested."""
    return [event["event"] for event in report["events"] if event["event"] not in ("warning", "blocked")]


@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_drains_twice_cuts_and_the_report_is_written_either_way(folder, signals):
    with mock_server() as url:
        run = start("run", "talk.yaml", "--url", url, "-u", "3", "-t", "5m", "--out", "out", cwd=folder)
        wait_until_started(folder / "out", 3)
        for _ in range(signals):
            run.send_signal(signal.SIGINT)
            time.sleep(0.4)
        _, stderr = run.communicate(timeout=60)
    report = report_of(folder)
    found = account(report)
    assert went_well(run.returncode, stderr, expected=130), stderr
    assert report["run"]["complete"] is False
    assert "again to cut" in stderr
    assert (found["cut"] == 0) == (signals == 1)
    told = ["join", "start", "drain", *["cut"] * (signals - 1), "end"]
    assert told_of(report) == told


def test_sigterm_drains_and_ends_with_143(folder):
    with mock_server() as url:
        run = start("run", "talk.yaml", "--url", url, "-t", "5m", "--out", "out", cwd=folder)
        wait_until_started(folder / "out", 1)
        run.terminate()
        _, stderr = run.communicate(timeout=60)
    assert went_well(run.returncode, stderr, expected=143), stderr
    assert account(report_of(folder))["cut"] == 0


def test_the_end_of_the_run_time_cuts_what_outlasts_the_stop_timeout(folder):
    with mock_server() as url:
        done = voicebench(
            "run", "talk.yaml", "--url", url, "-t", "1s", "--stop-timeout", "200ms", "--out", "out", cwd=folder
        )
    report = report_of(folder)
    assert account(report)["cut"] == 1, done.stderr
    assert told_of(report) == ["join", "start", "drain", "cut", "end"]
    assert [turn["status"] for turn in report["sessions"][0]["turns"]] == ["unfinished", "not_played"]
    assert report["summary"]["missed_responses"] == 0


def test_sessions_of_the_warm_up_are_accounted_for_and_in_no_number(folder):
    with mock_server() as url:
        voicebench("run", "talk.yaml", "--url", url, "-n", "3", "--warmup", "1s", "--out", "out", cwd=folder)
    report = report_of(folder)
    assert (account(report)["started"], report["accounting"]["warmup"]) == (3, 1)
    assert report["summary"]["sessions"] == 2


def test_the_mock_agent_in_real_time_goes_through_the_adapter_seam(folder):
    voicebench("run", "virtual.yaml", "--realtime", "-u", "2", "--out", "out", cwd=folder)
    report = report_of(folder)
    assert report["run"]["clock"] == "real"
    assert account(report)["finished"] == 2
    assert report["workers"][0]["frame_lateness_ms"]["count"] > 100


def test_a_secret_from_the_environment_is_in_no_output(folder):
    canary = "c4nary-0f-s3crets"
    text = TALK.replace(
        'url: "ws://127.0.0.1:9"', 'url: "${AGENT_URL}", headers: {Authorization: "Bearer ${AGENT_KEY}"}'
    )
    (folder / "secret.yaml").write_text(text)
    with mock_server("--fail-rate", "0.4", "--truth", str(folder / "truth.jsonl")) as url:
        host = url.removeprefix("ws://")
        environment = {**os.environ, "AGENT_URL": f"ws://me:{canary}@{host}?key={canary}", "AGENT_KEY": canary}
        done = voicebench("run", "secret.yaml", "-n", "6", "-u", "3", "--no-preflight", "--record", "all", "--out", "out",
                          cwd=folder, env=environment)  # fmt: skip
    assert account(report_of(folder))["finished"] > 0, done.stderr
    written = [path for path in (folder / "out").rglob("*") if path.is_file()]
    assert len(written) > 6
    assert not [path for path in written if canary.encode() in path.read_bytes()]
    assert canary not in done.stdout + done.stderr


def test_a_virtual_run_is_the_same_every_time(folder):
    reports = []
    for name in ("one", "two"):
        done = voicebench("run", "virtual.yaml", "-n", "5", "--json", "-", "--no-write", "-q", cwd=folder)
        assert done.returncode == 0, (name, done.stderr)
        reports.append(json.loads(done.stdout))
    one, two = ([{**s, "session_id": ""} | {"started_s": 0} for s in report["sessions"]] for report in reports)
    assert one == two
    assert len({session["turns"][0]["response_latency_ms"] for session in one}) > 1
    assert reports[0]["summary"] == reports[1]["summary"]


def test_json_on_stdout_stands_alone(folder):
    done = voicebench("run", "virtual.yaml", "--json", "-", "--no-write", cwd=folder)
    assert json.loads(done.stdout)["schema"] == "voicebench-report/1"


def test_a_failed_assertion_is_exit_1_and_named_last(folder):
    (folder / "strict.yaml").write_text(VIRTUAL + "assert: {max_response_latency_ms: 1}\n")
    done = voicebench("run", "strict.yaml", "--out", "out", cwd=folder)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("exit 1: max_response_latency_ms")
    assert report_of(folder)["run"]["verdict"] == "fail"


def test_a_plans_limits_speak_of_the_run_and_a_scenarios_of_its_own_sessions(folder):
    (folder / "a.yaml").write_text(VIRTUAL.replace("name: talk", "name: a") + "assert: {max_missed_responses: 0}\n")
    (folder / "b.yaml").write_text(
        VIRTUAL.replace("name: talk", "name: b").replace("jitter_ms: 200", "threshold_db: 0")
        + "assert: {max_missed_responses: 0}\n"
    )
    (folder / "plan.yaml").write_text(
        "name: both\nscenarios: [{file: a.yaml, weight: 3}, {file: b.yaml}]\n"
        "load: {sessions: 12}\nassert: {max_failed_session_rate: 0.5}\n"
    )
    done = voicebench("run", "plan.yaml", "--out", "out", cwd=folder)
    report = report_of(folder)
    verdicts = {(each["name"], each["scenario"]): each["passed"] for each in report["assertions"]}
    assert verdicts == {
        ("max_failed_session_rate", None): True,
        ("max_missed_responses", "a"): True,
        ("max_missed_responses", "b"): False,
    }
    assert done.returncode == 1
    assert sum(each["summary"]["sessions"] for each in report["by_scenario"].values()) == 12


@pytest.mark.parametrize(
    "block", ["load: {arrivals: 5/s}", "abort_on: {max_missed_responses: 3}", "record: {worst: 3}"]
)
def test_what_a_plan_may_ask_for_and_cannot_be_run_yet_is_exit_2(folder, block):
    (folder / "plan.yaml").write_text(f"name: p\nscenarios: [{{file: virtual.yaml}}]\n{block}\n")
    done = voicebench("run", "plan.yaml", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "understood, but not supported by this version's run" in done.stderr


def test_an_adapter_that_cannot_be_loaded_is_exit_3(folder):
    done = voicebench("run", "virtual.yaml", "-a", "no_such_module:Agent", cwd=folder)
    assert (done.returncode, done.stdout) == (3, "")
    assert "no module 'no_such_module'" in done.stderr


def test_a_dry_run_says_what_it_would_place_and_places_nothing(folder):
    done = voicebench("run", "talk.yaml", "-u", "4", "-n", "40", "--dry-run", cwd=folder)
    assert done.returncode == 0
    assert "would place 40 sessions" in done.stdout
    assert not (folder / "voicebench-results").exists()


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("-u 4", "one session for each of the 4 callers"),
        ("-u 4 -n 2", "2 sessions keep only 2 of the 4 callers busy"),
        ("-u 50 -r 1/s -t 10s", "only 11 of the 50 callers join within the run time"),
        ("-t 10s", "1 caller, real clock"),
        ("-t 10s", "would place 1 to 8 sessions"),
        ("-u 4 -t 10s", "would place 4 to 32 sessions"),
        ("-u 4 -t 10s -n 6", "would place 4 to 6 sessions"),
        ("-n 40 --max-minutes 4", "would place 2 to 40 sessions, 3 s to 4 min of conversation"),
    ],
)
def test_a_dry_run_says_what_becomes_of_the_flags(folder, flags, told, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(["run", "talk.yaml", "--dry-run", *flags.split()]) == 0
    assert told in capsys.readouterr().out


def test_max_minutes_places_no_session_that_could_exceed_them(folder):
    done = voicebench("run", "virtual.yaml", "-n", "1000", "--max-minutes", "1", "--out", "out", cwd=folder)
    report = report_of(folder)
    minutes = sum(session["duration_s"] for session in report["sessions"]) / 60
    assert 0.5 < minutes <= 1.0
    assert any("audio minutes are used up" in note for note in report["run"]["notes"]), done.stdout


def test_flags_stand_before_the_plan_and_the_plan_before_the_environment(folder):
    (folder / "plan.yaml").write_text("name: p\nscenarios: [{file: virtual.yaml}]\nload: {sessions: 3}\n")
    environment = {**os.environ, "VOICEBENCH_SESSIONS": "2"}
    placed = {}
    for name, arguments in {"file": ["plan.yaml"], "flag": ["plan.yaml", "-n", "4"], "env": ["virtual.yaml"]}.items():
        done = voicebench("run", *arguments, "--json", "-", "--no-write", cwd=folder, env=environment)
        placed[name] = json.loads(done.stdout)["accounting"]["started"]
    assert placed == {"file": 3, "flag": 4, "env": 2}


def test_a_worker_process_that_is_killed_is_found_at_once_and_its_sessions_are_lost(folder):
    with mock_server() as url:
        run = start(
            "run", "talk.yaml", "--url", url, "-u", "4", "-t", "5m", "--workers", "2", "--out", "out", cwd=folder
        )
        wait_until_started(folder / "out", 4)
        workers = children_of(run.pid, "worker")
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        wait_for(lambda: "lost" in events_so_far(folder), "the worker is given up", timeout_s=4)  # 5 s over a network
        run.send_signal(signal.SIGINT)
        _, stderr = run.communicate(timeout=60)
    report = report_of(folder)
    assert run.returncode == 4, stderr
    assert account(report)["lost"] >= 1
    assert any("was lost (ended by SIGKILL)" in reason for reason in report["run"]["reasons"])


def events_so_far(folder: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(f"{(folder / 'out' / 'run.db').as_uri()}?mode=ro", uri=True)) as db:
        return [event for (event,) in db.execute("SELECT event FROM events")]


def test_no_worker_process_survives_its_run_however_it_dies(folder):
    with mock_server() as url:
        run = start(
            "run", "talk.yaml", "--url", url, "-t", "5m", "--workers", "2", "-u", "2", "--out", "out", cwd=folder
        )
        wait_until_started(folder / "out", 2)
        workers = children_of(run.pid, "worker")
        run.kill()
        run.communicate()
        wait_for(lambda: not any(is_alive(pid) for pid in workers), "the workers are gone", timeout_s=10)
    assert len(workers) == 2


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
