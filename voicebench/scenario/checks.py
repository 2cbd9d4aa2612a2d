"""What takes more than one key to judge. Works on data whose shape may be wrong: all mistakes are told at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from voicebench.assertions import explain_unknown, is_rate
from voicebench.scenario.adapter_options import BUILT_IN, option_mistakes
from voicebench.scenario.document import AudioShape, ScenarioShape, VadShape
from voicebench.scenario.mistakes import SHOWN_CHARACTERS, Mistake, Path, clip_text, did_you_mean

AUDIO_KINDS = ("file", "clip", "synth")
_SYNTH_ONLY = tuple(key for key in AudioShape.model_fields if key not in AUDIO_KINDS)
_OWN_ADAPTER = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)
_HARMLESS_TYPE = re.compile(r"[\w.:-]{1,40}", re.ASCII)
"""An adapter's type is repeated in errors only in this form: a URL typed there may hold a password."""


def mapping_at(value: Any, *path: str | int) -> Mapping[str, Any]:
    """The mapping at a path, empty where there is none."""
    found = value_at(value, *path)
    return found if isinstance(found, Mapping) else {}


def value_at(value: Any, *path: str | int) -> Any:
    """The value at a path, None where there is none."""
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value


def number_at(value: Any, path: Path, default: float) -> float | None:
    """The number at a path, the default where there is none, None where something else is."""
    found = value_at(value, *path)
    if found is None:
        return default
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def scenario_mistakes(root: Mapping[str, Any], *, adapter: bool = True) -> Iterator[Mistake]:
    """Everything about a scenario that its shape does not say.

    Args:
        root: The document, text restored.
        adapter: Also check the adapter; a recording's no longer matters.
    """
    turns = root.get("turns")
    turns = turns if isinstance(turns, list) else []
    rate_hz = number_at(root, ("sample_rate",), float(ScenarioShape.model_fields["sample_rate"].default))
    yield from _id_mistakes(turns)
    for index in range(len(turns)):
        yield from _audio_mistakes(turns[index], ("turns", index, "audio"), rate_hz)
    yield from _vad_mistakes(root, rate_hz)
    yield from limit_mistakes(root.get("assert"), ("assert",))
    if adapter:
        yield from adapter_mistakes(root.get("adapter"), ("adapter",))


def limit_mistakes(limits: Any, path: Path, *, besides: tuple[str, ...] = ()) -> Iterator[Mistake]:
    """Unknown assertion names, and limits that no run could keep or break."""
    for name, limit in limits.items() if isinstance(limits, Mapping) else ():
        if name in besides:
            continue
        unknown = explain_unknown(name) if len(name) <= SHOWN_CHARACTERS else f"'{clip_text(name)}' is not an assertion"
        if unknown:
            yield Mistake((*path, name), unknown, at_key=True)
        elif isinstance(limit, bool) or not isinstance(limit, int | float):
            continue
        elif is_rate(name) and not 0 <= limit <= 1:
            yield Mistake((*path, name), f"{limit:g} is not a rate from 0 to 1" + _percent_hint(limit))
        elif not name.endswith("_ms") and limit < 0:
            yield Mistake((*path, name), f"{limit:g} can never be met: a limit of 0 or more belongs here")


def adapter_mistakes(adapter: Any, path: Path, *, type_required: bool = False) -> Iterator[Mistake]:
    """The adapter's type, and its options where they are known here."""
    if not isinstance(adapter, Mapping):
        return
    kind = adapter.get("type", None if type_required else "mock")
    options = adapter.get("options")
    if kind is None and type_required:
        yield Mistake((*path, "type"), "is missing: write mock, websocket or module:Class")
    if isinstance(kind, str) and kind.strip():
        unknown = explain_adapter(kind)
        if unknown:
            yield Mistake((*path, "type"), unknown)
    if isinstance(options, Mapping):
        for each in option_mistakes(kind if isinstance(kind, str) else "", options):
            yield Mistake((*path, "options", *each.path), each.message, each.at_key)


def explain_adapter(kind: str) -> str | None:
    """None when an adapter of this type can be asked for, else a sentence that says what would be right.

    >>> explain_adapter("websocket"), explain_adapter("my_agent.adapter:Agent")
    (None, None)
    >>> explain_adapter("web-socket")
    "'web-socket' is not one of mock, websocket, module:Class. Did you mean 'websocket'?"
    """
    if kind in BUILT_IN or _OWN_ADAPTER.fullmatch(kind):
        return None
    if not _HARMLESS_TYPE.fullmatch(kind):
        return "this is not one of mock, websocket, module:Class. A URL goes into options, as url"
    wrong = f"'{kind}' is not one of mock, websocket, module:Class"
    guess = did_you_mean(kind, BUILT_IN)
    return f"{wrong}.{guess}" if guess else f"{wrong}; profiles of other protocols are not supported yet"


def _percent_hint(limit: float) -> str:
    return f". Write {limit / 100:g} for {limit:g} %" if 1 < limit <= 100 else ""


def _id_mistakes(turns: list[Any]) -> Iterator[Mistake]:
    first: dict[str, int] = {}
    for index, turn in enumerate(turns):
        given = turn.get("id") if isinstance(turn, Mapping) else None
        name = given if isinstance(given, str) else f"turn-{index + 1}"
        if name not in first:
            first[name] = index
        elif given is None:
            message = f"is missing, and '{name}' is already the id of turns[{first[name]}]: give one of them another id"
            yield Mistake(("turns", index, "id"), message)
        else:
            other = turns[first[name]]
            generated = (
                "" if isinstance(other, Mapping) and other.get("id") is not None else ", which has no id of its own"
            )
            message = f"'{clip_text(name)}' is already the id of turns[{first[name]}]{generated}: ids must be unique"
            yield Mistake(("turns", index, "id"), message)


def _audio_mistakes(turn: Any, path: Path, rate_hz: float | None) -> Iterator[Mistake]:
    audio = turn.get("audio") if isinstance(turn, Mapping) else None
    if not isinstance(audio, Mapping):
        return
    kinds = [kind for kind in AUDIO_KINDS if audio.get(kind) is not None]
    if not kinds:
        yield Mistake(path, "says no sound: write exactly one of file, clip and synth")
    for kind in kinds[1:]:
        yield Mistake(
            (*path, kind), f"stands beside {kinds[0]}: write exactly one of file, clip and synth", at_key=True
        )
    if kinds and "synth" not in kinds:
        for key in _SYNTH_ONLY:
            if key in audio:
                yield Mistake(
                    (*path, key), f"has no effect on a {kinds[0]}: it belongs to synth. Leave it out", at_key=True
                )
    freq_hz = number_at(audio, ("freq_hz",), 440.0)
    if audio.get("synth") == "tone" and freq_hz and rate_hz and rate_hz >= 8000 and freq_hz >= rate_hz / 2:
        message = f"{freq_hz:g} Hz cannot be represented at {rate_hz:g} Hz: write less than {rate_hz / 2:g}"
        yield Mistake((*path, "freq_hz"), message)


def _vad_mistakes(root: Mapping[str, Any], rate_hz: float | None) -> Iterator[Mistake]:
    for track in ("user", "agent"):
        path = ("vad", track, "frame_ms")
        frame_ms = number_at(root, path, float(VadShape.model_fields["frame_ms"].default))
        if frame_ms and rate_hz and frame_ms > 0 and round(frame_ms * rate_hz / 1000.0) < 1:
            yield Mistake(path, f"{frame_ms:g} ms hold no sample at {rate_hz:g} Hz: write at least {1000 / rate_hz:g}")
