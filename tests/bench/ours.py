"""One run of voicebench as the benchmarks place it: master on core 0, worker or workers on core 1, steady churn."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.bench.agent import AGENT_CPU, WORKER_CPU, Agent, an_agent
from tests.bench.machine import family, watch_windows
from tests.support.processes import VOICEBENCH
from tests.support.truth import errors_ms, read_truth
from voicebench.distribution import Distribution

FRAME_MS = 20.0
CHURN_PER_S = 12.0
TURN_S = 3.86
"""A second of speech, 0.5 s to the answer, 2 s of answer, 0.05 s of its end being sure, 0.3 s of pause."""
SETTLE_S = 5.0
SOON_S = 2.0
"""From the first address to the first session."""
UNRELIABLE_SHARE, FRAME_LATE_MAX_MS, CPU_SHARE = 0.001, 50.0, 0.80
"""A number of sessions is held when it stays below these."""


@dataclass(frozen=True)
class Load:
    """What is placed, and how long it is watched."""

    sessions: int
    window_s: float
    windows: int
    tls: bool = False
    workers: int = 1
    record: str = "failed"
    join_per_s: float = CHURN_PER_S

    @property
    def ramp_s(self) -> float:
        """After this everybody has joined."""
        return self.sessions / self.join_per_s + SETTLE_S

    @property
    def run_s(self) -> float:
        return self.ramp_s + self.window_s * self.windows

    @property
    def turns(self) -> int:
        """Of a session that lasts so long that `join_per_s` of them start and end in a second."""
        return max(2, round(self.sessions / self.join_per_s / TURN_S))


@dataclass(frozen=True)
class Found:
    """What came of it."""

    load: Load
    cpu: float
    """Share of a core, median of the windows; all workers together."""
    rss_mb: list[float]
    late_ms: dict[str, float]
    unreliable: int
    turns: int
    errors_ms: np.ndarray
    """Measured latencies minus the agent's own log, each without its sign."""
    vouched_ms: np.ndarray
    """The same of the turns that are said to be reliable."""
    accounting: dict[str, int]

    @property
    def ms_per_session_s(self) -> float:
        return 1000.0 * self.cpu / self.load.sessions

    @property
    def unreliable_share(self) -> float:
        return self.unreliable / self.turns

    @property
    def error_p99_ms(self) -> float:
        return float(np.percentile(self.errors_ms, 99))

    @property
    def held(self) -> bool:
        return (
            self.unreliable_share < UNRELIABLE_SHARE
            and self.late_ms["max"] <= FRAME_LATE_MAX_MS
            and self.cpu < CPU_SHARE
            and self.accounting["failed"] == 0
        )

    def line(self) -> str:
        error = np.percentile(self.errors_ms, [50, 99, 100])
        return (
            f"cpu={100 * self.cpu:.1f}% ms_per_session_s={self.ms_per_session_s:.3f} late_ms p50={self.late_ms['p50']:g} "
            f"p99={self.late_ms['p99']:g} max={self.late_ms['max']:g} unreliable={self.unreliable}/{self.turns} "
            f"({100 * self.unreliable_share:.2f}%) error_ms p50={error[0]:.2f} p99={error[1]:.2f} max={error[2]:.2f} "
            f"reliable_max={self.vouched_ms.max(initial=0.0):.2f} "
            f"n={len(self.errors_ms)} rss_mb={'/'.join(f'{each:.0f}' for each in self.rss_mb)} {self.accounting} "
            f"{'held' if self.held else 'NOT HELD'}"
        )


def conversation(n_turns: int, agent: Agent, folder: Path) -> str:
    """A scenario of so many turns of `TURN_S`."""
    turns = "\n".join(
        f"  - {{id: t{n}, audio: {{synth: speech, duration_ms: 1000, seed: {n}}}, start: {{after: agent_speech_end, delay_ms: 300}}}}"
        for n in range(1, n_turns)
    )
    options = f'url: "{agent.url}"' + (f', ca_file: "{folder / "ca.pem"}"' if agent.tls else "")
    return (
        f"name: many\ntail_ms: 200\ndefaults: {{response_timeout_ms: 2500}}\n"
        f"adapter: {{type: websocket, options: {{{options}}}}}\nturns:\n"
        "  - {id: t0, audio: {synth: speech, duration_ms: 1000}, start: {after: session_start, delay_ms: 300}}\n"
        + turns
    )


def steadily(load: Load) -> list[str]:
    """The master's options for a load of which the first part only fills the worker."""
    return [
        "-u", str(load.sessions), "-r", f"{load.join_per_s:g}/s", "--warmup", f"{load.ramp_s:g}s", "-t", f"{load.run_s:g}s",
        "--stop-timeout", "1s", "-w", str(load.workers), "--record", load.record,
    ]  # fmt: skip


