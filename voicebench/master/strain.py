"""How the load generator bears the load: what is wrong with a worker, since when, and what to do about it.

A pure machine: beats of workers go in, events come out. Each trouble is told once when it begins and once when it is
over, which it is only after some quiet seconds: a value that wavers around its threshold is one trouble.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from voicebench.master.coordinator import RunEvent, shown
from voicebench.master.report import HealthFacts
from voicebench.metrics.honesty import RELIABLE_MS
from voicebench.wire.messages import Beat, Block, Health
from voicebench.words import count, duration

WARN_CPU, FULL_CPU = 0.70, 0.80
"""Of a core. Above 0.8 a pause takes many times its length to catch up with; the rest is room for the next wave."""
GAP_MS = 20.0
"""One frame: who looks less often hears of the agent too late for its next frame. Usual are 1 to 3 ms."""
LATE_MS = RELIABLE_MS
"""Of a frame: beyond it its turn is unreliable."""
WAITED = 0.10
"""Of the time: then the loop is late by others' slices, which are milliseconds each, and its own CPU tells nothing."""
THROTTLED_MS = 1.0
"""A limit that bites takes tens of milliseconds at once; it is the stop that makes frames late, not the sum."""
STEAL = 0.05
"""Of the machine: what its host takes it takes in slices as long as a frame."""
HOLD = 0.9
"""A trouble that has begun goes on down to this part of its threshold."""
CALM_S = 5.0
"""Without it for so long, a trouble is over."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """`kind` is one of cpu, lag, waited, throttled, steal, blocked."""

    kind: str
    what: str
    """How much of what, and the remedy."""


@dataclass(slots=True)
class _Standing:
    trouble: Trouble
    since_s: float
    last_s: float


@dataclass(slots=True)
class _Worker:
    n: int = 0
    """Of the newest reading."""
    beat_n: int = 0
    standing: dict[str, _Standing] = field(default_factory=dict)
    worst: HealthFacts | None = None
    recent: HealthFacts | None = None


class Strain:
    """Of all workers of one run."""

    def __init__(self) -> None:
        self._workers: dict[int, _Worker] = {}

    def hear(
        self, epoch: int, name: str, beat: Beat, now_s: float, run_s: float, *, is_here: bool = True
    ) -> list[RunEvent]:
        """Take a worker's newest beat in; the same one again is nothing new.

        Args:
            now_s: On the master's monotonic clock.
            run_s: The same as run time.
            is_here: Of a worker that has gone, only what it said last is news, not that it says nothing more.

        Returns:
            What has begun and what is over.
        """
        worker = self._workers.setdefault(epoch, _Worker())
        if not is_here and beat.n <= worker.beat_n:
            return []
        worker.beat_n, standing = beat.n, worker.standing
        found: list[Trouble] = []
        over_s = 0.0
        if beat.health is not None and beat.health.n > worker.n:
            worker.n, over_s = beat.health.n, beat.health.over_s
            found += troubles(beat.health, frozenset(standing))
            worker.worst = worst_of(worker.worst, beat.health)
            worker.recent = worst_of(worker.recent, beat.health)
        events: list[RunEvent] = []
        for trouble in found:
            events += _told(standing, trouble, name, now_s - over_s, now_s, run_s - over_s)
        if beat.blocked is not None:
            trouble = Trouble("blocked", _blocked(beat.blocked, beat.live))
            events += _told(standing, trouble, name, now_s - beat.blocked.for_s, now_s, run_s - beat.blocked.for_s)
        for kind, each in list(standing.items()):
            if now_s - each.last_s > CALM_S:
                del standing[kind]
                lasted = duration(max(1.0, each.last_s - each.since_s))
                events.append(RunEvent(now_s, "calm", f"{name}: {OVER[kind]}, after {lasted}"))
        return events

    def standing(self, epoch: int) -> Sequence[Trouble]:
        """What is wrong with a worker now; the longest standing first."""
        return [each.trouble for each in self._workers[epoch].standing.values()] if epoch in self._workers else []

    def worst(self, epoch: int) -> HealthFacts | None:
        """The worst of its seconds so far."""
        return self._workers[epoch].worst if epoch in self._workers else None

    def take_recent(self, epoch: int) -> HealthFacts | None:
        """The same since the last call."""
        if epoch not in self._workers:
            return None
        worker = self._workers[epoch]
        recent, worker.recent = worker.recent, None
        return recent


OVER = {
    "cpu": "its loop has room again",
    "lag": "frames are sent and read in time again",
    "waited": "its loop has a CPU when it needs one again",
    "throttled": "its CPU limit leaves it alone again",
    "steal": "the host takes no more of this machine's time",
    "blocked": "its loop turns again",
}


def _told(
    standing: dict[str, _Standing], trouble: Trouble, name: str, since_s: float, now_s: float, since_run_s: float
) -> Iterator[RunEvent]:
    """An event where it is new."""
    before = standing.get(trouble.kind)
    if before is None:
        standing[trouble.kind] = _Standing(trouble, since_s, now_s)
        event = "blocked" if trouble.kind == "blocked" else "warning"
        yield RunEvent(now_s, event, f"{name}, since {duration(since_run_s)}: {trouble.what}")
    else:
        before.trouble, before.last_s = trouble, now_s


def troubles(health: Health, standing: frozenset[str] = frozenset()) -> list[Trouble]:
    """What is wrong in one reading.

    Args:
        standing: What was wrong before, and goes on from a little less.
    """

    def over(kind: str, value: float | None, threshold: float) -> bool:
        return value is not None and value > threshold * (HOLD if kind in standing else 1.0)

    found = []
    if health.calls:
        if over("cpu", health.loop_cpu, WARN_CPU):
            found.append(Trouble("cpu", _room(health.loop_cpu or 0.0, health.calls)))
        if over("waited", health.waited, WAITED):
            what = f"its loop waited for a CPU {_percent(health.waited)} of the time"
            found.append(
                Trouble("waited", f"{what}: other processes take this core: pin the worker or use another machine")
            )
        if over("throttled", health.throttled_ms, THROTTLED_MS):
            what = f"the container's CPU limit stopped its threads for {health.throttled_ms:.0f} ms in a second"
            found.append(Trouble("throttled", f"{what}: raise the limit"))
        if over("steal", health.steal, STEAL):
            what = f"the host took {_percent(health.steal)} of this machine's CPU time (steal)"
            found.append(Trouble("steal", f"{what}: use a machine of your own, or a larger one"))
    if over("lag", health.worst_late_ms, LATE_MS) or over("lag", health.widest_gap_ms, GAP_MS):
        found.append(Trouble("lag", _lag(health)))
    return found


def _room(cpu: float, calls: int) -> str:
    used = f"its loop uses {_percent(cpu)} of a core with {count(calls, 'call')}"
    fit = int(calls * FULL_CPU / cpu) - calls
    if fit > 0:
        return f"{used}: about {fit:,} more fit before {_percent(FULL_CPU)}; then add a worker"
    if fit == 0:
        return f"{used}: no more fit before {_percent(FULL_CPU)}: add a worker"
    return f"{used}: more than {_percent(FULL_CPU)}, about {-fit:,} too many: lower the load or add a worker"


def _lag(health: Health) -> str:
    late, gap = health.worst_late_ms, health.widest_gap_ms
    found = []
    if late is not None:
        found.append(f"sent up to {late:.0f} ms late")
    if gap is not None:
        found.append(f"read up to {gap:.0f} ms apart")
    return f"frames were {' and '.join(found)}: turns become unreliable: lower the load or leave the worker its core"


def _blocked(block: Block, live: int) -> str:
    what = "its loop stands still" if block.what == "loop" else "its pacer looks at no socket"
    held = f", and with it {count(live, 'call')}" if live else ""
    return f"{what}{held}: {shown(block.where)}: an adapter must wait in gevent's way"


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.0f} %"


def worst_of(before: HealthFacts | None, health: Health) -> HealthFacts | None:
    """The worst of each; throttling added up. A second without calls says nothing of the run."""
    known = before or HealthFacts()
    if health.calls:
        known = replace(
            known,
            loop_cpu_share=_larger(known.loop_cpu_share, health.loop_cpu),
            process_cpu_share=_larger(known.process_cpu_share, health.process_cpu),
            waited_share=_larger(known.waited_share, health.waited),
            throttled_ms=_sum(known.throttled_ms, health.throttled_ms),
            steal_share=_larger(known.steal_share, health.steal),
        )
    known = replace(
        known,
        widest_gap_ms=_larger(known.widest_gap_ms, health.widest_gap_ms),
        worst_late_ms=_larger(known.worst_late_ms, health.worst_late_ms),
    )
    return None if known == HealthFacts() else known


def _larger(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _sum(one: float | None, other: float | None) -> float | None:
    return one if other is None else other + (one or 0.0)
