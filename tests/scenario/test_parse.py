"""Scenario files: what they become, and what is said about their mistakes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from voicebench.audio import synth
from voicebench.errors import Problem, ScenarioError
from voicebench.scenario.document import MAX_LEVEL_DB, SCENARIO_TEXT_AT, ScenarioShape
from voicebench.scenario.model import AdapterSpec, AudioSource, Plan, Scenario, StartRule, Turn, VadSettings
from voicebench.scenario.parse import parse_any, parse_scenario, scenario_from_document, schema_of
from voicebench.scenario.translate import schema_at

TURN = "{audio: {synth: speech}}"


def scenario(text: str) -> Scenario:
    return parse_scenario(text, source="f.yaml")


def with_turn(turn: str, rest: str = "") -> Scenario:
    return scenario(f"{{name: x, turns: [{turn}]{rest}}}")


def problems(text: str, parse=parse_scenario) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse(text, source="f.yaml")
    return [str(each) for each in caught.value.problems]


def complaint(text: str, parse=parse_scenario) -> str:
    """Path and message of the one mistake."""
    found = problems(text, parse)
    assert len(found) == 1, found
    return found[0].split(": ", 1)[1]


def turn_complaint(turn: str) -> str:
    return complaint(f"{{name: x, turns: [{turn}]}}")


# What a file becomes


def test_defaults_are_those_of_the_table():
    found = scenario("name: x\nturns:\n  - audio: {synth: speech}\n  - audio: {file: a.wav}\n")
    assert found == Scenario(
        name="x",
        turns=(
            Turn("turn-1", AudioSource(synth="speech"), StartRule("session_start", 500.0, 10000.0)),
            Turn("turn-2", AudioSource(file="a.wav"), StartRule("agent_speech_end", 0.0, 10000.0)),
        ),
    )
    assert found.vad_user == VadSettings(-45.0, 6.0, 10.0, 50.0, 250.0)
    assert (found.sample_rate, found.frame_ms, found.tail_ms, found.max_duration_ms) == (16000, 20.0, 3000.0, 120000.0)
    assert found.adapter == AdapterSpec("mock", {})
    turn = found.turns[0]
    assert (turn.expect, turn.text, turn.response_timeout_ms, turn.max_stop_ms) == ("respond", None, 5000.0, 1000.0)
    assert turn.audio == AudioSource(synth="speech", duration_ms=1000.0, level_db=-20.0, freq_hz=440.0, seed=0)


def test_every_key_reaches_the_model():
    text = """
        name: all
        description: d
        sample_rate: 8000
        frame_ms: 10
        tail_ms: 0
        max_duration_ms: 1.5e3
        vad:
          user: {threshold_db: -30, hysteresis_db: 0, frame_ms: 5, min_speech_ms: 0, min_silence_ms: 1}
          agent: {threshold_db: 3}
        adapter: {type: "my.adapters:Agent", options: {depth: {a: [1, true, null]}}}
        defaults: {response_timeout_ms: 1, max_stop_ms: 2}
        turns:
          - {id: a, audio: {synth: tone, duration_ms: 1, level_db: -3, freq_hz: 3999, seed: 9}, expect: ignore}
          - {id: b, audio: {clip: cough}, expect: stop, max_stop_ms: 0, response_timeout_ms: 0, text: "",
             start: {after: agent_speech_start, delay_ms: -5, timeout_ms: 0}}
        assert: {p99.9_ttfa_ms: -1, max_wer: 2}
    """
    found = scenario(text)
    assert (found.description, found.sample_rate, found.frame_ms) == ("d", 8000, 10.0)
    assert (found.tail_ms, found.max_duration_ms) == (0.0, 1500.0)
    assert found.vad_user == VadSettings(-30.0, 0.0, 5.0, 0.0, 1.0)
    assert found.vad_agent == VadSettings(threshold_db=3.0)
    assert found.adapter == AdapterSpec("my.adapters:Agent", {"depth": {"a": [1, True, None]}})
    assert found.turns == (
        Turn("a", AudioSource(None, None, "tone", 1.0, -3.0, 3999.0, 9), StartRule("session_start", 500.0), "ignore", None, 1.0, 2.0),
        Turn("b", AudioSource(clip="cough"), StartRule("agent_speech_start", -5.0, 0.0), "stop", "", 0.0, 0.0),
    )  # fmt: skip
    assert list(found.limits.items()) == [("p99.9_ttfa_ms", -1.0), ("max_wer", 2.0)]


def test_the_document_is_kept_as_read_without_defaults():
    text = (
        "name: x\nadapter: {options: {seed: 3, transcripts: [no, 1.10]}}\nturns: [{id: 0x1F, audio: {synth: speech}}]"
    )
    assert scenario(text).document == {
        "name": "x",
        "adapter": {"options": {"seed": 3, "transcripts": ["no", "1.10"]}},
        "turns": [{"id": "0x1F", "audio": {"synth": "speech"}}],
    }


@pytest.mark.parametrize("word", ["no", "on", "1", "true", "1.10", "0x1F", "012", "null_", "1:30", "~x"])
def test_an_id_is_the_text_that_was_typed(word):
    assert with_turn(f"{{id: {word}, audio: {{synth: speech}}}}").turns[0].id == word


def test_names_and_texts_are_read_as_typed_too():
    found = scenario("name: 2024\ndescription: true\nturns: [{text: 1.50, audio: {file: 01.wav}}]")
    assert (found.name, found.description) == ("2024", "true")
    assert (found.turns[0].text, found.turns[0].audio.file) == ("1.50", "01.wav")


def test_every_place_of_text_is_one_in_the_schema():
    schema = schema_of(ScenarioShape)
    for pattern in SCENARIO_TEXT_AT:
        if "options" not in pattern:
            node = schema_at(schema, tuple(0 if step == "*" else step for step in pattern))
            assert node.get("type") == "string", pattern


@pytest.mark.parametrize("key", ["vad", "adapter", "defaults", "assert", "description"])
def test_a_block_left_empty_is_as_good_as_left_out(key):
    plain = with_turn(TURN)
    assert replace(scenario(f"name: x\nturns: [{TURN}]\n{key}:\n"), document={}) == replace(plain, document={})


def test_whole_numbers_may_be_written_with_a_point():
    assert with_turn(TURN, ", sample_rate: 1.6e4").sample_rate == 16000


def test_generated_ids_count_from_one_by_place():
    found = scenario(f"name: x\nturns: [{TURN}, {{id: b, audio: {{synth: noise}}}}, {TURN}]")
    assert [turn.id for turn in found.turns] == ["turn-1", "b", "turn-3"]


def test_scenarios_of_voicebench_0_2_parse_unmodified():
    mock = scenario("""
