"""The JSON Schema (draft 2020-12) of scenario and plan files, for editors."""

from __future__ import annotations

import copy
from typing import Any, Literal

from voicebench.assertions import explain_unknown
from voicebench.scenario.adapter_options import BUILT_IN, options_schema
from voicebench.scenario.document import ScenarioShape
from voicebench.scenario.parse import schema_of
from voicebench.scenario.plan import PlanShape

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Kind = Literal["scenario", "plan"]

_STATISTICS = r"^(mean|max|p[0-9]{1,2}(\.[0-9]+)?)_(response_latency_ms|ttfa_ms|barge_in_stop_ms)$"
_SUGGESTED = ("p50_response_latency_ms", "p95_response_latency_ms", "p95_ttfa_ms", "max_barge_in_stop_ms")
_RATES = ("min_barge_in_success_rate", "max_failed_session_rate", "max_unreliable_turn_rate")
_COUNTS = ("max_false_barge_ins", "max_spurious_responses", "max_missed_responses", "max_talk_overs", "max_wer")
_WAITING = {"type": "string", "pattern": r"\$\{"}
"""A text that is filled in from the environment fits every option."""
_OLD_TRUTH = {"enum": ["yes", "no", "on", "off"]}


def json_schema(kind: Kind | None = None) -> dict[str, Any]:
    """The schema of one kind of file, or of both: a file with `scenarios` is a plan.

    Returns:
        A new mapping, ready for `json.dumps`, with descriptions and defaults.
    """
    if kind is None:
        return {
            "$schema": DIALECT,
            "title": "voicebench scenario or plan",
            "type": "object",
            "if": {"required": ["scenarios"]},
            "then": {"$ref": "#/$defs/plan"},
            "else": {"$ref": "#/$defs/scenario"},
            "$defs": {each: _nested(_document(each), each) for each in ("plan", "scenario")},
        }
    return {"$schema": DIALECT, **_document(kind)}


def _document(kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = _cleaned(copy.deepcopy(schema_of(ScenarioShape if kind == "scenario" else PlanShape)))
    definitions = schema["$defs"]
    schema["title"] = f"voicebench {kind}"
    schema["properties"]["assert"] |= _limits()
    if kind == "scenario":
        definitions["AudioShape"] |= _one_kind_of_audio()
        _describe_options(definitions["AdapterShape"])
    else:
        _describe_options(definitions["PlanAdapterShape"])
        _describe_load(definitions)
        _describe_abort(definitions["AbortShape"])
    return schema


def _describe_abort(abort: dict[str, Any]) -> None:
    """Limits beside the two times, at least one."""
    times, limits = abort["properties"], _limits()
    abort |= limits | {"type": "object", "properties": times | limits["properties"]}
    abort["not"] = {"propertyNames": {"enum": list(times)}}


def _limits() -> dict[str, Any]:
    rate = {"type": "number", "minimum": 0, "maximum": 1}
    count = {"type": "number", "minimum": 0}
    milliseconds = {"type": "number"}
    named = {**dict.fromkeys(_SUGGESTED, milliseconds), **dict.fromkeys(_RATES, rate), **dict.fromkeys(_COUNTS, count)}
    assert not any(explain_unknown(name) for name in named)
    return {
        "type": ["object", "null"],
        "properties": named,
        "patternProperties": {_STATISTICS: milliseconds},
        "additionalProperties": False,
    }


def _one_kind_of_audio() -> dict[str, Any]:
    synth_only = ("duration_ms", "level_db", "freq_hz", "seed")
    return {
        "oneOf": [{"required": ["file"]}, {"required": ["clip"]}, {"required": ["synth"]}],
        "dependentRequired": {key: ["synth"] for key in synth_only},
    }


def _describe_options(adapter: dict[str, Any]) -> None:
    """Options by type; of an adapter of one's own anything goes."""
    required = "type" in adapter.get("required", ())
    rules = []
    for kind in BUILT_IN:
        is_kind: dict[str, Any] = {"properties": {"type": {"const": kind}}}
        if kind != "mock" or required:
            is_kind["required"] = ["type"]  # a scenario's adapter without a type is the mock
        rules.append({"if": is_kind, "then": {"properties": {"options": _options(kind)}}})
    adapter["allOf"] = rules
    adapter["properties"]["type"]["anyOf"] = [{"enum": list(BUILT_IN)}, {"pattern": r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"}]


def _options(kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = _cleaned(copy.deepcopy(options_schema(kind)))
    for name, option in schema["properties"].items():
        said = {key: option.pop(key) for key in ("description", "default") if key in option}
        choices = [*option.pop("anyOf", [option]), _WAITING]
        if option.get("type") == "boolean":
            choices.append(_OLD_TRUTH)
        schema["properties"][name] = said | {"anyOf": choices}
    schema["type"] = ["object", "null"]
    return schema


def _describe_load(definitions: dict[str, Any]) -> None:
    definitions["LoadShape"] |= {
        "not": {"required": ["callers", "arrivals"]},
        "dependentRequired": {"spacing": ["arrivals"], "max_concurrent": ["arrivals"]},
        "dependentSchemas": {
            "pause": {"not": {"required": ["arrivals"]}},
            "stages": {"anyOf": [{"required": ["callers"]}, {"required": ["arrivals"]}]},
        },
    }
    definitions["StageShape"] |= {
        "oneOf": [{"required": ["ramp"]}, {"required": ["hold"]}],
        "dependentRequired": {"to": ["ramp"]},
    }


def _cleaned(node: Any) -> Any:
    """Without the titles that repeat the keys, and without defaults that only mean "left out"."""
    if isinstance(node, list):
        return [_cleaned(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        key: {name: _cleaned(below) for name, below in value.items()} if key == "properties" else _cleaned(value)
        for key, value in node.items()
        if not (key == "title" and isinstance(value, str)) and not (key == "default" and value is None)
    }


def _nested(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """The same schema as a part of another: its references lead through its own place."""

    def moved(node: Any) -> Any:
        if isinstance(node, dict):
            return {
                key: f"#/$defs/{name}/$defs/{value.rsplit('/', 1)[1]}" if key == "$ref" else moved(value)
                for key, value in node.items()
            }
        return [moved(each) for each in node] if isinstance(node, list) else node

    result: dict[str, Any] = moved(schema)
    return result
