"""A load generator that stands still, as people meet it: an adapter that waits without gevent's knowing."""

import json
import os
import sqlite3
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.support.processes import VOICEBENCH, voicebench

pytestmark = [pytest.mark.slow, pytest.mark.alone]

BLOCK_S = 3.0
ADAPTER = f"""\
import contextlib, pathlib, time

import gevent
import gevent.monkey
import numpy

from voicebench.worker.adapters import Audio

c_librarys_sleep = gevent.monkey.get_original("time", "sleep")


class Silent:
    blocks = False

    def connect(self, timeout_s):
        self.frames = 0

    def send(self, samples):
        self.frames += 1

    def receive(self, timeout_s):
        gevent.sleep(0.02)
        return None

    def close(self):
        pass


class Blocking(Silent):
    def receive(self, timeout_s):
        if self.frames > 25 and not pathlib.Path("began").exists():
            pathlib.Path("began").write_text(str(time.monotonic()))
            c_librarys_sleep({BLOCK_S})
            pathlib.Path("ended").write_text(str(time.monotonic()))
        return super().receive(timeout_s)


class BreaksTheLoop(Silent):
    def receive(self, timeout_s):
        if self.frames == 25:
            gevent.get_hub().loop.run_callback(lambda: 1 / 0)
        return super().receive(timeout_s)


class FailsInAThread(Silent):
    def receive(self, timeout_s):
        if self.frames == 25:
            with contextlib.suppress(ZeroDivisionError):
                gevent.get_hub().threadpool.apply(lambda: 1 / 0)
        return super().receive(timeout_s)
"""
SCENARIO = """\
name: quiet
tail_ms: 200
defaults: {{response_timeout_ms: 1000}}
turns:
  - {{id: ask, audio: {{synth: speech, duration_ms: 2000}}, start: {{after: session_start, delay_ms: 100}}}}
adapter: {{type: "mine:{name}"}}
"""


def folder_with(tmp_path: Path, name: str) -> Path:
    (tmp_path / "mine.py").write_text(ADAPTER)
    (tmp_path / "quiet.yaml").write_text(SCENARIO.format(name=name))
    return tmp_path


def with_times(stream) -> tuple[list[tuple[float, str]], threading.Thread]:
    """The lines of a stream, each with when it came, as a thread reads them."""
    lines: list[tuple[float, str]] = []
    reader = threading.Thread(target=lambda: lines.extend((time.monotonic(), line) for line in stream), daemon=True)
    reader.start()
    return lines, reader


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.Popen(
        [*VOICEBENCH, *arguments], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def share_of_block(folder: Path, at_s: float) -> float:
    began_s, ended_s = (float((folder / name).read_text()) for name in ("began", "ended"))
    return (at_s - began_s) / (ended_s - began_s)


def first(lines: list[tuple[float, str]], words: str) -> tuple[float, str]:
    found = [each for each in lines if words in each[1]]
    assert found, "".join(line for _, line in lines)
    return found[0]


def test_a_blocked_loop_is_told_while_it_stands_still_with_the_line_that_blocks_it(tmp_path):
    folder = folder_with(tmp_path, "Blocking")
    master = started(
        folder, "master", "quiet.yaml", "-u", "3", "-n", "3", "--bind", "127.0.0.1:0", "--headless", "--out", "out"
    )
    assert master.stderr is not None
    address = next(line.split()[2].rstrip(",") for line in master.stderr if line.startswith("listening at "))
    worker = started(folder, "worker", "--master", address, "--name", "w")
    at_master, reading_master = with_times(master.stderr)
    at_worker, reading_worker = with_times(worker.stderr)
    assert (master.wait(60), worker.wait(60)) == (4, 0)
    for process, reading in ((master, reading_master), (worker, reading_worker)):
        reading.join(5)
        process.stderr.close()

    at_s, _ = first(at_worker, "error: this worker's loop stands still")
    assert 0.3 < share_of_block(folder, at_s) < 0.75
    first(at_worker, "mine.py")
    first(at_worker, "c_librarys_sleep(3.0)")
    assert share_of_block(folder, first(at_worker, "this worker's loop turns again, after 3.")[0]) >= 1.0
    at_s, line = first(at_master, "blocked: w, since")
    assert share_of_block(folder, at_s) < 0.85
    assert "mine.py:" in line

    report = json.loads((folder / "out" / "report.json").read_text())
    assert report["run"]["verdict"] == "untrusted"
    assert report["accounting"]["reasons"] == {"generator": 3}
    assert report["workers"][0]["state"] == "done"  # beats went on, so nobody gave it up
    assert report["workers"][0]["health"]["worst_late_ms"] > 900 * BLOCK_S
    assert "blocked" in {each["event"] for each in report["events"]}
    with sqlite3.connect(folder / "out" / "run.db") as db:
        ages = [age for (age,) in db.execute("SELECT loop_age_s FROM samples ORDER BY t_s")]
    assert max(ages) > BLOCK_S / 3


def test_the_same_is_told_by_run_whose_workers_nobody_hears(tmp_path):
    folder = folder_with(tmp_path, "Blocking")
    run = started(folder, "run", "quiet.yaml", "-u", "1", "-n", "1", "--headless", "--out", "out")
    lines, reading = with_times(run.stderr)
    assert run.wait(60) == 4
    reading.join(5)
    run.stderr.close()
    at_s, line = first(lines, "blocked: local-1, since")
    assert share_of_block(folder, at_s) < 0.85
    assert "mine.py:" in line


def test_an_error_in_the_event_loop_itself_ends_the_run(tmp_path):
    folder = folder_with(tmp_path, "BreaksTheLoop")
    ended = voicebench(
        "run", "quiet.yaml", "-u", "2", "-n", "40", "--headless", "--out", "out", cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )  # fmt: skip
    assert ended.returncode == 4, ended.stderr
    report = json.loads((folder / "out" / "report.json").read_text())
    assert any("the load generator failed: ZeroDivisionError" in reason for reason in report["run"]["reasons"])
    assert report["accounting"]["started"] < 40


def test_what_fails_in_a_thread_of_the_pool_is_for_whoever_asked_for_it(tmp_path):
    folder = folder_with(tmp_path, "FailsInAThread")
    ended = voicebench(
        "run", "quiet.yaml", "-u", "2", "-n", "3", "--headless", "--out", "out", cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )  # fmt: skip
    report = json.loads((folder / "out" / "report.json").read_text())
    assert report["accounting"]["started"] == 3, ended.stderr
    assert report["accounting"]["reasons"] == {"no_audio": 3}
    assert "the load generator failed" not in ended.stderr