@contextmanager
def running(folder: Path, scenario: str, options: Sequence[str], n_workers: int = 1) -> Iterator[Run]:
    """The programs, started; killed in the end if they still are there."""
    (folder / "many.yaml").write_text(scenario)
    out = folder / f"out-{time.monotonic_ns()}"
    master = subprocess.Popen(
        ["taskset", "-c", str(AGENT_CPU), *VOICEBENCH, "master", "many.yaml", *options, "--bind", "127.0.0.1:0", "--headless",
         "--out", str(out), "-q"],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    workers: list[subprocess.Popen[bytes]] = []
    try:
        address = _address(master)
        command = ["taskset", "-c", str(WORKER_CPU), *VOICEBENCH, "worker", "--master", address, "-q"]
        workers += [subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL) for _ in range(n_workers)]
        yield Run(master, workers, out)
    finally:
        for process in [*workers, master]:
            if process.poll() is None:
                process.kill()
                process.wait()


def _address(master: subprocess.Popen[str]) -> str:
    assert master.stderr is not None
    for line in master.stderr:
        found = re.search(r"listening at (\S+),", line)
        if found:
            return found[1]
    raise SystemExit("the master did not come up")


@dataclass(frozen=True)
class Run:
    """A master and its workers."""

    master: subprocess.Popen[str]
    workers: Sequence[subprocess.Popen[bytes]]
    out: Path

    def pids(self) -> list[int]:
        """The workers' processes."""
        return [pid for worker in self.workers for pid in family(worker.pid)]

    def report(self) -> dict[str, Any]:
        """Once it is over."""
        said = self.master.communicate(timeout=120)[1]
        for worker in self.workers:
            worker.wait(timeout=60)
        if not (self.out / "report.json").is_file():
            raise SystemExit(f"no report: {said}")
        report: dict[str, Any] = json.loads((self.out / "report.json").read_text())
        return report


def hold(folder: Path, load: Load) -> Found:
    """Place the load and watch it."""
    with (
        an_agent(folder, tls=load.tls) as agent,
        running(folder, conversation(load.turns, agent, folder), steadily(load), load.workers) as run,
    ):
        time.sleep(load.ramp_s + SOON_S)
        used, held_mb = watch_windows(run.pids, load.window_s - 1.0, load.windows)
        report = run.report()
    sessions = [each for each in stored_sessions(run.out) if not each["warmup"]]
    turns = [turn for each in sessions for turn in each["record"]["turns"]]
    judged = [turn["reliable"] for turn in turns if turn["status"] in ("measured", "missed")]
    told, late_ms = _told_of(sessions, read_truth(folder / "truth.jsonl")), late_of(sessions)
    errors = errors_ms(*told, FRAME_MS)
    if not errors or late_ms is None:
        raise SystemExit(f"no turn was measured in {load.window_s * load.windows:g} s: {report['accounting']}")
    return Found(
        load=load,
        cpu=median(used),
        rss_mb=held_mb,
        late_ms=late_ms,
        unreliable=judged.count(False),
        turns=len(judged),
        errors_ms=np.abs(errors),
        vouched_ms=np.abs(errors_ms(*told, FRAME_MS, reliable_only=True)),
        accounting=counted(report),
    )


def counted(report: dict[str, Any]) -> dict[str, int]:
    """What became of the sessions."""
    return {key: report["accounting"][key] for key in ("started", "finished", "failed", "cut", "lost")}


def stored_sessions(out: Path, after_seq: int = -1) -> list[dict[str, Any]]:
    """Results in the database of a run of one worker or several, in the order in which they came; of a run that is going
    on, those that came after this one."""
    with contextlib.closing(sqlite3.connect(f"file:{out / 'run.db'}?mode=ro", uri=True, timeout=30)) as db:
        rows = db.execute("SELECT result, seq FROM sessions WHERE seq > ? ORDER BY seq", [after_seq]).fetchall()
    return [{**json.loads(result), "seq": seq} for result, seq in rows]


def late_of(sessions: Sequence[dict[str, Any]]) -> dict[str, float] | None:
    """How late the frames of these sessions went out; None: there are none."""
    late = Distribution()
    for each in sessions:
        late.update(Distribution.from_counts({int(ticks): count for ticks, count in each["lateness"].items()}))
    return {name: late.percentile(at) for name, at in (("p50", 50), ("p99", 99), ("max", 100))} if late.count else None


def _told_of(
    sessions: Sequence[dict[str, Any]], truth: dict[str, list[dict[str, Any]]]
) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """The sessions that may be compared with the log: those that finished, and those that the end of the run cut, without
    the reply that the agent had begun and that was cut with them."""
    records, told = [], {}
    for record in (each["record"] for each in sessions):
        if record["outcome"]["state"] not in ("finished", "cut"):
            continue
        events = truth.get(record["session_id"], [])
        n_answered = sum(turn["response_latency_ms"] is not None for turn in record["turns"])
        if record["outcome"]["state"] == "cut":
            replies = [n for n, event in enumerate(events) if event["event"] == "first_audio"]
            events = events[: replies[n_answered]] if len(replies) == n_answered + 1 else events
        records.append(record)
        told[record["session_id"]] = events
    return {"sessions": records}, told
