"""A scenario that went to a worker plays there as it does on the master."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicebench.audio import synth
from voicebench.errors import WireError
from voicebench.load_files import apply_adapter
from voicebench.scenario.adapter_options import mock_options
from voicebench.scenario.model import AdapterSpec
from voicebench.scenario.parse import parse_scenario
from voicebench.scenario.prepared import PreparedScenario
from voicebench.scenario.shipping import clips_of, pack, unpack
from voicebench.scoring import score
from voicebench.script import prepare
from voicebench.virtual import run_virtual

TWO_TURNS = """
name: 007
sample_rate: 8000
defaults: {response_timeout_ms: 1e3}
vad: {agent: {threshold_db: -40}}
adapter: {type: mock, options: {response_delay_ms: "120", transcripts: [1, two]}}
assert: {max_missed_responses: 0, p95_response_latency_ms: 900}
tail_ms: 700
turns:
  - {id: 1, audio: {synth: speech, duration_ms: 600}}
  - {audio: {synth: speech, duration_ms: 400, seed: 3}, expect: stop, start: {after: agent_speech_start, delay_ms: 250}}
"""


def made(text: str = TWO_TURNS, *, file: str = "talk.yaml") -> PreparedScenario:
    """As the loader makes it: the audio read-only at the scenario's rate."""
    scenario = parse_scenario(text, source=file)
    clips = tuple(synth.render(turn.audio, scenario.sample_rate) for turn in scenario.turns)
    for clip in clips:
        clip.setflags(write=False)
    return PreparedScenario(scenario, clips, file)


def shipped(prepared: PreparedScenario) -> PreparedScenario:
    (name,), assets = pack([prepared])
    return unpack(assets[name], {sha: data for sha, data in assets.items() if sha != name})


def same_to_the_type(value: object) -> str:
    """JSON tells 1, 1.0, true and "1" apart, and keeps the order of keys."""
    return json.dumps(value)


@st.composite
def scenarios(draw) -> PreparedScenario:
    milliseconds = st.one_of(st.integers(0, 3000), st.floats(0, 3000), st.integers(0, 3000).map(str))
    turns = [
        {
            "audio": {"synth": draw(st.sampled_from(["speech", "noise", "tone"])), "duration_ms": draw(st.integers(20, 400))},
            "expect": draw(st.sampled_from(["respond", "stop", "ignore"])),
            "start": {"after": draw(st.sampled_from(["agent_speech_end", "agent_speech_start"])), "timeout_ms": 500},
        }
        for _ in range(draw(st.integers(1, 3)))
    ]  # fmt: skip
    turns[0]["start"] = {"after": "session_start", "delay_ms": draw(st.integers(0, 300))}
    options = {"response_ms": draw(milliseconds), "jitter_ms": draw(milliseconds), "seed": draw(st.integers(0, 99))}
    document = {
        "name": draw(st.text(st.characters(categories=["L", "Nd"]), min_size=1, max_size=20)),
        "sample_rate": draw(st.sampled_from([8000, 11025, 16000])),
        "frame_ms": draw(st.sampled_from([10, 20])),
        "tail_ms": 300,
        "adapter": {"type": "mock", "options": options},
        "turns": turns,
    }
    return made(json.dumps(document, ensure_ascii=False))


@settings(max_examples=30, deadline=None)
@given(scenarios())
def test_a_shipped_scenario_is_the_same_scenario(prepared):
    there = shipped(prepared)
    assert there.scenario == prepared.scenario
    assert same_to_the_type(there.scenario.document) == same_to_the_type(prepared.scenario.document)
    assert there.file == prepared.file


@settings(max_examples=15, deadline=None)
@given(scenarios())
def test_a_shipped_scenario_sends_the_same_frames_and_gives_the_same_record(prepared):
    here = prepare(prepared.scenario, prepared.clips)
    there_prepared = shipped(prepared)
    there = prepare(there_prepared.scenario, there_prepared.clips)
    assert there.clip_frames == here.clip_frames
    assert there.speech_ns == here.speech_ns
    for clip, frames in enumerate(here.clip_frames):
        for at in range(frames):
            assert there.frame(clip, at).tobytes() == here.frame(clip, at).tobytes()
    recordings = [
        run_virtual(script, mock_options(script.scenario.adapter.options)).recording("s", clock="virtual")
        for script in (here, there)
    ]
    assert recordings[1].user.tobytes() == recordings[0].user.tobytes()
    assert recordings[1].agent.tobytes() == recordings[0].agent.tobytes()
    assert score(recordings[1]) == score(recordings[0])


