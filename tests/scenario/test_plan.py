"""Plan files: the whole grammar, and what does not fit together."""

from __future__ import annotations

import pytest

from voicebench.errors import ScenarioError
from voicebench.scenario.model import AbortRule, AdapterSpec, Load, Plan, PlanScenario, RecordRule, Stage
from voicebench.scenario.parse import parse_plan


def plan(text: str) -> Plan:
    return parse_plan(text, source="p.yaml")


def load(text: str) -> Load:
    return plan(f"name: p\nscenarios: [{{file: a.yaml}}]\nload: {text}\n").load


def complaints(rest: str, *, base: str = "name: p\nscenarios: [{file: a.yaml}]\n") -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        plan(base + rest)
    return [str(each).split(": ", 1)[1] for each in caught.value.problems]


def test_a_plan_needs_a_name_and_scenarios_only():
    assert plan("name: p\nscenarios: [{file: a.yaml}]") == Plan("p", (PlanScenario("a.yaml", 1.0),))


def test_the_whole_grammar_reaches_the_model():
    found = plan("""
        name: monday-peak
        scenarios: [{file: booking.yaml, weight: 3}, {file: 1.10}]
        adapter: {type: websocket, options: {url: "ws://127.0.0.1:8765"}}
        load:
          arrivals: 5/s
          stages: [{ramp: 60s}, {hold: 5m}, {ramp: 30s, to: 0}, {ramp: 0s, to: 30/m}]
          spacing: poisson
          max_concurrent: 500
          sessions: 1000
          seed: 7
        record: {keep: all, sample: 0.05, worst: 20}
        assert: {p95_response_latency_ms: 1500}
        abort_on: {p95_response_latency_ms: 5000, max_failed_session_rate: 0.5, after: 30s, window: 60s}
    """)
    assert found == Plan(
        name="monday-peak",
        scenarios=(PlanScenario("booking.yaml", 3.0), PlanScenario("1.10", 1.0)),
        adapter=AdapterSpec("websocket", {"url": "ws://127.0.0.1:8765"}),
        load=Load(
            arrivals_per_s=5.0,
            stages=(Stage(ramp_s=60.0), Stage(hold_s=300.0), Stage(ramp_s=30.0, to=0.0), Stage(ramp_s=0.0, to=0.5)),
            spacing="poisson",
            max_concurrent=500,
            sessions=1000,
            seed=7,
            given=frozenset({"arrivals", "stages", "spacing", "max_concurrent", "sessions", "seed"}),
        ),
        record=RecordRule("all", 0.05, 20, frozenset({"keep", "sample", "worst"})),
        limits={"p95_response_latency_ms": 1500.0},
        abort_on=AbortRule({"p95_response_latency_ms": 5000.0, "max_failed_session_rate": 0.5}, 30.0, 60.0),
    )
    assert found.document["scenarios"] == [{"file": "booking.yaml", "weight": 3}, {"file": "1.10"}]


def test_a_closed_load_has_callers_and_pauses():
    found = load("{callers: 200, pause: 1s..5s, stages: [{ramp: 1m, to: 50}, {hold: 1h}]}")
    assert (found.callers, found.pause_s) == (200, (1.0, 5.0))
    assert found.stages == (Stage(ramp_s=60.0, to=50.0), Stage(hold_s=3600.0))
    assert found.given == {"callers", "pause", "stages"}


def test_a_load_without_a_level_is_one_caller():
    found = load("{sessions: 5, pause: 1s}")
    assert (found.callers, found.arrivals_per_s, found.sessions) == (None, None, 5)


