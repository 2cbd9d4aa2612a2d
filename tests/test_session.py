import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.scripted import FRAME_MS, RATE_HZ, Scripted, loud, scenario, turn
from voicebench.events import AgentAudio, AgentClear
from voicebench.instants import s_to_ns
from voicebench.records import Outcome
from voicebench.scenario.model import VadSettings
from voicebench.script import prepare
from voicebench.session import Session
from voicebench.vad import detect_segments


def test_the_first_turn_starts_after_its_delay():
    call = Scripted(scenario(turn("hello", "session_start", delay_ms=300))).run_to(1)
    assert call.starts_s() == {"hello": 0.3}


def test_a_barge_in_starts_300_ms_into_the_agents_speech():
    call = Scripted(
        scenario(turn("ask", "session_start"), turn("barge-in", "agent_speech_start", delay_ms=300, expect="stop"))
    )
    call.speaks(from_s=1.0, for_s=2.0)
    assert call.starts_s()["barge-in"] == 1.3


def test_a_delay_shorter_than_the_detectors_confirmation_starts_when_the_onset_is_sure():
    call = Scripted(scenario(turn("ask", "session_start"), turn("barge-in", "agent_speech_start", delay_ms=0)))
    call.speaks(from_s=1.0, for_s=1.0)
    assert call.starts_s()["barge-in"] == 1.06  # 50 ms of speech, seen at the next tick


def test_an_anchor_before_the_previous_turns_end_does_not_count():
    call = Scripted(scenario(turn("ask", "session_start"), turn("next", "agent_speech_start")), clip_ms=1000)
    call.speaks(from_s=0.5, for_s=1.0).speaks(from_s=2.0, for_s=0.5)
    assert call.starts_s()["next"] == 2.06


def test_an_onset_exactly_at_the_previous_turns_end_counts():
    call = Scripted(scenario(turn("ask", "session_start"), turn("next", "agent_speech_start")), clip_ms=1000)
    call.speaks(from_s=1.0, for_s=0.5)
    assert call.starts_s()["next"] == 1.06


def test_the_delay_counts_from_the_backdated_offset():
    call = Scripted(scenario(turn("ask", "session_start"), turn("next", "agent_speech_end", delay_ms=400)))
    call.speaks(from_s=1.0, for_s=0.5).run_to(4)
    assert call.starts_s()["next"] == 1.9


def test_delay_0_after_the_agents_speech_means_the_detectors_hangover():
    call = Scripted(scenario(turn("ask", "session_start"), turn("next", "agent_speech_end")))
    call.speaks(from_s=1.0, for_s=0.5).run_to(4)
    assert call.starts_s()["next"] == 1.76  # 250 ms of silence, seen at the next tick


def test_an_agent_that_resumes_inside_the_delay_changes_nothing():
    call = Scripted(scenario(turn("ask", "session_start"), turn("next", "agent_speech_end", delay_ms=800)))
    call.speaks(from_s=1.0, for_s=0.5).speaks(from_s=2.0, for_s=1.0)
    assert call.starts_s()["next"] == 2.3


def test_without_its_anchor_a_turn_starts_on_the_timeout():
    call = Scripted(scenario(turn("ask", "session_start"), turn("next", "agent_speech_end", timeout_ms=1500)))
    call.run_to(3)
    assert call.starts_s()["next"] == 1.9
    assert call.session._played[1].trigger == "timeout"


def test_the_timeout_no_longer_applies_once_the_anchor_came():
    call = Scripted(
        scenario(turn("ask", "session_start"), turn("next", "agent_speech_start", delay_ms=3000, timeout_ms=1500))
    )
    call.speaks(from_s=1.5, for_s=0.5).run_to(6)
    assert call.starts_s()["next"] == 4.5


