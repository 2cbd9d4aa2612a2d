"""The shape of a plan file, what takes several of its keys to judge, and the frozen plan it becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema

from voicebench.scenario.checks import adapter_mistakes, limit_mistakes, mapping_at
from voicebench.scenario.document import ADAPTER_TEXT_AT, WHOLE, FileName, Limits, Name, Seed, Shape, adapter_hint
from voicebench.scenario.mistakes import Mistake, Path, clip_text, expectation
from voicebench.scenario.model import AbortRule, AdapterSpec, Load, Plan, PlanScenario, RecordRule, Stage
from voicebench.scenario.quantities import (
    DURATION_PATTERN,
    RANGE_PATTERN,
    RATE_PATTERN,
    parse_duration_range_s,
    parse_duration_s,
    parse_rate_per_s,
)
from voicebench.scenario.translate import refuse

MAX_CALLERS = 1_000_000
MAX_SESSIONS = 1_000_000_000


def _quantity(parse: Callable[[str], Any]) -> Callable[[object], Any]:
    def read(value: object) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return parse(f"{value:g}")  # a bare number: the parser says which units there are
        if not isinstance(value, str):
            refuse()
        return parse(value)

    return read


def _positive_duration_s(text: str) -> float:
    duration_s = parse_duration_s(text)
    if duration_s <= 0:
        raise ValueError(f"'{clip_text(text)}' is no time at all: it must be above 0")
    return duration_s


def _level(value: object) -> object:
    """Where a ramp ends: a number of callers, or a rate. Which one is right the whole load decides."""
    if isinstance(value, str) and value.strip():
        parse_rate_per_s(value)
    elif isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        refuse()
    return value


def _shown_as(pattern: str, *examples: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$", "examples": list(examples)})


Duration: TypeAlias = Annotated[
    float, BeforeValidator(_quantity(parse_duration_s)), _shown_as(DURATION_PATTERN, "60s", "5m")
]
PositiveDuration: TypeAlias = Annotated[
    float, BeforeValidator(_quantity(_positive_duration_s)), _shown_as(DURATION_PATTERN, "60s", "5m")
]
DurationRange: TypeAlias = Annotated[
    tuple[float, float],
    BeforeValidator(_quantity(parse_duration_range_s)),
    _shown_as(RANGE_PATTERN, "1s..5s", "500ms"),
]
Rate: TypeAlias = Annotated[float, BeforeValidator(_quantity(parse_rate_per_s)), _shown_as(RATE_PATTERN, "5/s", "30/m")]
Level: TypeAlias = Annotated[
    Any,
    BeforeValidator(_level),
    WithJsonSchema(
        {
            "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": f"^{RATE_PATTERN}$"}],
            "examples": [0, "5/s"],
        }
    ),
]


class PlanScenarioShape(Shape):
    """One scenario of the mix."""

    file: FileName = Field(description="A scenario file, relative to the plan.")
    weight: float = Field(
        default=1.0, gt=0, le=1_000_000, description="Its share of the sessions, relative to the others'."
    )


class PlanAdapterShape(Shape):
    """Overrides the scenarios' adapter: the same type merges its options, another type replaces them."""

    type: Name = Field(description="mock, websocket, or module:Class of an adapter of your own.")
    options: dict[str, Any] | None = Field(
        default=None,
        description="The adapter's own options. ${VAR} and ${VAR:-default} come from the worker's environment.",
    )


class StageShape(Shape):
    """A piece of the load's shape: exactly one of ramp and hold."""

    ramp: Duration | None = Field(default=None, description="Change evenly over this time.")
    hold: PositiveDuration | None = Field(default=None, description="Stay at the level reached for this time.")
    to: Level | None = Field(
        default=None,
        description="Where a ramp ends: callers, or a rate (0 needs no unit); left out: the load's own level.",
    )


