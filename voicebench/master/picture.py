"""What the status page shows, as JSON: made by the core once a second from what it knows (docs/page.md has the keys).

Nothing here is measured and nothing is decided: the numbers are those of the report.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from voicebench import __version__
from voicebench.assertions import AssertionResult
from voicebench.master.collector import Account, Collector
from voicebench.master.coordinator import Coordinator, Peer
from voicebench.master.ending import check_limits
from voicebench.master.notices import Notices
from voicebench.master.report import RunHead, lateness_document
from voicebench.master.store import as_json
from voicebench.master.strain import Strain
from voicebench.master.telling import Result, Standing, State, banners_of, is_overloaded, pill_of
from voicebench.master.turn_table import turn_rows
from voicebench.scenario.prepared import PreparedScenario
from voicebench.wire.liveness import DEFAULT
from voicebench.wire.messages import Health
from voicebench.words import shortened

VERSION = 1
MAX_SNAPSHOT_BYTES = 16 << 10
MAX_POINTS = 60
MAX_WORKERS = 50
FEWER = {"workers": 8, "assertions": 20, "banners": 4, "reasons": 10}
"""Of a snapshot that is too large."""
BLOCKED_S = 1.0
"""A loop that was not seen to turn for so long holds its sessions up."""
TURNS_EVERY = 2
"""Every so many pictures the table of turns is made anew."""
RECENT_S = 5.0
"""Call starts a second are those of so long."""


@dataclass(frozen=True, slots=True)
class PageFacts:
    """What is shown of a run and known before it begins."""

    scenarios: tuple[PreparedScenario, ...]
    record: str
    join: str | None
    """The command that starts one more worker; None: nobody has to type one."""
    waits: bool
    """For Start."""
    stays: bool = False
    """Whether the page stays when the run is over, and can begin another."""
    csrf: str = ""
    """What requests that change something have to bring."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What all viewers get."""

    seq: int
    snapshot: bytes
    turns: bytes


