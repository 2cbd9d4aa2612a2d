"""What is told of a strained load generator: each trouble once, in time, with its remedy, and that it is over."""

import pytest

from tests.master.test_coordinator import beat
from voicebench.master.report import HealthFacts
from voicebench.master.strain import CALM_S, Strain, troubles
from voicebench.wire.messages import Block, Health

QUIET = {"loop_cpu": 0.4, "waited": 0.01, "throttled_ms": 0.0, "steal": 0.0, "widest_gap_ms": 3.0, "worst_late_ms": 2.0}


def reading(n: int = 1, calls: int = 100, **rest) -> Health:
    return Health(n=n, over_s=1.0, calls=calls, **{**QUIET, **rest})


class Told:
    """One worker that beats once a second."""

    def __init__(self) -> None:
        self.strain, self.n, self.said = Strain(), 0, []

    def second(self, *, blocked: Block | None = None, times: int = 1, **rest) -> None:
        for _ in range(times):
            self.n += 1
            message = beat(self.n, live=3, health=reading(self.n, **rest), blocked=blocked)
            for _ in range(2):  # the same reading comes with several beats
                events = self.strain.hear(1, "w", message, 1000.0 + self.n, float(self.n))
                self.said += [(self.n, each.event, each.detail) for each in events]


@pytest.mark.parametrize(
    ("values", "kind", "words"),
    [
        ({"loop_cpu": 0.72}, "cpu", "72 % of a core with 100 calls: about 11 more fit before 80 %"),
        ({"loop_cpu": 0.80}, "cpu", "no more fit before 80 %"),
        ({"loop_cpu": 0.95}, "cpu", "more than 80 %, about 16 too many: lower the load or add a worker"),
        ({"widest_gap_ms": 21.0}, "lag", "read up to 21 ms apart: turns become unreliable"),
        ({"worst_late_ms": 11.0}, "lag", "sent up to 11 ms late"),
        (
            {"waited": 0.11},
            "waited",
            "waited for a CPU 11 % of the time: other processes take this core: pin the worker",
        ),
        ({"throttled_ms": 40.0}, "throttled", "CPU limit stopped its threads for 40 ms in a second: raise the limit"),
        ({"steal": 0.06}, "steal", "the host took 6 % of this machine's CPU time"),
    ],
)
def test_each_trouble_says_how_much_and_what_to_do(values, kind, words):
    (trouble,) = troubles(reading(**values))
    assert trouble.kind == kind
    assert words in trouble.what


@pytest.mark.parametrize(
    "values",
    [{"loop_cpu": 0.70}, {"widest_gap_ms": 20.0}, {"worst_late_ms": 10.0}, {"waited": 0.1}, {"steal": 0.05},
     dict.fromkeys(QUIET)],
)  # fmt: skip
def test_at_its_threshold_and_where_it_is_not_known_nothing_is_wrong(values):
    assert troubles(reading(**values)) == []


def test_what_a_machine_does_while_nobody_calls_is_no_trouble():
    assert troubles(reading(calls=0, loop_cpu=1.0, waited=1.0, steal=1.0, throttled_ms=500.0)) == []


def test_a_trouble_is_told_at_the_first_reading_with_whom_and_since_when_and_once():
    told = Told()
    told.second(times=3)
    told.second(times=10, waited=0.3)
    assert [each[:2] for each in told.said] == [(4, "warning")]
    assert told.said[0][2].startswith("w, since 3 s: its loop waited for a CPU 30 %")
    assert [each.kind for each in told.strain.standing(1)] == ["waited"]


def test_it_is_over_after_some_calm_seconds_and_then_told_anew():
    told = Told()
    told.second(times=2, steal=0.2)
    told.second(times=int(CALM_S))
    assert [each[1] for each in told.said] == ["warning"]
    told.second()
    assert told.said[1][1:] == ("calm", "w: the host takes no more of this machine's time, after 2 s")
    assert told.strain.standing(1) == []
    told.second(steal=0.2)
    assert [each[1] for each in told.said] == ["warning", "calm", "warning"]


def test_one_that_comes_and_goes_is_one():
    told = Told()
    for _ in range(20):
        told.second(worst_late_ms=30.0)
        told.second(times=3)
    assert [each[1] for each in told.said] == ["warning"]


def test_a_value_that_wavers_around_its_threshold_is_one_trouble():
    told = Told()
    told.second(loop_cpu=0.71)
    told.second(times=20, loop_cpu=0.66)
    assert [each[1] for each in told.said] == ["warning"]
    told.second(times=20, loop_cpu=0.62)
    assert [each[1] for each in told.said] == ["warning", "calm"]


def test_a_loop_that_stands_still_is_told_with_the_place_and_without_what_a_terminal_obeys():
    told = Told()
    told.second(blocked=Block(what="loop", for_s=1.1, where="in receive(), mine.py:7\x1b[2J"))
    assert told.said[0][1] == "blocked"
    assert "its loop stands still, and with it 3 calls: in receive(), mine.py:7" in told.said[0][2]
    assert "\x1b" not in told.said[0][2]
    told.second(times=7)
    assert told.said[1][1:] == ("calm", "w: its loop turns again, after 1 s")


def test_the_worst_seconds_are_kept_and_throttling_is_added_up():
    told = Told()
    told.second(loop_cpu=0.6, throttled_ms=30.0)
    told.second(loop_cpu=0.5, throttled_ms=20.0, worst_late_ms=9.0)
    told.second(calls=0, loop_cpu=1.0, steal=1.0)
    assert told.strain.worst(1) == HealthFacts(0.6, None, 0.01, 50.0, 0.0, 3.0, 9.0)
    assert told.strain.take_recent(1) == told.strain.worst(1)
    assert told.strain.take_recent(1) is None
    assert told.strain.worst(2) is None


def test_of_a_worker_that_went_the_last_reading_counts_and_its_silence_is_no_calm():
    strain = Strain()
    last = beat(1, health=reading(steal=0.2))
    assert [each.event for each in strain.hear(1, "w", last, 10.0, 1.0, is_here=False)] == ["warning"]
    assert strain.hear(1, "w", last, 100.0, 91.0, is_here=False) == []
    assert strain.worst(1).steal_share == 0.2


def test_of_a_machine_that_tells_nothing_nothing_is_kept():
    told = Told()
    told.second(**dict.fromkeys(QUIET))
    assert told.strain.worst(1) is None