def test_the_session_ends_after_its_tail_when_the_agent_has_answered_and_stopped():
    call = Scripted(scenario(turn("ask", "session_start"))).speaks(from_s=1.0, for_s=0.5).run_out()
    assert call.session.outcome == Outcome("finished")
    assert call.recording().duration_s == 1.76  # the agent's silence is sure; the tail was over before


def test_the_session_waits_for_the_last_turns_time_out():
    call = Scripted(scenario(turn("ask", "session_start", response_timeout_ms=2000))).run_out()
    assert call.recording().duration_s == 2.42


def test_an_answer_in_the_last_moment_is_still_heard():
    call = Scripted(scenario(turn("ask", "session_start", response_timeout_ms=2000)))
    call.speaks(from_s=2.4, for_s=0.3).run_out()
    (ask,) = call.record().turns
    assert (ask.responded, ask.response_latency_ms) == (True, 2000.0)


def test_a_burst_is_played_in_real_time_before_the_session_ends():
    call = Scripted(scenario(turn("ask", "session_start"))).bursts(at_s=1.0, for_s=3.0).run_out()
    record = call.record()
    assert [(part.start_s, part.end_s) for part in record.agent_segments] == [(1.0, 4.0)]
    assert record.duration_s == 4.26


def test_an_agent_that_never_stops_sending_silence_has_stopped_speaking():
    plan = scenario(turn("ask", "session_start"), max_duration_ms=20000)
    stops = Scripted(plan).speaks(from_s=1.0, for_s=0.5).run_out()
    streams = Scripted(plan).streams(speech=(1.0, 1.5))
    assert streams.recording().duration_s == stops.recording().duration_s == 1.76
    assert streams.record().turns == stops.record().turns


def test_silence_queued_is_not_waited_for_and_speech_behind_it_is():
    plan = scenario(turn("ask", "session_start", response_timeout_ms=2000))
    silence = np.zeros(RATE_HZ, np.int16)
    quiet = Scripted(plan).hears(1.0, silence, silence, silence).run_out()
    assert quiet.recording().duration_s == 2.42
    speaks_late = Scripted(plan).hears(1.0, silence, loud(2000), silence).run_out()
    assert speaks_late.recording().duration_s == 4.26  # its end is sure 250 ms later


def test_turns_that_did_not_play_by_max_duration_truncate_the_session():
    call = Scripted(
        scenario(turn("ask", "session_start"), turn("next", "agent_speech_end"), max_duration_ms=2000)
    ).speaks(from_s=1.0, for_s=5.0)
    recording = call.run_out().recording()
    assert (recording.duration_s, recording.truncated, call.session.outcome) == (2.0, True, Outcome("finished"))
    assert [each.status for each in call.record().turns] == ["measured", "not_played"]


def test_reaching_max_duration_with_all_turns_played_truncates_nothing():
    call = Scripted(scenario(turn("ask", "session_start"), max_duration_ms=2000)).speaks(from_s=1.0, for_s=5.0)
    assert call.run_out().recording().truncated is False


def test_an_agent_that_sends_nothing_at_all_fails_the_session_and_its_turns_are_missed():
    record = Scripted(scenario(turn("ask", "session_start"))).run_out().record()
    assert (record.outcome.state, record.outcome.reason) == ("failed", "no_audio")
    assert [each.status for each in record.turns] == ["missed"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [(1000, "agent_hangup"), (1001, "agent_hangup"), (1013, "limited"), (1011, "dropped"), (None, "dropped")],
)
def test_a_close_before_the_last_turn_is_decided_fails_the_session(code, reason):
    call = Scripted(scenario(turn("ask", "session_start"), turn("next", "agent_speech_end")))
    call.speaks(from_s=0.6, for_s=0.1).closes(0.7, code).run_out()
    assert (call.session.outcome.state, call.session.outcome.reason) == ("failed", reason)
    assert "turn 1 of 2" in call.session.outcome.detail
    assert call.recording().duration_s == 0.72