class Painter:
    """Makes the pictures of one run, in the core's thread."""

    def __init__(
        self, facts: PageFacts, head: RunHead, coordinator: Coordinator, collector: Collector, strain: Strain
    ) -> None:
        self.head = head
        self._strain = strain
        self.result: Result | None = None
        self.trouble: Sequence[str] = ()
        self._facts = facts
        self._coordinator = coordinator
        self._collector = collector
        self._seq = 0
        self._notices = Notices(coordinator, collector)
        self._cpu: dict[int, tuple[float, float]] = {}
        """By epoch: CPU time, and the beat's own time."""
        self._recent: deque[tuple[float, int]] = deque()
        self._snapshot: dict[str, Any] = {}
        self._turns = b""

    def paint(self, now_s: float, at_s: float) -> Picture:
        """One more picture.

        Args:
            at_s: Now, as a Unix time.
        """
        self._seq += 1
        over = self.result is not None
        assertions = [_assertion(each, over=over) for each in check_limits(self.head, self._collector)]
        workers = [self._worker(peer, now_s) for peer in self._coordinator.peers.values()]
        self._notices.look(now_s, assertions)
        self._snapshot = self._document(now_s, at_s, assertions, workers)
        if over or self._seq % TURNS_EVERY == 0 or not self._turns:
            self._turns = as_json(self._turn_rows()).encode()
        return Picture(self._seq, _fitted(self._snapshot), self._turns)

    def history(self) -> bytes:
        """`/api/run`, as of the last picture."""
        snapshot = {**self._snapshot, "points": None, "reload": False, "new_events": []}
        return as_json(
            {
                "version": VERSION,
                "voicebench": __version__,
                "csrf": self._facts.csrf,
                "run": self._run(),
                "turns": self._turn_rows(),
                "timeline": self._collector.timeline.as_dict(),
                "events": self._notices.all,
                "snapshot": snapshot,
            }
        ).encode()

    def _turn_rows(self) -> dict[str, Any]:
        return turn_rows(self._facts.scenarios, self.head, self._collector)

    @property
    def may_run_again(self) -> bool:
        """Whether the run is over and another can be begun."""
        return self.result is not None and self._facts.stays

    # --- the run -----------------------------------------------------------------------------------------------------

    def _run(self) -> dict[str, Any]:
        head, plan = self.head, self._coordinator.plan
        limits: list[tuple[str, float, str | None]] = [(name, limit, None) for name, limit in head.limits.items()]
        several = len(head.scenario_limits) > 1
        for scenario, own in head.scenario_limits.items():
            limits += [(name, limit, scenario if several else None) for name, limit in own.items()]
        return {
            "id": head.id,
            "name": head.name,
            "seed": head.seed,
            "clock": head.clock,
            "insecure": head.insecure,
            "started_at": head.started_at or None,
            "scenarios": [
                {"name": each.scenario.name, "adapter": each.scenario.adapter.type} for each in self._facts.scenarios
            ],
            "callers": plan.callers,
            "sessions": plan.sessions,
            "run_time_s": plan.run_time_s,
            "spawn_rate_per_s": plan.spawn_rate_per_s,
            "stop_timeout_s": plan.stop_timeout_s,
            "record": self._facts.record,
            "limits": [{"name": name, "limit": limit, "scenario": scenario} for name, limit, scenario in limits],
            "phases": self._phases(),
            "join": self._facts.join,
        }

    def _phases(self) -> list[dict[str, Any]]:
        plan, ramp_s = self._coordinator.plan, self._ramp_s
        phases = []
        if ramp_s > 0.0:
            phases.append({"name": "ramp", "from_s": 0.0, "to_s": ramp_s, "calls": plan.callers})
        if plan.run_time_s is None or plan.run_time_s > ramp_s:
            phases.append({"name": "hold", "from_s": ramp_s, "to_s": plan.run_time_s, "calls": plan.callers})
        return phases

    @property
    def _ramp_s(self) -> float:
        """How long callers go on joining."""
        plan = self._coordinator.plan
        ramp_s = (plan.callers - 1) / plan.spawn_rate_per_s if plan.spawn_rate_per_s else 0.0
        return ramp_s if plan.run_time_s is None else min(ramp_s, plan.run_time_s)

    # --- a snapshot --------------------------------------------------------------------------------------------------

    def _document(
        self, now_s: float, at_s: float, assertions: list[dict[str, Any]], workers: list[dict[str, Any]]
    ) -> dict[str, Any]:
        coordinator, collector = self._coordinator, self._collector
        state, account = self._state(now_s), self._account()
        elapsed_s = max(0.0, coordinator.run_s(now_s))
        left_s = time_left_s(coordinator, elapsed_s)
        standing = Standing(
            coordinator,
            collector,
            state,
            self.result,
            assertions,
            self.trouble,
            left_s,
            self._facts.join,
            self.head.insecure,
            [(peer.name, each) for peer in coordinator.here for each in self._strain.standing(peer.epoch)],
        )
        return {
            "version": VERSION,
            "seq": self._seq,
            "run_id": self.head.id,
            "at_s": round(at_s, 3),
            "state": state,
            "pill": pill_of(standing),
            "banners": [msgspec.to_builtins(each) | {"text": shortened(each.text)} for each in banners_of(standing)],
            "can": {
                "start": self.may_run_again or (state == "idle" and self._facts.waits and coordinator.ready > 0),
                "stop": state in ("ramping", "steady", "stopping") and coordinator.phase != "cut",
            },
            "elapsed_s": round(elapsed_s, 3),
            "left_s": None if left_s is None else round(left_s, 3),
            "progress": self._progress(state, elapsed_s),
            "calls": {
                "live": account["live"],
                "wanted": self._wanted(state, elapsed_s),
                "starts_per_s": self._starts_per_s(now_s, account["started"]),
                "started": account["started"],
                "to_place": coordinator.plan.sessions,
            },
            "account": account,
            "reasons": self._reasons(),
            "trusted": not collector.generator_overloaded,
            "summary": collector.total.all.as_dict(),
            "frame_lateness_ms": lateness_document(collector.account.lateness_ms),
            "assertions": assertions,
            "workers": sorted(workers, key=lambda each: _WEIGHT[each["kind"]])[:MAX_WORKERS],
            "n_workers": len(workers),
            **self._points(),
            "new_events": self._notices.take_new(),
            "result": self.result,
        }

    def _state(self, now_s: float) -> State:
        coordinator = self._coordinator
        if self.result is not None:
            return "done"
        if coordinator.phase == "gather":
            return "idle"
        if coordinator.phase == "run":
            return "ramping" if coordinator.run_s(now_s) < self._ramp_s else "steady"
        return "stopping"

    def _account(self) -> dict[str, int]:
        """started = live + finished + failed + cut + lost."""
        coordinator, outcomes = self._coordinator, self._collector.account.outcomes
        unheard = {peer.epoch: len(coordinator.shares.open(peer.epoch)) for peer in coordinator.peers.values()}
        here = {peer.epoch for peer in coordinator.here}
        live = sum(n for epoch, n in unheard.items() if epoch in here)
        # At the end the collector is told of each lost session; until then they are those that nobody holds any more.
        lost = outcomes["lost"] if self.result is not None else sum(unheard.values()) - live
        account = {
            "started": coordinator.shares.started.total(),
            "live": live,
            **{state: outcomes[state] for state in ("finished", "failed", "cut")},
            "lost": lost,
        }
        account["missing"] = 2 * account["started"] - sum(account.values())
        account["maybe_started"] = len(coordinator.shares.maybe_started)
        return account

    def _wanted(self, state: State, elapsed_s: float) -> int:
        plan = self._coordinator.plan
        if state not in ("ramping", "steady"):
            return 0
        wanted = plan.callers if plan.sessions is None else min(plan.callers, plan.sessions)
        if state == "ramping" and plan.spawn_rate_per_s:
            wanted = min(wanted, 1 + int(elapsed_s * plan.spawn_rate_per_s))
        return wanted

    def _starts_per_s(self, now_s: float, started: int) -> float | None:
        self._recent.append((now_s, started))
        while now_s - self._recent[0][0] > RECENT_S:
            self._recent.popleft()
        then_s, before = self._recent[0]
        return round((started - before) / (now_s - then_s), 2) if now_s > then_s else None

    def _progress(self, state: State, elapsed_s: float) -> float | None:
        """How far the plan is through: by time or by calls, whichever is further."""
        if state in ("idle", "done"):
            return 1.0 if state == "done" else 0.0
        plan = self._coordinator.plan
        shares = [elapsed_s / plan.run_time_s] if plan.run_time_s else []
        shares += [self._collector.n_taken / plan.sessions] if plan.sessions else []
        return round(min(1.0, max(shares)), 4) if shares else None

    def _reasons(self) -> list[dict[str, Any]]:
        details = self._collector.details()
        return [
            {"reason": reason, "n": n, "detail": shortened(details.get(reason)) or None}
            for reason, n in self._collector.account.reasons.most_common()
        ]

    def _points(self) -> dict[str, Any]:
        timeline = self._collector.timeline
        first, thinned = timeline.take_changed()
        n_changed = len(timeline) - first
        reload = thinned or n_changed > MAX_POINTS
        return {"points": timeline.tail(first) if n_changed and not reload else None, "reload": reload}

    # --- workers -----------------------------------------------------------------------------------------------------

    def _worker(self, peer: Peer, now_s: float) -> dict[str, Any]:
        account = self._collector.by_worker.get(peer.name, Account())
        state, kind = self._worker_state(peer, account, now_s)
        health = None if peer.beat is None or peer.settled else peer.beat.health
        trouble = "" if peer.settled else "; ".join(each.what for each in self._strain.standing(peer.epoch))
        return {
            "name": shortened(peer.name),
            "host": shortened(peer.hello.host),
            "state": state,
            "kind": kind,
            "why": shortened(peer.why or trouble, 160) or None,
            "calls": 0 if peer.settled else len(self._coordinator.shares.open(peer.epoch)),
            "started": self._coordinator.started(peer.epoch),
            "cpu_percent": self._cpu_percent(peer),
            "loop_cpu_percent": None if health is None else _of_a_hundred(health.loop_cpu),
            "lag_ms": None if health is None else _lag_ms(health),
            "frame_late_p99_ms": account.lateness_ms.percentile(99),
            "unreliable_turns": account.unreliable_turns,
            "judged_turns": account.judged_turns,
            "beat_age_s": None if peer.beat is None or peer.settled else round(max(0.0, now_s - peer.beat_heard_s), 1),
        }

    def _worker_state(self, peer: Peer, account: Account, now_s: float) -> tuple[str, str]:
        if peer.settled:
            return peer.standing, "bad" if peer.standing in ("lost", "unable") else "mute"
        if now_s - peer.heard_s > DEFAULT.late_s:
            return "late", "warn"
        if peer.beat is not None and (peer.beat.blocked is not None or peer.beat.hub_age_s > BLOCKED_S):
            return "blocked", "bad"
        if is_overloaded(account):
            return "overloaded", "bad"
        if self._strain.standing(peer.epoch):
            return "strained", "warn"
        return {"running": "ok"}.get(peer.state, peer.state), "good" if peer.state in ("ready", "running") else "mute"

    def _cpu_percent(self, peer: Peer) -> float | None:
        """Of one core, between the last two beats that pictures were made of. The times are the worker's own."""
        if peer.beat is None or peer.settled:
            return None
        now = peer.beat.cpu_s, peer.beat.sent_s
        before = self._cpu.setdefault(peer.epoch, now)
        if now[1] <= before[1]:
            return None
        self._cpu[peer.epoch] = now
        return round(100.0 * (now[0] - before[0]) / (now[1] - before[1]), 1)


