"""A run in windows of time: exact whatever the order, and never a guess."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.made import ignore, not_played, respond, result, session, stop
from voicebench.master.timeline import COLUMNS, LONGEST_RUN_S, MAX_WINDOWS, OVER_TIME, WIDEST, Timeline
from voicebench.records import Outcome

FAILED = Outcome("failed", "dropped", "reset")


def answered(at_s: float, latency_ms: float | None = 500.0, **rest):
    """A session that is one respond turn whose audio ended at this time of the run."""
    return result(session(respond(latency_ms, end_s=0.0), **rest), started_s=at_s)


def timeline(*results) -> Timeline:
    made = Timeline()
    for each in results:
        made.take(each)
    return made


def test_a_turn_counts_where_its_audio_ended():
    turn = respond(700.0, end_s=6.5)
    made = timeline(result(session(turn), started_s=9.0)).as_dict()
    assert made["t_s"] == [0.0, 5.0, 10.0, 15.0]
    assert made["n"] == [0, 0, 0, 1]


def test_what_happened_is_counted_by_what_was_expected():
    record = session(
        respond(None, end_s=1.0), respond(300.0, end_s=1.0), stop(None, end_s=1.0), stop(250.0, end_s=1.0),
        ignore(false_barge_in=True, end_s=1.0), ignore(spurious=True, end_s=1.0), not_played(),
        outcome=FAILED,
    )  # fmt: skip
    made = timeline(result(record, started_s=0.0)).as_dict()
    first = {name: made[name][0] for name in COLUMNS}
    assert (first["respond_turns"], first["missed"], first["missed_rate"]) == (2, 1, 0.5)
    assert (first["barge_in_turns"], first["barge_in_failed"], first["barge_in_success_rate"]) == (2, 1, 0.5)
    assert (first["false_barge_ins"], first["spurious_responses"]) == (1, 1)
    assert (made["failed"][0], made["failed"][2]) == (0, 1)  # the session ended 10 s later


def test_twenty_values_make_a_percentile_and_a_hundred_a_p99():
    made = timeline(*[answered(1.0, 100.0 + n) for n in range(19)])
    assert made.as_dict()["p95_ms"] == [None]
    made.take(answered(1.0, 500.0))
    values = [*(100.0 + n for n in range(19)), 500.0]
    shown = made.as_dict()
    assert shown["p95_ms"] == [pytest.approx(np.percentile(values, 95))]
    assert shown["p50_ms"] == [np.percentile(values, 50)]
    assert shown["p99_ms"] == [None]


def test_a_window_with_few_looks_back_until_it_has_enough_and_no_further():
    first = [answered(2.0, 1000.0) for _ in range(20)]
    few = [answered(7.0, 200.0) for _ in range(15)]
    enough = [answered(12.0, 100.0) for _ in range(5)]
    made = timeline(*first, *few, *enough).as_dict()
    assert made["p50_ms"] == [1000.0, 1000.0, 200.0]  # 20; 15 + 20; 5 + 15
    assert made["n"] == [20, 15, 5]


def test_it_looks_back_a_minute_and_then_there_is_a_gap():
    made = timeline(*[answered(0.0) for _ in range(20)], answered(WIDEST * 5.0 + 6.0)).as_dict()
    assert made["p50_ms"][WIDEST - 1] == 500.0
    assert made["p50_ms"][WIDEST:] == [None, None]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 300), st.integers(100, 3000)), min_size=1, max_size=150), st.randoms())
def test_percentiles_are_numpys_of_the_windows_looked_back_at_whatever_the_order(turns, rng):
    shuffled = list(turns)
    rng.shuffle(shuffled)
    made = timeline(*[answered(at_s, float(ms)) for at_s, ms in turns]).as_dict()
    assert made == timeline(*[answered(at_s, float(ms)) for at_s, ms in shuffled]).as_dict()
    for index, shown in enumerate(made["p95_ms"]):
        values: list[float] = []
        for earlier in range(index, max(-1, index - WIDEST), -1):
            values += [float(ms) for at_s, ms in turns if int(at_s // 5.0) == earlier]
            if len(values) >= 20:
                break
        expected = np.percentile(values, 95) if len(values) >= 20 else None
        assert shown == (None if expected is None else pytest.approx(expected, abs=1e-9))


def test_calls_of_all_workers_are_added_at_the_last_instant_of_a_window():
    made = Timeline()
    for t_s, a, b in ((1.0, 3, 1), (4.0, 5, 2), (8.0, 6, 6)):
        made.sample(t_s, live=a, started=a)
        made.sample(t_s, live=b, started=b)
    shown = made.as_dict()
    assert shown["live"] == [7, 12]
    assert shown["starts_per_s"] == [round(7 / 4.0, 2), round(5 / 4.0, 2)]


def test_without_a_sample_nothing_is_said_of_calls():
    made = Timeline()
    made.sample(1.0, live=2, started=2)
    made.sample(16.0, live=4, started=8)
    shown = made.as_dict()
    assert shown["live"] == [2, None, None, 4]
    assert shown["starts_per_s"] == [2.0, None, None, 0.4]


def test_a_long_run_has_wider_windows_that_lose_nothing():
    rng = random.Random(7)
    turns = [(rng.uniform(0, 4 * MAX_WINDOWS * 5.0 - 1), rng.randrange(100, 3000)) for _ in range(3000)]
    made = timeline(*[answered(at_s, float(ms)) for at_s, ms in turns])
    shown = made.as_dict()
    assert shown["window_s"] == 20.0
    assert len(shown["t_s"]) <= MAX_WINDOWS
    assert sum(shown["n"]) == 3000
    for index in (0, 17, 500):
        values = [ms for at_s, ms in turns if int(at_s // 20.0) == index]
        assert shown["n"][index] == len(values)
    late_first = timeline(*[answered(at_s, float(ms)) for at_s, ms in sorted(turns, reverse=True)])
    assert late_first.as_dict() == shown


def test_samples_survive_wider_windows():
    made = Timeline()
    for second in range(int(MAX_WINDOWS * 5.0) + 20):
        made.sample(float(second), live=second % 7, started=second)
    shown = made.as_dict()
    assert shown["window_s"] == 10.0
    assert set(shown["starts_per_s"][1:]) == {1.0}
    assert shown["live"][3] == 39 % 7


def test_what_says_that_it_happened_next_year_costs_no_memory():
    made = timeline(answered(1e18), answered(0.0))
    assert len(made) <= MAX_WINDOWS
    assert made.window_s * len(made) >= LONGEST_RUN_S


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 200), st.integers(100, 3000)), max_size=120), st.integers(1, 10))
def test_what_has_changed_makes_an_older_copy_the_same(turns, each):
    """What a page does: it has a history, and gets the tail that changed."""
    made = Timeline()
    copy: dict = {name: [] for name in ("t_s", *COLUMNS)}
    for start in range(0, len(turns), each):
        for at_s, ms in turns[start : start + each]:
            made.take(answered(at_s, float(ms)))
        first, thinned = made.take_changed()
        assert not thinned
        tail = made.tail(first)
        for name, column in copy.items():
            column[first:] = tail[name]
        whole = made.as_dict()
        assert copy == {name: whole[name] for name in copy}
    assert made.take_changed() == (len(made), False)


def test_thinning_is_told():
    made = timeline(answered(0.0))
    made.take_changed()
    made.take(answered(MAX_WINDOWS * 5.0))
    assert made.take_changed() == (0, True)


def test_a_turns_p95_over_time_is_of_equal_parts_and_null_where_there_are_few():
    sessions = [result(session(respond(100.0 * (1 + part), end_s=0.0)), started_s=part * 60.0) for part in range(4)]
    made = timeline(*(sessions * 20), answered(241.0, 900.0))
    over_time = made.p95_over_time()[("made", "ask")]
    assert len(over_time) <= OVER_TIME
    assert [each for each in over_time if each is not None] == [100.0, 200.0, 300.0, 400.0]
