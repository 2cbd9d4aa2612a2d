"""bench_sessions_per_core.py [SESSIONS...]: how many real-time sessions one worker process holds, and at what price.

An agent in C (`c/agent.c`, built here) on core 0 with the master, one worker on core 1; a dozen sessions start and end in a
second, recordings of failed ones are kept. Side by side with the same conversation held by a client in C (what this machine
allows at best), by a Locust user with websocket-client, by the single-machine package, over TLS, and by two workers that
share the core. Windows of a minute after everybody has joined; what is printed is their median.

A number of sessions is held when fewer than one turn in a thousand is unreliable, no frame was later than 50 ms and the core
was less than 80 % busy. `--search` looks for the largest such number; without it the numbers given are tried. Measured
latencies are set beside the agent's own log.

    --parts ours --window-s 15 --windows 1 500      a look of two minutes
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench import machine, others
from tests.bench.agent import AGENT_CPU, build, build_tls
from tests.bench.machine import MissingError, verdict
from tests.bench.ours import CPU_SHARE, Found, Load, hold

SESSIONS_FLOOR, SESSIONS_GOAL, WSS_FLOOR, WSS_GOAL = 600, 700, 400, 450
C_SHARE_FLOOR, TIMES_C_BUDGET, TIMES_C_GOAL = 0.60, 2.0, 1.6
TIMES_LOCUST_FLOOR, TWO_WORKERS_BUDGET = 4.5, 1.15
ERROR_P99_BUDGET_MS, ERROR_SESSIONS = 5.0, 500
BRACKET_SHARE = 0.05
"""A search ends when what is held and what is not lie this close."""


def search(held: Callable[[int], bool], first: int) -> int:
    """The largest number that is held, to 5 %: upwards or downwards by quarters, then by halves of what is left."""
    low, high = 0, 0
    n = first
    while not (low and high):
        if held(n):
            low, n = n, round(n * 1.25)
        else:
            high, n = n, round(n * 0.75)
        if n < 10:
            return 0
    while high - low > BRACKET_SHARE * high:
        n = (low + high) // 2
        low, high = (n, high) if held(n) else (low, n)
    return low


class Bench:
    """The parts, in the order of `PARTS`; figures of one serve the budgets of another."""

    def __init__(self, folder: Path, chosen: argparse.Namespace) -> None:
        self.folder = folder
        self.chosen = chosen
        self.c_ms: float | None = None
        """CPU of a session-second, as of the client in C."""
        self.found: dict[int, Found] = {}
        """By number of sessions: one worker, without TLS."""

    def load(self, sessions: int, *, tls: bool = False, workers: int = 1) -> Load:
        chosen = self.chosen
        return Load(sessions, chosen.window_s, chosen.windows, tls=tls, workers=workers, record=chosen.record)

    def hold(self, load: Load) -> Found:
        """Hold it, and print what came of it."""
        found = hold(self.folder, load)
        what = f"{'wss' if load.tls else 'ws'} sessions={load.sessions}"
        print(f"{what}{f' workers={load.workers}' if load.workers > 1 else ''} {found.line()}", flush=True)
        if not load.tls and load.workers == 1:
            self.found[load.sessions] = found
        return found

    def most(self, name: str, floor: int, goal: int, sessions: list[int], *, tls: bool = False) -> tuple[int, bool]:
        """The largest number held, of these or, in a search that begins with the largest, of all; printed. And whether it
        is known that no more are held."""

        def held(n: int) -> bool:
            return self.hold(self.load(n, tls=tls)).held

        most = search(held, max(sessions)) if self.chosen.search else max([n for n in sessions if held(n)], default=0)
        known = self.chosen.search or most < max(sessions)
        told = verdict(most, floor, at_most=False) if known or most >= floor else f"budget={floor} not tried"
        print(f"{name}={most} {told} goal={goal}", flush=True)
        return most, known

    def client_in_c(self) -> None:
        found = others.client_in_c(self.folder, self.load(self.chosen.c_sessions))
        self.c_ms = found.ms_per_session_s
        print(f"c_client {found.line()}", flush=True)

    def ours(self) -> None:
        most, known = self.most("most_sessions", SESSIONS_FLOOR, SESSIONS_GOAL, self.chosen.sessions)
        if self.c_ms is not None:
            c_most = 1000 * CPU_SHARE / self.c_ms
            share = most / c_most
            told = verdict(share, C_SHARE_FLOOR, at_most=False) if known or share >= C_SHARE_FLOOR else "or more"
            print(f"  share_of_c={share:.2f} of {c_most:.0f} by its CPU {told}")
            for n, found in self.found.items():
                times = found.ms_per_session_s / self.c_ms
                print(
                    f"  times_c={times:.2f} sessions={n} {verdict(times, TIMES_C_BUDGET, at_most=True)} goal={TIMES_C_GOAL}"
                )
        if ERROR_SESSIONS in self.found:
            error_ms = self.found[ERROR_SESSIONS].error_p99_ms
            print(
                f"  error_p99_ms={error_ms:.2f} sessions={ERROR_SESSIONS} {verdict(error_ms, ERROR_P99_BUDGET_MS, at_most=True)}"
            )

    def wss(self) -> None:
        build_tls(self.folder)
        self.most("most_wss_sessions", WSS_FLOOR, WSS_GOAL, self.chosen.wss_sessions, tls=True)

    def two(self) -> None:
        """Two workers that share the core, against one."""
        n = self.chosen.two_sessions
        one = self.found.get(n) or self.hold(self.load(n))
        ratio = self.hold(self.load(n, workers=2)).ms_per_session_s / one.ms_per_session_s
        print(f"two_workers_cpu_ratio={ratio:.3f} sessions={n} {verdict(ratio, TWO_WORKERS_BUDGET, at_most=True)}")

    def locust(self) -> None:
        """websocket-client under Locust."""
        found = others.locust(self.folder, self.load(self.chosen.locust_sessions))
        print(f"locust {found.line()}", flush=True)
        self.times("locust", found, TIMES_LOCUST_FLOOR)

    def peer(self) -> None:
        found = others.peer(self.folder, self.load(self.chosen.peer_sessions))
        print(f"peer {found.line()}", flush=True)
        self.times("peer", found, None)

    def times(self, name: str, other: others.Other, floor: float | None) -> None:
        """How many times as many sessions the same CPU holds: the cost of each at its own number of sessions."""
        for n, found in self.found.items():
            times = other.ms_per_session_s / found.ms_per_session_s
            budget = "" if floor is None else " " + verdict(times, floor, at_most=False)
            print(f"  times_{name}={times:.2f} sessions={n}{budget}")


PARTS = {
    "c": Bench.client_in_c, "ours": Bench.ours, "wss": Bench.wss, "two": Bench.two, "locust": Bench.locust, "peer": Bench.peer,
}  # fmt: skip


def arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("sessions", nargs="*", type=int, default=[500, 600])
    options.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="by default all")
    options.add_argument("--search", action="store_true", help="the largest number held, for ours and wss")
    options.add_argument("--window-s", type=float, default=60.0)
    options.add_argument("--windows", type=int, default=3)
    options.add_argument("--c-sessions", type=int, default=600)
    options.add_argument("--wss-sessions", nargs="+", type=int, default=[400])
    options.add_argument("--two-sessions", type=int, default=500)
    options.add_argument("--locust-sessions", type=int, default=100)
    options.add_argument("--peer-sessions", type=int, default=30)
    options.add_argument("--record", default="failed", choices=("all", "failed", "none"))
    return options.parse_args()


def main() -> None:
    chosen = arguments()
    os.sched_setaffinity(0, {AGENT_CPU})
    print(f"machine: {machine.named()}")
    with tempfile.TemporaryDirectory() as name:
        try:
            build(Path(name))
        except MissingError as missing:
            raise SystemExit(f"can't be measured here: {missing}") from missing
        bench = Bench(Path(name), chosen)
        for part, measure in PARTS.items():
            if part in chosen.parts:
                try:
                    measure(bench)
                except MissingError as missing:
                    print(f"{part}: left out, {missing}", flush=True)


if __name__ == "__main__":
    main()
