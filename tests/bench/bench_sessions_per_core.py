"""bench_sessions_per_core.py [SESSIONS...]: how many real-time sessions one worker process holds, and at what price.

An agent in C (`c/agent.c`, built here) on core 0 with the master, one worker on core 1; a dozen sessions start and end in a
second, recordings of failed ones are kept. Beside it the same work done by a client in C: what this machine allows at best.
Windows of a minute after everybody has joined; what is printed is their median. A number of sessions is held when fewer than
one turn in a thousand is unreliable, no frame was later than 50 ms and the core was less than 80 % busy.

Measured latencies are set beside the agent's own log: their p99 is to be within 5 ms.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.support.processes import VOICEBENCH
from tests.support.truth import errors_ms, read_truth

SOURCES = Path(__file__).parent / "c"
FRAME_MS = 20.0
CHURN_PER_S = 12.0
TURN_S = 3.86
"""A second of speech, 0.5 s to the answer, 2 s of answer, 0.05 s of its end being sure, 0.3 s of pause."""
SETTLE_S = 5.0
HELD = {"unreliable_share": 0.001, "frame_late_max_ms": 50.0, "cpu": 0.80}
ERROR_P99_BUDGET_MS = 5.0


def build(folder: Path) -> None:
    for name in ("agent", "client"):
        command = ["cc", "-O2", "-o", str(folder / name), str(SOURCES / f"{name}.c"), "-lm"]
        subprocess.run(command, check=True)


@contextlib.contextmanager
def an_agent(folder: Path) -> Iterator[int]:
    """The agent in C on core 0; its port. Its truth log is `truth.jsonl`, complete once it has ended."""
    agent = subprocess.Popen(
        ["taskset", "-c", "0", str(folder / "agent"), "0", str(folder / "truth.jsonl")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert agent.stdout is not None
    try:
        yield int(agent.stdout.readline().split()[1])
    finally:
        agent.send_signal(signal.SIGTERM)
        print(f"  the agent: {agent.communicate()[0].strip()}")


def cpu_s(pids: list[int]) -> float:
    used = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            used += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used


def family(pid: int) -> list[int]:
    """A process and its children."""
    found = [pid]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += family(int(child))
    return found


def rss_mb(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total / 1e6


def scenario(n_sessions: int) -> str:
    n_turns = max(2, round(n_sessions / CHURN_PER_S / TURN_S))
    turns = "\n".join(
        f"  - {{id: t{n}, audio: {{synth: speech, duration_ms: 1000, seed: {n}}}, start: {{after: agent_speech_end, delay_ms: 300}}}}"
        for n in range(1, n_turns)
    )
    return (
        "name: many\ntail_ms: 200\ndefaults: {response_timeout_ms: 2500}\nturns:\n"
        "  - {id: t0, audio: {synth: speech, duration_ms: 1000}, start: {after: session_start, delay_ms: 300}}\n"
        + turns
    )


def voicebench(folder: Path, n_sessions: int, window_s: float, windows: int, flags: list[str]) -> dict[str, Any]:
    (folder / "many.yaml").write_text(scenario(n_sessions))
    out = folder / f"out-{time.monotonic_ns()}"
    ramp_s = n_sessions / CHURN_PER_S + SETTLE_S
    with an_agent(folder) as port:
        master = subprocess.Popen(
            ["taskset", "-c", "0", *VOICEBENCH, "master", "many.yaml", "--url",
             f"ws://127.0.0.1:{port}/?session={{session_id}}", "-u", str(n_sessions), "-r", f"{CHURN_PER_S:g}/s",
             "--warmup", f"{ramp_s:g}s", "-t", f"{ramp_s + window_s * windows:g}s", "--stop-timeout", "1s", "--bind",
             "127.0.0.1:0", "--headless", "--out", str(out), "-q", *flags],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert master.stderr is not None
        address = ""
        while not address:
            line = master.stderr.readline()
            if not line:
                raise SystemExit("the master did not come up")
            address = "".join(re.findall(r"listening at (\S+),", line))
        worker = subprocess.Popen(
            ["taskset", "-c", "1", *VOICEBENCH, "worker", "--master", address, "-q"],
            cwd=folder,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(ramp_s + 2.0)
        used, held_mb = [], []
        for _ in range(windows):
            before_s = cpu_s(family(worker.pid))
            time.sleep(window_s - 1.0)
            used.append((cpu_s(family(worker.pid)) - before_s) / (window_s - 1.0))
            held_mb.append(rss_mb(family(worker.pid)))
        said = master.communicate()[1]
        worker.wait(timeout=60)
    if not (out / "report.json").is_file():
        raise SystemExit(f"no report: {said}")
    report = json.loads((out / "report.json").read_text())
    whole = {**report, "sessions": [each for each in report["sessions"] if each["outcome"]["state"] == "finished"]}
    errors = np.abs(errors_ms(whole, read_truth(folder / "truth.jsonl"), FRAME_MS))
    summary, late = report["summary"], report["workers"][0]["frame_lateness_ms"]
    return {
        "cpu": median(used),
        "ms_per_session_s": 1000.0 * median(used) / n_sessions,
        "late_ms": late,
        "unreliable": summary["unreliable_turns"],
        "turns": summary["turns"],
        "accounting": {key: report["accounting"][key] for key in ("started", "finished", "failed", "cut", "lost")},
        "error_ms": {"p50": float(np.percentile(errors, 50)), "p99": float(np.percentile(errors, 99)), "max": float(errors.max())}
        if len(errors) else None,
        "n_errors": len(errors),
        "rss_mb": held_mb,
    }  # fmt: skip


def show(n_sessions: int, found: dict[str, Any]) -> bool:
    share = found["unreliable"] / max(1, found["turns"])
    held = (
        share < HELD["unreliable_share"]
        and found["late_ms"]["max"] <= HELD["frame_late_max_ms"]
        and found["cpu"] < HELD["cpu"]
        and found["accounting"]["failed"] == 0
    )
    error = found["error_ms"] or {"p50": float("nan"), "p99": float("nan"), "max": float("nan")}
    print(
        f"sessions={n_sessions} {'held' if held else 'NOT HELD'} cpu={100 * found['cpu']:.1f}% "
        f"ms_per_session_s={found['ms_per_session_s']:.3f} late_ms p50={found['late_ms']['p50']} p99={found['late_ms']['p99']} "
        f"max={found['late_ms']['max']} unreliable={found['unreliable']}/{found['turns']} ({100 * share:.2f}%) "
        f"error_ms p50={error['p50']:.2f} p99={error['p99']:.2f} max={error['max']:.2f} n={found['n_errors']} "
        f"budget_p99={ERROR_P99_BUDGET_MS:g} {'ok' if error['p99'] <= ERROR_P99_BUDGET_MS else 'OVER'} "
        f"rss_mb={'/'.join(f'{each:.0f}' for each in found['rss_mb'])} {found['accounting']}",
        flush=True,
    )
    return held


def client_in_c(folder: Path, n_sessions: int, window_s: float, windows: int) -> float:
    """CPU milliseconds a session-second."""
    with an_agent(folder) as port:
        done = subprocess.run(
            ["taskset", "-c", "1", str(folder / "client"), str(port), str(n_sessions), f"{window_s:g}", str(windows),
             f"{CHURN_PER_S:g}"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    lines = [dict(re.findall(r"(\w+)=([\d.]+)", line)) for line in done.stdout.splitlines()]
    figures = {key: median(float(line[key]) for line in lines) for key in lines[0]}
    worst = max(float(line["late_max"]) for line in lines)
    print(
        f"c_client sessions={n_sessions} cpu={100 * figures['cpu']:.1f}% ms_per_session_s={figures['ms_per_session_s']:.3f} "
        f"late_ms p50={figures['late_p50']:.2f} p99={figures['late_p99']:.2f} max={worst:.2f}",
        flush=True,
    )
    return figures["ms_per_session_s"]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("sessions", nargs="*", type=int, default=[100, 300, 500, 600])
    options.add_argument("--window-s", type=float, default=60.0)
    options.add_argument("--windows", type=int, default=3)
    options.add_argument("--c-sessions", type=int, default=600, help="0: without the client in C")
    options.add_argument("--record", default="failed")
    chosen = options.parse_args()
    os.sched_setaffinity(0, {0})
    print(f"machine: {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder)
        c_ms = client_in_c(folder, chosen.c_sessions, chosen.window_s, chosen.windows) if chosen.c_sessions else None
        most = 0
        for n_sessions in chosen.sessions:
            found = voicebench(folder, n_sessions, chosen.window_s, chosen.windows, ["--record", chosen.record])
            if show(n_sessions, found):
                most = max(most, n_sessions)
            if c_ms:
                print(f"  times the client in C: {found['ms_per_session_s'] / c_ms:.2f} (budget 2.0)", flush=True)
        print(f"most_sessions_held={most} budget=600 {'ok' if most >= 600 else 'UNDER'}")


if __name__ == "__main__":
    sys.exit(main())
