"""A master and its workers as people run them: processes of their own that find each other over TCP.

The mock agent's own log of connections is the judge of what was placed.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from tests.support.processes import VOICEBENCH, mock_server, voicebench, wait_until_started, went_well
from tests.support.truth import read_truth

pytestmark = pytest.mark.slow

AGENT = ("-o", "endpoint_silence_ms=200", "-o", "response_delay_ms=200", "-o", "response_ms=500")
SCENARIO = """\
name: talk
tail_ms: 200
defaults: {{response_timeout_ms: 1500}}
turns:
  - {{id: ask, audio: {{synth: speech, duration_ms: 400}}, start: {{after: session_start, delay_ms: 100}}}}
  - {{id: more, audio: {{synth: speech, duration_ms: 300, seed: 1}}}}
adapter: {adapter}
"""
MOCK = "{type: mock, options: {endpoint_silence_ms: 200, response_delay_ms: 200, response_ms: 500}}"
CLEAN_ENDS = int(os.environ.get("VOICEBENCH_CLEAN_ENDS", "3"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "talk.yaml").write_text(
        SCENARIO.format(adapter="{type: websocket, options: {url: 'ws://127.0.0.1:9'}}")
    )
    (tmp_path / "virtual.yaml").write_text(SCENARIO.format(adapter=MOCK))
    return tmp_path


class Cluster:
    """A master and its workers; whatever is left of them is killed at the end."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.processes: list[subprocess.Popen[str]] = []
        self.address = ""

    def master(self, *flags: str, scenario: str = "talk.yaml") -> subprocess.Popen[str]:
        url = ("--url", f"{self.url}?session={{session_id}}") if scenario == "talk.yaml" else ()
        bind = () if "--bind" in flags else ("--bind", "127.0.0.1:0")
        master = self._start("master", scenario, *url, *bind, "--out", "out", *flags)
        assert master.stderr is not None
        seen = []
        for line in master.stderr:
            seen.append(line)
            if line.startswith("listening at "):
                self.address = line.split()[2].rstrip(",")
                return master
        raise AssertionError("".join(seen))

    def worker(self, name: str, *flags: str) -> subprocess.Popen[str]:
        return self._start("worker", "--master", self.address, "--name", name, *flags)

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*VOICEBENCH, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def report(self) -> dict:
        report = json.loads((self.folder / "out" / "report.json").read_text())
        found = report["accounting"]
        assert found["started"] == found["finished"] + found["failed"] + found["cut"] + found["lost"]
        for key in ("started", "finished", "failed", "cut", "lost"):
            assert found[key] == sum(each[key] for each in found["by_worker"].values())
        return report

    def seen_by_the_agent(self) -> Counter[int]:
        """How often the agent was called with each session number."""
        calls = read_truth(self.folder / "truth.jsonl")
        opened = [name for name, events in calls.items() for each in events if each["event"] == "connected"]
        return Counter(int(name.rsplit("-", 1)[1]) for name in opened if not name.endswith("preflight"))


@contextmanager
def cluster(folder: Path, *flags: str) -> Iterator[Cluster]:
    with mock_server("--truth", str(folder / "truth.jsonl"), *AGENT, *flags) as url:
        made = Cluster(folder, url)
        try:
            yield made
        finally:
            for process in made.processes:
                if process.poll() is None:
                    process.kill()
                process.communicate()


def assert_went_well(process: subprocess.Popen[str]) -> None:
    exit_code, stderr = ended(process)
    assert went_well(exit_code, stderr), stderr


def ended(process: subprocess.Popen[str], timeout_s: float = 60) -> tuple[int, str]:
    _, stderr = process.communicate(timeout=timeout_s)
    return process.returncode, stderr