def test_an_agent_that_hangs_up_once_all_is_decided_has_finished():
    call = Scripted(scenario(turn("ask", "session_start"))).speaks(from_s=0.6, for_s=0.3).closes(0.95, 1000).run_out()
    assert call.session.outcome == Outcome("finished")


def test_an_answer_drowned_by_a_reset_is_no_finished_session():
    call = Scripted(scenario(turn("ask", "session_start"))).speaks(from_s=0.6, for_s=0.3).closes(0.95, 1011).run_out()
    assert call.session.outcome.reason == "dropped"


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome("cut"), "unfinished"),
        (Outcome("lost"), "unfinished"),
        (Outcome("failed", "dropped"), "unfinished"),
        (Outcome("failed", "generator"), "unfinished"),
        (Outcome("failed", "agent_hangup"), "missed"),
    ],
)
def test_a_turn_open_when_its_session_breaks_off_is_unfinished_not_missed(outcome, status):
    call = Scripted(scenario(turn("ask", "session_start"), turn("next", "agent_speech_end"))).run_to(1.0)
    call.session.end(outcome, call.tick)
    assert [each.status for each in call.record().turns] == [status, "not_played"]


def test_a_turn_decided_before_its_session_broke_off_keeps_its_numbers():
    call = Scripted(scenario(turn("ask", "session_start"), turn("next", "agent_speech_end", delay_ms=5000)))
    call.speaks(from_s=1.0, for_s=0.5).run_to(2.0)
    call.session.end(Outcome("cut"), call.tick)
    ask, following = call.record().turns
    assert (ask.status, ask.response_latency_ms, following.status) == ("measured", 600.0, "not_played")


def test_a_session_that_never_sent_a_frame_has_no_turns():
    call = Scripted(scenario(turn("ask", "session_start")))
    call.session.end(Outcome("failed", "refused"), 0)
    assert (call.record().turns, call.recording().duration_s) == ((), 0.0)


def test_what_arrives_before_time_0_lies_at_0():
    call = Scripted(scenario(turn("ask", "session_start", delay_ms=1000)))
    call.session.hear(AgentAudio(loud(300), -0.2))
    record = call.run_out().record()
    assert record.agent_segments[0].start_s == 0.0


def test_a_packet_read_late_is_placed_at_the_horizon():
    call = Scripted(scenario(turn("ask", "session_start"), turn("next", "agent_speech_end"))).run_to(1.0)
    call.session.step(50)  # has listened up to 1.0 s
    call.session.hear(AgentAudio(loud(300), 0.9))
    call.tick = 51
    assert call.run_out().record().agent_segments[0].start_s == 1.0


def test_the_user_track_holds_exactly_what_the_steps_sent():
    plan = scenario(turn("ask", "session_start"), turn("next", "agent_speech_start", delay_ms=110))
    call = Scripted(plan, clip_ms=[333, 250]).speaks(from_s=1.0, for_s=1.0).run_out()
    script = call.session.script
    sent = [
        np.zeros(script.frame_samples, np.int16) if step.clip is None else script.frame(step.clip, step.at)
        for step in call.steps[:-1]
    ]
    assert np.array_equal(np.concatenate(sent), call.recording().user)


agent_acts = st.lists(
    st.tuples(
        st.sampled_from(["packet", "burst", "silence", "clear", "late"]),
        st.integers(0, 15),  # ticks until it happens
        st.integers(1, 700),  # ms
    ),
    max_size=25,
)


