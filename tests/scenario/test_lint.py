"""Advice: each warning once where it is true, and silence where all is well."""

from __future__ import annotations

import pytest

from voicebench.examples import EXAMPLES, example_text
from voicebench.scenario.lint import lint, talk_time_problem
from voicebench.scenario.model import Scenario
from voicebench.scenario.parse import any_of, parse_scenario
from voicebench.scenario.yaml_text import read_document

FIRST = "{id: a, audio: {synth: speech}}"


def warnings(turns: str, rest: str = "") -> list[str]:
    text = f"name: x\nturns: [{turns}]\n{rest}\n"
    return [f"{each.path}: {each.message}" for each in lint(parse_scenario(text, source="f"))]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_need_no_advice(name):
    document = read_document(example_text(name), source=name)
    scenario = any_of(document)
    if isinstance(scenario, Scenario):
        assert lint(scenario, document) == []


@pytest.mark.parametrize(
    ("turns", "rest", "path", "words"),
    [
        (f"{FIRST}, {{audio: {{synth: noise}}, start: {{timeout_ms: 4999}}}}", "",
         "turns[1].start.timeout_ms", "turn 'a' may be answered for 5000 ms: a late reply would count as this turn's talk-over"),
        ("{audio: {synth: speech}, start: {after: agent_speech_end, timeout_ms: 4000}}", "",
         "turns[0].start.timeout_ms", "a greeting that takes longer than 4000 ms is talked over"),
        (f"{FIRST}, {{audio: {{synth: noise}}, start: {{after: session_start}}}}", "", "turns[1].start.after", "previous_turn_end"),
        (f"{FIRST}, {{audio: {{synth: noise}}, start: {{delay_ms: -1}}}}", "", "turns[1].start.delay_ms", "means at once"),
        ("{audio: {synth: silence}}", "", "turns[0].audio", "the turn counts as never spoken"),
        ("{audio: {synth: noise, level_db: -46}}", "", "turns[0].audio", "vad.user.threshold_db (-45 dBFS)"),
        (FIRST, "adapter: {type: websocket}", "turns[0].audio.synth", "real agents do not take synthetic speech for speech"),
        (f"{FIRST}, {{audio: {{synth: speech}}, expect: stop}}", "", "turns[1].expect", "start it after agent_speech_start"),
        (f"{FIRST}, {{audio: {{synth: noise}}, expect: ignore, text: mm-hmm}}", "", "turns[1].text", "leave text out"),
        (FIRST, "assert: {max_wer: 1}", "assert.max_wer", "can only fail: no turn has a text"),
        (FIRST, "assert: {p50_barge_in_stop_ms: 1}", "assert.p50_barge_in_stop_ms", "can only fail: no turn has expect: stop"),
        (FIRST, "assert: {min_barge_in_success_rate: 1}", "assert.min_barge_in_success_rate", "no turn has expect: stop"),
        ("{audio: {synth: noise}, expect: ignore}", "assert: {mean_ttfa_ms: 1}", "assert.mean_ttfa_ms", "no turn has expect: respond"),
    ],
)  # fmt: skip
def test_what_will_not_measure_what_was_meant_is_told_once(turns, rest, path, words):
    (warning,) = warnings(turns, rest)
    assert warning.startswith(f"{path}: ")
    assert words in warning


@pytest.mark.parametrize(
    ("turns", "rest"),
    [
        (FIRST, "assert: {p95_response_latency_ms: 1, max_false_barge_ins: 0}"),
        (f"{FIRST}, {{audio: {{synth: noise}}, start: {{timeout_ms: 5000}}}}", ""),
        (f"{FIRST}, {{audio: {{synth: noise}}, start: {{after: previous_turn_end, timeout_ms: 0}}}}", ""),
        (f"{FIRST}, {{audio: {{synth: noise}}, start: {{after: agent_speech_start}}, expect: stop}}", ""),
        ("{audio: {synth: silence}, expect: ignore}", ""),
        ("{audio: {synth: noise}, expect: ignore}", "adapter: {type: websocket}"),
        ("{audio: {clip: opening}, text: hi}", "adapter: {type: websocket}\nassert: {max_wer: 1}"),
        ("{audio: {synth: noise, level_db: -50}}", "vad: {user: {threshold_db: -55}}"),
    ],
)
def test_what_is_well_is_passed_over(turns, rest):
    assert warnings(turns, rest) == []


def test_advice_has_the_place_in_the_file():
    document = read_document(f"name: x\nturns: [{FIRST}]\nassert: {{max_wer: 1}}\n", source="f.yaml")
    scenario = any_of(document)
    assert isinstance(scenario, Scenario)
    assert str(lint(scenario, document)[0]).startswith("f.yaml:3:10: assert.max_wer: can only fail")


def test_audio_that_cannot_fit_is_told():
    scenario = parse_scenario(f"name: x\nturns: [{FIRST}]\nmax_duration_ms: 1500", source="f")
    assert talk_time_problem(scenario, [1000.0, 500.0]) is None
    assert "lasts 1501 ms, the session 1500 ms" in str(talk_time_problem(scenario, [1000.0, 501.0]))
