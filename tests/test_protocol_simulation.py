"""Master and workers over a network that breaks, in virtual time, judged by a log of what really happened.

`VOICEBENCH_RANDOM_CASES=5000 pytest ...` plays more of it.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.support.protocol_world import Simulation, Trouble

RANDOM_CASES = int(os.environ.get("VOICEBENCH_RANDOM_CASES", "120"))
ENDS_BY_S = 400.0
POLITE = Trouble(kills=False, freezes=False, master_stalls=False, breaks=False)
SESSION_S = 1.0


def check_accounts(simulation: Simulation) -> None:
    """Nothing is started twice, and whatever was started is to be found in one place."""
    log, shares = simulation.world.log, simulation.coordinator.shares
    started = Counter(number for number, _, _ in log.started)
    stored = Counter(number for number, _ in log.stored)
    open_numbers = Counter(number for epoch in simulation.coordinator.peers for number in shares.open(epoch))
    maybe = Counter(shares.maybe_started.keys())
    assert [number for number, times in started.items() if times > 1] == [], "started twice"
    assert [number for number, times in (stored + open_numbers + maybe).items() if times > 1] == [], "counted twice"
    maybe_of_whom = set(shares.maybe_started.values())
    bounds = Counter((worker, number % simulation.plan.callers) for number, worker in shares.maybe_started.items())
    assert all(times == 1 for times in bounds.values()), "more than one number a caller may have been started"
    assert set(started) <= set(stored + open_numbers + maybe), "started and forgotten"
    assert set(stored + open_numbers) <= set(started), "counted and never started"
    peers = simulation.coordinator.peers
    assert all(peer.standing == "lost" for epoch, peer in peers.items() if shares.open(epoch))
    handed_in = {epoch for epoch, peer in peers.items() if peer.final is not None}
    assert not handed_in & {*maybe_of_whom, *(epoch for epoch in peers if shares.open(epoch))}, "in doubt for no reason"
    assert shares.started.total() == stored.total() + open_numbers.total()
    if simulation.plan.sessions is not None:
        assert max(started, default=0) < simulation.plan.sessions
        assert shares.not_placed == simulation.plan.sessions - stored.total() - open_numbers.total()
    who = {worker.member.epoch: worker.name for worker in simulation.workers}
    holders = {number: name for number, name, _ in log.started}
    assert all(holders[number] == who[epoch] for number, epoch in log.stored)


@pytest.mark.parametrize("seed", range(RANDOM_CASES))
def test_no_session_is_started_twice_or_forgotten_whatever_happens(seed):
    simulation = Simulation(seed, Trouble(slowest_s=(0.05, 0.3, 3.0)[seed % 3]))
    assert simulation.run(ENDS_BY_S), "it never ended"
    check_accounts(simulation)


@pytest.mark.parametrize("seed", range(RANDOM_CASES // 4))
def test_no_session_is_started_twice_or_forgotten_in_a_storm(seed):
    simulation = Simulation(40_000 + seed, Trouble(slowest_s=(0.05, 0.3, 1.0)[seed % 3], storms=True), ends=False)
    assert simulation.run(ENDS_BY_S), "it never ended"
    check_accounts(simulation)


@pytest.mark.parametrize("seed", range(RANDOM_CASES))
def test_workers_that_are_polite_place_the_whole_plan(seed):
    simulation = Simulation(10_000 + seed, POLITE, ends=False)
    assert simulation.run(ENDS_BY_S), "it never ended"
    check_accounts(simulation)
    if simulation.coordinator.aborted is None:  # else everybody had left
        assert sorted(number for number, _ in simulation.world.log.stored) == list(range(simulation.plan.sessions))
        assert simulation.coordinator.shares.maybe_started == {}
        simulation.say_goodbye()
        assert all(worker.exited for worker in simulation.workers if worker.member.epoch is not None)


@pytest.mark.parametrize("seed", range(RANDOM_CASES))
def test_a_budget_is_kept_whatever_happens(seed):
    affordable = seed % 23 + 1
    simulation = Simulation(20_000 + seed, Trouble(), ends=False, budget=(affordable * SESSION_S, SESSION_S))
    assert simulation.run(ENDS_BY_S), "it never ended"
    check_accounts(simulation)
    assert len(simulation.world.log.started) <= affordable


@pytest.mark.parametrize("seed", range(RANDOM_CASES))
def test_polite_workers_use_the_budget_up(seed):
    affordable = seed % 23 + 1
    simulation = Simulation(30_000 + seed, POLITE, ends=False, budget=(affordable * SESSION_S, SESSION_S))
    assert simulation.run(ENDS_BY_S), "it never ended"
    check_accounts(simulation)
    if simulation.coordinator.aborted is None:
        wanted = affordable if simulation.plan.sessions is None else min(affordable, simulation.plan.sessions)
        assert len(simulation.world.log.stored) == wanted