name: phone
description: All that files of the mock adapter say.
sample_rate: 16000
frame_ms: 20
tail_ms: 2500
max_duration_ms: 60000
vad:
  user: {threshold_db: -40}
  agent: {threshold_db: -50, hysteresis_db: 3, frame_ms: 10, min_speech_ms: 40, min_silence_ms: 300}
adapter:
  type: mock
  options:
    endpoint_silence_ms: 250
    response_delay_ms: 300
    jitter_ms: 50
    response_ms: 2000
    greeting_ms: 500
    level_db: -18
    threshold_db: -40
    interruptible: yes
    barge_in_min_ms: 200
    interrupt_reaction_ms: 100
    transcripts: ["hello there", "stop"]
    seed: 4
defaults: {response_timeout_ms: 4000, max_stop_ms: 700}
turns:
  - id: hello
    audio: {synth: speech, duration_ms: 1500, level_db: -18, seed: 2}
    start: {after: session_start, delay_ms: 300}
    text: "Hello there."
  - id: over
    audio: {synth: tone, freq_hz: 300}
    start: {after: agent_speech_start, delay_ms: 700, timeout_ms: 8000}
    expect: stop
    max_stop_ms: 600
  - audio: {synth: noise, duration_ms: 150}
    start: {after: previous_turn_end}
    expect: ignore
