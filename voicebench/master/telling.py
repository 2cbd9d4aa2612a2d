"""How a run stands, in words: the pill and the banners of the status page. The weightiest comes first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from voicebench.master.collector import OVERLOADED_TURN_RATE, Account, Collector
from voicebench.master.coordinator import Coordinator, Peer
from voicebench.master.strain import Trouble
from voicebench.words import NOTHING, count, duration, share

Kind = Literal["good", "accent", "mute", "warn", "bad"]
State = Literal["idle", "ramping", "steady", "stopping", "done"]


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended. `files` are names in `directory`."""

    verdict: str
    exit_code: int
    complete: bool
    reasons: tuple[str, ...]
    directory: str | None
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pill:
    text: str
    kind: Kind
    live: bool = False


@dataclass(frozen=True, slots=True)
class Banner:
    what: str
    kind: Literal["bad", "warn", "info"]
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Standing:
    """Everything the words depend on."""

    coordinator: Coordinator
    collector: Collector
    state: State
    result: Result | None
    assertions: Sequence[Mapping[str, Any]]
    trouble: Sequence[str]
    left_s: float | None
    join: str | None
    insecure: bool = False
    strained: Sequence[tuple[str, Trouble]] = ()
    """Which worker, what."""

    @property
    def lost(self) -> list[Peer]:
        return [peer for peer in self.coordinator.peers.values() if peer.standing == "lost"]

    @property
    def n_live(self) -> int:
        return sum(len(self.coordinator.shares.open(peer.epoch)) for peer in self.coordinator.here)


_RUNNING = {
    "idle": Pill("Ready", "mute"),
    "ramping": Pill("Ramping", "accent", live=True),
    "steady": Pill("Steady", "good", live=True),
    "stopping": Pill("Stopping", "accent", live=True),
}
_ENDED = {
    "incomplete": "Done: incomplete",
    "untrusted": "Done: can\N{RIGHT SINGLE QUOTATION MARK}t be trusted",
    "cant_tell": "Done: can\N{RIGHT SINGLE QUOTATION MARK}t tell",
    "unreachable": "Done: agent not reached",
    "interrupted": "Interrupted",
}


def pill_of(standing: Standing) -> Pill:
    """The one thing to know."""
    if standing.state == "done":
        return _ended(standing)
    if standing.collector.generator_overloaded:
        return Pill("Generator overloaded", "bad", live=True)
    if standing.lost:
        return Pill("Worker lost", "warn", live=True)
    if standing.coordinator.phase == "finish":
        return Pill("Finishing", "accent", live=True)
    return _RUNNING[standing.state]


def _ended(standing: Standing) -> Pill:
    result = standing.result
    if result is None:
        return Pill("Done", "mute")
    if not result.exit_code:
        return Pill("Done", "good")
    broken = sum(each["state"] == "failing" for each in standing.assertions)
    if result.verdict == "fail" and broken:
        return Pill(f"Done: {count(broken, 'assertion')} failed", "bad")
    return Pill(_ENDED.get(result.verdict, "Done: failed"), "bad")


def banners_of(standing: Standing) -> list[Banner]:
    """What has to be known beside the numbers."""
    return [
        *_overloaded(standing), *_blocked(standing), *_lost(standing), *_strained(standing), *_trouble(standing),
        *_done(standing), *_stopping(standing),
        *_idle(standing), *_insecure(standing),
    ]  # fmt: skip


def _overloaded(standing: Standing) -> Iterator[Banner]:
    tally = standing.collector.total.all
    if not standing.collector.generator_overloaded:
        return
    unreliable, judged = tally.counts["unreliable_turns"], tally.counts["judged_turns"]
    blamed = [name for name, account in standing.collector.by_worker.items() if is_overloaded(account)]
    where = f" on {_listed(blamed)}" if blamed else ""
    yield Banner(
        "overloaded",
        "bad",
        "These numbers can\N{RIGHT SINGLE QUOTATION MARK}t be trusted: the generator is overloaded",
        f"Around {unreliable:,} of {judged:,} turns ({share(tally.unreliable_turn_rate)}) frames were sent or read late"
        f"{where}. What was measured there may be the generator\N{RIGHT SINGLE QUOTATION MARK}s doing, not the agent"
        "\N{RIGHT SINGLE QUOTATION MARK}s. Lower the load or add workers. Exit 4.",
    )


def _blocked(standing: Standing) -> Iterator[Banner]:
    blocked = [(name, trouble) for name, trouble in standing.strained if trouble.kind == "blocked"]
    if blocked:
        names = _listed([name for name, _ in blocked])
        text = "; ".join(f"{name}: {trouble.what}" for name, trouble in blocked[:3])
        yield Banner("blocked", "bad", f"{names} {'stands' if len(blocked) == 1 else 'stand'} still", text)


