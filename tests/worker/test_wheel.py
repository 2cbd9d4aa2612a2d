"""When whose frame is due."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicebench.worker.wheel import SLOTS, Wheel

FRAME_S = 0.02


def visits(wheel: Wheel[str], now_s: float) -> list[tuple[float, list[str]]]:
    """All that are due by then."""
    found = []
    while (visit := wheel.next_visit(now_s)) is not None:
        if visit[1]:
            found.append(visit)
    return found


def test_calls_that_join_together_are_spread_over_the_slots():
    wheel = Wheel(FRAME_S, 100.0)
    zeros_s = sorted(wheel.join(f"c{n}", 100.0) for n in range(2 * SLOTS))
    assert zeros_s == pytest.approx([100.0 + n // 2 * FRAME_S / SLOTS for n in range(2 * SLOTS)])
    assert wheel.crowd == [2] * SLOTS


def test_a_call_that_has_left_makes_room_for_the_next():
    wheel = Wheel(FRAME_S, 0.0)
    for n in range(SLOTS):
        wheel.join(f"c{n}", 0.0)
    wheel.leave("c7")  # before its first frame
    visits(wheel, 0.05)
    wheel.leave("c9")
    wheel.join("new", 0.05)
    wheel.join("newer", 0.05)
    assert wheel.crowd == [1] * SLOTS
    assert len(wheel) == SLOTS


def test_an_empty_wheel_owes_nothing_for_the_time_that_passed():
    wheel = Wheel(FRAME_S, 0.0)
    wheel.join("first", 0.0)
    visits(wheel, 0.5)
    wheel.leave("first")
    assert visits(wheel, 3600.0) == []
    zero_s = wheel.join("second", 3600.0)
    assert 3600.0 <= zero_s <= 3600.0 + FRAME_S + 1e-9
    assert [due_s for due_s, _ in visits(wheel, zero_s + 2.5 * FRAME_S)] == pytest.approx(
        [zero_s + n * FRAME_S for n in range(3)]
    )


@given(
    st.lists(st.tuples(st.sampled_from(["join", "leave", "pass"]), st.integers(0, 400)), max_size=80),
    st.sampled_from([0.01, 0.02, 220 / 11025]),
    st.floats(0.0, 1e6),
)
def test_every_call_is_visited_once_a_frame_from_its_time_0_on_and_never_early(acts, frame_s, origin_s):
    wheel, now_s = Wheel(frame_s, origin_s), origin_s
    zeros_s: dict[str, float] = {}
    seen: Counter[str] = Counter()
    here: list[str] = []
    last_s = origin_s

    def look() -> None:
        nonlocal last_s
        for due_s, calls in visits(wheel, now_s):
            assert last_s <= due_s <= now_s
            last_s = due_s
            for call in calls:
                assert due_s == pytest.approx(zeros_s[call] + seen[call] * frame_s, abs=1e-6)
                seen[call] += 1

    for number, (act, how) in enumerate(acts):
        if act == "join":
            here.append(f"c{number}")
            zeros_s[here[-1]] = wheel.join(here[-1], now_s)
            assert now_s <= zeros_s[here[-1]] <= now_s + frame_s + 1e-6
        elif act == "leave" and here:
            wheel.leave(here.pop(how % len(here)))
        else:
            now_s += how / 10_000
            look()
        assert len(wheel) == len(here) == sum(wheel.crowd)
    now_s += 2 * frame_s
    look()
    for call in here:
        assert seen[call] == pytest.approx((now_s - zeros_s[call]) / frame_s, abs=1.001)
