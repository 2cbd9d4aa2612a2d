"""A loop that stands still is noticed from outside, and only then."""

import gevent.monkey
import pytest

from voicebench.clock import monotonic_s
from voicebench.wire.messages import Health
from voicebench.worker.lag import LagMeter
from voicebench.worker.member import Vitals
from voicebench.worker.watchdog import Away, Began, Ended, Guard, Watchdog, whereabouts

get_ident = gevent.monkey.get_original("_thread", "get_ident")


class Seen:
    """A guard that looks every tenth of a second at a loop whose turns are told."""

    def __init__(self) -> None:
        self.guard, self.found = Guard(), []
        self.now_s = 100.0
        self.turned_s = self.paced_s = self.now_s
        self.calls = 1

    def look(self, n: int = 1, *, turns: bool = True, paces: bool = True) -> None:
        for _ in range(n):
            self.now_s = round(self.now_s + 0.1, 6)
            self.turned_s = self.now_s if turns else self.turned_s
            self.paced_s = self.now_s if paces else self.paced_s
            paced_s = self.paced_s if self.calls else None
            self.found += self.guard.look(self.now_s, turned_s=self.turned_s, paced_s=paced_s, calls=self.calls)


def test_a_loop_that_turns_is_left_alone():
    seen = Seen()
    seen.look(100)
    assert seen.found == []


def test_a_loop_that_stands_still_is_told_once_after_a_second_and_how_long_it_stood_when_it_goes_on():
    seen = Seen()
    seen.look(5)
    seen.look(29, turns=False, paces=False)
    assert seen.found == [Began("loop", pytest.approx(1.1))]
    assert seen.guard.blocked_for_s(seen.now_s) == ("loop", pytest.approx(2.9))
    seen.look(5)
    assert seen.found[1:] == [Ended("loop", pytest.approx(3.0))]
    assert seen.guard.blocked_for_s(seen.now_s) is None


def test_without_calls_a_loop_may_take_its_time():
    seen = Seen()
    seen.calls = 0
    seen.look(50, turns=False, paces=False)
    assert seen.found == []


def test_a_pacer_that_looks_no_more_is_told_though_the_loop_turns():
    seen = Seen()
    seen.look(3)
    seen.look(15, paces=False)
    assert seen.found == [Began("pacer", pytest.approx(1.1))]
    seen.look()
    assert seen.found[1:] == [Ended("pacer", pytest.approx(1.6))]


def test_a_pacer_whose_calls_are_let_go_is_told_to_be_over_it():
    seen = Seen()
    seen.look(15, paces=False)
    seen.calls = 0
    seen.look()
    assert [type(each) for each in seen.found] == [Began, Ended]


def test_a_process_that_did_not_run_accuses_nobody_in_it():
    seen = Seen()
    seen.look(5)
    seen.now_s += 30.0
    seen.look(3, turns=False, paces=False)
    assert seen.found == [Away(pytest.approx(30.1))]
    seen.look(10, turns=False, paces=False)
    assert [type(each) for each in seen.found] == [Away, Began]


def test_a_block_that_outlasts_a_watcher_that_was_away_is_one():
    seen = Seen()
    seen.look(15, turns=False, paces=False)
    seen.now_s += 5.0
    seen.look(20, turns=False, paces=False)
    seen.look()
    assert [type(each) for each in seen.found] == [Began, Ended]


class StandingLoop:
    calls, paced_s = 2, None


class OneReading:
    unknown = ()

    def read(self, now_s, calls):
        return Health(n=1, over_s=1.0, calls=calls)

    def close(self):
        pass


def test_what_it_says_names_the_place_and_goes_with_the_beat():
    vitals, lags, said = Vitals(turned_s=0.0), LagMeter(), []
    dog = Watchdog(StandingLoop(), get_ident(), vitals, OneReading(), lags, said.append)
    now_s = 0.0
    while now_s < 1.5:
        dog.look(now_s)
        now_s += 0.1
    assert len(said) == 1
    assert "error: this worker's loop stands still, since 1.1 s, with 2 sessions: in test_what_it_says" in said[0]
    assert "dog.look(now_s)" in said[0]
    assert vitals.blocked.what == "loop"
    assert "test_watchdog.py" in vitals.blocked.where
    assert vitals.health.calls == 2
    assert lags.take()[0] == pytest.approx(1.4)
    vitals.turned_s = now_s
    dog.look(now_s)
    assert said[1] == "this worker's loop turns again, after 1.5 s\n"
    assert vitals.blocked is None


def test_the_place_is_in_the_users_own_code_where_that_called_somebody_elses():
    found = []

    def adapter():
        import json

        json.loads("{}", object_hook=lambda _: found.append(whereabouts(get_ident())))

    adapter()
    assert "<lambda>(), " in found[0][0] or "adapter(), " in found[0][0]
    assert "json" in found[0][1]


def test_a_thread_that_is_gone_is_no_error():
    assert whereabouts(-1) == ("its thread is gone", "")


def test_looking_is_cheap():
    dog = Watchdog(StandingLoop(), get_ident(), Vitals(turned_s=1e12), OneReading(), LagMeter(), print)
    began_s = monotonic_s()
    for n in range(1000):
        dog.look(n * 0.1)
    assert monotonic_s() - began_s < 1.0