def _strained(standing: Standing) -> Iterator[Banner]:
    strained = [(name, trouble) for name, trouble in standing.strained if trouble.kind != "blocked"]
    if strained:
        names = list(dict.fromkeys(name for name, _ in strained))
        text = "; ".join(f"{name}: {trouble.what}" for name, trouble in strained[:3])
        yield Banner("strained", "warn", f"{_listed(names)} {'is' if len(names) == 1 else 'are'} at the limit", text)


def is_overloaded(account: Account) -> bool:
    """Whether one worker's turns are unreliable more often than a run's may be."""
    return bool(account.judged_turns) and account.unreliable_turns / account.judged_turns > OVERLOADED_TURN_RATE


def _lost(standing: Standing) -> Iterator[Banner]:
    coordinator = standing.coordinator
    lost = standing.lost
    if not lost:
        return
    n_calls = sum(len(coordinator.shares.open(peer.epoch)) for peer in lost)
    whys = "; ".join(f"{peer.name}: {peer.why}" for peer in lost[:3])
    one = lost[0].name if len(lost) == 1 else f"{len(lost)} workers"
    others = [peer.name for peer in coordinator.here if peer.joined_shares]
    heirs = f"; new calls go to {_listed(others)}" if others and standing.state != "done" else ""
    yield Banner(
        "lost",
        "warn",
        f"{one} {'is' if len(lost) == 1 else 'are'} lost",
        f"{whys}. {count(n_calls, 'call')} that had started and not been reported "
        f"{'counts' if n_calls == 1 else 'count'} as lost{heirs}. Exit 4.",
    )


def _trouble(standing: Standing) -> Iterator[Banner]:
    if standing.trouble:
        yield Banner("trouble", "bad", "Something is wrong on this side", "; ".join(standing.trouble[:3]))
    if standing.coordinator.aborted is not None and standing.state != "done":
        yield Banner("aborted", "bad", "The run ends before its time", standing.coordinator.aborted)


def _done(standing: Standing) -> Iterator[Banner]:
    result = standing.result
    if result is None:
        return
    limits = standing.assertions
    holding = sum(each["verdict"] == "pass" for each in limits)
    held = f"{holding:,} of {count(len(limits), 'assertion')} pass. " if limits else "There were no assertions. "
    if result.exit_code:
        title, text = result.reasons[0], "; ".join((*result.reasons[1:4], ""))
    else:
        title, text = "Every limit holds, and the numbers can be trusted" if limits else "The run is over", ""
    yield Banner("done", "bad" if result.exit_code else "info", title, f"{text}{held}Exit {result.exit_code}.")


def _stopping(standing: Standing) -> Iterator[Banner]:
    if standing.state != "stopping":
        return
    coordinator, n_live = standing.coordinator, standing.n_live
    awaited = [peer.name for peer in coordinator.here]
    waiting = f"Waiting for {_listed(awaited)}" if awaited else "Writing the reports"
    if coordinator.phase == "cut":
        yield Banner("stopping", "info", f"Cutting {count(n_live, 'call')}", f"{waiting}.")
    elif coordinator.phase == "finish":
        text = f"No new ones follow. {waiting}."
        yield Banner("stopping", "info", f"The last {count(n_live, 'call')} {_go(n_live)} on", text)
    else:
        cut = f"; they are cut in {duration(standing.left_s)}" if standing.left_s is not None and n_live else ""
        yield Banner("stopping", "info", f"Letting {count(n_live, 'call')} finish", f"No new calls. {waiting}{cut}.")


def _go(n: int) -> str:
    return "goes" if n == 1 else "go"


def _idle(standing: Standing) -> Iterator[Banner]:
    if standing.state != "idle":
        return
    ready, here = standing.coordinator.ready, len(standing.coordinator.here)
    add = f"Add a worker: {standing.join}" if standing.join else "Workers of this machine are on their way."
    if not here:
        yield Banner("idle", "info", "Waiting for a worker", add)
    elif ready < here:
        yield Banner("idle", "info", f"{ready:,} of {count(here, 'worker')} ready", add)
    else:
        yield Banner("idle", "info", f"Ready: {count(ready, 'worker')}", add)


def _insecure(standing: Standing) -> Iterator[Banner]:
    if standing.insecure:
        text = "Whoever reaches its port can read the test and forge its results. Every report says so."
        yield Banner("insecure", "warn", "The master listens beyond this machine without authentication", text)


def _listed(names: Sequence[str]) -> str:
    """Some names as a sentence has them.

    >>> _listed(["w1", "w2", "w3"]), _listed([])
    ('w1, w2 and w3', '–')
    """
    shown = list(names[:5])
    if len(names) > 5:
        return f"{', '.join(shown)} and {len(names) - 5} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1]))) if shown else NOTHING