@pytest.mark.parametrize(
    "written",
    [
        "1", "1.0", "-0.0", "1e300", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "0x1F",
        "true", "~", "no", "012", "1:30", "2024-01-01", "2024-01-01T00:00:00Z", "'1'", ".inf", "[1, [2, {a: ~}], {}]",
        "{1: one, true: yes, ~: nothing, 2024-01-01: a day}", "{z: 1, a: 2}", '"\\U0001F600 \\t"', "''", "=", "<",
    ],
)  # fmt: skip
def test_whatever_yaml_gives_survives(written):
    text = f"name: x\nadapter: {{type: websocket, options: {{start_message: {{v: {written}}}}}}}\nturns: [{{audio: {{synth: tone}}}}]"
    prepared = made(text)
    there = shipped(prepared)
    assert same_to_the_type(there.scenario.adapter.options) == same_to_the_type(prepared.scenario.adapter.options)
    assert same_to_the_type(there.scenario.document) == same_to_the_type(prepared.scenario.document)


def test_the_adapter_is_the_one_that_plan_and_flags_settled():
    prepared = made()
    settled = apply_adapter(
        prepared.scenario, AdapterSpec("websocket", {"url": "ws://${HOST}/", "headers": {"X": "${KEY:-none}"}}), {}
    )
    there = shipped(replace(prepared, scenario=settled)).scenario
    assert there.adapter == AdapterSpec("websocket", {"url": "ws://${HOST}/", "headers": {"X": "${KEY:-none}"}})
    assert there.document["adapter"]["type"] == "mock"  # the document stays as it was read


def test_an_adapter_of_ones_own_is_shipped_by_its_name_only():
    prepared = made()
    own = replace(prepared.scenario, adapter=AdapterSpec("my_agent.calls:Agent", {"line": 3}))
    assert shipped(replace(prepared, scenario=own)).scenario.adapter == own.adapter


@pytest.mark.parametrize("file", ["-", "<stdin>", "../a b/ü.yaml", b"caf\xe9.yaml".decode("utf-8", "surrogateescape")])
def test_the_file_is_called_as_the_user_typed_it(file):
    assert shipped(replace(made(), file=file)).file == file


def test_audio_is_named_by_its_samples_as_little_endian_int16():
    prepared = made()
    (name,), assets = pack([prepared])
    by_hand = [b"".join(int(each).to_bytes(2, "little", signed=True) for each in clip) for clip in prepared.clips]
    names = tuple(hashlib.sha256(data).hexdigest() for data in by_hand)
    assert clips_of(assets[name]) == names
    assert [assets[each] for each in names] == by_hand


def test_a_scenario_is_named_by_its_own_hash():
    (name,), assets = pack([made()])
    assert hashlib.sha256(assets[name]).hexdigest() == name


def test_equal_audio_is_one_asset_whichever_scenario_has_it():
    one = made()
    clip = one.clips[0]
    same = replace(one, clips=(clip, clip.copy()), file="other.yaml")
    names, assets = pack([same, replace(same, scenario=replace(one.scenario, sample_rate=16000))])
    assert len(set(names)) == 2
    assert len(assets) == 3


def test_turns_that_share_audio_share_its_memory():
    one = made()
    there = shipped(replace(one, clips=(one.clips[0], one.clips[0].copy())))
    assert np.shares_memory(*there.clips)


def test_equal_scenarios_are_one_asset_named_twice():
    names, assets = pack([made(), made()])
    assert names[0] == names[1]
    assert len(assets) == 3


def test_shipped_audio_cannot_be_written_to():
    for clip in shipped(made()).clips:
        assert clip.dtype == np.int16
        with pytest.raises(ValueError, match="read-only"):
            clip[0] = 1


