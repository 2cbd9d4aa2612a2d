"""YAML text -> plain data, with the place of every key and value.

A careful subset: scalars by the core rules of YAML 1.2 (so `no`, `on` and `1:30` are text), and nothing that makes a
file mean something else than it seems to: no duplicate keys, anchors, aliases, merge keys, tags or second documents.
A number is a number only in a form that all readers of YAML agree on: `012`, `1_000`, `.inf`, `1e999` and integers
beyond 64 bits stay text, and are refused where a number belongs.

Works on the parser's events, so that depth and size are capped before anything recurses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from voicebench.errors import Problem, ScenarioError
from voicebench.scenario.mistakes import UNSEEN, Mistake, Path
from voicebench.scenario.placed import Document, Mark

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 40
# libyaml is ten times faster and comes with every wheel; the pure parser accepts the same language.
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,18})")
_OCTAL = re.compile(r"0o[0-7]{1,20}")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]{1,15}")
_DECIMAL = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}

# The parser's words (of both its dialects) -> ours. The first that occurs in its message counts.
_SYNTAX: tuple[tuple[str, str], ...] = (
    ("mapping values are not allowed", "a ':' where no key can stand. Check the indentation; quote text that has ': '"),
    ("end of stream", "a quote or bracket is opened here and never closed"),
    ("',' or ']'", "the list opened here with '[' is not closed, or a comma is missing"),
    ("',' or '}'", "the mapping opened here with '{' is not closed, or a comma is missing"),
    ("escape", "in double quotes a backslash begins an escape. Write two backslashes, or use single quotes"),
    ("cannot start any token", "a value cannot begin with this character. Put the text in quotes"),
    ("nesting", f"nested deeper than {MAX_DEPTH} levels"),
    ("tag", "a value cannot begin with '!' (a YAML tag, not supported). Put the text in quotes"),
    ("anchor", "a value cannot begin with '&' (a YAML anchor, not supported). Put the text in quotes"),
    ("alias", "a value cannot begin with '*' (a YAML alias, not supported). Put the text in quotes"),
    ("could not find expected ':'", "a key without ':' behind it. Check the line and its indentation"),
    ("directive", "a line cannot begin with '%' here. Put the text in quotes"),
)  # fmt: skip
_SYNTAX_ELSE = "does not fit the lines around it. Check the indentation, and that quotes enclose the whole value"
_OPENED = ("end of stream", "',' or ']'", "',' or '}'")
"""Where the opening bracket or quote tells more than the end of the file."""


def read_document(text: str | bytes, *, source: str) -> Document:
    """Read one YAML document; JSON is YAML too.

    Args:
        text: The file. Bytes are UTF-8, a byte order mark in front is skipped.
        source: The file's name, for messages.

    Returns:
        The data (mappings with text keys, lists, text, finite numbers, truth values, None) with places. What the
        careful subset forbids is among its `mistakes`, so that it can be told together with all others.

    Raises:
        ScenarioError: The text cannot be read at all; one problem with line and column.
    """
    content = _without_mark(_decoded(text, source))
    _check_characters(content, source)
    builder = _Builder(source)
    try:
        for event in yaml.parse(content, Loader=_PARSER):
            if not builder.take(event):
                break
    except yaml.YAMLError as error:
        raise _syntax_error(error, content, source) from None
    return builder.document()


def read_value(text: str) -> Any:
    """One value of the command line (`-o KEY=VALUE`) by the rules of files; what is no YAML is taken as text.

    >>> read_value("400"), read_value("no"), read_value("{type: start}"), read_value("a: b: c")
    (400, 'no', {'type': 'start'}, 'a: b: c')
    """
    try:
        document = read_document(text, source="")
    except ScenarioError:
        return text
    return text if document.mistakes else document.value


def resolve(text: str) -> Any:
    """A plain scalar by the core rules of YAML 1.2, less what readers of YAML disagree on.

    >>> resolve("12"), resolve("1e3"), resolve("0x1F"), resolve("true"), resolve("~")
    (12, 1000.0, 31, True, None)
    >>> resolve("no"), resolve("1:30"), resolve("012"), resolve("1_000"), resolve(".inf")
    ('no', '1:30', '012', '1_000', '.inf')
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        value = int(text)
        return value if -(2**63) <= value < 2**63 else text
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEXADECIMAL.fullmatch(text):
        return int(text[2:], 16)
    if _DECIMAL.fullmatch(text) and len(text) <= 40 and not text.lstrip("+-").isdigit():
        number = float(text)
        return number if abs(number) != float("inf") else text
    return text


