"""`${VAR}` in adapter options, and what of an adapter may be stored or shown.

A document keeps `${VAR}` as written; values are filled in where the session runs and go nowhere else. What may be a
credential typed in plain text is replaced by `REDACTED` before a document is stored. Over-redaction costs a line of
a report, a leak costs a key: in doubt it goes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from voicebench.errors import Problem, ScenarioError
from voicebench.scenario.mistakes import Mistake, Path, path_text

REDACTED = "REDACTED"

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^{}]*))?\}")
_PLAIN_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
# fmt: off
_SECRET_WORDS = frozenset((
    "key", "keys", "apikey", "accesskey", "token", "tokens", "authtoken", "secret", "secrets", "password", "passwd",
    "passphrase", "pwd", "pass", "pw", "pin", "auth", "authorization", "authentication", "bearer", "jwt", "sid",
    "credential", "credentials", "cookie", "signature", "sig",
))
# fmt: on
_ALWAYS_SECRET = ("headers", "subprotocols")
"""Whole blocks: a header or a sub-protocol's name says nothing about whether it carries a key."""


def holds_variable(value: object) -> bool:
    """Whether a text waits for the environment.

    >>> holds_variable("ws://${HOST}/call"), holds_variable("$HOME")
    (True, False)
    """
    return isinstance(value, str) and "${" in value


def variable_mistakes(value: object, path: Path) -> list[Mistake]:
    """Each `${` in the texts of `value` that is not `${NAME}` or `${NAME:-default}`; the text itself is never told."""
    mistakes: list[Mistake] = []

    def look(text: str, at: Path) -> str:
        if "${" in _VARIABLE.sub("", text):
            mistakes.append(
                Mistake(at, "has a '${' that is not ${NAME} or ${NAME:-default} (a default holds no braces)")
            )
        return text

    _map_texts(value, path, look)
    return mistakes


def expand_variables(value: Any, environment: Mapping[str, str], *, path: str = "adapter.options") -> Any:
    """Fill in `${VAR}` and `${VAR:-default}` in every text inside `value`; what is filled in is not read again.

    Args:
        value: Plain data: mappings, lists, texts, numbers. Keys are left alone; `$$` and a lone `$` mean themselves.
        environment: Variable to value. As in a shell, `:-` also stands in for a variable that is set but empty.
        path: Where `value` stands in its document, for messages.

    Returns:
        A copy. Everything that was filled in is text.

    Raises:
        ScenarioError: All variables that are not set, with their keys; never a value.

    >>> expand_variables({"url": "ws://${HOST:-localhost}:${PORT}"}, {"PORT": "9"})
    {'url': 'ws://localhost:9'}
    """
    mistakes = variable_mistakes(value, ())

    def fill(text: str, at: Path) -> str:
        def one(match: re.Match[str]) -> str:
            name, default = match["name"], match["default"]
            found = environment.get(name)
            if default is not None:
                return found or default
            if found is None:
                mistakes.append(
                    Mistake(at, f"the environment variable {name} is not set: set it, or write ${{{name}:-default}}")
                )
            return found or ""

        return _VARIABLE.sub(one, text)

    expanded = _map_texts(value, (), fill)
    if mistakes:
        raise ScenarioError([Problem("", None, None, _under(path, each.path), each.message) for each in mistakes])
    return expanded


def redact_url(url: str) -> str:
    """A URL without user info, query and fragment, which often carry keys. Works on what is no URL, too.

    >>> redact_url("wss://me:pw@agent.example/call?token=abc")
    'wss://REDACTED@agent.example/call?REDACTED'
    >>> redact_url("ws://127.0.0.1:8765")
    'ws://127.0.0.1:8765'
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    authority = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
    host_and_port = re.fullmatch(r"(\[[0-9A-Fa-f:.%]*\]|[^:\[\]]*)(:[0-9]*)?", authority)
    user = ""
    if "@" in authority or ("@" in rest and not host_and_port):
        # A password with an unescaped / ? or # ends the authority early: then everything up to the last @ goes.
        rest = rest[(authority if "@" in authority else rest).rindex("@") + 1 :]
        user = REDACTED + "@"
    place = re.split(r"[?#]", rest, maxsplit=1)[0]
    return scheme + separator + user + place + (f"?{REDACTED}" if place != rest else "")


def redact_document(document: Any) -> Any:
    """A scenario, plan or anything holding them, fit to be stored and shown.

    Inside every `adapter`: `${VAR}` stays as written, its default does not (a URL's is cleaned); values of `headers`
    and `subprotocols` go unless they are exactly one `${VAR}`, as do values under names that speak of keys, tokens
    or passwords; URLs lose user info and query. Redacting twice changes nothing.

    Returns:
        A copy; everything outside `adapter` is as it was.
    """
    if isinstance(document, Mapping):
        return {
            key: _redact_adapter(value) if key == "adapter" else redact_document(value)
            for key, value in document.items()
        }
    if isinstance(document, list | tuple):
        return [redact_document(value) for value in document]
    return document


def _redact_adapter(adapter: Any) -> Any:
    if not isinstance(adapter, Mapping):
        return _redact_option(adapter)
    return {
        key: redact_url(value) if key == "type" and isinstance(value, str) else _redact_option(value)
        for key, value in adapter.items()
    }


def _redact_option(value: Any, *, secret: bool = False, url: bool = False) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _redact_option(inner, secret=secret or _is_secret(str(key)), url=url or _is_url(str(key)))
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redact_option(inner, secret=secret, url=url) for inner in value]
    if isinstance(value, str):
        return _redact_secret(value) if secret else _redact_text(value, url=url)
    return REDACTED if secret and value is not None and not isinstance(value, bool) else value


def _is_secret(key: str) -> bool:
    words = _words(key)
    if words[-1:] in (["file"], ["path"]):
        return False  # the place of a key is no key
    return key.lower() in _ALWAYS_SECRET or not _SECRET_WORDS.isdisjoint(words)


def _is_url(key: str) -> bool:
    return not {"url", "uri", "endpoint"}.isdisjoint(_words(key))


def _words(key: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(key)]


def _redact_secret(text: str) -> str:
    return text if _PLAIN_VARIABLE.fullmatch(text) else REDACTED


def _redact_text(text: str, *, url: bool) -> str:
    """Variables stay, their defaults and a URL's delicate parts go."""
    kept: list[str] = []

    def hide(match: re.Match[str]) -> str:
        default = match["default"]
        safe = (
            "" if default is None else ":-" + (redact_url(default) if url and default else REDACTED if default else "")
        )
        kept.append(f"${{{match['name']}{safe}}}")
        return f"\ue000{len(kept) - 1}\ue001"  # opaque to the URL rules: a default's ? is not this URL's

    hidden = _VARIABLE.sub(hide, text.translate({0xE000: None, 0xE001: None}))
    if url or "://" in hidden or "@" in hidden:
        hidden = redact_url(hidden)
    if "${" in hidden:
        return REDACTED  # not a variable we understand: what it hides is anybody's guess
    return re.sub("\ue000([0-9]+)\ue001", lambda match: kept[int(match[1])], hidden)


def _map_texts(value: Any, path: Path, change: Callable[[str, Path], str]) -> Any:
    if isinstance(value, str):
        return change(value, path)
    if isinstance(value, Mapping):
        return {key: _map_texts(inner, (*path, str(key)), change) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_map_texts(inner, (*path, index), change) for index, inner in enumerate(value)]
    return value


def _under(prefix: str, path: Path) -> str:
    text = path_text(path)
    return prefix + text if text.startswith("[") or not text or not prefix else f"{prefix}.{text}"
