from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicebench.load.closed import first_start_s, pause_s, scenario_index, session_number


@given(callers=st.integers(1, 40), sessions=st.integers(0, 300))
def test_every_session_is_placed_by_exactly_one_caller(callers, sessions):
    placed = [session_number(caller, nth, callers) for caller in range(callers) for nth in range(sessions + 1)]
    assert sorted(number for number in placed if number < sessions) == list(range(sessions))


@given(weights=st.lists(st.floats(0.1, 10), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_the_mix_holds_its_weights_over_short_runs_too(weights, seed):
    counts = Counter(scenario_index(number, weights, seed) for number in range(100))
    assert all(abs(counts[i] - 100 * weight / sum(weights)) <= 5 for i, weight in enumerate(weights))


@given(number=st.integers(0, 10**9), seed=st.integers(0, 2**32))
def test_a_pause_lies_between_its_bounds_and_follows_from_number_and_seed(number, seed):
    assert 1.0 <= pause_s(number, (1.0, 5.0), seed) <= 5.0
    assert pause_s(number, (1.0, 5.0), seed) == pause_s(number, (1.0, 5.0), seed)


def test_pauses_differ_between_sessions():
    assert len({pause_s(number, (1.0, 5.0), 0) for number in range(50)}) == 50


@pytest.mark.parametrize(("caller", "rate", "start_s"), [(0, 2.0, 0.0), (5, 2.0, 2.5), (5, None, 0.0)])
def test_callers_join_at_the_spawn_rate(caller, rate, start_s):
    assert first_start_s(caller, rate) == start_s