@settings(max_examples=150)
@given(
    acts=agent_acts,
    vad=st.builds(
        VadSettings,
        frame_ms=st.sampled_from([7.5, 10.0, 30.0]),
        min_speech_ms=st.sampled_from([0.0, 50.0, 120.0]),
        min_silence_ms=st.sampled_from([20.0, 250.0]),
    ),
    rate_hz=st.sampled_from([8000, 11025, 16000]),
)
def test_what_the_session_heard_online_is_what_the_finished_track_says(acts, vad, rate_hz):
    """Whatever arrives, in whatever order, early, late or cleared: the anchors are the offline detector's boundaries."""
    plan = scenario(turn("ask", "session_start"), max_duration_ms=30000, sample_rate=rate_hz, vad_agent=vad)
    session = Session(prepare(plan, [np.zeros(rate_hz // 2, np.int16)]))
    tick, wake = 0, 0
    for kind, ticks, duration_ms in acts:
        for _ in range(ticks):
            if tick >= wake and not session.ended:
                wake = session.step(tick).wake
            tick += 1
        now_s = tick * session.script.frame_s
        n = round(duration_ms * rate_hz / 1000)
        value = 0 if kind == "silence" else 2000
        when_s = max(0.0, now_s - 0.5) if kind == "late" else now_s - 0.001
        if kind == "clear":
            session.hear(AgentClear(when_s))
        else:
            session.hear(AgentAudio(np.full(n if kind == "burst" else min(n, rate_hz // 50), value, np.int16), when_s))
        wake = 0
    while not session.ended:
        if tick >= wake:
            wake = session.step(tick).wake
        tick += 1
    recording = session.recording("x", clock="virtual")
    offline = detect_segments(recording.agent, rate_hz, vad)
    open_at_the_end = session._vad.speaking
    assert session._onsets_ns == [s_to_ns(part.start_s) for part in offline]
    assert session._offsets_ns == [s_to_ns(part.end_s) for part in offline][: len(offline) - open_at_the_end]


@settings(max_examples=60)
@given(acts=agent_acts)
def test_stepping_only_when_asked_to_gives_what_stepping_at_every_tick_gives(acts):
    def drive(every_tick: bool):
        plan = scenario(
            turn("ask", "session_start", delay_ms=130),
            turn("more", "agent_speech_end", delay_ms=70, timeout_ms=900),
            turn("stop", "agent_speech_start", delay_ms=210, timeout_ms=700, expect="stop"),
            tail_ms=400,
            max_duration_ms=20000,
        )
        session = Session(prepare(plan, [loud(330)] * 3))
        due = {}
        tick = 0
        for kind, ticks, duration_ms in acts:
            tick += ticks
            due.setdefault(tick, []).append((kind, duration_ms))
        tick, wake = 0, 0
        while not session.ended:
            if every_tick:
                session._only_boundary_until = 0  # everything is decided anew
            if every_tick or tick >= wake:
                wake = session.step(tick).wake
            for kind, duration_ms in due.get(tick, ()):
                now_s = tick * FRAME_MS / 1000
                audio = loud(duration_ms) * (kind != "silence")
                if session.hear(AgentClear(now_s) if kind == "clear" else AgentAudio(audio, now_s)):
                    wake = 0
            tick += 1
        return session.recording("x", clock="virtual")

    lazy, eager = drive(False), drive(True)
    assert lazy.turns == eager.turns
    assert lazy.duration_s == eager.duration_s
    assert np.array_equal(lazy.user, eager.user)
    assert np.array_equal(lazy.agent, eager.agent)


def test_the_grid_of_an_odd_rate_is_whole_samples():
    plan = scenario(turn("ask", "session_start"), sample_rate=11025)
    script = prepare(plan, [np.zeros(5000, np.int16)])
    assert script.frame_samples == 220
    assert all(script.tick_from(script.tick_ns(tick)) == tick for tick in range(2000))
    assert RATE_HZ == 8000


def test_an_agent_that_sends_hours_ahead_is_stopped_by_the_short_way_too():
    session = Session(prepare(scenario(turn("ask", "session_start"), max_duration_ms=20000), [loud(330)]))
    a_minute = np.zeros(60 * RATE_HZ, np.int16)
    asked = [session.hear_audio(a_minute, 0.5) for _ in range(12)]
    assert asked[10], "the next tick is not to be told"
    assert session.over
    assert session.step(1).ended
    assert "ahead of its being heard" in session.outcome.detail
