"""The JSON Schema agrees with the parser, with the examples and with the reference."""

from __future__ import annotations

import re
from pathlib import Path

import jsonschema
import pytest

from voicebench.assertions import explain_unknown
from voicebench.errors import ScenarioError
from voicebench.examples import EXAMPLES, example_text
from voicebench.scenario.adapter_options import BUILT_IN, options_schema
from voicebench.scenario.document import ScenarioShape
from voicebench.scenario.parse import parse_any, schema_of
from voicebench.scenario.plan import PlanShape
from voicebench.scenario.schema import json_schema
from voicebench.scenario.yaml_text import read_document

REFERENCE = (Path(__file__).parents[2] / "docs" / "scenario.md").read_text(encoding="utf-8")


def accepts(text: str, kind) -> bool:
    value = read_document(text, source="f").value
    return jsonschema.Draft202012Validator(json_schema(kind)).is_valid(value)


def parses(text: str) -> bool:
    try:
        parse_any(text, source="f")
    except ScenarioError:
        return False
    return True


@pytest.mark.parametrize("kind", [None, "scenario", "plan"])
def test_the_schema_is_one(kind):
    jsonschema.Draft202012Validator.check_schema(json_schema(kind))


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_accepted(name):
    assert accepts(example_text(name), "plan" if name == "plan" else "scenario")
    assert accepts(example_text(name), None)


SCENARIO = "name: x\nturns: [{audio: {synth: speech}}]\n"
PLAN = "name: p\nscenarios: [{file: a.yaml}]\n"


@pytest.mark.parametrize(
    "text",
    [
        SCENARIO,
        SCENARIO + "vad:\nassert:\nadapter: {options: {response_ms: 5, seed: '${S}', interruptible: no}}",
        SCENARIO
        + "adapter: {type: websocket, options: {url: '${URL:-ws://h}', headers: {A: b}, start_message: {a: [1]}}}",
        SCENARIO + "adapter: {type: 'a.b:C', options: {anything: [1]}}",
        SCENARIO + "assert: {p99.9_ttfa_ms: 1, max_wer: 0.5, mean_barge_in_stop_ms: 3}",
        "name: x\nturns: [{audio: {file: a}, start: {after: agent_speech_end, delay_ms: -3}, expect: stop, text: hi}]",
        PLAN,
        PLAN + "load: {sessions: 3, pause: 1s}",
        PLAN + "load: {callers: 3, pause: 1s..2s, stages: [{ramp: 1s, to: 0}, {hold: 5m}], sessions: 5}",
        PLAN + "load: {arrivals: 5/s, spacing: poisson, max_concurrent: 3, stages: [{ramp: 1s, to: 5/m}]}",
        PLAN + "adapter: {type: mock, options: {seed: 3}}\nrecord: {keep: all, sample: 0.5, worst: 3}",
        PLAN + "assert: {max_failed_session_rate: 0.5}\nabort_on: {p95_ttfa_ms: 1, after: 3s, window: 1m}",
    ],
)
def test_schema_and_parser_accept_the_same(text):
    assert parses(text)
    assert accepts(text, None)


