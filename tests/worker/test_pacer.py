"""The loop itself: due times, looks at the sockets, and what happens when it fails."""

import gevent
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.hearing_agent import Heard, HearingAgent
from tests.support.placing import Placing, ask, script
from voicebench import errors
from voicebench.clock import monotonic_s
from voicebench.worker import pacer as pacer_module
from voicebench.worker.call import Call
from voicebench.worker.engine import EngineLoad
from voicebench.worker.pacer import FRAMES_PER_WAKE, Pacer, WidestGap
from voicebench.worker.ticker import SleepTicker, TimerfdTicker
from voicebench.worker.wheel import SLOTS

LOUD = np.full(320, 4000, np.int16).tobytes()


def burn(duration_s: float) -> None:
    """Hold the only thread that all greenlets share."""
    until_s = monotonic_s() + duration_s
    while monotonic_s() < until_s:
        pass


def answers(after_frames: int, then=lambda: None, *, frames: int = 20):
    """Says `frames` packets, from its `after_frames`-th frame on."""

    def on_frame(heard: Heard) -> None:
        if after_frames <= len(heard.frames) < after_frames + frames:
            heard.say(LOUD)
        if len(heard.frames) == after_frames:
            then()

    return on_frame


@given(st.lists(st.floats(0.0001, 0.5), min_size=1, max_size=60), st.floats(0.001, 0.3))
def test_the_widest_gap_is_the_largest_within_the_window(gaps_s, window_s):
    sliding, now_s, looks = WidestGap(), 0.0, []
    sliding.window_s = window_s
    for gap_s in gaps_s:
        now_s += gap_s
        looks.append((now_s, gap_s))
        sliding.add(now_s, gap_s)
        expected = max(gap for at, gap in looks if now_s - at <= window_s)
        assert sliding.widest_ms == pytest.approx(1000 * expected)


def test_a_gap_in_which_nobody_waited_is_none():
    sliding = WidestGap()
    sliding.add(5.0, 5.0)
    sliding.forget()
    assert sliding.widest_ms == 0.0


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("make", [SleepTicker, TimerfdTicker])
def test_a_ticker_wakes_about_once_a_period_and_lets_others_run(make):
    ticker, others = make(0.005), []
    other = gevent.spawn(lambda: [others.append(gevent.sleep(0)) for _ in range(5)])
    began_s = monotonic_s()
    for _ in range(10):
        ticker.wait()
    took_s = monotonic_s() - began_s
    ticker.close()
    other.join()
    assert 0.03 <= took_s <= 1.0
    assert len(others) == 5


@pytest.mark.slow
@pytest.mark.alone
def test_a_ticker_that_is_behind_still_lets_others_run():
    ticker, ran = TimerfdTicker(0.001), []
    gevent.spawn(lambda: ran.append(True))
    burn(0.01)
    ticker.wait()
    ticker.close()
    assert ran


@pytest.mark.slow
@pytest.mark.alone
def test_sessions_that_start_together_are_spread_over_the_slots_of_a_frame():
    with HearingAgent().listening() as agent, Placing() as placing:
        way = placing.way(agent.url, script())
        calls = [placing.call(way) for _ in range(2 * SLOTS)]
        for call in calls:
            placing.pacer.add(call)
        frame_s = way.script.frame_s
        slots = sorted(round((call.zero_s - calls[0].zero_s) / frame_s * SLOTS, 3) % SLOTS for call in calls)
    assert slots == pytest.approx([slot for slot in range(SLOTS) for _ in range(2)], abs=0.01)


@pytest.mark.slow
@pytest.mark.alone
def test_the_first_frame_is_due_within_a_frame_of_the_handshake():
    with HearingAgent().listening() as agent, Placing() as placing:
        way = placing.way(agent.url, script())
        for _ in range(5):
            call = placing.call(way)
            before_s = monotonic_s()
            placing.pacer.add(call)
            assert before_s <= call.zero_s <= monotonic_s() + way.script.frame_s
            assert call.due_s == call.zero_s


class Answering:
    """Answers each question 200 ms after its end, with 400 ms; `on_speech(question, frame)` is called as it listens."""

    def __init__(self, on_speech) -> None:
        self.on_speech = on_speech
        self.question = self.frame = self.quiet = self.left = 0

    def __call__(self, heard: Heard) -> None:
        if self.left:
            self.left -= 1
            heard.say(LOUD)
        elif any(heard.frames[-1]):
            self.frame, self.quiet = self.frame + 1, 0
            self.on_speech(self.question, self.frame)
        elif self.frame:
            self.quiet += 1
            if self.quiet == 10:
                self.question, self.frame, self.left = self.question + 1, 0, 20


@pytest.mark.slow
@pytest.mark.alone
def test_a_loop_that_stood_still_for_50_ms_shows_in_the_turn_it_hit_and_in_no_other():
    of = script(
        ask("before"),
        ask("hit", after="agent_speech_end", delay_ms=300),
        ask("after", after="agent_speech_end", delay_ms=300),
    )
    agent = HearingAgent(Answering(lambda question, frame: burn(0.05) if (question, frame) == (1, 12) else None))
    with agent.listening(), Placing() as placing:
        (placed,) = placing.run([placing.way(agent.url, of)]).placed
    errors_ms = {turn.id: turn.error_ms for turn in placed.record.turns}
    assert placed.record.outcome.state == "finished", placed.record.outcome
    assert errors_ms["hit"] >= 28, errors_ms  # the next frame was due 20 ms into the stall
    assert max(errors_ms["before"], errors_ms["after"]) < 28, errors_ms
    assert not placed.record.turns[1].reliable


