"""Durations and rates with their units."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicebench.scenario.quantities import parse_duration_range_s, parse_duration_s, parse_rate_per_s


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("5m", 300.0), ("250ms", 0.25), ("1h", 3600.0), ("0s", 0.0), ("1.5m", 90.0)]
)
def test_durations_are_seconds(text, seconds):
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(("text", "per_s"), [("5/s", 5.0), ("30/m", 0.5), ("3600/h", 1.0), ("0.5/s", 0.5)])
def test_rates_are_per_second(text, per_s):
    assert parse_rate_per_s(text) == per_s


def test_a_bare_number_is_refused_with_what_to_write():
    with pytest.raises(ValueError, match=r"^'5' has no unit: write 5s, 5ms, 5m or 5h$"):
        parse_duration_s("5")
    with pytest.raises(ValueError, match=r"^'5' has no unit: write 5/s, 5/m or 5/h$"):
        parse_rate_per_s("5")


@pytest.mark.parametrize(
    "text", ["", "s", "-5s", "5 s", "5S", "1m30s", "5sec", "1e3s", "٣s", " 5s", "5s\n", "9" * 50 + "s"]
)
def test_other_forms_are_no_duration(text):
    with pytest.raises(
        ValueError, match="is not a duration: write a number and its unit, such as 250ms, 90s, 5m or 1h"
    ):
        parse_duration_s(text)


@pytest.mark.parametrize("text", ["0/s", "0.0/h"])
def test_a_rate_of_nothing_is_refused(text):
    with pytest.raises(ValueError, match="must be above 0"):
        parse_rate_per_s(text)


def test_slips_of_the_finger_are_refused():
    with pytest.raises(ValueError, match="more than 30 days"):
        parse_duration_s("5000h")
    with pytest.raises(ValueError, match="more than 100000 a second"):
        parse_rate_per_s("200000/s")


def test_a_range_has_two_ends_or_one():
    assert parse_duration_range_s("1s..5s") == (1.0, 5.0)
    assert parse_duration_range_s("500ms..1m") == (0.5, 60.0)
    assert parse_duration_range_s("2s") == (2.0, 2.0)


def test_a_range_that_runs_backwards_is_refused_with_the_right_one():
    with pytest.raises(ValueError, match=r"runs backwards: write 1s\.\.5s"):
        parse_duration_range_s("5s..1s")


@given(st.integers(0, 10**6), st.sampled_from([("ms", 0.001), ("s", 1.0), ("m", 60.0)]))
def test_whole_numbers_of_a_unit_are_exact(number, unit):
    name, factor = unit
    expected = number / 1000 if name == "ms" else number * factor
    if expected <= 30 * 86400:
        assert parse_duration_s(f"{number}{name}") == expected


@given(st.text())
def test_no_text_raises_anything_but_a_value_error(text):
    for parse in (parse_duration_s, parse_rate_per_s, parse_duration_range_s):
        with contextlib.suppress(ValueError):
            parse(text)