@pytest.mark.parametrize(
    "text",
    [
        "name: x", "turns: [{audio: {synth: speech}}]", "name: x\nturns: []", "name: ''\nturns: [{audio: {synth: speech}}]",
        SCENARIO + "sample_rate: 7999", SCENARIO + "sample_rate: 16k", SCENARIO + "frame_ms: true", SCENARIO + "tail_ms: -1",
        SCENARIO + "max_duration_ms: 0", SCENARIO + "descripton: x", SCENARIO + "vad: {user: {frame_ms: 0}}", SCENARIO + "load: {callers: 3}",
        SCENARIO + "adapter: {type: web socket}", SCENARIO + "adapter: {options: {responce_ms: 1}}",
        SCENARIO + "adapter: {type: websocket, options: {response_ms: 1}}", SCENARIO + "adapter: {type: mock, options: {url: x}}",
        SCENARIO + "assert: {p95_latency_ms: 1}", SCENARIO + "assert: {max_failed_session_rate: 5}", SCENARIO + "assert: {max_wer: x}",
        "name: x\nturns: [{audio: {}}]", "name: x\nturns: [{audio: {file: a, clip: b}}]", "name: x\nturns: [{audio: {file: a, seed: 1}}]",
        "name: x\nturns: [{audio: {synth: hum}}]", "name: x\nturns: [{audio: {synth: tone}, expect: stopp}]",
        "name: x\nturns: [{audio: {synth: tone}, start: {after: never}}]",
        "name: p\nscenarios: []", "name: p\nscenarios: [a.yaml]", "name: p\nscenarios: [{file: a, weight: 0}]",
        PLAN + "load: {callers: 3, arrivals: 5/s}", PLAN + "load: {stages: [{hold: 1s}]}", PLAN + "load: {max_concurrent: 3}", PLAN + "load: {arrivals: 5}",
        PLAN + "load: {arrivals: 5/s, pause: 1s}", PLAN + "load: {callers: 5, spacing: even}", PLAN + "load: {callers: 5, pause: 5}",
        PLAN + "load: {callers: 5, stages: [{ramp: 1s, hold: 1s}]}", PLAN + "load: {callers: 5, stages: [{hold: 1s, to: 3}]}",
        PLAN + "load: {callers: 5, stages: [{}]}", PLAN + "record: {keep: some}", PLAN + "adapter: {options: {}}",
        PLAN + "abort_on: {after: 3s}", PLAN + "abort_on: {max_wer: 1, after: 3}", PLAN + "abort_on: {max_wear: 1}", PLAN + "vad: {}",
    ],
)  # fmt: skip
def test_schema_and_parser_refuse_the_same(text):
    assert not parses(text)
    assert not accepts(text, None)


def keys_of(schema, node, path="") -> list[tuple[str, object]]:
    """Every key a document may have, as the reference writes it, with its default."""
    while "$ref" in node or "anyOf" in node:
        node = schema["$defs"][node["$ref"].rsplit("/", 1)[1]] if "$ref" in node else node["anyOf"][0]
    if node.get("type") == "array":
        return keys_of(schema, node["items"], path + "[]")
    found = []
    for key, inner in node.get("properties", {}).items():
        below = f"{path}.{key}" if path else key
        found += [(below, inner.get("default")), *keys_of(schema, inner, below)]
    return found


def rows(text: str) -> dict[str, str]:
    """Key to default, from the tables of a part of the reference."""
    return dict(re.findall(r"^\| `([^`]+)` \| (.*?) \|", text, re.MULTILINE))


def part(heading: str) -> str:
    return re.split(r"^#+ ", REFERENCE.split(heading + "\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


SCENARIO_ROWS = rows(REFERENCE.split("## Scenario\n")[1].split("## Assertions\n")[0])
PLAN_ROWS = rows(REFERENCE.split("## Plan\n")[1])


@pytest.mark.parametrize(
    ("written", "shape", "elsewhere"),
    [
        (
            SCENARIO_ROWS,
            ScenarioShape,
            {"vad", "vad.user", "vad.agent", "adapter", "defaults", "turns", "turns[].start"},
        ),
        (PLAN_ROWS, PlanShape, {"adapter", "load", "record"}),
    ],
)
def test_the_reference_has_every_key_and_its_default(written, shape, elsewhere):
    schema = schema_of(shape)
    keys = keys_of(schema, schema)
    assert len(keys) > 20
    for key, default in keys:
        assert key in written or key in elsewhere, key
        if key in written and isinstance(default, int | float | str) and default != "":
            assert written[key].strip("`") == (f"{default:g}" if not isinstance(default, str) else default), key


@pytest.mark.parametrize("kind", BUILT_IN)
def test_the_reference_has_every_option_and_its_default(kind):
    written = rows(part(f"#### Options of `{kind}`"))
    options = options_schema(kind)["properties"]
    assert list(written) == list(options)
    for name, option in options.items():
        default = option.get("default")
        if isinstance(default, bool):
            assert written[name] == str(default).lower()
        elif isinstance(default, int | float):
            assert written[name] == f"{default:g}"
        elif isinstance(default, str):
            assert written[name] == f"`{default}`"


def test_the_reference_names_only_assertions_that_exist():
    names = rows(part("## Assertions"))
    assert len(names) == 8
    assert not any(explain_unknown(name) for name in names)


def test_the_references_plan_parses():
    (plan,) = re.findall(r"```yaml\n(.*?)```", REFERENCE, re.DOTALL)
    assert parses(plan)
    assert accepts(plan, "plan")
