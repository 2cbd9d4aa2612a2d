"""What wakes the pacer, and that whoever waits for a time beside it gets his turn."""

import gevent
import pytest

from voicebench.clock import monotonic_s
from voicebench.worker.ticker import (
    SleepAlarm,
    SleepTicker,
    TimerfdAlarm,
    TimerfdTicker,
    give_way,
    open_alarm,
    open_ticker,
)

pytestmark = [pytest.mark.slow, pytest.mark.alone]

TURN_S, BUSY_S = 0.01, 0.5


def wake_ups_beside(turn) -> float:
    """How often somebody who waits for a turn's length is woken beside a loop that is always busy: per turn of it."""
    wakes = turns = 0

    def wait() -> None:
        nonlocal wakes
        while True:
            gevent.sleep(TURN_S)
            wakes += 1

    other = gevent.spawn(wait)
    ends_s = monotonic_s() + BUSY_S
    while monotonic_s() < ends_s:
        until_s = monotonic_s() + TURN_S
        while monotonic_s() < until_s:
            pass
        turns += 1
        turn()
    other.kill()
    return wakes / turns


def test_giving_way_wakes_those_whose_time_has_come():
    assert wake_ups_beside(give_way) > 0.4  # every second turn: a time that begins after one is over after the next


@pytest.mark.parametrize("ticker", [TimerfdTicker, SleepTicker, open_ticker])
def test_a_ticker_that_is_always_late_lets_others_have_their_turn(ticker):
    made = ticker(0.001)
    assert wake_ups_beside(made.wait) > 0.4
    made.close()


@pytest.mark.parametrize("alarm", [TimerfdAlarm, SleepAlarm, open_alarm])
def test_an_alarm_for_a_time_that_has_passed_lets_others_have_their_turn(alarm):
    made = alarm()
    assert wake_ups_beside(lambda: made.wait_until(monotonic_s() - 1.0)) > 0.4
    made.close()


@pytest.mark.parametrize("alarm", [TimerfdAlarm, SleepAlarm])
def test_an_alarm_never_wakes_before_its_time_and_wakes_for_each(alarm):
    made, late_s = alarm(), []
    for after_s in (0.003, 0.0, 0.011, 0.0005):
        at_s = monotonic_s() + after_s
        made.wait_until(at_s)
        late_s.append(monotonic_s() - at_s)
    made.close()
    assert min(late_s) >= -1e-6