assert:
  max_response_latency_ms: 1500
  p50_response_latency_ms: 900
  p90_response_latency_ms: 1200
  p50_ttfa_ms: 900
  max_barge_in_stop_ms: 500
  min_barge_in_success_rate: 1.0
  max_false_barge_ins: 0
  max_missed_responses: 0
  max_wer: 0.2
""")
    assert len(mock.limits) == 9
    assert mock.turns[1].max_stop_ms == 600.0
    assert mock.turns[2].response_timeout_ms == 4000.0
    socket = scenario("""
name: socket
adapter:
  type: websocket
  options:
    url: ws://127.0.0.1:8765/call
    agent_sample_rate: 24000
    start_message: {type: start, sample_rate: 8000}
    headers: {Authorization: "Bearer x"}
    connect_timeout_s: 5
turns: [{id: a, audio: {file: hello.wav}}]
""")
    assert socket.adapter.options["start_message"] == {"type": "start", "sample_rate": 8000}


# What is said about mistakes

TEN_MISTAKES = """\
name: refund
sample_rate: 16k
frame_ms: 1_000
descripton: typo
turns:
  - id: opening
    audio: {file: hello.wav, synth: speech}
    expect: stopp
  - id: opening
    audio: {synth: tone, freq_hz: 9000}
    start: {after: agent_speech, delay_ms: 500ms}
    text: [a]