class LoadShape(Shape):
    """How many sessions, when: callers (closed model) or arrivals (open model); neither: one caller."""

    callers: Annotated[int, Field(ge=1, le=MAX_CALLERS), WHOLE] | None = Field(
        default=None, description="Closed model: so many simulated users, each placing sessions back to back."
    )
    arrivals: Rate | None = Field(default=None, description="Open model: sessions start by the clock, come what may.")
    stages: list[StageShape] | None = Field(
        default=None, description="The load's shape over time, one after the other."
    )
    pause: DurationRange | None = Field(
        default=None, description="Closed model: a caller's pause between two sessions, seeded; left out: none."
    )
    spacing: Literal["even", "poisson"] = Field(
        default="even", description="Open model: even, or random (Poisson), seeded."
    )
    max_concurrent: Annotated[int, Field(ge=1, le=MAX_CALLERS), WHOLE] | None = Field(
        default=None, description="Open model: an arrival beyond so many sessions at once is dropped, and counted."
    )
    sessions: Annotated[int, Field(ge=1, le=MAX_SESSIONS), WHOLE] | None = Field(
        default=None, description="Stop after so many sessions."
    )
    seed: Seed = Field(default=0, description="Of everything random in the load.")


class RecordShape(Shape):
    """Which recordings to keep."""

    keep: Literal["all", "failed", "none"] = Field(
        default="failed", description="Sessions whose recording is kept in any case."
    )
    sample: float = Field(default=0.0, ge=0, le=1, description="Beside these a random share, 0 to 1, of all sessions.")
    worst: Annotated[int, Field(ge=0, le=10_000), WHOLE] = Field(
        default=0, description="Beside these so many of the slowest."
    )


