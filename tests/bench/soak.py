"""soak.py: does a worker drift? Half an hour at a steady load against the agent in C, a dozen sessions starting and ending a
second.

Every ten seconds a line: how late the frames were of the sessions that ended in them, the worst lateness that the loop saw in
any of these seconds, memory, descriptors and threads of worker and master. In the end a line is laid through the last two
thirds; exit 1 when memory, descriptors, threads or lateness grow, or a session failed.

    --minutes 2 --sessions 100      a look
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench import machine
from tests.bench.agent import AGENT_CPU, an_agent, build, build_tls
from tests.bench.machine import MissingError, cpu_s, descriptors, family, rss_mb, threads
from tests.bench.ours import SOON_S, Load, Run, conversation, counted, late_of, running, steadily, stored_sessions
from tests.support.drift import trend

LINE_S = 10.0
LATE_TICKS = 100
"""10 ms: from here on a turn is unreliable."""
SETTLED_AFTER = 1 / 3
FLOORS = {
    "rss_mb": (5.0, 0.05),
    "master_rss_mb": (5.0, 0.05),
    "descriptors": (5.0, 0.02),
    "threads": (0.5, 0.0),
    "late_p99_ms": (1.0, 0.25),
}
"""What may come and go, at least, and as a share of what there is: less growth is no drift, however sure it is."""
MIN_LINES = 6


@dataclass(frozen=True)
class Line:
    """Ten seconds."""

    at_s: float
    live: int
    late_ms: dict[str, float] | None
    """None: no session ended in them."""
    late_frames: int
    frames: int
    worst_second_ms: float
    cpu: float
    rss_mb: float
    descriptors: int
    threads: int
    master_rss_mb: float

    @property
    def late_p99_ms(self) -> float | None:
        return None if self.late_ms is None else self.late_ms["p99"]

    def __str__(self) -> str:
        late = self.late_ms or dict.fromkeys(("p50", "p99", "max"), float("nan"))
        return (
            f"t={self.at_s:.0f}s live={self.live} lag_ms {' '.join(f'{name}={ms:.1f}' for name, ms in late.items())} "
            f"late_frames={self.late_frames}/{self.frames} worst_second_ms={self.worst_second_ms:.1f} "
            f"cpu={100 * self.cpu:.0f}% rss_mb={self.rss_mb:.1f} descriptors={self.descriptors} threads={self.threads} "
            f"master_rss_mb={self.master_rss_mb:.1f}"
        )


class Watch:
    """Looks at a run that is going on, again and again."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._began_s = self._before_s = time.monotonic()
        self._cpu_s = cpu_s(run.pids())
        self._seq, self._sample_s = -1, -1.0
        self._ended()
        self._loop()

    def line(self) -> Line:
        """Of the time since the line before."""
        sessions, (live, worst_ms) = self._ended(), self._loop()
        pids, now_s = self._run.pids(), time.monotonic()
        used_s, over_s = cpu_s(pids) - self._cpu_s, now_s - self._before_s
        self._cpu_s, self._before_s = self._cpu_s + used_s, now_s
        counts = [(int(ticks), count) for each in sessions for ticks, count in each["lateness"].items()]
        return Line(
            at_s=now_s - self._began_s,
            live=live,
            late_ms=late_of(sessions),
            late_frames=sum(count for ticks, count in counts if ticks >= LATE_TICKS),
            frames=sum(count for _, count in counts),
            worst_second_ms=worst_ms,
            cpu=used_s / over_s,
            rss_mb=rss_mb(pids),
            descriptors=descriptors(pids),
            threads=threads(pids),
            master_rss_mb=rss_mb(family(self._run.master.pid)),
        )

    def _ended(self) -> list[dict]:  # type: ignore[type-arg]
        sessions = stored_sessions(self._run.out, self._seq)
        self._seq = max((each["seq"] for each in sessions), default=self._seq)
        return sessions

    def _loop(self) -> tuple[int, float]:
        """How many sessions it holds, and the worst it saw since it was asked last."""
        with contextlib.closing(
            sqlite3.connect(f"file:{self._run.out / 'run.db'}?mode=ro", uri=True, timeout=30)
        ) as db:
            rows = db.execute(
                "SELECT t_s, live, worst_late_ms FROM samples WHERE t_s > ? ORDER BY t_s", [self._sample_s]
            ).fetchall()
        if not rows:
            return 0, 0.0
        self._sample_s, live, _ = rows[-1]
        return live, max(worst or 0.0 for _, _, worst in rows)


def soak(folder: Path, load: Load) -> int:
    """The exit code."""
    lines: list[Line] = []
    with (
        an_agent(folder, tls=load.tls) as agent,
        running(folder, conversation(load.turns, agent, folder), steadily(load)) as run,
    ):
        time.sleep(load.ramp_s + SOON_S)
        watch, began_s = Watch(run), time.monotonic()
        for n in range(1, int(load.window_s / LINE_S) + 1):
            time.sleep(max(0.0, began_s + n * LINE_S - SOON_S - time.monotonic()))
            if any(process.poll() is not None for process in [run.master, *run.workers]):
                print(f"a program has ended after {time.monotonic() - began_s:.0f} s, too soon", flush=True)
                return 1
            lines.append(watch.line())
            print(lines[-1], flush=True)
        accounting = counted(run.report())
    print(f"sessions: {accounting}")
    lost = accounting["failed"] + accounting["lost"]
    if lost:
        print(f"{lost} sessions failed or were lost")
    return int(drifts(lines[int(len(lines) * SETTLED_AFTER) :]) or lost > 0)


def drifts(lines: Sequence[Line]) -> bool:
    """Whether anything grows; says of each figure what it does."""
    found = []
    for name, (least, share) in FLOORS.items():
        points = [(each.at_s, getattr(each, name)) for each in lines if getattr(each, name) is not None]
        if len(points) < 3:
            print(f"{name}: too few values to tell")
            found.append(name)
            continue
        times_s, values = zip(*points, strict=True)
        told = trend(times_s, values)
        allowed = max(least, share * told.first)
        grows = told.drifts(allowed)
        found += [name] if grows else []
        print(
            f"{name}: {'DRIFTS' if grows else 'steady'}, from {told.first:.1f} by {told.growth:+.2f} in {times_s[-1] - times_s[0]:.0f} s "
            f"(z={told.z:.1f}; up to {allowed:.1f} comes and goes)"
        )
    print(f"soak: {'something drifts: ' + ', '.join(found) if found else 'nothing drifts'}", flush=True)
    return bool(found)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=30.0)
    options.add_argument("--sessions", type=int, default=300)
    options.add_argument("--record", default="failed", choices=("all", "failed", "none"))
    options.add_argument("--tls", action="store_true")
    chosen = options.parse_args()
    if chosen.minutes * 60 < MIN_LINES * LINE_S:
        options.error(f"--minutes: a trend wants {MIN_LINES} lines at least, {MIN_LINES * LINE_S / 60:g} minutes")
    os.sched_setaffinity(0, {AGENT_CPU})
    load = Load(chosen.sessions, 60 * chosen.minutes, 1, tls=chosen.tls, record=chosen.record)
    print(f"machine: {machine.named()}")
    print(
        f"{load.sessions} sessions for {chosen.minutes:g} minutes, after {load.ramp_s:.0f} s in which they join",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as name:
        try:
            build(Path(name))
            if load.tls:
                build_tls(Path(name))
        except MissingError as missing:
            raise SystemExit(f"can't be measured here: {missing}") from missing
        return soak(Path(name), load)


if __name__ == "__main__":
    sys.exit(main())
