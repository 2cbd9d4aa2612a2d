"""What pydantic found -> mistakes in our words. Its own sentences are never shown.

The words come from the model's JSON Schema, so an editor, the reference and an error agree on what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from voicebench.scenario.mistakes import Mistake, Path, clip_text, did_you_mean, expectation, nearest, shown
from voicebench.scenario.secrets import holds_variable

Schema = Mapping[str, Any]


def refuse() -> NoReturn:
    """Called by a field's validator: the value is not what the field's schema says."""
    raise PydanticCustomError("refused", "refused")


def no_hint(_path: Path) -> str | None:
    return None


def no_secret(_path: Path) -> bool:
    return False


def mistakes_of(
    error: ValidationError,
    value: object,
    schema: Schema,
    *,
    typed: Mapping[Path, str] | None = None,
    hint: Callable[[Path], str | None] = no_hint,
    secret: Callable[[Path], bool] = no_secret,
    waiting: bool = False,
) -> list[Mistake]:
    """Translate every error of one validation.

    Args:
        error: What the validation raised.
        value: What was validated.
        schema: The model's JSON Schema in validation mode, keys by alias.
        typed: How numbers and truth values were written.
        hint: For an unknown key's path, a sentence that knows better than the nearest name.
        secret: Whether a text at this path must not be shown.
        waiting: Texts that hold `${VAR}` will be filled in later and are not judged now.

    Returns:
        One mistake an error, paths relative to the validated value, in no particular order.
    """
    mistakes = []
    for each in error.errors(include_url=False):
        if waiting and holds_variable(each["input"]):
            continue
        at_key = "[key]" in each["loc"]
        path = tuple(step for step in each["loc"] if step != "[key]")
        if each["type"] == "missing":
            mistakes.append(Mistake(path, f"is missing: write {expectation(schema_at(schema, path))}"))
        elif each["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            mistakes.append(Mistake(path, hint(path) or _unknown_key(schema, path), at_key=True))
        elif each["type"] == "value_error":
            mistakes.append(Mistake(path, str(each["ctx"]["error"]), at_key))
        else:
            found = (typed or {}).get(path)
            # The value as written: what pydantic reports has been through a field's own reading already.
            message = _unfit(
                _value_at(value, path, each["input"]), schema_at(schema, path), path, typed=found, secret=secret(path)
            )
            mistakes.append(Mistake(path, message, at_key))
    return mistakes


def _value_at(value: Any, path: Path, otherwise: object) -> object:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return otherwise
    return value


def schema_at(schema: Schema, path: Path) -> Schema:
    """The node of a JSON Schema that speaks of a path; empty when it says nothing about it."""
    node = _plain(schema, schema)
    for step in path:
        if isinstance(step, int):
            below = node.get("items", {})
        else:
            below = node.get("properties", {}).get(step, node.get("additionalProperties", {}))
        node = _plain(below if isinstance(below, Mapping) else {}, schema)
    return node


def _plain(node: Schema, root: Schema) -> Schema:
    """Follow a reference, and take what is not null of a choice."""
    if "$ref" in node:
        return _plain(root["$defs"][node["$ref"].rsplit("/", 1)[1]], root)
    choices = [choice for choice in node.get("anyOf", ()) if choice.get("type") != "null"]
    return _plain(choices[0], root) if len(choices) == 1 else node


def _unknown_key(schema: Schema, path: Path) -> str:
    known = list(schema_at(schema, path[:-1]).get("properties", {}))
    key = str(path[-1])
    if nearest(key, known):
        return "unknown key." + did_you_mean(key, known)
    return f"unknown key; known here: {', '.join(known)}"


def _unfit(value: object, node: Schema, path: Path, *, typed: str | None, secret: bool) -> str:
    wanted = expectation(node)
    if value is None:
        return f"has no value: write {wanted}, or leave the key out"
    if value == [] and node.get("minItems"):
        return "is empty: write at least one entry"
    if isinstance(value, str) and len(value) > node.get("maxLength", len(value)):
        return f"is too long: {len(value)} characters, {node['maxLength']} fit"
    message = f"{shown(value, typed, secret=secret)} is not {wanted}"
    if isinstance(value, str) and not secret:
        if "enum" in node:
            guess = did_you_mean(value, [str(each) for each in node["enum"]])
            return message + ("." + guess if guess else "")
        if node.get("type") in ("number", "integer"):
            return message + _number_hint(value, str(path[-1]) if path else "")
        if node.get("type") == "boolean" and value.lower() in ("yes", "no", "on", "off", "y", "n"):
            return f"{message}. Write {'true' if value.lower() in ('yes', 'on', 'y') else 'false'}"
    return message


_UNITS = ("ms", "s", "db", "hz")


def _number_hint(text: str, key: str) -> str:
    """How a text that almost is a number should have been written."""
    stripped = text.strip()
    if re.fullmatch(r"[-+]?0[0-9]+", stripped):
        sign, digits = ("-" if stripped[0] == "-" else ""), stripped.lstrip("+-").lstrip("0") or "0"
        return f": to some readers of YAML a leading zero means octal. Write {clip_text(sign + digits)}"
    if re.fullmatch(r"[-+]?[0-9]+(_[0-9]+)+(\.[0-9]+)?", stripped):
        return f". Write {clip_text(stripped.replace('_', ''))}"
    if re.fullmatch(r"[-+]?[0-9]+(\.[0-9]+)?", stripped):
        return ". Write it without quotes" if len(stripped) < 19 else ": it is too large"
    unit = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(ms|s|m|min|h|dB|db|Hz|hz|kHz|k)", stripped)
    if unit:
        named = key.rsplit("_", 1)[-1]
        return ": write the number alone" + (f", the key's name has the unit ({named})" if named in _UNITS else "")
    if stripped.lower().lstrip("+-") in (".inf", ".nan", "inf", "nan", "infinity"):
        return ": it must be finite"
    return ""