def _decoded(text: str | bytes, source: str) -> str:
    if len(text) > MAX_BYTES:
        raise _fatal(source, 1, 1, f"the file is larger than {MAX_BYTES // 1024} KiB: is it a scenario or plan?")
    if isinstance(text, str):
        return text
    if text.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _fatal(source, 1, 1, "the file is UTF-16: save it as UTF-8")
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = _mark_at(text[: error.start].decode("utf-8"))
        raise _fatal(
            source, line, column, f"byte 0x{text[error.start]:02x} is not UTF-8: save the file as UTF-8"
        ) from None


def _without_mark(text: str) -> str:
    return text.removeprefix("\ufeff")


def _check_characters(text: str, source: str) -> None:
    found = _UNPRINTABLE.search(text)
    if found:
        line, column = _mark_at(text[: found.start()])
        message = f"the control character U+{ord(found[0]):04X} is not allowed in YAML: is this a text file?"
        raise _fatal(source, line, column, message)


def _mark_at(before: str) -> Mark:
    lines = re.split("\r\n|\r|\n", before)
    return len(lines), len(lines[-1]) + 1


def _fatal(source: str, line: int, column: int, message: str) -> ScenarioError:
    return ScenarioError([Problem(source, line, column, "", message)])


def _syntax_error(error: yaml.YAMLError, text: str, source: str) -> ScenarioError:
    """One problem in our words. The parser's own are not repeated: they may quote a secret."""
    said = str(getattr(error, "problem", "") or "")
    opened = any(words in said for words in _OPENED)
    mark = (opened and getattr(error, "context_mark", None)) or getattr(error, "problem_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    lines = text.splitlines()
    here = lines[line - 1] if line <= len(lines) else ""
    indent = here[: len(here) - len(here.lstrip())]
    if "\t" in indent:
        column = indent.index("\t") + 1
        message = "a tab: YAML is indented with spaces only"
    else:
        message = next((ours for words, ours in _SYNTAX if words in said), _SYNTAX_ELSE)
    return _fatal(source, line, column, f"not valid YAML: {message}")


@dataclass(slots=True)
class _Frame:
    """A collection that is still open. `key` is the mapping's key that waits for its value."""

    path: Path
    value: dict[str, Any] | list[Any]
    key: str | None = None
    again: str = ""
    """Not empty when the waiting key was there before: a step of the path apart, to read the value and drop it."""


class _Builder:
    """Events in, a document out."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._root: Any = None
        self._documents = 0
        self._values_at: dict[Path, Mark] = {(): (1, 1)}
        self._keys_at: dict[Path, Mark] = {}
        self._typed: dict[Path, str] = {}
        self._mistakes: list[Mistake] = []
        self._unknown: set[Path] = set()
        self._open: list[_Frame] = []

    def take(self, event: Any) -> bool:
        """Build on; False when the rest of the file does not matter."""
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                message = "a second document begins here ('---'): one file, one document"
                line, column = _mark_of(event)
                self._values_at[("---",)] = (line, column)
                self._mistakes.append(Mistake(("---",), message))
                return False
        elif isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
        elif isinstance(event, yaml.NodeEvent):
            self._node(event)
        return True

    def document(self) -> Document:
        return Document(
            self._root, self._source, self._values_at, self._keys_at, self._typed, tuple(self._mistakes),
            frozenset(self._unknown),
        )  # fmt: skip

    def _node(self, event: yaml.NodeEvent) -> None:
        top = self._open[-1] if self._open else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            self._key(top, event)
            return
        path = self._next_path(top)
        self._values_at[path] = _mark_of(event)
        self._refuse_extras(event, path)
        if isinstance(event, yaml.ScalarEvent):
            self._attach(top, self._scalar(event, path))
        elif isinstance(event, yaml.AliasEvent):
            self._attach(top, None)
        else:
            opened: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
            self._attach(top, opened)
            self._open.append(_Frame(path, opened))
            if len(self._open) > MAX_DEPTH:
                raise _fatal(self._source, *_mark_of(event), f"nested deeper than {MAX_DEPTH} levels")

    def _key(self, top: _Frame, event: yaml.NodeEvent) -> None:
        line, column = _mark_of(event)
        if not isinstance(event, yaml.ScalarEvent):
            what = "an alias" if isinstance(event, yaml.AliasEvent) else "a list or mapping"
            message = f"{what} where a key must stand. Put text that begins with *, [ or {{ in quotes"
            raise _fatal(self._source, line, column, message)
        key = self._text(event, top.path)
        path = (*top.path, key)
        if key == "<<" and _is_plain(event):
            self._mistakes.append(Mistake(path, "merge keys (<<) are not supported: write the keys out", at_key=True))
            self._unknown.add(path)
        self._refuse_extras(event, path)
        assert isinstance(top.value, dict)
        top.again = ""
        if key in top.value:
            first_line, first_column = self._keys_at[path]
            top.again = f"{UNSEEN}{len(self._mistakes)}"
            path = (*path, top.again)
            message = f"the key is there already, at {first_line}:{first_column}: keep one of the two"
            self._mistakes.append(Mistake(path, message, at_key=True))
        self._keys_at[path] = (line, column)
        top.key = key

    def _next_path(self, top: _Frame | None) -> Path:
        if top is None:
            return ()
        if isinstance(top.value, list):
            return (*top.path, len(top.value))
        assert top.key is not None
        return (*top.path, top.key, top.again) if top.again else (*top.path, top.key)

    def _attach(self, top: _Frame | None, value: Any) -> None:
        if top is None:
            self._root = value
        elif isinstance(top.value, list):
            top.value.append(value)
        else:
            assert top.key is not None
            if not top.again:
                top.value[top.key] = value
            top.key = None

    def _scalar(self, event: yaml.ScalarEvent, path: Path) -> Any:
        text = self._text(event, path)
        if not _is_plain(event):
            return text
        value = resolve(text)
        if not isinstance(value, str):
            self._typed[path] = text
        return value

    def _text(self, event: yaml.ScalarEvent, path: Path) -> str:
        text = str(event.value)
        if _NO_TEXT.search(text):  # only escapes in double quotes get here
            self._mistakes.append(Mistake(path, "NUL and lone surrogates are not text: leave the escape out"))
            return _NO_TEXT.sub("\ufffd", text)
        return text

    def _refuse_extras(self, event: yaml.NodeEvent, path: Path) -> None:
        """Anchors, aliases and tags. Their names are not repeated: an unquoted password may begin with & * or !."""
        if isinstance(event, yaml.AliasEvent):
            self._mistakes.append(
                Mistake(path, "aliases (*name) are not supported: write the value out, or put it in quotes")
            )
            self._unknown.add(path)
            return
        if event.anchor is not None:
            self._mistakes.append(
                Mistake(path, "anchors (&name) are not supported: leave it out, or put the text in quotes")
            )
        if getattr(event, "tag", None) is not None:
            self._mistakes.append(
                Mistake(path, "tags (!name) are not supported: leave it out, or put the text in quotes")
            )
            self._unknown.add(path)


def _is_plain(event: yaml.ScalarEvent) -> bool:
    return event.style not in ("'", '"', "|", ">")  # the two parsers have different words for no style


def _mark_of(event: Any) -> Mark:
    return event.start_mark.line + 1, event.start_mark.column + 1