def test_two_workers_place_every_session_once_and_come_to_what_one_process_computes(folder):
    with cluster(folder) as run:
        master = run.master("-u", "6", "-n", "20", "-w", "2", "--record", "all")
        workers = [run.worker("a"), run.worker("b")]
        assert_went_well(master)
        assert [ended(worker)[0] for worker in workers] == [0, 0]
    report = run.report()
    assert run.seen_by_the_agent() == Counter(range(20))
    shares = {name: each["started"] for name, each in report["accounting"]["by_worker"].items()}
    assert shares == {"a": 10, "b": 10}  # callers 0, 2, 4 have 4, 3 and 3 of the 20, and so have callers 1, 3, 5

    voicebench("run", "virtual.yaml", "-n", "20", "--out", "virtual", cwd=folder)
    virtual = json.loads((folder / "virtual" / "report.json").read_text())
    for key in ("sessions", "turns", "turns_passed", "missed_responses", "talk_overs", "not_played_turns"):
        assert report["summary"][key] == virtual["summary"][key], key

    bundles = [f"out/{session['bundle']}" for session in report["sessions"]]
    again = json.loads(voicebench("score", *bundles, "--json", cwd=folder).stdout)
    assert again["summary"] == report["summary"]
    assert "scoring process" not in json.dumps(report["run"]["notes"])


def clerk_of(worker: subprocess.Popen[str]) -> int:
    """The process that a worker has its sessions scored by, once there is one."""
    until_s = time.monotonic() + 20
    while time.monotonic() < until_s:
        for task in Path(f"/proc/{worker.pid}/task").iterdir():
            for pid in (task / "children").read_text().split():
                with contextlib.suppress(OSError):
                    if b"voicebench.worker.clerk" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        return int(pid)
        time.sleep(0.02)
    raise AssertionError("the worker has no scoring process")


def test_a_killed_scoring_process_costs_no_session_and_no_recording(folder):
    with cluster(folder) as run:
        master = run.master("-u", "6", "-n", "24", "-w", "1", "--record", "all")
        worker = run.worker("a")
        wait_until_started(folder / "out", 8)  # the first have ended, others are in the middle
        os.kill(clerk_of(worker), signal.SIGKILL)
        assert_went_well(master)
        assert ended(worker)[0] == 0
    report = run.report()
    assert run.seen_by_the_agent() == Counter(range(24))
    assert report["accounting"]["finished"] == 24
    assert any(
        "the scoring process died once; what it had not done was done again" in n for n in report["run"]["notes"]
    )
    bundles = [f"out/{session['bundle']}" for session in report["sessions"]]
    assert len(bundles) == 24
    again = json.loads(voicebench("score", *bundles, "--json", cwd=folder).stdout)
    assert again["summary"] == report["summary"]


def test_a_worker_that_joins_late_takes_over_callers_and_no_session_is_placed_twice(folder):
    with cluster(folder) as run:
        master = run.master("-u", "6", "-t", "14s", "-w", "1")
        run.worker("early")
        wait_until_started(folder / "out", 6)
        run.worker("late")
        assert_went_well(master)
    report, seen = run.report(), run.seen_by_the_agent()
    assert set(seen.values()) == {1}
    assert len(seen) == report["accounting"]["started"]
    assert report["accounting"]["by_worker"]["late"]["started"] > 0
    assert report["run"]["complete"] is True


def test_a_worker_that_leaves_politely_hands_in_everything_and_the_others_go_on(folder):
    with cluster(folder) as run:
        master = run.master("-u", "6", "-n", "24", "-w", "2")
        run.worker("stays")
        leaves = run.worker("leaves")
        wait_until_started(folder / "out", 6)
        leaves.send_signal(signal.SIGINT)
        exit_code, stderr = ended(leaves)
        assert exit_code == 130, stderr
        assert_went_well(master)
    report = run.report()
    assert run.seen_by_the_agent() == Counter(range(24))
    assert (report["accounting"]["finished"], report["run"]["complete"]) == (24, True)
    assert {each["id"]: each["state"] for each in report["workers"]} == {"stays": "done", "leaves": "left"}