class AbortShape(Shape):
    """Stop the run when a limit breaks. Every key but after and window is an assertion's name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float] = Field(init=False)

    after: Duration = Field(default=0.0, description="Not before this time.")
    window: PositiveDuration | None = Field(
        default=None, description="Judge the last so much time; left out: the whole run."
    )


class PlanShape(Shape):
    """A mix of scenarios and the load."""

    name: Name = Field(description="Name of the plan in reports.")
    scenarios: list[PlanScenarioShape] = Field(min_length=1, description="The scenarios to mix.")
    adapter: PlanAdapterShape | None = Field(
        default=None,
        description="Overrides the scenarios': the same type merges its options, another type replaces them.",
    )
    load: LoadShape | None = Field(default=None, description="How many sessions, when.")
    record: RecordShape | None = Field(default=None, description="Which recordings to keep.")
    limits: Limits | None = Field(
        default=None, alias="assert", description="Limits on the summary of the whole run: assertion name to limit."
    )
    abort_on: AbortShape | None = Field(default=None, description="Stop the run when one of these limits breaks.")


PLAN_TEXT_AT: tuple[tuple[str, ...], ...] = (("name",), ("scenarios", "*", "file"), *ADAPTER_TEXT_AT)
"""Where numbers and truth values are read as the text that was typed."""

_SCENARIO_KEYS = ("turns", "vad", "sample_rate", "frame_ms", "tail_ms", "max_duration_ms", "defaults", "description")
_LOAD_KEYS = tuple(LoadShape.model_fields)
_ABORT_TIMES = ("after", "window")


def plan_hint(path: Path) -> str | None:
    """For an unknown key: what its author probably had in mind."""
    key = path[-1]
    if len(path) == 1 and key in _SCENARIO_KEYS:
        return f"'{key}' belongs in a scenario, a file of its own that the plan lists under `scenarios`"
    if len(path) == 1 and key in _LOAD_KEYS:
        return f"unknown key: write load: {{{key}: ...}}"
    return adapter_hint(path)


def plan_mistakes(root: Mapping[str, Any]) -> Iterator[Mistake]:
    """Everything about a plan that its shape does not say."""
    yield from adapter_mistakes(root.get("adapter"), ("adapter",), type_required=True)
    yield from limit_mistakes(root.get("assert"), ("assert",))
    yield from _abort_mistakes(root.get("abort_on"))
    load = root.get("load")
    if isinstance(load, Mapping) and load:
        yield from _model_mistakes(load)
        stages = load.get("stages")
        for index, stage in enumerate(stages if isinstance(stages, list) else ()):
            if isinstance(stage, Mapping):
                yield from _stage_mistakes(stage, ("load", "stages", index), load)


def _model_mistakes(load: Mapping[str, Any]) -> Iterator[Mistake]:
    """Closed or open, and nothing of the other."""
    closed, open_ = load.get("callers") is not None, load.get("arrivals") is not None
    if closed and open_:
        message = "stands beside callers: write callers (closed model) or arrivals (open model), not both"
        yield Mistake(("load", "arrivals"), message, at_key=True)
    if load.get("stages") is not None and not closed and not open_:
        message = "have no level to reach: write callers, such as 20, or arrivals, such as 5/s"
        yield Mistake(("load", "stages"), message, at_key=True)
    if open_ and not closed and load.get("pause") is not None:
        message = "has no effect on arrivals, which start by the clock: it belongs to callers. Leave it out"
        yield Mistake(("load", "pause"), message, at_key=True)
    for key in ("spacing", "max_concurrent"):
        if not open_ and load.get(key) is not None:
            message = "has no effect on callers, who wait for their own session: it belongs to arrivals. Leave it out"
            yield Mistake(("load", key), message, at_key=True)


def _stage_mistakes(stage: Mapping[str, Any], path: Path, load: Mapping[str, Any]) -> Iterator[Mistake]:
    ramps, holds, to = (stage.get(key) is not None for key in ("ramp", "hold", "to"))
    if ramps == holds:
        wrong = "has both ramp and hold" if ramps else "has neither ramp nor hold"
        yield Mistake(path, f"{wrong}: write exactly one of {{ramp: 60s}} and {{hold: 5m}}")
    elif holds and to:
        message = "has no effect on hold, which stays where it is: put a ramp before it, as in {ramp: 0s, to: 5}"
        yield Mistake((*path, "to"), message, at_key=True)
    level = stage.get("to")
    if load.get("callers") is not None and load.get("arrivals") is None:
        if isinstance(level, str) or (isinstance(level, float) and not level.is_integer()):
            whole = expectation({"type": "integer", "minimum": 0})
            yield Mistake(
                (*path, "to"), f"{clip_text(str(level))} is not {whole}: a ramp of callers ends at a number of callers"
            )
    elif load.get("arrivals") is not None and load.get("callers") is None and _is_bare(level):
        yield Mistake((*path, "to"), f"{level:g} has no unit: a ramp of arrivals ends at a rate, such as {level:g}/s")


def _is_bare(level: object) -> bool:
    return isinstance(level, int | float) and not isinstance(level, bool) and level > 0


def _abort_mistakes(abort: Any) -> Iterator[Mistake]:
    if not isinstance(abort, Mapping):
        return
    yield from limit_mistakes(abort, ("abort_on",), besides=_ABORT_TIMES)
    if not any(key not in _ABORT_TIMES for key in abort):
        yield Mistake(("abort_on",), "names no limit: add one, such as p95_response_latency_ms: 5000")


def build_plan(shape: PlanShape, document: Mapping[str, Any]) -> Plan:
    """The frozen plan of a document without mistakes."""
    return Plan(
        name=shape.name,
        scenarios=tuple(PlanScenario(each.file, each.weight) for each in shape.scenarios),
        adapter=None if shape.adapter is None else AdapterSpec(shape.adapter.type, shape.adapter.options or {}),
        load=_build_load(shape.load or LoadShape(), mapping_at(document, "load")),
        record=_build_record(shape.record or RecordShape(), mapping_at(document, "record")),
        limits=shape.limits or {},
        abort_on=None if shape.abort_on is None else _build_abort(shape.abort_on),
        document=document,
    )


def _build_load(load: LoadShape, written: Mapping[str, Any]) -> Load:
    return Load(
        callers=load.callers,
        arrivals_per_s=load.arrivals,
        stages=tuple(Stage(each.ramp, each.hold, _level_value(each.to)) for each in load.stages or ()),
        pause_s=load.pause or (0.0, 0.0),
        spacing=load.spacing,
        max_concurrent=load.max_concurrent,
        sessions=load.sessions,
        seed=load.seed,
        given=_given(written),
    )


def _level_value(level: float | str | None) -> float | None:
    if isinstance(level, str):
        return parse_rate_per_s(level)
    return None if level is None else float(level)


def _build_record(record: RecordShape, written: Mapping[str, Any]) -> RecordRule:
    return RecordRule(record.keep, record.sample, record.worst, _given(written))


def _build_abort(abort: AbortShape) -> AbortRule:
    return AbortRule(dict(abort.__pydantic_extra__ or {}), abort.after, abort.window)


def _given(written: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(key for key, value in written.items() if value is not None)
