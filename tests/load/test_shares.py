"""Who holds which callers, whatever workers do: played against workers that keep their own count."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicebench.load.shares import Shares


@pytest.mark.parametrize("n_workers", [1, 2, 3, 7])
def test_worker_k_of_n_begins_with_every_nth_caller(n_workers):
    shares = Shares(20, None)
    for worker in range(n_workers):
        shares.join(worker)
    shares.begin()
    for worker in range(n_workers):
        assert [caller for caller, _ in shares.share(worker)] == list(range(worker, 20, n_workers))


def test_a_caller_is_not_taken_back_from_who_never_heard_that_he_was_given_it():
    shares = Shares(2, None)
    shares.join(1)
    shares.begin()
    shares.join(2)
    assert shares.share(1) == ((0, 0), (1, 0))
    shares.heard(1, shares.version(1), [], [])
    assert len(shares.share(1)) == 1


@dataclass
class Worker:
    """Obeys its newest share, and starts nothing that the books have not confirmed."""

    version: int = 0
    held: dict[int, int] = field(default_factory=dict)
    released: dict[int, int] = field(default_factory=dict)

    def take(self, version: int, share: dict[int, int]) -> None:
        if version <= self.version:
            return
        self.version = version
        for caller in [caller for caller in self.held if caller not in share]:
            self.released[caller] = self.held.pop(caller)
        for caller, placed in share.items():
            self.held[caller] = max(placed, self.held.get(caller, 0), self.released.pop(caller, 0))


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(1, 40),
    st.lists(
        st.tuples(
            st.sampled_from(["join", "leave", "lose", "share", "beat", "start", "lost beat"]), st.integers(0, 99)
        ),
        max_size=80,
    ),
)
def test_whatever_workers_do_no_number_is_started_twice_and_all_are_placed_at_last(callers, sessions, steps):
    shares, workers, gone, started = Shares(callers, sessions), {0: Worker()}, set(), Counter()
    confirmed: dict[tuple[int, int], int] = {}

    def share(name: int) -> None:
        given = dict(shares.share(name))
        workers[name].take(shares.version(name), given)
        confirmed.update({(name, caller): placed for caller, placed in given.items()})

    def beat(name: int) -> None:
        worker = workers[name]
        shares.heard(name, worker.version, list(worker.held.items()), list(worker.released.items()))
        confirmed.update({(name, caller): placed for caller, placed in worker.held.items()})

    def start(name: int, which: int) -> None:
        worker = workers[name]
        able = [
            c for c, placed in worker.held.items() if confirmed[name, c] >= placed and c + placed * callers < sessions
        ]
        if able:
            caller = able[which % len(able)]
            started[caller + worker.held[caller] * callers] += 1
            worker.held[caller] += 1

    shares.join(0)
    shares.begin()
    for what, which in steps:
        alive = sorted(set(workers) - gone)
        name = alive[which % len(alive)]
        if what == "join":
            workers[len(workers)] = Worker()
            shares.join(len(workers) - 1)
        elif what == "leave":
            shares.leave(name)
        elif what == "lose" and len(alive) > 1:
            gone.add(name)
            shares.lose(name)
        elif what == "share":
            share(name)
        elif what == "beat":
            beat(name)
        elif what == "start":
            start(name, which)
        holders = Counter(caller for each in set(workers) - gone for caller in workers[each].held)
        assert all(n == 1 for n in holders.values())
    workers[len(workers)] = Worker()
    shares.join(len(workers) - 1)
    for _ in range(3 * sessions + 10):
        for name in set(workers) - gone:
            share(name)
            start(name, 0)
            beat(name)
    assert shares.exhausted
    assert all(times == 1 for times in started.values())
    known = {number for name in workers for number in shares.open(name)}
    assert known | set(shares.maybe_started) == set(range(sessions))
    assert known <= set(started) <= known | set(shares.maybe_started)


@given(st.integers(1, 30), st.lists(st.booleans(), max_size=12))
def test_callers_are_spread_evenly_once_all_have_let_go(callers, joins):
    shares, takers = Shares(callers, None), [0]
    shares.join(0)
    shares.begin()
    held: dict[int, set[int]] = {0: set()}
    for n, join in enumerate(joins, start=1):
        if join or len(takers) == 1:
            takers.append(n)
            held[n] = set()
            shares.join(n)
        else:
            shares.leave(takers.pop(0))
        for _ in range(3):
            for worker, callers_held in held.items():
                now = {caller for caller, _ in shares.share(worker)}
                shares.heard(worker, shares.version(worker), [], [(caller, 0) for caller in callers_held - now])
                held[worker] = now
    counts = [len(shares.share(worker)) for worker in takers]
    assert sum(counts) == callers
    assert max(counts) - min(counts) <= 1