def test_a_killed_workers_sessions_are_lost_and_the_run_says_so(folder):
    with cluster(folder) as run:
        master = run.master("-u", "6", "-t", "9s", "-w", "2")
        run.worker("stays")
        dies = run.worker("dies")
        wait_until_started(folder / "out", 6)
        dies.kill()
        exit_code, stderr = ended(master)
    assert exit_code == 4, stderr
    report, seen = run.report(), run.seen_by_the_agent()
    found = report["accounting"]
    assert found["lost"] >= 1
    assert set(seen.values()) == {1}
    assert found["started"] <= len(seen) <= found["started"] + found["maybe_started"]
    assert report["run"]["complete"] is False
    assert any("worker dies was lost" in reason for reason in report["run"]["reasons"])
    assert report["accounting"]["by_worker"]["stays"]["lost"] == 0
    assert [each["outcome"]["state"] for each in report["sessions"]].count("lost") == found["lost"]


@pytest.mark.parametrize("nth", range(CLEAN_ENDS))
def test_a_clean_end_under_load_loses_nothing_with_turns_as_long_as_the_stop_timeout(folder, nth):
    with cluster(folder) as run:
        master = run.master("-u", "16", "-t", "2s", "-w", "2", "--stop-timeout", "1500ms")
        run.worker("a")
        run.worker("b")
        assert_went_well(master)
    found, seen = run.report()["accounting"], run.seen_by_the_agent()
    assert found["lost"] == found["maybe_started"] == 0
    assert set(seen) == set(range(found["started"])) or sum(seen.values()) == found["started"]
    assert set(seen.values()) == {1}


@pytest.mark.parametrize("n_signals", [1, 2])
def test_ctrl_c_at_the_master_ends_all_workers_and_loses_nothing(folder, n_signals):
    with cluster(folder) as run:
        master = run.master("-u", "6", "-t", "5m", "-w", "2")
        workers = [run.worker("a"), run.worker("b")]
        wait_until_started(folder / "out", 6)
        for _ in range(n_signals):
            master.send_signal(signal.SIGINT)
            time.sleep(0.3)
        exit_code, stderr = ended(master)
        assert went_well(exit_code, stderr, expected=130), stderr
        assert [ended(worker)[0] for worker in workers] == [0, 0]
    found = run.report()["accounting"]
    assert sum(run.seen_by_the_agent().values()) == found["started"]
    assert found["lost"] == 0
    assert (found["cut"] > 0) == (n_signals == 2)


def test_a_worker_told_twice_to_go_cuts_its_sessions_and_hands_them_in(folder):
    with cluster(folder) as run:
        master = run.master("-u", "6", "-t", "6s", "-w", "2")
        run.worker("stays")
        leaves = run.worker("leaves")
        wait_until_started(folder / "out", 6)
        for _ in range(2):
            leaves.terminate()
            time.sleep(0.2)
        exit_code, stderr = ended(leaves)
        assert exit_code == 143, stderr
        assert_went_well(master)
    found = run.report()["accounting"]
    assert found["by_worker"]["leaves"]["cut"] >= 1
    assert found["by_worker"]["stays"]["cut"] == found["lost"] == 0


def test_a_third_ctrl_c_waits_for_nobody_and_counts_what_is_missing(folder):
    with cluster(folder) as run:
        master = run.master("-u", "4", "-t", "5m", "-w", "2")
        run.worker("a")
        stopped = run.worker("stopped")
        wait_until_started(folder / "out", 4)
        stopped.send_signal(signal.SIGSTOP)
        for _ in range(3):
            master.send_signal(signal.SIGINT)
            time.sleep(0.3)
        exit_code, stderr = ended(master)
        assert exit_code == 4, stderr
    report = run.report()
    assert report["accounting"]["by_worker"]["stopped"]["lost"] >= 1
    assert "a third time" in json.dumps(report["events"])


def test_enter_starts_with_the_workers_that_are_ready(folder):
    with cluster(folder) as run:
        command = [
            *VOICEBENCH,
            "master",
            "talk.yaml",
            "--url",
            run.url,
            "-n",
            "2",
            "--wait",
            "--bind",
            "127.0.0.1:0",
            "--out",
            "out",
        ]
        master = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        run.processes.append(master)
        assert master.stderr is not None
        assert master.stdin is not None
        lines = iter(master.stderr)
        run.address = next(line.split()[2].rstrip(",") for line in lines if line.startswith("listening"))
        run.worker("a")
        assert any(line.startswith("join: a") for line in lines)
        assert not (folder / "out" / "run.db").exists()
        master.stdin.write("\n")
        master.stdin.flush()
        assert_went_well(master)
    assert run.report()["accounting"]["finished"] == 2


