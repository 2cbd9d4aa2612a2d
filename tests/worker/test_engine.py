"""The callers: who places what when, and that every session is accounted for, whatever happens."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gevent
import numpy as np
import pytest
from gevent.event import Event

from tests.support.hostile_agents import hostile_agents
from tests.support.placing import Placing, assert_accounted, script
from voicebench import errors
from voicebench.clock import monotonic_s
from voicebench.events import AgentAudio, AgentClosed
from voicebench.records import Outcome
from voicebench.script import Script
from voicebench.session import Session
from voicebench.worker import engine as engine_module
from voicebench.worker import settling
from voicebench.worker.adapters.base import SessionInfo
from voicebench.worker.desk import InlineDesk
from voicebench.worker.engine import REDIAL_S, Engine, EngineLoad, Placed
from voicebench.worker.routes import Held

LOUD = np.full(320, 4000, np.int16)


@dataclass
class Hold:
    session: Session
    ending: Outcome | None = None


@dataclass
class FakeRoute:
    """Holds sessions without an agent: `connect_s` to open the line, `talk_s` of talk, ended early by a cut."""

    talk_s: float = 0.02
    connect_s: float = 0.0
    clock: str = "virtual"
    fails: Callable[[SessionInfo], None] = lambda info: None
    ends_with: Callable[[Session], None] = lambda session: None
    script: Script = field(default_factory=script)
    began_s: list[float] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    def hold(self, info: SessionInfo, opened: Callable[[Any], None]) -> Held:
        self.began_s.append(monotonic_s())
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            gevent.sleep(self.connect_s)
            self.fails(info)
            session = Session(self.script)
            hold = Hold(session)
            opened(hold)
            session.hear(AgentAudio(LOUD, 0.0))
            self.ends_with(session)
            until_s = monotonic_s() + self.talk_s
            while monotonic_s() < until_s and hold.ending is None:
                gevent.sleep(0.002)
            session.step(0)
            session.end(hold.ending or Outcome("finished"), 50)
            return Held(session, 0.0, None)
        finally:
            self.at_once -= 1


def run(route: FakeRoute, **load: Any) -> tuple[Engine, list[Placed]]:
    placed: list[Placed] = []
    engine = Engine(
        [route], [1.0], EngineLoad(**{"callers": 1, "sessions": None, **load}), run_id="r", take=placed.append
    )
    with gevent.Timeout(20):
        engine.run()
    assert_accounted(engine)
    assert len(placed) == engine.counts["started"]
    return engine, placed


def raising(error: BaseException) -> Callable[[SessionInfo], None]:
    def fails(info: SessionInfo) -> None:
        raise error

    return fails


# ---------------------------------------------------------------- who places what


def test_every_session_is_placed_once_and_by_at_most_so_many_callers():
    route = FakeRoute()
    engine, placed = run(route, callers=4, sessions=13)
    assert sorted(each.number for each in placed) == list(range(13))
    assert route.most_at_once == 4
    assert engine.counts == {"started": 13, "finished": 13}
    assert engine.live == 0


def test_fewer_sessions_than_callers_are_placed_once_each():
    route = FakeRoute()
    _, placed = run(route, callers=50, sessions=3)
    assert sorted(each.number for each in placed) == [0, 1, 2]


@pytest.mark.slow
def test_a_run_ends_with_its_last_session_and_waits_for_no_caller_that_has_none():
    began_s = monotonic_s()
    run(FakeRoute(), callers=1000, sessions=3, spawn_rate_per_s=10.0)
    assert monotonic_s() - began_s < 5.0


@pytest.mark.slow
def test_callers_join_at_the_spawn_rate():
    route = FakeRoute(clock="real", talk_s=1.0)
    run(route, callers=5, sessions=5, spawn_rate_per_s=20.0)
    assert np.diff(route.began_s) == pytest.approx([0.05] * 4, abs=0.04)


@pytest.mark.slow
def test_calls_are_not_set_up_all_at_once():
    route = FakeRoute(clock="real", talk_s=1.0)
    run(route, callers=50, sessions=50)
    assert route.began_s[-1] - route.began_s[0] >= 49 * engine_module.DIAL_EVERY_S - 0.01


@pytest.mark.slow
def test_the_end_of_the_run_time_starts_no_more_sessions_and_lets_those_going_on_finish():
    engine, placed = run(FakeRoute(talk_s=0.3), callers=3, run_time_s=0.5)
    assert engine.counts["cut"] == 0
    assert len(placed) == 6


@pytest.mark.slow
def test_the_run_time_ends_the_wait_of_callers_that_have_not_joined():
    began_s = monotonic_s()
    _, placed = run(FakeRoute(talk_s=0.1), callers=100, run_time_s=0.3, spawn_rate_per_s=1.0)
    assert monotonic_s() - began_s < 3.0
    assert {each.number % 100 for each in placed} == {0}


@pytest.mark.slow
def test_what_outlasts_the_stop_timeout_is_cut_and_noted():
    engine, _ = run(FakeRoute(talk_s=60), callers=3, run_time_s=0.1, stop_timeout_s=0.1)
    assert engine.counts == {"started": 3, "cut": 3}
    assert engine.notes == ["3 sessions were cut 0.1 s after the end"]


@pytest.mark.slow
def test_a_stop_timeout_of_0_cuts_at_once():
    began_s = monotonic_s()
    engine, _ = run(FakeRoute(talk_s=60), callers=2, run_time_s=0.1, stop_timeout_s=0.0)
    assert engine.counts == {"started": 2, "cut": 2}
    assert monotonic_s() - began_s < 3.0


@pytest.mark.slow
def test_calls_that_are_still_being_set_up_are_cut_too():
    began_s = monotonic_s()
    engine, placed = run(FakeRoute(connect_s=60), callers=3, run_time_s=0.1, stop_timeout_s=0.0)
    assert engine.counts == {"started": 3, "cut": 3}
    assert [each.sent_frames for each in placed] == [0, 0, 0]
    assert [each.record.turns for each in placed] == [()] * 3
    assert monotonic_s() - began_s < 3.0


@pytest.mark.slow
def test_a_cut_while_the_agent_has_not_answered_the_upgrade_ends_the_run_at_once():
    with hostile_agents() as bad, Placing() as placing:
        way = placing.way(f"ws://127.0.0.1:{bad.port}/never-upgrades", script(), handshake_timeout_s=50)
        outcome = placing.prepare([way] * 3, EngineLoad(callers=3, sessions=None, run_time_s=0.3, stop_timeout_s=0.0))
        began_s = monotonic_s()
        with gevent.Timeout(20):
            outcome.engine.run()
        assert monotonic_s() - began_s < 3.0
    assert_accounted(outcome.engine)
    assert outcome.engine.counts["cut"] == 3


# ---------------------------------------------------------------- when it goes wrong


@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        (errors.AgentError("limited", "no more"), "limited", "no more"),
        (errors.TesterError("out of ports"), "generator", "out of ports"),
        (errors.AdapterError("it can't be made"), "generator", "it can't be made"),
        (ZeroDivisionError("made to fail"), "generator", "an error of the load generator: ZeroDivisionError: made to"),
    ],
)
def test_a_session_whose_line_never_opened_is_a_failed_one_with_its_reason(error, reason, words):
    engine, (placed,) = run(FakeRoute(fails=raising(error)), sessions=1)
    assert engine.counts == {"started": 1, "failed": 1}
    assert placed.record.outcome.reason == reason
    assert words in placed.record.outcome.detail
    assert (placed.sent_frames, placed.record.turns) == (0, ())


def test_an_error_in_one_session_does_not_take_the_others_down():
    def fails(info: SessionInfo) -> None:
        if info.number == 1:
            raise ZeroDivisionError("made to fail")

    engine, _ = run(FakeRoute(fails=fails), callers=3, sessions=6)
    assert engine.counts == {"started": 6, "finished": 5, "failed": 1}


def test_a_session_that_cannot_be_scored_is_accounted_for(monkeypatch):
    record_of = settling.record_of
    monkeypatch.setattr(settling, "record_of", lambda script, of: record_of(script, of) if not of.ticks else 1 / 0)
    engine, placed = run(FakeRoute(), sessions=2)
    assert engine.counts == {"started": 2, "failed": 2}
    assert "could not be scored: ZeroDivisionError" in placed[0].record.outcome.detail


def test_an_error_of_the_one_who_takes_sessions_in_ends_the_run_and_is_raised():
    def take(placed: Placed) -> None:
        raise ZeroDivisionError("made to fail")

    engine = Engine([FakeRoute()], [1.0], EngineLoad(callers=2, sessions=1000), run_id="r", take=take)
    with gevent.Timeout(20), pytest.raises(ZeroDivisionError, match="made to fail"):
        engine.run()
    assert engine.counts["started"] <= 4
    assert_accounted(engine)


@pytest.mark.slow
def test_a_dead_agent_is_dialled_about_once_a_caller_and_second():
    route = FakeRoute(clock="real", fails=raising(errors.AgentError("refused", "nobody there")))
    run(route, callers=3, run_time_s=2.5)
    assert len(route.began_s) <= 3 * 3
    assert len(route.began_s) >= 6


@pytest.mark.slow
def test_an_agent_that_accepts_and_hangs_up_at_once_is_not_hammered_either():
    route = FakeRoute(clock="real", talk_s=0.0, ends_with=lambda session: session.hear(AgentClosed(0.0, 1013)))
    _, placed = run(route, callers=2, run_time_s=1.5)
    assert {each.record.outcome.reason for each in placed} == {"limited"}
    assert len(placed) <= 2 * (1 + int(1.5 / REDIAL_S))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reason", "blamed"), [("timeout", "generator"), ("dropped", "generator"), ("limited", "limited")]
)
def test_a_process_that_stood_still_while_it_dialled_blames_no_agent_for_a_timeout(reason, blamed):
    def stand_still(info: SessionInfo) -> None:
        until_s = monotonic_s() + engine_module.PULSE_S + engine_module.STALL_S + 0.3
        while monotonic_s() < until_s:
            pass
        raise errors.AgentError(reason, "no answer")

    _, (placed,) = run(FakeRoute(connect_s=0.05, fails=stand_still), sessions=1)
    assert placed.record.outcome.reason == blamed
    assert "no answer" in placed.record.outcome.detail


def test_a_failed_session_makes_nobody_wait_on_the_virtual_clock():
    began_s = monotonic_s()
    run(FakeRoute(talk_s=0, fails=raising(errors.AgentError("refused", "x"))), sessions=20)
    assert monotonic_s() - began_s < 2.0


# ---------------------------------------------------------------- budget and warm-up


def test_no_session_starts_that_could_exceed_the_audio_minutes():
    engine, placed = run(FakeRoute(), callers=1, sessions=100, max_audio_s=5.0)
    assert sum(each.recording.duration_s for each in placed) <= 5.0
    assert 3 <= len(placed) < 100
    assert "audio minutes are used up" in engine.notes[0]


@pytest.mark.slow
def test_sessions_started_in_the_warm_up_are_marked():
    _, placed = run(FakeRoute(talk_s=0.2), callers=1, sessions=4, warmup_s=0.3)
    assert [each.warmup for each in placed] == [True, True, False, False]


def test_each_session_knows_its_number_scenario_and_start():
    _, placed = run(FakeRoute(), callers=2, sessions=4)
    assert {each.record.session_id for each in placed} == {f"r-{number:06d}" for number in range(4)}
    assert all(each.recording.extra["number"] == each.number for each in placed)
    assert all(each.recording.extra["started_at"].endswith("+00:00") for each in placed)


# ---------------------------------------------------------------- callers that come and go


class Gate:
    def __init__(self) -> None:
        self.open = True

    def is_open(self, caller: int, placed: int, started: int, now_s: float) -> bool:
        return self.open


class Sharing:
    """An engine whose callers are given and taken away."""

    def __init__(self, route: FakeRoute, *, callers: int = 4, sessions: int | None = 40) -> None:
        self.placed: list[Placed] = []
        self.started: list[tuple[int, int]] = []
        self.released: list[tuple[int, int]] = []
        self.gate = Gate()
        self.engine = Engine(
            [route], [1.0], EngineLoad(callers=callers, sessions=sessions), run_id="r", take=self.placed.append,
            gate=self.gate, on_start=lambda *each: self.started.append(each),
            on_release=lambda *each: self.released.append(each),
        )  # fmt: skip
        self.engine.begin(monotonic_s())

    @property
    def numbers(self) -> list[int]:
        return sorted(each.number for each in self.placed)

    def end(self) -> None:
        self.engine.finish()
        self.engine.join()


def wait_until(condition: Callable[[], Any]) -> None:
    with gevent.Timeout(20):
        while not condition():
            gevent.sleep(0.002)


def test_a_caller_goes_on_where_it_was_left_elsewhere():
    held = Sharing(FakeRoute(), callers=4, sessions=16)
    held.engine.hold({1: 2})
    held.engine.join()
    assert held.numbers == [9, 13]
    assert held.started == [(1, 3), (1, 4)]
    assert held.released == []


def test_a_caller_that_is_taken_away_ends_its_session_and_is_then_released_with_its_count():
    held = Sharing(FakeRoute(talk_s=0.3))
    held.engine.hold({0: 0, 1: 0})
    wait_until(lambda: len(held.started) == 2)
    held.engine.hold({0: 0})
    gevent.sleep(0.05)
    assert held.released == []
    wait_until(lambda: held.released)
    assert held.released == [(1, 1)]
    assert 1 in held.numbers
    held.end()


def test_a_caller_that_is_given_back_before_it_let_go_goes_on():
    held = Sharing(FakeRoute(talk_s=0.1))
    held.engine.hold({1: 0})
    wait_until(lambda: held.started)
    held.engine.hold({})
    held.engine.hold({1: 1})
    wait_until(lambda: len(held.started) >= 3)
    held.end()
    assert held.released == []
    assert held.started[:3] == [(1, 1), (1, 2), (1, 3)]


def test_a_caller_that_waits_or_is_through_is_released_at_once():
    held = Sharing(FakeRoute(), callers=4, sessions=5)
    held.gate.open = False
    held.engine.hold({0: 0, 2: 1})  # the second has nothing left
    wait_until(lambda: 2 not in held.engine._callers)
    held.engine.hold({})
    wait_until(lambda: len(held.released) == 2)
    assert sorted(held.released) == [(0, 0), (2, 1)]
    assert held.placed == []


def test_nobody_starts_while_the_gate_is_shut_and_looking_again_tells_that_it_is_open():
    held = Sharing(FakeRoute(), sessions=8)
    held.gate.open = False
    held.engine.hold(dict.fromkeys(range(4), 0))
    gevent.sleep(0.05)
    assert held.started == []
    held.gate.open = True
    held.engine.look_again()
    held.engine.join()
    assert held.numbers == list(range(8))


def test_finishing_lets_sessions_end_and_cuts_none():
    held = Sharing(FakeRoute(talk_s=0.1), sessions=None)
    held.engine.hold({0: 0, 1: 0})
    wait_until(lambda: len(held.started) == 2)
    held.end()
    assert held.numbers == [0, 1]
    assert held.engine.counts["cut"] == 0


# ---------------------------------------------------------------- sessions that wait to be settled


class SlowDesk(InlineDesk):
    """Settles nothing until it is told to."""

    def __init__(self, script: Script) -> None:
        super().__init__([script])
        self.open = Event()
        self.room = True

    @property
    def has_room(self) -> bool:
        return self.room

    def hand_in(self, case, session):
        self.settling += 1
        answer = super().hand_in(case, session)

        def wait():
            self.open.wait()
            self.settling -= 1
            return answer()

        return wait


def with_desk(route: FakeRoute, desk: SlowDesk, **load: Any) -> tuple[Engine, list[Placed]]:
    placed: list[Placed] = []
    engine = Engine([route], [1.0], EngineLoad(**load), run_id="r", take=placed.append, desk=desk)
    return engine, placed


def test_a_run_that_is_cut_ends_when_all_that_ended_is_settled():
    route = FakeRoute(talk_s=10.0, clock="real")
    desk = SlowDesk(route.script)
    engine, placed = with_desk(route, desk, callers=4, sessions=None)
    running = gevent.spawn(engine.run)
    with gevent.Timeout(20):
        while engine.live < 4:
            gevent.sleep(0.01)
        engine.cut()
        while engine.settling < 4:
            gevent.sleep(0.01)
        assert engine.live == 0
        assert not running.ready()
        desk.open.set()
        running.get()
    assert engine.counts == {"started": 4, "cut": 4}
    assert [each.record.outcome.state for each in placed] == ["cut"] * 4


def test_while_too_much_waits_to_be_settled_no_session_starts_and_callers_say_how_long_they_waited():
    route = FakeRoute(clock="real")
    desk = SlowDesk(route.script)
    desk.room = False
    desk.open.set()
    engine, placed = with_desk(route, desk, callers=2, sessions=2)
    running = gevent.spawn(engine.run)
    with gevent.Timeout(20):
        gevent.sleep(engine_module.WORTH_SAYING_S + 0.5)
        assert (engine.counts["started"], placed) == (0, [])
        desk.room = True
        running.get()
    assert engine.counts == {"started": 2, "finished": 2}
    assert any(re.fullmatch(r"callers waited \d+ s in all, .* for the scoring process.*", n) for n in engine.all_notes)


def test_a_live_session_is_kept_where_its_desk_says():
    route = FakeRoute()
    desk = SlowDesk(route.script)
    desk.open.set()
    kept: list[tuple[str, Any]] = []
    desk.keeper = lambda session_id: lambda start, samples: kept.append((session_id, samples))
    hold = route.hold

    def held(info, opened):
        def told(opening):
            opened(opening)
            opening.session._keeper(0, LOUD)

        return hold(info, told)

    route.hold = held
    engine, _ = with_desk(route, desk, callers=1, sessions=2)
    engine.run()
    assert [name for name, _ in kept] == ["r-000000", "r-000001"]
