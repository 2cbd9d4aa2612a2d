"""The budget in minutes of conversation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from voicebench.load.budget import AudioBudget

LENGTHS_S = st.floats(0.5, 100.0)


@given(st.floats(0.0, 1000.0), LENGTHS_S)
def test_sessions_of_equal_length_never_exceed_it(max_s, session_s):
    budget = AudioBudget(max_s, session_s)
    n = 0
    while budget.affordable(going_on=0):
        budget.spend(session_s)
        n += 1
    assert n * session_s <= max_s + 1e-6


@given(st.floats(0.0, 1000.0), st.lists(LENGTHS_S, max_size=10), st.integers(0, 20))
def test_each_that_goes_on_costs_one_that_may_start(max_s, spent_s, going_on):
    budget = AudioBudget(max_s, 0.5)
    for session_s in spent_s:
        budget.spend(session_s)
    more, fewer = budget.affordable(going_on), budget.affordable(going_on + 1)
    assert fewer == max(0, more - 1)
