"""bench_memory.py: what a live session costs a worker in memory, while all are recorded (`--record all`).

All join quickly, each holds one conversation of two minutes with the agent in C, nobody calls again. Budgets: 256 KB a
live session beyond what the worker holds before the first, nothing more after its first minute, and below 600 MB with 600
sessions of two minutes. Memory is read each second, that of the worker and that of processes it has started apart. What it
holds before the first session is read until a beat tells of one: at most a second of sessions is in it.

    --sessions 100 --length-s 60      a look
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench import machine
from tests.bench.agent import AGENT_CPU, an_agent, build
from tests.bench.machine import MissingError, rss_mb, verdict
from tests.bench.ours import TURN_S, Run, conversation, counted, running
from tests.support.drift import trend

SESSIONS, LENGTH_S, JOIN_PER_S = 600, 120.0, 30.0
SESSION_BUDGET_KB, WORKER_BUDGET_MB, SETTLED_AFTER_S = 256.0, 600.0, 60.0
FLAT_SHARE = 0.02
"""Growth of the whole process, from a session's first minute to its end, that is none."""
BYTES_PER_S = 2 * 2 * 16000
"""Of two tracks on disk; as much again waits to be fetched."""
LOOK_S, LINE_S = 0.2, 10.0


@dataclass(frozen=True)
class Look:
    """A moment."""

    at_s: float
    """Since the first session was seen."""
    live: int
    worker_mb: float
    children_mb: float

    def __str__(self) -> str:
        return f"t={self.at_s:.0f}s live={self.live} worker_mb={self.worker_mb:.1f} children_mb={self.children_mb:.1f}"


def live(run: Run) -> int:
    """Sessions going on, by the last beat."""
    with (
        contextlib.suppress(sqlite3.OperationalError),  # the database is made a moment after the address is told
        contextlib.closing(sqlite3.connect(f"file:{run.out / 'run.db'}?mode=ro", uri=True, timeout=30)) as db,
    ):
        row = db.execute("SELECT live FROM samples ORDER BY t_s DESC LIMIT 1").fetchone()
        return row[0] if row else 0
    return 0


def look(run: Run, began_s: float) -> Look:
    worker, *children = run.pids()
    return Look(time.monotonic() - began_s, live(run), rss_mb([worker]), rss_mb(children))


def watch(run: Run) -> tuple[Look, list[Look]]:
    """The last look before the first session, and one a second until the last has ended."""
    before, looks = look(run, time.monotonic()), []
    while not (first := look(run, time.monotonic())).live:
        if run.master.poll() is not None:
            raise SystemExit("the run ended before it began")
        before = first
        time.sleep(LOOK_S)
    began_s = time.monotonic()
    while run.master.poll() is None and run.workers[0].poll() is None:
        found = look(run, began_s)
        if not found.worker_mb:
            break
        looks.append(found)
        if len(looks) % LINE_S == 1:
            print(found, flush=True)
        time.sleep(max(0.0, began_s + len(looks) - time.monotonic()))
    return before, looks


def measure(folder: Path, sessions: int, length_s: float, join_per_s: float, record: str) -> None:
    n_turns = max(2, round(length_s / TURN_S))
    options = ["-u", str(sessions), "-r", f"{join_per_s:g}/s", "--record", record]
    with an_agent(folder) as agent, running(folder, conversation(n_turns, agent, folder), options) as run:
        before, looks = watch(run)
        report = run.report()
    print(f"sessions: {counted(report)}, {report['summary']['unreliable_turns']} turns unreliable")
    full = [each for each in looks if each.live == sessions]
    if not full:
        raise SystemExit(f"at no moment were all {sessions} sessions live: let them last longer or join faster")
    print_figures(before, looks, full, sessions, length_s)


def print_figures(before: Look, looks: Sequence[Look], full: Sequence[Look], sessions: int, length_s: float) -> None:
    """What it came to, against the budgets."""
    base_mb = before.worker_mb + before.children_mb
    peak = max(looks, key=lambda each: each.worker_mb + each.children_mb)
    peak_mb = peak.worker_mb + peak.children_mb
    fullest_mb = max(each.worker_mb + each.children_mb for each in full)
    session_kb = 1000 * (fullest_mb - base_mb) / sessions
    print(f"before_mb={base_mb:.1f}")
    print(f"session_kb={session_kb:.0f} sessions={sessions} {verdict(session_kb, SESSION_BUDGET_KB, at_most=True)}")
    whole = sessions == SESSIONS and length_s >= LENGTH_S
    told = verdict(peak_mb, WORKER_BUDGET_MB, at_most=True) if whole else f"(budget for {SESSIONS} of {LENGTH_S:g} s)"
    print(f"peak_mb={peak_mb:.1f} at t={peak.at_s:.0f}s, children {peak.children_mb:.1f} {told}")
    settled = [each for each in full if each.at_s >= full[0].at_s + SETTLED_AFTER_S]
    if len(settled) < 3:
        print("flat: not measured, all sessions must be live for more than a minute")
        return
    grown = trend([each.at_s for each in settled], [each.worker_mb + each.children_mb for each in settled])
    over_s, allowed_mb = settled[-1].at_s - settled[0].at_s, FLAT_SHARE * grown.first
    print(
        f"flat: growth_mb={grown.growth:.1f} in {over_s:.0f} s after the first minute, "
        f"{1000 * grown.growth / over_s / sessions:.2f} KB/s a session {verdict(grown.growth, allowed_mb, at_most=True)}"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sessions", type=int, default=SESSIONS)
    options.add_argument("--length-s", type=float, default=LENGTH_S)
    options.add_argument("--join-per-s", type=float, default=JOIN_PER_S)
    options.add_argument("--record", default="all", choices=("all", "failed", "none"))
    chosen = options.parse_args()
    os.sched_setaffinity(0, {AGENT_CPU})
    print(f"machine: {machine.named()}")
    with tempfile.TemporaryDirectory() as name:
        try:
            build(Path(name))
            needed = 2 * chosen.sessions * chosen.length_s * BYTES_PER_S if chosen.record == "all" else 0
            if shutil.disk_usage(name).free < needed:
                raise MissingError(f"recordings want {needed / 1e9:.1f} GB, more than {name} has free (set TMPDIR)")
        except MissingError as missing:
            raise SystemExit(f"can't be measured here: {missing}") from missing
        measure(Path(name), chosen.sessions, chosen.length_s, chosen.join_per_s, chosen.record)


if __name__ == "__main__":
    main()
