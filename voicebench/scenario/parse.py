"""Scenario and plan text -> frozen data, or all mistakes at once, each with its place. No file is opened here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import ValidationError

from voicebench.errors import ScenarioError
from voicebench.scenario.checks import scenario_mistakes
from voicebench.scenario.document import (
    SCENARIO_TEXT_AT,
    AudioShape,
    DefaultsShape,
    ScenarioShape,
    Shape,
    StartShape,
    TurnShape,
    VadShape,
    VadsShape,
    scenario_hint,
)
from voicebench.scenario.mistakes import Mistake, Path, did_you_mean, shown
from voicebench.scenario.model import AdapterSpec, AudioSource, Plan, Scenario, StartRule, Turn, VadSettings
from voicebench.scenario.placed import Document
from voicebench.scenario.plan import PLAN_TEXT_AT, PlanShape, build_plan, plan_hint, plan_mistakes
from voicebench.scenario.translate import mistakes_of
from voicebench.scenario.yaml_text import MAX_DEPTH, read_document

S = TypeVar("S", bound=Shape)

FIRST_DELAY_MS = 500.0
"""Half a second of silence before the first word, as a caller needs to put the phone to the ear."""


def parse_scenario(text: str | bytes, *, source: str) -> Scenario:
    """Read a scenario file.

    Args:
        text: The file; bytes are UTF-8.
        source: The file's name, for messages.

    Raises:
        ScenarioError: All mistakes in the order of the file, `file:line:column: path.to.key: what is wrong`.

    >>> parse_scenario("{name: hi, turns: [{audio: {synth: speech}}]}", source="hi.yaml").turns[0].id
    'turn-1'
    """
    return scenario_of(read_document(text, source=source))


def parse_plan(text: str | bytes, *, source: str) -> Plan:
    """Read a plan file; its scenario files are named, not read. Raises as `parse_scenario`.

    >>> parse_plan("{name: p, scenarios: [{file: a.yaml}], load: {arrivals: 30/m}}", source="p.yaml").load.given
    frozenset({'arrivals'})
    """
    return plan_of(read_document(text, source=source))


def parse_any(text: str | bytes, *, source: str) -> Scenario | Plan:
    """Read a file that has `turns` (a scenario) or `scenarios` (a plan). Raises as `parse_scenario`."""
    return any_of(read_document(text, source=source))


def scenario_from_document(document: object, *, source: str, prefix: str = "") -> Scenario:
    """A scenario from data that was read elsewhere, such as a recording's `session.json`.

    The adapter is taken as it is: the call is over, and whom it was placed to no longer matters.

    Args:
        document: The scenario's mapping, plain data.
        source: What the data came from, for messages.
        prefix: The mapping's place in it, put before each path: `scenario` gives `scenario.turns[0].id`.

    Raises:
        ScenarioError: All mistakes, without lines.
    """
    return scenario_of(Document(_plain(document, source, prefix), source, prefix=prefix), adapter=False)


def any_of(document: Document) -> Scenario | Plan:
    """What a document is, by its keys."""
    root = _root(document, "a scenario (name: ..., turns: ...) or a plan (name: ..., scenarios: ...)")
    if "turns" in root and "scenarios" in root:
        message = (
            "stands beside turns: a plan lists scenario files under `scenarios`, each of which has its own `turns`"
        )
        raise _failed(document, [Mistake(("scenarios",), message, at_key=True)])
    if "scenarios" in root:
        return plan_of(document)
    if "turns" in root:
        return scenario_of(document)
    for key in root:
        if did_you_mean(key, ("turns",)):
            return scenario_of(document)
        if did_you_mean(key, ("scenarios",)):
            return plan_of(document)
    message = "has neither turns (then it is a scenario) nor scenarios (then it is a plan): add one of them"
    raise _failed(document, [Mistake((), f"the file {message}")])


def scenario_of(document: Document, *, adapter: bool = True) -> Scenario:
    """A scenario from a document with places. Raises ScenarioError with all mistakes."""
    _root(document, "a scenario (name: ..., turns: ...)")
    document = document.with_text_at(SCENARIO_TEXT_AT)
    shape = _checked(document, ScenarioShape, scenario_hint, list(scenario_mistakes(document.value, adapter=adapter)))
    return _build(shape, document.value)


def plan_of(document: Document) -> Plan:
    """A plan from a document with places. Raises ScenarioError with all mistakes."""
    _root(document, "a plan (name: ..., scenarios: ...)")
    document = document.with_text_at(PLAN_TEXT_AT)
    shape = _checked(document, PlanShape, plan_hint, list(plan_mistakes(document.value)))
    return build_plan(shape, document.value)


def _root(document: Document, wanted: str) -> dict[str, Any]:
    root = document.value
    if isinstance(root, dict) and root:
        return root
    found = "the file is empty" if root is None else f"the file is {shown(root, secret=True)}"
    raise _failed(document, [Mistake((), f"{found}: it must be {wanted}")])


def _checked(document: Document, model: type[S], hint: Callable[[Path], str | None], others: list[Mistake]) -> S:
    """The validated shape, or everything that is wrong: as text, in its shape, and across keys."""
    mistakes = [*document.mistakes, *others]
    try:
        shape = model.model_validate(document.value)
    except ValidationError as error:
        shape = None
        told = {mistake.path for mistake in others}
        found = mistakes_of(
            error, document.value, schema_of(model), typed=document.typed, hint=hint, secret=_in_adapter
        )
        mistakes += [each for each in found if each.path not in told]
    if shape is None or mistakes:
        raise _failed(document, mistakes)
    return shape


def _in_adapter(path: Path) -> bool:
    """What stands where an adapter's mapping belongs is often its URL, with all that it carries."""
    return path[:1] == ("adapter",)