def test_non_contiguous_audio_is_shipped_sample_by_sample():
    one = made()
    every_second = one.clips[0][::2]
    assert shipped(replace(one, clips=(every_second, one.clips[1]))).clips[0].tolist() == every_second.tolist()


def test_what_cannot_be_packed_is_a_sentence_with_the_scenarios_name():
    prepared = made()
    odd = replace(prepared.scenario, adapter=AdapterSpec("mock", {"transcripts": ["\ud800"]}))
    with pytest.raises(WireError, match=r"scenario '007' can't be sent to workers"):
        pack([replace(prepared, scenario=odd)])


# --- hostile bytes -------------------------------------------------------------------------------------------------


@given(st.binary(max_size=300))
def test_bytes_that_are_no_scenario_raise_nothing_but_wire_error(data):
    with pytest.raises(WireError):
        unpack(data, {})
    with pytest.raises(WireError):
        clips_of(data)


anything = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=9),
        st.binary(max_size=9), st.datetimes(timezones=st.just(UTC)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(st.text(max_size=9), st.integers(0, 9)), inner, max_size=3)
    ),
    max_leaves=8,
)  # fmt: skip
WHERE = [
    ("document",), ("document", "turns"), ("document", "turns", 0), ("document", "name"), ("document", "sample_rate"),
    ("document", "turns", 0, "audio"), ("document", "defaults"), ("document", "adapter"), ("adapter",), ("options",),
    ("options", "response_ms"), ("options", "transcripts"), ("sample_rate",), ("file",), ("clips",), ("clips", 0), ("more",),
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(WHERE), anything)
def test_a_scenario_with_anything_anywhere_is_refused_or_can_be_prepared(where, value):
    (name,), assets = pack([made()])
    raw = msgspec.msgpack.decode(assets[name])
    inner = raw
    for step in where[:-1]:
        inner = inner[step]
    inner[where[-1]] = value
    try:
        there = unpack(msgspec.msgpack.encode(raw), assets)
    except WireError:
        return
    prepare(there.scenario, there.clips)


def test_nesting_without_end_is_refused():
    with pytest.raises(WireError):
        unpack(b"\x86\xa8document" + b"\x81\xa1a" * 100_000, {})


@pytest.mark.parametrize("rate_hz", [0, -1, 7999, 192_001, 2**62])
def test_a_rate_that_no_scenario_can_have_is_refused(rate_hz):
    (name,), assets = pack([made()])
    raw = msgspec.msgpack.decode(assets[name]) | {"sample_rate": rate_hz}
    with pytest.raises(WireError, match="sample_rate"):
        unpack(msgspec.msgpack.encode(raw), assets)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"adapter": "mok"}, r"adapter\.type: 'mok' is not one of"),
        ({"options": {"respons_ms": 1}}, r"adapter\.options\.respons_ms: unknown"),
        ({"adapter": "websocket", "options": {"url": "http://h/"}}, r"adapter\.options\.url"),
        ({"clips": []}, "scenario that is none"),
        ({"clips": ["../../etc/passwd"]}, "scenario that is none"),
        ({"clips": ["a" * 64] * 100_001}, "scenario that is none"),
        ({"clips": ["a" * 64] * 3}, "3 clips for 2 turns"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change, told):
    (name,), assets = pack([made()])
    raw = msgspec.msgpack.decode(assets[name]) | change
    with pytest.raises(WireError, match=told):
        unpack(msgspec.msgpack.encode(raw), assets)


@pytest.mark.parametrize("audio", [None, b"", b"\0\0\0"])
def test_audio_that_is_missing_or_is_none_is_refused_by_name(audio):
    (name,), assets = pack([made()])
    clip = clips_of(assets[name])[1]
    there = {sha: data for sha, data in assets.items() if sha != clip} | ({} if audio is None else {clip: audio})
    with pytest.raises(WireError, match=clip[:12]):
        unpack(assets[name], there)


def test_audio_beyond_the_cap_is_not_packed(monkeypatch):
    monkeypatch.setattr("voicebench.scenario.shipping.MAX_ASSET_BYTES", 2 << 10)
    with pytest.raises(WireError, match="more than workers take"):
        pack([made()])