@pytest.mark.slow
@pytest.mark.alone
def test_a_packet_that_is_read_late_is_stamped_when_it_arrived():
    sent_s = []

    def say_and_block(heard: Heard) -> None:
        if len(heard.frames) == 45:
            heard.say(LOUD * 10)
            sent_s.append(monotonic_s())
            burn(0.03)

    with HearingAgent(say_and_block).listening() as agent, Placing() as placing:
        (placed,) = placing.run([placing.way(agent.url, script())]).placed
    arrived_s = placed.recording.packets.time_s[0] + placed.recording.extra["zero_monotonic_s"]
    assert arrived_s == pytest.approx(sent_s[0], abs=0.005)
    assert placed.recording.lateness.drain_gap_ms.max() >= 29
    assert placed.record.turns[0].error_ms >= 29


@pytest.mark.slow
@pytest.mark.alone
def test_after_a_stall_a_session_catches_up_two_frames_at_a_time(monkeypatch):
    sent_by_wake = []
    wake = Pacer._wake

    def counted_wake(pacer: Pacer) -> None:
        before = {call: call.tick for call in pacer._calls.values()}
        wake(pacer)
        sent_by_wake.extend(call.tick - tick for call, tick in before.items())

    monkeypatch.setattr(Pacer, "_wake", counted_wake)
    agent = HearingAgent(lambda heard: burn(0.3) if len(heard.frames) == 20 else None)
    with agent.listening(), Placing() as placing:
        (placed,) = placing.run([placing.way(agent.url, script())]).placed
    assert placed.record.outcome.reason == "no_audio"
    assert max(sent_by_wake) == FRAMES_PER_WAKE
    assert sent_by_wake.count(FRAMES_PER_WAKE) >= 5
    assert placed.recording.lateness.send_ms.max() >= 250
    assert len(placed.recording.lateness.send_ms) == placed.sent_frames


@pytest.mark.slow
@pytest.mark.alone
def test_owing_more_than_a_second_ends_the_session_as_our_own_failure():
    agent = HearingAgent(lambda heard: burn(1.3) if len(heard.frames) == 20 else None)
    with agent.listening(), Placing() as placing:
        (placed,) = placing.run([placing.way(agent.url, script())]).placed
    assert placed.record.outcome.reason == "generator"
    assert "ms late" in placed.record.outcome.detail
    assert len(placed.recording.lateness.send_ms) == placed.sent_frames < 30


@pytest.mark.slow
@pytest.mark.alone
def test_an_error_in_one_session_ends_it_as_ours_and_leaves_the_others_alone(monkeypatch):
    step = Call._decide
    victims = []

    def failing(call):
        if call.tick >= 10 and (not victims or victims == [call]):
            victims[:] = [call]
            raise ZeroDivisionError("made to fail")
        return step(call)

    monkeypatch.setattr(Call, "_decide", failing)
    with HearingAgent(answers(40)).listening() as agent, Placing() as placing:
        outcome = placing.run([placing.way(agent.url, script())] * 3)
    assert sorted(outcome.reasons, key=str) == [None, None, "generator"]
    (bad,) = [placed for placed in outcome.placed if placed.record.outcome.reason]
    assert bad.record.outcome.detail == "an error of the load generator: ZeroDivisionError: made to fail"
    assert not outcome.errors


@pytest.mark.slow
@pytest.mark.alone
def test_an_error_of_the_loop_itself_ends_the_run_with_every_session_accounted_for(monkeypatch):
    with HearingAgent().listening() as agent, Placing() as placing:
        outcome = placing.prepare([placing.way(agent.url, script())] * 3, EngineLoad(callers=3, sessions=300))

        def explode() -> None:
            gevent.sleep(0.5)
            monkeypatch.setattr(pacer_module, "monotonic_s", lambda: 1 / 0)

        gevent.spawn(explode)
        with gevent.Timeout(10), pytest.raises(ZeroDivisionError):
            outcome.engine.run()
    counts = outcome.engine.counts
    assert counts["started"] == counts["failed"] == len(outcome.placed) == 3
    assert outcome.reasons == ["generator"] * 3


@pytest.mark.slow
@pytest.mark.alone
def test_a_stopped_pacer_takes_no_more_calls():
    with HearingAgent().listening() as agent, Placing() as placing:
        call = placing.call(placing.way(agent.url, script()))
        placing.pacer.close()
        with pytest.raises(errors.TesterError, match="has stopped"):
            placing.pacer.add(call)


@pytest.mark.slow
@pytest.mark.alone
def test_a_call_that_cannot_be_watched_leaves_nothing_behind():
    with HearingAgent().listening() as agent, Placing() as placing:
        way = placing.way(agent.url, script())
        call = placing.call(way)
        placing.pacer.add(call)
        (wheel,) = placing.pacer._wheels.values()
        with pytest.raises(errors.TesterError, match="can't watch one more socket"):
            placing.pacer.add(call)  # the same socket twice
        assert (placing.pacer.live, len(wheel), sum(wheel.crowd)) == (1, 1, 1)