def _failed(document: Document, mistakes: list[Mistake]) -> ScenarioError:
    every = list(dict.fromkeys([*document.mistakes, *mistakes]))
    # Everything may hang on a value that could not be read; then its own mistake is left.
    problems = document.problems(every) or [document.problem(every[0])]
    return ScenarioError(problems)


@lru_cache
def schema_of(model: type[Shape]) -> dict[str, Any]:
    """The JSON Schema of a shape, keys as written in files. Shared: copy before changing it."""
    return model.model_json_schema(mode="validation")


def _build(shape: ScenarioShape, document: Mapping[str, Any]) -> Scenario:
    defaults, vads = shape.defaults or DefaultsShape(), shape.vad or VadsShape()
    return Scenario(
        name=shape.name,
        turns=tuple(_build_turn(turn, index, defaults) for index, turn in enumerate(shape.turns)),
        description=shape.description or "",
        sample_rate=shape.sample_rate,
        frame_ms=shape.frame_ms,
        tail_ms=shape.tail_ms,
        max_duration_ms=shape.max_duration_ms,
        vad_user=_build_vad(vads.user),
        vad_agent=_build_vad(vads.agent),
        adapter=AdapterSpec()
        if shape.adapter is None
        else AdapterSpec(shape.adapter.type, shape.adapter.options or {}),
        limits=shape.limits or {},
        document=document,
    )


def _build_turn(turn: TurnShape, index: int, defaults: DefaultsShape) -> Turn:
    timeout_ms, stop_ms = turn.response_timeout_ms, turn.max_stop_ms
    return Turn(
        id=turn.id or f"turn-{index + 1}",
        audio=_build_audio(turn.audio),
        start=_build_start(turn.start or StartShape(), first=index == 0),
        expect=turn.expect,
        text=turn.text,
        response_timeout_ms=defaults.response_timeout_ms if timeout_ms is None else timeout_ms,
        max_stop_ms=defaults.max_stop_ms if stop_ms is None else stop_ms,
    )


def _build_audio(audio: AudioShape) -> AudioSource:
    return AudioSource(
        audio.file, audio.clip, audio.synth, audio.duration_ms, audio.level_db, audio.freq_hz, audio.seed
    )


def _build_start(start: StartShape, *, first: bool) -> StartRule:
    delay_ms = start.delay_ms if start.delay_ms is not None else FIRST_DELAY_MS if first else 0.0
    return StartRule(start.after or ("session_start" if first else "agent_speech_end"), delay_ms, start.timeout_ms)


def _build_vad(vad: VadShape | None) -> VadSettings:
    vad = vad or VadShape()
    return VadSettings(vad.threshold_db, vad.hysteresis_db, vad.frame_ms, vad.min_speech_ms, vad.min_silence_ms)


def _plain(value: object, source: str, prefix: str) -> Any:
    """A copy of plain data; what JSON and the wire cannot carry is refused before anything recurses into it."""
    mistakes: list[Mistake] = []

    def copy(inner: object, path: Path) -> Any:
        if len(path) > MAX_DEPTH:
            mistakes.append(Mistake(path[:1], f"nested deeper than {MAX_DEPTH} levels"))
            return None
        if isinstance(inner, Mapping):
            odd = [key for key in inner if not isinstance(key, str) or key.startswith("\0") or not _is_text(key)]
            if odd:
                mistakes.append(Mistake(path, "has a key that is not text"))
            return {key: copy(below, (*path, key)) for key, below in inner.items() if key not in odd}
        if isinstance(inner, list | tuple):
            return [copy(below, (*path, index)) for index, below in enumerate(inner)]
        if isinstance(inner, str) and not _is_text(inner):
            mistakes.append(Mistake(path, "is not text: it holds NUL or a lone surrogate"))
        elif isinstance(inner, float) and not math.isfinite(inner):
            mistakes.append(Mistake(path, f"{inner} is not a finite number"))
        elif isinstance(inner, int) and not -(2**63) <= inner < 2**63:
            mistakes.append(Mistake(path, "is an integer beyond 64 bits"))
        elif not isinstance(inner, str | int | float | bool | None):
            mistakes.append(Mistake(path, "is not plain data"))
        return inner

    copied = copy(value, ())
    if mistakes:
        document = Document(None, source, prefix=prefix)
        raise ScenarioError(document.problems(mistakes))
    return copied


def _is_text(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
