"""A session's record from the energies that were kept while it went on, and from its sound: the same to the last digit."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicebench import bundle
from voicebench import session as session_module
from voicebench.audio.level import frame_energies
from voicebench.events import AgentAudio, AgentClear, AgentClosed, AgentEvent, AgentTranscript
from voicebench.proceedings import Proceedings, energies_of, record_of, recording_of
from voicebench.recording import lateness_of
from voicebench.records import Outcome
from voicebench.scenario.parse import scenario_from_document
from voicebench.scoring import analysis_rules, score
from voicebench.script import Script, prepare
from voicebench.session import Keeper, Session

RATES_HZ = (8000, 11025, 16000, 24000, 48000)
CUT = Outcome("cut", None, "cut by the end of the run")


def script_at(rate_hz: int, user_frame_ms: float, agent_frame_ms: float) -> Script:
    audio = {"synth": "noise", "duration_ms": 100}
    document = {
        "name": "energies",
        "sample_rate": rate_hz,
        "tail_ms": 120,
        "max_duration_ms": 4000,
        "vad": {
            "user": {"frame_ms": user_frame_ms, "min_silence_ms": 60},
            "agent": {"frame_ms": agent_frame_ms, "min_silence_ms": 60},
        },
        "turns": [
            {"id": "ask", "audio": audio, "start": {"after": "session_start", "delay_ms": 100}, "response_timeout_ms": 600},
            {"id": "barge-in", "audio": audio, "expect": "stop", "max_stop_ms": 300,
             "start": {"after": "agent_speech_start", "delay_ms": 130, "timeout_ms": 700}},
            {"id": "cough", "audio": audio, "expect": "ignore", "response_timeout_ms": 300,
             "start": {"after": "previous_turn_end", "delay_ms": 15}},
            {"id": "last", "audio": audio, "text": "one two three", "response_timeout_ms": 500,
             "start": {"after": "agent_speech_end", "timeout_ms": 500}},
        ],
    }  # fmt: skip
    rng = np.random.default_rng(rate_hz)
    lengths = [int(rate_hz * part_s) + odd for part_s, odd in ((0.3, 7), (0.2, 0), (0.11, 1), (0.25, 33))]
    clips = [rng.integers(-6000, 6000, length, dtype=np.int16) for length in lengths]
    return prepare(scenario_from_document(document, source="test", prefix=""), clips)


SCRIPTS = {
    (rate_hz, user_frame_ms): script_at(rate_hz, user_frame_ms, agent_frame_ms)
    for rate_hz in RATES_HZ
    for user_frame_ms, agent_frame_ms in ((10.0, 10.0), (7.5, 20.0), (33.3, 5.0))
}

DEEDS = st.tuples(
    st.sampled_from(["packet", "packet", "packet", "burst", "silence", "clear", "late", "said"]),
    st.integers(0, 9),  # ticks until then
    st.integers(1, 1700),  # samples
    st.sampled_from([0, 3, 90, 400, 9000, 32767]),
)


def held(
    script: Script,
    deeds: list[tuple[str, int, int, int]],
    end_tick: int | None,
    how: str,
    keeper: Keeper | None = None,
) -> Session:
    """A session driven as the pacer does: steps when it asks for them."""
    session, rng, wake = Session(script), np.random.default_rng(1), 0
    session.keep_with(keeper)
    at: dict[int, list[tuple[str, int, int]]] = {}
    tick = 0
    for what, ticks, length, level in deeds:
        tick += ticks
        at.setdefault(tick, []).append((what, length, level))
    tick = 0
    while not session.ended:
        if tick == end_tick and how == "cut":
            session.end(CUT, tick)
            break
        if tick >= wake:
            wake = session.step(tick).wake
        events = [event_of(*deed, tick * script.frame_s + 0.0071, rng) for deed in at.get(tick, ())]
        if tick == end_tick:
            events.append(AgentClosed(tick * script.frame_s, 1000 if how == "closes" else None))
        for event in events:
            if session.hear(event):
                wake = tick + 1
        tick += 1
    return session


def event_of(what: str, length: int, level: int, now_s: float, rng: np.random.Generator) -> AgentEvent:
    if what == "clear":
        return AgentClear(now_s)
    if what == "said":
        return AgentTranscript("user", "one too three", now_s)
    length *= {"burst": 40, "silence": 10}.get(what, 1)
    samples = rng.integers(-level, level + 1, length).astype(np.int16) * np.int16(what != "silence")
    return AgentAudio(samples, max(0.0, now_s - 0.5) if what == "late" else now_s)


@given(
    which=st.sampled_from(sorted(SCRIPTS)),
    deeds=st.lists(DEEDS, max_size=25),
    end_tick=st.none() | st.integers(0, 180),
    how=st.sampled_from(["cut", "closes", "breaks"]),
)
@settings(deadline=None, max_examples=150)
def test_the_record_from_energies_is_that_of_the_recording_and_of_its_bundle(which, deeds, end_tick, how):
    script = SCRIPTS[which]
    session = held(script, deeds, end_tick, how)
    rng = np.random.default_rng(2)
    late = lateness_of(rng.random(session.ticks) * 12, rng.random(session.ticks) * 12)
    of = session.proceedings("run-000001", clock="real", lateness=late, extra={"number": 1})
    of = msgspec.msgpack.decode(msgspec.msgpack.encode(of), type=Proceedings)  # as another process gets it
    recording = recording_of(script, of, session.agent_track())
    record = record_of(script, of)
    assert record == score(recording)
    assert record == score(bundle.decode(bundle.encode(recording, script.scenario.document), source="read again"))
    kept, rules = energies_of(script, of), analysis_rules(script.scenario)
    for energies, track, rule in zip(kept, (recording.user, recording.agent), rules, strict=True):
        assert energies.tolist() == frame_energies(track, rule.frame_samples).tolist()


@given(
    which=st.sampled_from(sorted(SCRIPTS)),
    deeds=st.lists(DEEDS, max_size=25),
    end_tick=st.none() | st.integers(0, 180),
    kept_samples=st.integers(1, 9000),
    listen_every_s=st.sampled_from([0.02, 0.1, 0.5]),
    refusals=st.integers(0, 3),
)
@settings(deadline=None, max_examples=150)
def test_a_session_whose_sound_is_kept_elsewhere_as_it_grows_is_the_same(
    which, deeds, end_tick, kept_samples, listen_every_s, refusals
):
    script, asked, kept = SCRIPTS[which], [0], []
    # One that is read late is heard from where the session has listened to: that depends on when it does.
    deeds = [deed for deed in deeds if deed[0] != "late"]

    def keep(start: int, samples: np.ndarray) -> bool:
        asked[0] += 1
        if asked[0] % (refusals + 1):
            return False
        kept.append((start, samples.copy()))
        return True

    here = held(script, deeds, end_tick, "cut")
    with (
        patch.object(session_module, "KEPT_SAMPLES", kept_samples),
        patch.object(session_module, "LISTEN_EVERY_S", listen_every_s),
    ):
        elsewhere = held(script, deeds, end_tick, "cut", keep)
        kept += elsewhere.agent_blocks()
    assert elsewhere.proceedings("x", clock="real") == here.proceedings("x", clock="real")
    together = [samples for _, samples in kept]
    assert [start for start, _ in kept] == np.cumsum([0, *map(len, together)])[:-1].tolist()
    assert np.array_equal(np.concatenate([*together, []]), here.agent_track())
    if not refusals:
        assert all(len(samples) == kept_samples for _, samples in kept[:-1])


def test_a_live_session_keeps_some_seconds_of_its_sound_and_what_is_ahead():
    script = SCRIPTS[24000, 10.0]
    patient = prepare(replace(script.scenario, tail_ms=120_000.0, max_duration_ms=120_000.0), script.clips)
    session, n_kept, wake, most_bytes = Session(patient), 0, 0, 0

    def keep(start: int, samples: np.ndarray) -> bool:
        nonlocal n_kept
        assert start == n_kept
        n_kept += len(samples)
        return True

    session.keep_with(keep)
    loud = np.full(480, 9000, np.int16)
    for tick in range(5500):
        if tick >= wake:
            wake = session.step(tick).wake
        if tick % 1000 < 800 and session.hear(AgentAudio(loud, tick * script.frame_s)):
            wake = tick + 1
        most_bytes = max(most_bytes, session._playout._track.nbytes)
    assert n_kept > 100 * 24000
    assert most_bytes <= 256 << 10


def test_a_session_that_goes_on_has_no_proceedings():
    with pytest.raises(RuntimeError, match="has not ended"):
        Session(SCRIPTS[8000, 10.0]).proceedings("x", clock="real")
