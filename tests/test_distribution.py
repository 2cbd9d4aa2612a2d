import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicebench.distribution import Distribution, round_ms

measured_ms = st.floats(-3e3, 3e4).map(round_ms)
shares_ms = st.lists(st.lists(measured_ms, max_size=30), max_size=8)
percents = st.one_of(st.sampled_from([0, 1, 50, 90, 95, 99, 99.9, 100]), st.floats(0, 100))


@given(shares=shares_ms, percent=percents)
def test_percentiles_do_not_care_which_worker_measured(shares, percent):
    merged = Distribution()
    for share in shares:
        merged = merged.merge(Distribution(share))
    together = Distribution(value for share in shares for value in share)
    assert merged == together
    assert merged.as_dict() == together.as_dict()
    assert merged.percentile(percent) == together.percentile(percent)


@given(values=st.lists(measured_ms, min_size=1, max_size=200), percent=percents)
def test_percentiles_equal_numpy_to_the_last_bit(values, percent):
    assert Distribution(values).percentile(percent) == float(np.percentile(np.array(values), percent))


@given(values=st.lists(measured_ms, min_size=1, max_size=200))
def test_extremes_and_mean_are_those_of_the_values(values):
    found = Distribution(values)
    assert (found.count, found.min, found.max) == (len(values), min(values), max(values))
    assert found.mean == pytest.approx(np.mean(values), abs=1e-9)


@given(one=st.lists(measured_ms), other=st.lists(measured_ms))
def test_merging_has_no_order_and_leaves_the_parts_alone(one, other):
    left, right = Distribution(one), Distribution(other)
    assert left.merge(right) == right.merge(left)
    assert left == Distribution(one)
    left.update(right)
    assert left == Distribution(one + other)


def test_one_value_is_every_percentile_and_none_is_null():
    assert {Distribution([412.3]).percentile(p) for p in (0, 50, 99, 100)} == {412.3}
    assert Distribution().as_dict() == dict.fromkeys(("min", "p50", "p90", "p95", "p99", "max", "mean")) | {"count": 0}


def test_counts_survive_a_round_trip():
    found = Distribution([1.0, 1.0, -2.5])
    assert Distribution.from_counts(found.counts) == found
    assert found.counts == {-25: 1, 10: 2}


def test_a_count_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        Distribution.from_counts({10: 0})


@pytest.mark.parametrize("percent", [-0.1, 100.1, float("nan")])
def test_a_percentile_outside_0_to_100_is_refused(percent):
    with pytest.raises(ValueError, match="between 0 and 100"):
        Distribution([1.0]).percentile(percent)