def test_workers_wait_for_a_master_that_starts_later(folder):
    with cluster(folder) as run:
        with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
            port = socket.bind_to_random_port("tcp://127.0.0.1")
        run.address = f"127.0.0.1:{port}"
        run.worker("first")
        master = run.master("-n", "2", "--bind", run.address)
        assert_went_well(master)
    assert run.seen_by_the_agent() == Counter(range(2))


@pytest.mark.parametrize(("version", "side"), [("0.2.9", "worker"), ("99.0.0", "master")])
def test_another_version_is_refused_and_told_which_side_to_upgrade(folder, version, side):
    pretend = f"import sys, voicebench; voicebench.__version__ = {version!r}; from voicebench.cli import main; sys.exit(main())"
    with cluster(folder) as run:
        run.master("-n", "1")
        worker = subprocess.run(
            [sys.executable, "-c", pretend, "worker", "--master", run.address],
            cwd=folder, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert worker.returncode == 2
    assert f"this worker is voicebench {version}" in worker.stderr
    assert f"upgrade the {side}" in worker.stderr


def test_garbage_at_the_port_stops_nobody(folder):
    with cluster(folder) as run:
        master = run.master("-n", "2")
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(f"tcp://{run.address}")
            for data in (
                b"",
                b"\xff" * 1000,
                b"\x81\xa4kind\xa4beat",
                b"GET / HTTP/1.1\r\n\r\n",
                b"\xdd\xff\xff\xff\xff",
            ):
                for parts in ([data], [data, data, data], [b""] * 50):
                    socket.send_multipart(parts)
            run.worker("a")
            assert_went_well(master)
    assert run.report()["accounting"]["finished"] == 2


def test_an_agent_that_no_worker_reaches_is_told_before_the_run_begins(folder):
    run = Cluster(folder, "ws://127.0.0.1:9/")
    master = run.master("-n", "2")
    worker = run.worker("a")
    exit_code, stderr = ended(master)
    assert exit_code == 3
    assert "127.0.0.1:9 refused the connection" in stderr
    assert not (folder / "out").exists()
    assert ended(worker)[0] == 3


def test_a_variable_of_the_agents_options_comes_from_the_workers_environment(folder):
    scenario = SCENARIO.format(adapter="{type: websocket, options: {url: '${NOT_SET_HERE}'}}")
    (folder / "talk.yaml").write_text(scenario)
    run = Cluster(folder, "")
    master = run._start("master", "talk.yaml", "--bind", "127.0.0.1:0", "--out", "out")
    assert master.stderr is not None
    run.address = next(line.split()[2].rstrip(",") for line in master.stderr if line.startswith("listening"))
    worker = run.worker("a")
    exit_code, stderr = ended(worker)
    assert (exit_code, ended(master)[0]) == (2, 2)
    assert "NOT_SET_HERE is not set" in stderr


def test_expected_workers_that_do_not_come_end_the_wait(folder):
    run = Cluster(folder, "ws://127.0.0.1:9/")
    master = run.master("-n", "2", "-w", "2", "--join-timeout", "500ms")
    exit_code, stderr = ended(master)
    assert exit_code == 4
    assert "of 2 workers 0 came and could begin within" in stderr


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--bind", "0.0.0.0:5557"), "--insecure if that is all right on this network"),
        (("--bind", "no such host"), "is no address"),
        (("--bind", "example.com"), "is a name: give an IP address of this machine"),
        (("--bind", "127.0.0.1:99999"), "no port"),
        (("--bind", "192.0.2.1:5557", "--insecure"), "can't listen at"),
        (("-w", "0"), "-w/--expect-workers"),
    ],
)
def test_a_wrong_call_of_master_is_exit_2_and_a_sentence(folder, flags, told):
    done = voicebench("master", "talk.yaml", *flags, cwd=folder)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "voicebench-results").exists()
