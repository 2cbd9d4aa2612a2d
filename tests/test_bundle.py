import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_virtual import CONVERSATION, script_of
from voicebench import bundle
from voicebench.bundle_files import read_bundle, write_files
from voicebench.errors import AudioError, BundleError, ScenarioError
from voicebench.recording import lateness_of
from voicebench.records import Outcome
from voicebench.scoring import score
from voicebench.virtual import run_virtual


@pytest.fixture(scope="module")
def recording():
    script, options = script_of(CONVERSATION)
    made = run_virtual(script, options).recording("call/../17", clock="virtual", extra={"number": 17})
    ticks = round(made.duration_s * 50)
    lateness = lateness_of(np.linspace(0.0, 12.0, ticks), np.full(ticks, 1.25))
    return replace(made, lateness=lateness, outcome=Outcome("failed", "dropped", "reset"))


@pytest.fixture(scope="module")
def files(recording):
    return bundle.encode(recording, recording.scenario.document)


def test_a_bundle_read_again_gives_the_same_numbers(recording, files):
    again = bundle.decode(files, source="b")
    assert score(again) == score(recording)
    assert np.array_equal(again.agent, recording.agent)
    assert (again.session_id, again.extra, again.outcome) == ("call/../17", {"number": 17}, recording.outcome)


def test_writing_what_was_read_changes_nothing(files):
    again = bundle.decode(files, source="b")
    assert bundle.encode(again, again.scenario.document) == files


def test_a_bundle_on_disk_is_read_whole(files, tmp_path):
    write_files(tmp_path / "runs" / "call", files)
    assert score(read_bundle(tmp_path / "runs" / "call")) == score(bundle.decode(files, source="b"))
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["call"]


def test_a_bundle_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    with pytest.raises(TypeError):
        write_files(tmp_path / "call", {"user.wav": b"x", "agent.wav": "no bytes"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (None, Outcome("finished")),
        ("cut", Outcome("cut")),
        ("dropped", Outcome("failed", "dropped")),
        ({"state": "lost"}, Outcome("lost")),
    ],
)
def test_an_outcome_may_be_just_a_word(files, outcome, expected):
    assert bundle.decode(edited(files, outcome=outcome), source="b").outcome == expected


def edited(files, **changes):
    document = json.loads(files["session.json"])
    for key, value in changes.items():
        if value is KeyError:
            del document[key]
        else:
            document[key] = value
    return {**files, "session.json": json.dumps(document).encode()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "voicebench-recording/2"}, "format: expected 'voicebench-recording/1'"),
        ({"format": KeyError}, "format: expected"),
        ({"duration_s": KeyError}, "duration_s"),
        ({"duration_s": -1}, "duration_s: Expected `float` >= 0"),
        ({"sample_rate": 8000}, "user.wav: 16000 Hz, but session.json says sample_rate 8000"),
        ({"turns": [{"id": "nobody", "trigger": "anchor", "start_s": 0, "end_s": 1}]}, "'nobody' is not a turn"),
        ({"turns": [{"id": "opening", "trigger": "anchor", "start_s": 2, "end_s": 1}]}, "must ascend"),
        ({"turns": [{"id": "opening", "trigger": "luck", "start_s": 0, "end_s": 1}]}, r"turns\[0\].trigger"),
        ({"turns": [{"id": "opening", "trigger": "anchor", "start_s": 0, "end_s": 1}] * 2}, "comes twice"),
        ({"packets": [{"time_s": -0.1, "level_db": 0, "duration_s": 0}]}, r"packets\[0\].time_s"),
        ({"packets": [{"level_db": 0, "duration_s": 0}]}, "time_s"),
        (
            {"packets": [{"time_s": True, "level_db": 0, "duration_s": 0}]},
            r"packets\[0\].time_s: Expected `float`, got `bool`",
        ),
        ({"clock": "sundial"}, "clock"),
        ({"outcome": "vanished"}, "outcome: {'state': 'vanished'} is not understood"),
        ({"lateness": [1, 2]}, "lateness: expected lists of numbers"),
        ({"scenario": []}, "scenario: Expected `object`"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(files, changes, message):
    with pytest.raises((BundleError, ScenarioError), match=message):
        bundle.decode(edited(files, **changes), source="b")


def test_mistakes_in_the_scenario_inside_are_told_with_their_path(files):
    with pytest.raises(ScenarioError, match=r"b/session.json: scenario\.turns: "):
        bundle.decode(edited(files, scenario={"name": "x", "turns": []}), source="b")


@pytest.mark.parametrize("name", ["user.wav", "agent.wav", "session.json"])
def test_a_missing_file_is_named(files, name):
    with pytest.raises(BundleError, match=f"b: {name} is missing"):
        bundle.decode({key: value for key, value in files.items() if key != name}, source="b")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"format": NaN}', b"\xff\xfe", b'{"a":' * 100_000, b"null", b'{"x": 1e999}']
)
def test_no_json_is_one_sentence(files, content):
    with pytest.raises(BundleError, match="session.json"):
        bundle.decode({**files, "session.json": content}, source="b")


@given(st.binary(max_size=400), st.sampled_from(["user.wav", "session.json"]), st.integers(0, 200))
def test_no_bytes_raise_anything_but_our_own_errors(content, name, at):
    script, options = script_of("name: x\nturns: [{audio: {synth: tone, duration_ms: 60}}]\ntail_ms: 0")
    good = bundle.encode(run_virtual(script, options).recording("x", clock="virtual"), script.scenario.document)
    spoilt = good[name][:at] + content + good[name][at + len(content) :]
    try:
        bundle.decode({**good, name: spoilt}, source="b")
    except (BundleError, AudioError, ScenarioError) as error:
        assert "\n" not in str(error) or isinstance(error, ScenarioError)


def test_further_keys_are_kept(files):
    changed = edited(files, worker={"id": "w3"}, verdict="kept")
    again = bundle.decode(changed, source="b")
    assert msgspec.json.decode(bundle.encode(again, {})["session.json"])["worker"] == {"id": "w3"}
