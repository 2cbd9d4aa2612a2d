import numpy as np

from voicebench.audio.synth import render
from voicebench.scenario.adapter_options import mock_options
from voicebench.scenario.parse import parse_scenario
from voicebench.scoring import score
from voicebench.script import prepare
from voicebench.virtual import run_virtual

# The keys and options of a scenario of the single-machine package, with the results it gives on its own mock agent:
# the same numbers here are what "runs unmodified" means.
CONVERSATION = """
name: conversation
adapter:
  type: mock
  options:
    {endpoint_silence_ms: 300, response_delay_ms: 350, jitter_ms: 150, response_ms: 2500, barge_in_min_ms: 250,
     interrupt_reaction_ms: 120, transcripts: [one two, three, four five six, seven]}
turns:
  - {id: opening, audio: {synth: speech, duration_ms: 1800}, text: "One, two."}
  - {id: date, audio: {synth: speech, duration_ms: 1200, seed: 1}, start: {after: agent_speech_end, delay_ms: 400}, text: three}
  - {id: barge-in, audio: {synth: speech, duration_ms: 1400, seed: 2}, start: {after: agent_speech_start, delay_ms: 900},
     expect: stop, text: "Four five, six!"}
  - {id: cough, audio: {synth: noise, duration_ms: 180, level_db: -25}, start: {after: agent_speech_start, delay_ms: 600},
     expect: ignore}
  - {id: confirm, audio: {synth: speech, duration_ms: 900, seed: 3}, start: {after: agent_speech_end, delay_ms: 500}, text: seven}
"""


def script_of(text: str):
    scenario = parse_scenario(text, source="test.yaml")
    script = prepare(scenario, [render(turn.audio, scenario.sample_rate) for turn in scenario.turns])
    return script, mock_options(scenario.adapter.options)


def test_a_conversation_has_the_results_of_the_single_machine_package():
    script, options = script_of(CONVERSATION)
    record = score(run_virtual(script, options).recording("x", clock="virtual"))
    assert [(t.id, t.start_s, t.response_latency_ms, t.stop_ms, t.wer, t.passed) for t in record.turns] == [
        ("opening", 0.5, 760.0, None, 0.0, True),
        ("date", 5.96, 700.0, None, 0.0, True),
        ("barge-in", 8.76, 660.0, 380.0, 0.0, True),
        ("cough", 11.42, None, None, None, True),
        ("confirm", 13.82, 660.0, None, 0.0, True),
    ]
    assert (record.overlap_ms, record.agent_speech_ms, record.user_speech_ms) == (560.0, 8780.0, 5480.0)


def test_a_session_is_deterministic_to_the_bit():
    script, options = script_of(CONVERSATION)
    one, two = (run_virtual(script, options, seed=7).recording("x", clock="virtual") for _ in range(2))
    assert np.array_equal(one.agent, two.agent)
    assert np.array_equal(one.user, two.user)
    assert score(one) == score(two)


def test_another_seed_is_another_session():
    script, options = script_of(CONVERSATION)
    latencies = {
        score(run_virtual(script, options, seed=seed).recording("x", clock="virtual")).turns[0].response_latency_ms
        for seed in range(6)
    }
    assert len(latencies) > 1


def test_an_agent_that_never_answers_leaves_no_audio_and_missed_turns():
    script, _ = script_of(CONVERSATION)
    record = score(run_virtual(script, mock_options({"threshold_db": 0})).recording("x", clock="virtual"))
    assert record.outcome.reason == "no_audio"
    assert {turn.status for turn in record.turns if turn.expect == "respond"} == {"missed"}