adapter: {type: websockets, options: {url: ws://127.0.0.1}}
assert: {p95_respone_latency_ms: 900, max_failed_session_rate: 5}
"""


def test_all_mistakes_of_a_file_are_told_at_once_in_its_order():
    assert problems(TEN_MISTAKES) == [
        "f.yaml:2:14: sample_rate: '16k' is not a whole number from 8000 to 192000: write the number alone",
        "f.yaml:3:11: frame_ms: '1_000' is not a number from 5 to 1000. Write 1000",
        "f.yaml:4:1: descripton: unknown key. Did you mean 'description'?",
        "f.yaml:7:30: turns[0].audio.synth: stands beside file: write exactly one of file, clip and synth",
        "f.yaml:8:13: turns[0].expect: 'stopp' is not one of respond, stop, ignore. Did you mean 'stop'?",
        "f.yaml:9:9: turns[1].id: 'opening' is already the id of turns[0]: ids must be unique",
        "f.yaml:11:20: turns[1].start.after: 'agent_speech' is not one of session_start, previous_turn_end, "
        "agent_speech_start, agent_speech_end. Did you mean 'agent_speech_end'?",
        "f.yaml:11:44: turns[1].start.delay_ms: '500ms' is not a number from -86400000 to 86400000: write the number "
        "alone, the key's name has the unit (ms)",
        "f.yaml:12:11: turns[1].text: a list is not a text",
        "f.yaml:13:17: adapter.type: 'websockets' is not one of mock, websocket, module:Class. Did you mean 'websocket'?",
        "f.yaml:14:10: assert.p95_respone_latency_ms: 'p95_respone_latency_ms' is not an assertion. "
        "Did you mean 'p95_response_latency_ms'?",
        "f.yaml:14:64: assert.max_failed_session_rate: 5 is not a rate from 0 to 1. Write 0.05 for 5 %",
    ]


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        ("sample_rate: 7999", "7999 is not a whole number from 8000 to 192000"),
        ("sample_rate: 192001", "192001 is not a whole number from 8000 to 192000"),
        ("sample_rate: 16000.5", "16000.5 is not a whole number from 8000 to 192000"),
        ("sample_rate: true", "true is not a whole number from 8000 to 192000"),
        ("sample_rate: '16000'", "'16000' is not a whole number from 8000 to 192000. Write it without quotes"),
        ("sample_rate:", "has no value: write a whole number from 8000 to 192000, or leave the key out"),
        ("frame_ms: 4.9", "4.9 is not a number from 5 to 1000"),
        ("frame_ms: 020", "'020' is not a number from 5 to 1000: to some readers of YAML a leading zero means octal. Write 20"),
        ("frame_ms: .nan", "'.nan' is not a number from 5 to 1000: it must be finite"),
        ("tail_ms: -1", "-1 is not a number from 0 to 86400000"),
        ("max_duration_ms: 0", "0 is not a number above 0 and up to 86400000"),
        ("max_duration_ms: .inf", "'.inf' is not a number above 0 and up to 86400000: it must be finite"),
        ("name: ''", "'' is not a non-empty text on one line"),
        ("name: ' '", "' ' is not a non-empty text on one line"),
        ("name: {}", "an empty mapping is not a non-empty text on one line"),
        ("vad: []", "an empty list is not a mapping (key: value)"),
        ("defaults: {max_stop_ms: -1}", "-1 is not a number from 0 to 3600000"),
        ("assert: {max_wer: yes}", "'yes' is not a number"),
        ("assert: {max_wer: true}", "true is not a number"),
        ("assert: {max_wer: -1}", "-1 can never be met: a limit of 0 or more belongs here"),
        ("assert: {max_wear: 1}", "'max_wear' is not an assertion. Did you mean 'max_wer'?"),
        ("assert: {min_barge_in_success_rate: 1.1}", "1.1 is not a rate from 0 to 1. Write 0.011 for 1.1 %"),
        ("load: {callers: 3}", "'load' belongs in a plan, a file of its own that lists this one under `scenarios`"),
        ("whatever: 1", "unknown key; known here: name, description, sample_rate, frame_ms, tail_ms, max_duration_ms, vad, "
         "adapter, defaults, turns, assert"),
        ("vad: {threshold_db: 1}", "unknown key: write it below user or agent, as in agent: {threshold_db: ...}"),
        ("vad: {user: {frame_ms: 0}}", "0 is not a number above 0 and up to 1000"),
        ("vad: {user: {frame_ms: 0.01}}", "0.01 ms hold no sample at 16000 Hz: write at least 0.0625"),
        ("vad: {agent: {hysteresis_db: -1}}", "-1 is not a number, 0 or more"),
        ("adapter: {type: twilio}", "'twilio' is not one of mock, websocket, module:Class; profiles of other protocols are not "
         "supported yet"),
        ("adapter: {url: 'ws://u:p@h'}", "unknown key; an adapter has type and options, and what belongs to the agent goes "
         "below options"),
        ("adapter: {options: {responce_ms: 1}}", "unknown key. Did you mean 'response_ms'?"),
        ("adapter: {options: {jitter_ms: -1}}", "-1 is not a number from 0 to 3600000"),
        ("adapter: {options: {transcripts: 5}}", "5 is not a list"),
    ],
)  # fmt: skip
def test_each_value_is_judged_by_its_limits(rest, told):
    name = "" if rest.startswith("name") else "name: x\n"
    assert complaint(f"{name}turns: [{TURN}]\n{rest}\n").split(": ", 1)[1] == told


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        ("{}", "turns[0].audio: is missing: write a mapping (key: value)"),
        ("speech", "turns[0]: 'speech' is not a mapping (key: value)"),
        ("{audio: {}}", "turns[0].audio: says no sound: write exactly one of file, clip and synth"),
        ("{audio: hello.wav}", "turns[0].audio: 'hello.wav' is not a mapping (key: value)"),
        ("{audio: {synth: speach}}", "turns[0].audio.synth: 'speach' is not one of speech, tone, noise, silence. Did you mean 'speech'?"),
        ("{audio: {file: a, clip: b}}", "turns[0].audio.clip: stands beside file: write exactly one of file, clip and synth"),
        ("{audio: {file: a, seed: 1}}", "turns[0].audio.seed: has no effect on a file: it belongs to synth. Leave it out"),
        ("{audio: {clip: a, level_db: -9}}", "turns[0].audio.level_db: has no effect on a clip: it belongs to synth. Leave it out"),
        ("{audio: {synth: speech, duration_ms: 0}}", "turns[0].audio.duration_ms: 0 is not a number above 0 and up to 600000"),
        ("{audio: {synth: speech, level_db: 3}}", "turns[0].audio.level_db: 3 is not a number from -120 to -3"),
        ("{audio: {synth: tone, freq_hz: 8000}}", "turns[0].audio.freq_hz: 8000 Hz cannot be represented at 16000 Hz: write less than 8000"),
        ("{audio: {synth: noise, seed: -1}}", "turns[0].audio.seed: -1 is not a whole number from 0 to 4294967295"),
        ("{audio: {synth: speech}, expect: no}", "turns[0].expect: 'no' is not one of respond, stop, ignore"),
        ("{audio: {synth: speech}, expect: true}", "turns[0].expect: true is not one of respond, stop, ignore"),
        ("{audio: {synth: speech}, delay_ms: 3}", "turns[0].delay_ms: unknown key: write start: {delay_ms: ...}"),
        ("{synth: speech, audio: {clip: a}}", "turns[0].synth: unknown key: write audio: {synth: ...}"),
        ("{audio: {synth: speech}, start: {delay_ms: true}}", "turns[0].start.delay_ms: true is not a number from -86400000 to 86400000"),
        ("{audio: {synth: speech}, id: ''}", "turns[0].id: '' is not a non-empty text on one line"),
        ("{audio: {synth: speech}, id: " + "x" * 201 + "}", "turns[0].id: is too long: 201 characters, 200 fit"),
        ("{audio: {synth: speech}, max_stop_ms: -1}", "turns[0].max_stop_ms: -1 is not a number from 0 to 3600000"),
    ],
)  # fmt: skip
def test_each_turn_is_judged_by_its_limits(turn, told):
    assert turn_complaint(turn) == told


def test_frequency_is_judged_for_tones_alone():
    assert with_turn("{audio: {synth: speech, freq_hz: 9000}}").turns[0].audio.freq_hz == 9000.0


@pytest.mark.parametrize(
    ("turns", "told"),
    [
        ("[]", "turns: is empty: write at least one entry"),
        ("3", "turns: 3 is not a list with at least one entry"),
        (f"[{TURN}, {{id: turn-1, audio: {{synth: noise}}}}]",
         "turns[1].id: 'turn-1' is already the id of turns[0], which has no id of its own: ids must be unique"),
        (f"[{{id: turn-2, audio: {{synth: noise}}}}, {TURN}]",
         "turns[1].id: is missing, and 'turn-2' is already the id of turns[0]: give one of them another id"),
    ],
)  # fmt: skip
def test_turns_are_at_least_one_and_told_apart(turns, told):
    assert complaint(f"name: x\nturns: {turns}\n") == told


@pytest.mark.parametrize(
    ("text", "found"), [("", "empty"), ("- 1", "a list"), ("hello", "a text"), ("3", "3"), ("{}", "an empty mapping")]
)
def test_a_root_that_is_no_mapping_is_told(text, found):
    assert complaint(text) == f"the file is {found}: it must be a scenario (name: ..., turns: ...)"


def test_what_hangs_on_an_alias_is_not_judged():
    assert problems("name: x\nturns:\n  - &t {audio: {synth: speech}}\n  - *t\n") == [
        "f.yaml:3:5: turns[0]: anchors (&name) are not supported: leave it out, or put the text in quotes",
        "f.yaml:4:5: turns[1]: aliases (*name) are not supported: write the value out, or put it in quotes",
    ]


def test_mistakes_of_writing_and_of_meaning_are_told_together():
    assert problems(f"name: x\nname: y\nturns: [{TURN}]\ntail_ms: x\n") == [
        "f.yaml:2:1: name: the key is there already, at 1:1: keep one of the two",
        "f.yaml:4:10: tail_ms: 'x' is not a number from 0 to 86400000",
    ]


# Scenario or plan


def test_a_file_is_known_by_its_keys():
    assert isinstance(parse_any(f"name: x\nturns: [{TURN}]", source="f"), Scenario)
    assert isinstance(parse_any("name: x\nscenarios: [{file: a}]", source="f"), Plan)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: x", "the file has neither turns (then it is a scenario) nor scenarios (then it is a plan): add one of them"),
        ("scenarios: []\nturns: []", "scenarios: stands beside turns: a plan lists scenario files under `scenarios`, each of which "
         "has its own `turns`"),
        ("- 1", "the file is a list: it must be a scenario (name: ..., turns: ...) or a plan (name: ..., scenarios: ...)"),
    ],
)  # fmt: skip
def test_a_file_that_is_neither_or_both_is_told_how_to_choose(text, told):
    assert complaint(text, parse_any) == told


@pytest.mark.parametrize(("key", "right"), [("turn", "turns"), ("scenario", "scenarios")])
def test_a_misspelt_key_still_says_what_kind_of_file_it_is(key, right):
    assert f"f.yaml:2:1: {key}: unknown key. Did you mean '{right}'?" in problems(f"name: x\n{key}: []", parse_any)


# From a recording


def test_a_documents_mistakes_have_paths_but_no_lines():
    with pytest.raises(ScenarioError) as caught:
        scenario_from_document(
            {"name": "x", "turns": [{"audio": {"synth": "hum"}}]}, source="s.json", prefix="scenario"
        )
    assert str(caught.value) == (
        "s.json: scenario.turns[0].audio.synth: 'hum' is not one of speech, tone, noise, silence"
    )


def test_a_document_read_is_a_document_that_reads_again():
    first = scenario("name: x\nturns: [{id: 1.10, text: no, audio: {synth: speech}}]\nassert: {max_wer: 1}")
    again = scenario_from_document(json.loads(json.dumps(first.document)), source="s.json")
    assert again == first
    assert again.document == first.document


def test_a_recordings_adapter_no_longer_matters():
    found = scenario_from_document(
        {
            "name": "x",
            "turns": [{"audio": {"synth": "speech"}}],
            "adapter": {"type": "livekit", "options": {"room": 1}},
        },
        source="s.json",
    )
    assert found.adapter == AdapterSpec("livekit", {"room": 1})


def test_ids_of_a_document_may_be_numbers():
    turns = [{"id": 1, "audio": {"synth": "speech"}}, {"id": True, "audio": {"synth": "speech"}}]
    found = scenario_from_document({"name": "x", "turns": turns}, source="s.json")
    assert [turn.id for turn in found.turns] == ["1", "true"]


def deep(levels):
    inner = []
    for _ in range(levels):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    "odd", [float("nan"), float("inf"), 2**70, {1: 2}, "\ud800", "a\0b", object(), b"x", deep(100_000), {"\0a": 1}]
)
def test_a_document_that_json_could_not_carry_is_refused(odd):
    with pytest.raises(ScenarioError, match=r"^s\.json: "):
        scenario_from_document({"name": "x", "turns": [], "adapter": {"options": {"a": odd}}}, source="s.json")


# For all texts


def problems_if_any(parse) -> tuple[Problem, ...]:
    try:
        parse()
    except ScenarioError as error:
        return error.problems
    return ()


KEYS = [
    "name", "turns", "audio", "synth", "file", "clip", "start", "after", "delay_ms", "vad", "user", "frame_ms", "adapter", "type",
    "options", "assert", "max_wer", "scenarios", "load", "callers", "arrivals", "stages", "ramp", "to", "abort_on", "after",
    "record", "id", "text", "expect", "level_db", "seed", "url", "headers", "transcripts", "websocket", "mock",
]  # fmt: skip
scalars = st.sampled_from(
    [*KEYS, "no", 1, 0, -1, 1.5, True, None, "speech", "stop", "5/s", "1s", "${X}", "ws://h", 10**30, "\x85", "012"]
)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=25,
)


@given(
    documents | st.fixed_dictionaries({"name": scalars, "turns": documents, "adapter": documents, "assert": documents})
)
def test_no_document_raises_anything_but_a_scenario_error_with_places(document):
    text = yaml.safe_dump(document)
    assert all(each.line and each.column for each in problems_if_any(lambda: parse_any(text, source="f")))
    assert not any(each.line for each in problems_if_any(lambda: scenario_from_document(document, source="f")))


@given(st.text() | st.binary() | st.text(alphabet="nameturs:-{}[]& *\n 1"))
def test_no_text_raises_anything_but_a_scenario_error(text):
    problems_if_any(lambda: parse_any(text, source="f"))


def test_the_loudest_level_is_that_of_the_synthesis():
    assert synth.MAX_LEVEL_DB == MAX_LEVEL_DB