def test_an_empty_load_is_as_good_as_none():
    assert load("") == load("{}") == Load()


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        ("load: {callers: 2, arrivals: 5/s}", "load.arrivals: stands beside callers: write callers (closed model) or arrivals (open model), not both"),
        ("load: {stages: [{hold: 5s}]}", "load.stages: have no level to reach: write callers, such as 20, or arrivals, such as 5/s"),
        ("load: {arrivals: 5/s, pause: 1s}", "load.pause: has no effect on arrivals, which start by the clock: it belongs to callers. Leave it out"),
        ("load: {callers: 5, spacing: even}", "load.spacing: has no effect on callers, who wait for their own session: it belongs to arrivals. Leave it out"),
        ("load: {callers: 5, max_concurrent: 3}", "load.max_concurrent: has no effect on callers, who wait for their own session: it belongs to arrivals. Leave it out"),
        ("load: {callers: 0}", "load.callers: 0 is not a whole number from 1 to 1000000"),
        ("load: {callers: 2.5}", "load.callers: 2.5 is not a whole number from 1 to 1000000"),
        ("load: {arrivals: 5}", "load.arrivals: '5' has no unit: write 5/s, 5/m or 5/h"),
        ("load: {arrivals: 0/s}", "load.arrivals: '0/s' is no rate: it must be above 0"),
        ("load: {arrivals: true}", "load.arrivals: true is not a value such as 5/s or 30/m"),
        ("load: {callers: 1, pause: 5}", "load.pause: '5' has no unit: write 5s, 5ms, 5m or 5h"),
        ("load: {callers: 1, pause: 5s..1s}", "load.pause: '5s..1s' runs backwards: write 1s..5s"),
        ("load: {callers: 1, pause: 1:30}", "load.pause: '1:30' is not a duration: write a number and its unit, such as 250ms, 90s, 5m or 1h"),
        ("load: {callers: 1, stages: [{}]}", "load.stages[0]: has neither ramp nor hold: write exactly one of {ramp: 60s} and {hold: 5m}"),
        ("load: {callers: 1, stages: [{ramp: 1s, hold: 1s}]}", "load.stages[0]: has both ramp and hold: write exactly one of {ramp: 60s} and {hold: 5m}"),
        ("load: {callers: 1, stages: [{hold: 1s, to: 3}]}", "load.stages[0].to: has no effect on hold, which stays where it is: put a ramp before it, as in {ramp: 0s, to: 5}"),
        ("load: {callers: 1, stages: [{hold: 0s}]}", "load.stages[0].hold: '0s' is no time at all: it must be above 0"),
        ("load: {callers: 1, stages: [{ramp: 60}]}", "load.stages[0].ramp: '60' has no unit: write 60s, 60ms, 60m or 60h"),
        ("load: {callers: 1, stages: [{ramp: 1s, to: 5/s}]}", "load.stages[0].to: 5/s is not a whole number, 0 or more: a ramp of callers ends at a number of callers"),
        ("load: {callers: 1, stages: [{ramp: 1s, to: 2.5}]}", "load.stages[0].to: 2.5 is not a whole number, 0 or more: a ramp of callers ends at a number of callers"),
        ("load: {arrivals: 1/s, stages: [{ramp: 1s, to: 5}]}", "load.stages[0].to: 5 has no unit: a ramp of arrivals ends at a rate, such as 5/s"),
        ("load: {arrivals: 1/s, stages: [{ramp: 1s, to: -5}]}", "load.stages[0].to: -5 is not a value such as 0 or 5/s"),
        ("load: {arrivals: 1/s, spacing: random}", "load.spacing: 'random' is not one of even, poisson"),
        ("load: {callers: 1, seed: -1}", "load.seed: -1 is not a whole number from 0 to 4294967295"),
        ("load: {caller: 1}", "load.caller: unknown key. Did you mean 'callers'?"),
        ("record: {keep: fail}", "record.keep: 'fail' is not one of all, failed, none. Did you mean 'failed'?"),
        ("record: {sample: 5}", "record.sample: 5 is not a number from 0 to 1"),
        ("record: {worst: -1}", "record.worst: -1 is not a whole number from 0 to 10000"),
        ("abort_on: {after: 30s}", "abort_on: names no limit: add one, such as p95_response_latency_ms: 5000"),
        ("abort_on: {max_wer: 1, after: 30}", "abort_on.after: '30' has no unit: write 30s, 30ms, 30m or 30h"),
        ("abort_on: {max_wer: 1, window: 0s}", "abort_on.window: '0s' is no time at all: it must be above 0"),
        ("abort_on: {max_wer: no}", "abort_on.max_wer: 'no' is not a number"),
        ("abort_on: {max_wear: 1}", "abort_on.max_wear: 'max_wear' is not an assertion. Did you mean 'max_wer'?"),
        ("assert: {max_wear: 1}", "assert.max_wear: 'max_wear' is not an assertion. Did you mean 'max_wer'?"),
        ("adapter: {options: {}}", "adapter.type: is missing: write mock, websocket or module:Class"),
        ("adapter: {type: mock, options: {sed: 1}}", "adapter.options.sed: unknown key. Did you mean 'seed'?"),
        ("adapter: ws://u:p@host", "adapter: a text is not a mapping (key: value)"),
        ("vad: {}", "vad: 'vad' belongs in a scenario, a file of its own that the plan lists under `scenarios`"),
        ("callers: 5", "callers: unknown key: write load: {callers: ...}"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told(rest, told):
    # A key that is wrong may leave its block without a limit: nothing else may be told beside it.
    assert [each for each in complaints(rest) if ": names no limit" not in each or each == told] == [told]


@pytest.mark.parametrize(
    ("base", "told"),
    [
        ("scenarios: [{file: a}]\n", ["name: is missing: write a non-empty text on one line"]),
        ("name: p\n", ["scenarios: is missing: write a list with at least one entry"]),
        ("name: p\nscenarios: []\n", ["scenarios: is empty: write at least one entry"]),
        ("name: p\nscenarios: [a.yaml]\n", ["scenarios[0]: 'a.yaml' is not a mapping (key: value)"]),
        ("name: p\nscenarios: [{}]\n", ["scenarios[0].file: is missing: write a non-empty text on one line"]),
        (
            "name: p\nscenarios: [{file: a, weight: 0}]\n",
            ["scenarios[0].weight: 0 is not a number above 0 and up to 1000000"],
        ),
    ],
)
def test_the_mix_is_checked(base, told):
    assert complaints("", base=base) == told
