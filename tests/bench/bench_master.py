"""bench_master.py: what workers cost the master. A beat of a worker with 600 callers, budget 100 us with its answer; a
session's result through coordinator, run.db (synced) and collector, in batches of 20, budget 2 ms of CPU.
"""

from __future__ import annotations

import platform
import tempfile
import time
from pathlib import Path

from tests.support.made import a_head, a_worker, respond, result, session
from voicebench import __version__
from voicebench.load.closed import session_name
from voicebench.master.collector import Collector
from voicebench.master.coordinator import Coordinator
from voicebench.master.store import Placing, Store
from voicebench.wire import codec
from voicebench.wire.messages import Beat, Hello, Results, RunPlan

CALLERS, BEATS, SESSIONS, BATCH = 600, 2000, 2000, 20


def a_plan() -> RunPlan:
    return RunPlan(
        run_id="run", scenarios=("0" * 64,), weights=(1.0,), callers=CALLERS, sessions=None, spawn_rate_per_s=None,
        run_time_s=600.0, stop_timeout_s=30.0, pause_s=(0.0, 0.0), warmup_s=0.0, seed=0, keep="none", preflight=False,
    )  # fmt: skip


def a_beat(n: int, placed: tuple[tuple[int, int], ...] = ()) -> bytes:
    return codec.encode(
        Beat(
            epoch=1,
            n=n,
            sent_s=float(n),
            share_version=1,
            state="running",
            placed=placed,
            released=(),
            live=CALLERS,
            hub_age_s=0.0,
            cpu_s=0.0,
        )
    )


def running() -> Coordinator:
    coordinator = Coordinator(a_plan(), {})
    hello = Hello(version=__version__, incarnation="a" * 32, name="w", host="h", python="3", platform="Linux", cpus=1)
    coordinator.hear(b"w", hello, 0.0)
    coordinator.hear(b"w", codec.decode_from_worker(_ready()), 0.0)
    coordinator.start(0.0)
    coordinator.hear(b"w", codec.decode_from_worker(a_beat(3, tuple((c, 1) for c in range(CALLERS)))), 0.5)
    coordinator.sends.take()
    return coordinator


def _ready() -> bytes:
    ready = Beat(
        epoch=1,
        n=2,
        sent_s=0.0,
        share_version=0,
        state="ready",
        placed=(),
        released=(),
        live=0,
        hub_age_s=0.0,
        cpu_s=0.0,
    )
    return codec.encode(ready)


def beat_us() -> float:
    coordinator = running()
    beats = [a_beat(n) for n in range(4, BEATS + 4)]
    began_s = time.process_time()
    for nth, data in enumerate(beats):
        coordinator.hear(b"w", codec.decode_from_worker(data), 0.6 + nth / 4)
        coordinator.tick(0.6 + nth / 4)
        for _, answer in coordinator.sends.take():
            codec.encode(answer)
    return 1e6 * (time.process_time() - began_s) / BEATS


def result_ms() -> tuple[float, float]:
    """CPU and wall a session."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder), a_head(), Placing((("made", 1.0),), CALLERS, 0))
        store.set_workers([(1, a_worker())])
        coordinator, collector = running(), Collector()
        turns = [respond(500.0 + n, turn_id=f"t{n}") for n in range(5)]
        messages = [
            codec.encode(
                Results(
                    epoch=1,
                    seq=number + 1,
                    session=result(session(*turns, session_id=session_name("run", number)), number=number),
                )
            )
            for number in range(SESSIONS)
        ]
        cpu_s, wall_s = time.process_time(), time.monotonic()
        for first in range(0, SESSIONS, BATCH):
            for data in messages[first : first + BATCH]:
                coordinator.hear(b"w", codec.decode_from_worker(data), 1.0)
            fresh = coordinator.take_fresh()
            store.add_results(fresh)
            for each in fresh:
                collector.take(each.session, worker=each.worker)
            coordinator.stored()
        spent = time.process_time() - cpu_s, time.monotonic() - wall_s
        assert collector.n_taken == SESSIONS
        store.close()
    return 1e3 * spent[0] / SESSIONS, 1e3 * spent[1] / SESSIONS


def main() -> None:
    us = beat_us()
    cpu_ms, wall_ms = result_ms()
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    print(f"master_beat_600_callers_us={us:.1f} budget=100.0 {'ok' if us <= 100 else 'OVER'} ({machine})")
    print(
        f"master_result_cpu_ms={cpu_ms:.2f} budget=2.0 {'ok' if cpu_ms <= 2 else 'OVER'} (wall {wall_ms:.2f} ms, {machine})"
    )


if __name__ == "__main__":
    main()
