"""Plans, scenarios and audio from disk, and mistakes of all files together."""

from __future__ import annotations

import io
import os
import sys

import numpy as np
import pytest

from voicebench.audio import synth, wav
from voicebench.clips import clip_names
from voicebench.errors import ScenarioError
from voicebench.examples import EXAMPLES, example_text
from voicebench.load_files import apply_adapter, load_plan
from voicebench.scenario.model import AdapterSpec, AudioSource, PlanScenario, Scenario
from voicebench.scenario.parse import parse_scenario


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: str, text: str | bytes) -> str:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(text.encode() if isinstance(text, str) else text)
    return path


def scenario(name: str, audio: str = "{synth: speech}", rest: str = "") -> str:
    return write(f"{name}.yaml", f"name: {os.path.basename(name)}\nturns: [{{audio: {audio}}}]\n{rest}")


def complaints(path: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load_plan(path)
    return [str(each) for each in caught.value.problems]


def tone(n_samples: int = 800, rate_hz: int = 8000) -> bytes:
    samples = (8000 * np.sin(np.arange(n_samples) / 5)).astype(np.int16)
    return wav.encode(samples, rate_hz)


def test_a_scenario_alone_is_a_plan_with_one():
    loaded = load_plan(scenario("a"))
    (prepared,) = loaded.scenarios
    assert loaded.is_scenario
    assert loaded.plan.name == "a"
    assert loaded.plan.scenarios == (PlanScenario("a.yaml", 1.0, prepared.scenario),)
    assert loaded.plan.limits == {}
    assert prepared.file == "a.yaml"
    np.testing.assert_array_equal(prepared.clips[0], synth.render(AudioSource(synth="speech"), 16000))


def test_a_plans_files_are_found_beside_it_and_audio_beside_the_scenario():
    write("lab/calls/audio/hi.wav", tone())
    scenario("lab/calls/a", "{file: audio/hi.wav}", "sample_rate: 8000")
    scenario("lab/b")
    plan = write("lab/p.yaml", "name: p\nscenarios: [{file: calls/a.yaml, weight: 3}, {file: b.yaml}]")
    loaded = load_plan(plan)
    assert [each.file for each in loaded.scenarios] == ["lab/calls/a.yaml", "lab/b.yaml"]
    assert [each.weight for each in loaded.plan.scenarios] == [3.0, 1.0]
    assert [each.scenario for each in loaded.plan.scenarios] == [each.scenario for each in loaded.scenarios]
    assert not loaded.is_scenario
    np.testing.assert_array_equal(loaded.scenarios[0].clips[0], wav.read_track(tone(), source="x")[0])


def test_audio_is_resampled_to_the_scenarios_rate():
    write("hi.wav", tone(800, 8000))
    assert len(load_plan(scenario("a", "{file: hi.wav}")).scenarios[0].clips[0]) == 1600


@pytest.mark.parametrize("clip", clip_names())
def test_every_shipped_clip_can_be_played(clip):
    assert len(load_plan(scenario("a", f"{{clip: {clip}}}")).scenarios[0].clips[0]) > 1600


def test_the_same_sound_is_made_once_and_cannot_be_changed():
    write("hi.wav", tone())
    turns = ", ".join(["{audio: {file: hi.wav}}", "{audio: {file: ./hi.wav}}", "{audio: {synth: noise}}"] * 2)
    write("a.yaml", f"name: a\nturns: [{turns}]")
    clips = load_plan("a.yaml").scenarios[0].clips
    assert clips[0] is clips[1] is clips[3]
    assert clips[2] is clips[5]
    assert not any(clip.flags.writeable for clip in clips)


def test_standard_input_is_a_file_too(monkeypatch):
    write("hi.wav", tone())
    text = b"name: a\nturns: [{audio: {file: hi.wav}}, {audio: {file: no.wav}}]"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert complaints("-") == ["<stdin>:2:49: turns[1].audio.file: no.wav does not exist"]


def test_mistakes_of_all_files_are_told_together_at_their_places():
    write("noise.wav", b"RIFF....WAVE")
    write("text.wav", "hello")
    scenario("a", "{file: text.wav}")
    scenario("b", "{clip: openning}", "sample_rat: 8000")
    scenario("c", "{file: noise.wav}")
    scenario("d", "{file: gone.wav}")
    names = ["a", "b", "c", "d", "gone", "folder", "p"]
    os.mkdir("folder.yaml")
    files = ", ".join(f"{{file: {name}.yaml}}" for name in names)
    write("p.yaml", f"name: p\nloads: 1\nscenarios: [{files}]\n")
    found = complaints("p.yaml")
    assert found[0] == "p.yaml:2:1: loads: unknown key. Did you mean 'load'?"
    assert found[1] == "p.yaml:3:84: scenarios[4].file: gone.yaml does not exist"
    assert found[2] == "p.yaml:3:103: scenarios[5].file: folder.yaml is a folder, not a file"
    assert found[3] == "p.yaml:3:124: scenarios[6].file: p.yaml is a plan itself: a plan lists scenario files"
    assert found[4].startswith("a.yaml:2:24: turns[0].audio.file: text.wav: this ")
    assert found[5] == "b.yaml:2:24: turns[0].audio.clip: there is no clip 'openning'. Did you mean 'opening'?"
    assert found[6] == "b.yaml:3:1: sample_rat: unknown key. Did you mean 'sample_rate'?"
    assert found[7].startswith("c.yaml:2:24: turns[0].audio.file: noise.wav: ")
    assert found[8] == "d.yaml:2:24: turns[0].audio.file: gone.wav does not exist"
    assert len(found) == 9


def test_an_unknown_clip_is_told_with_the_nearest():
    assert complaints(scenario("a", "{clip: openning}")) == [
        "a.yaml:2:24: turns[0].audio.clip: there is no clip 'openning'. Did you mean 'opening'?"
    ]


def test_a_file_name_that_is_almost_right_is_told():
    write("opening.wav", tone())
    assert complaints(scenario("a", "{file: openning.wav}"))[0].endswith(
        "openning.wav does not exist. Did you mean 'opening.wav'?"
    )


def test_audio_that_is_a_folder_or_empty_is_told():
    os.mkdir("x.wav")
    write("empty.wav", tone(0))
    assert complaints(scenario("a", "{file: x.wav}"))[0].endswith("x.wav is a folder, not an audio file")
    assert complaints(scenario("b", "{file: empty.wav}"))[0].startswith("b.yaml:2:24: turns[0].audio.file: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_told():
    os.chmod(scenario("a"), 0)
    assert complaints("a.yaml") == ["a.yaml: cannot be read: permission denied"]


def test_a_file_that_is_not_there_is_told():
    assert complaints("nowhere/a.yaml") == ["nowhere/a.yaml: does not exist"]
    assert complaints(".") == [".: is a folder, not a file"]
    assert complaints("a\0b.yaml")[0].startswith("a\0b.yaml: cannot be read: ")


def test_two_scenarios_of_one_name_are_refused():
    scenario("a")
    scenario("sub/a")
    write("p.yaml", "name: p\nscenarios: [{file: a.yaml}, {file: sub/a.yaml}]")
    assert complaints("p.yaml") == [
        "p.yaml:2:36: scenarios[1].file: sub/a.yaml has the same name, 'a', as a.yaml: name them apart"
    ]


def test_a_plans_adapter_is_the_scenarios():
    scenario("a", rest="adapter: {type: mock, options: {response_ms: 1, seed: 2}}")
    scenario("b", rest="adapter: {type: websocket, options: {url: 'ws://h'}}")
    write("p.yaml", "name: p\nscenarios: [{file: a.yaml}, {file: b.yaml}]\nadapter: {type: mock, options: {seed: 3}}")
    adapters = [each.scenario.adapter for each in load_plan("p.yaml").scenarios]
    assert adapters == [AdapterSpec("mock", {"response_ms": 1, "seed": 3}), AdapterSpec("mock", {"seed": 3})]


def test_warnings_come_with_the_plan_and_know_its_adapter():
    scenario("a")
    assert load_plan("a.yaml").warnings == ()
    write("p.yaml", "name: p\nscenarios: [{file: a.yaml}]\nadapter: {type: websocket}")
    (warning,) = load_plan("p.yaml").warnings
    assert str(warning).startswith("a.yaml:2:25: turns[0].audio.synth: real agents do not take synthetic speech")


def test_audio_longer_than_the_session_is_a_warning():
    (warning,) = load_plan(scenario("a", rest="max_duration_ms: 900")).warnings
    assert warning.path == "max_duration_ms"
    assert "lasts 1000 ms" in warning.message


def test_every_example_loads():
    for name in EXAMPLES:
        write(f"{name}.yaml", example_text(name))
    for name in EXAMPLES:
        assert load_plan(f"{name}.yaml").warnings == ()


# Overrides

BASE = parse_scenario(
    "name: a\nturns: [{audio: {synth: speech}}]\nadapter: {type: mock, options: {response_ms: 1, seed: 2}}", source="f"
)


@pytest.mark.parametrize(
    ("override", "options", "adapter"),
    [
        (None, {}, BASE.adapter),
        (None, {"seed": 3}, AdapterSpec("mock", {"response_ms": 1, "seed": 3})),
        (AdapterSpec("mock", {"seed": 3}), {}, AdapterSpec("mock", {"response_ms": 1, "seed": 3})),
        (AdapterSpec("mock", {"seed": 3}), {"seed": 4}, AdapterSpec("mock", {"response_ms": 1, "seed": 4})),
        (AdapterSpec("websocket"), {"url": "ws://h"}, AdapterSpec("websocket", {"url": "ws://h"})),
        (AdapterSpec("my:Agent", {"a": 1}), {"b": 2}, AdapterSpec("my:Agent", {"a": 1, "b": 2})),
    ],
)
def test_the_same_type_merges_and_another_replaces(override, options, adapter):
    found = apply_adapter(BASE, override, options)
    assert found.adapter == adapter
    assert isinstance(found, Scenario)
    assert found.document == BASE.document


@pytest.mark.parametrize(
    ("override", "options", "told"),
    [
        (AdapterSpec("websockets"), {}, r"^adapter\.type: 'websockets' is not one of .*Did you mean 'websocket'\?$"),
        (None, {"sed": 3}, r"^adapter\.options\.sed: unknown key\. Did you mean 'seed'\?$"),
        (AdapterSpec("websocket"), {"url": "http://u:p@h"}, r"^adapter\.options\.url: is not a WebSocket URL"),
    ],
)
def test_overrides_that_do_not_fit_are_told(override, options, told):
    with pytest.raises(ScenarioError, match=told):
        apply_adapter(BASE, override, options)