def _of_a_hundred(share: float | None) -> float | None:
    return None if share is None else round(100.0 * share, 1)


def _lag_ms(health: Health) -> float | None:
    """The worst of the last second: how late it sent, or how long it looked at no agent."""
    known = [value for value in (health.worst_late_ms, health.widest_gap_ms) if value is not None]
    return round(max(known), 1) if known else None


_WEIGHT = {"bad": 0, "warn": 1, "good": 2, "mute": 3}


def time_left_s(coordinator: Coordinator, elapsed_s: float) -> float | None:
    """To the end of the run time; once sessions are only let finish, to their being cut."""
    plan = coordinator.plan
    if coordinator.phase == "drain" and coordinator.phase_s is not None:
        return max(0.0, coordinator.run_s(coordinator.phase_s) + plan.stop_timeout_s - elapsed_s)
    if coordinator.phase == "cut":
        return 0.0
    return None if plan.run_time_s is None else max(0.0, plan.run_time_s - elapsed_s)


def _assertion(result: AssertionResult, *, over: bool) -> dict[str, Any]:
    state = {"pass": "passing", "fail": "failing", "cant_tell": "cant_tell"}[result.verdict]
    if result.actual is None and not over:
        state = "open"
    return {**result.as_dict(), "state": state}


def _fitted(snapshot: Mapping[str, Any]) -> bytes:
    """As JSON, without what is too much for one a second: the page gets the rest from `/api/run`."""
    encoded = as_json(snapshot).encode()
    if len(encoded) > MAX_SNAPSHOT_BYTES:
        encoded = as_json({**snapshot, "points": None, "new_events": [], "reload": True}).encode()
    if len(encoded) > MAX_SNAPSHOT_BYTES:
        fewer = {key: snapshot[key][:most] for key, most in FEWER.items()}
        encoded = as_json({**snapshot, **fewer, "points": None, "new_events": [], "reload": True}).encode()
    return encoded
