"""The options of the built-in adapters, as frozen data, checked all at once.

Options may come from files, from `-o KEY=VALUE` and from the environment, so a number may also be written as text
("400"), and no message ever repeats a text: it may be a credential.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, ClassVar, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from voicebench.errors import Problem, ScenarioError
from voicebench.scenario.document import HOUR_MS, MAX_LEVEL_DB, MAX_SAMPLE_RATE_HZ, MAX_SEED
from voicebench.scenario.mistakes import Mistake, path_text
from voicebench.scenario.secrets import variable_mistakes
from voicebench.scenario.translate import mistakes_of, refuse
from voicebench.scenario.yaml_text import resolve

_TRUTH_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _number(value: object) -> object:
    """Numbers, and texts that are one."""
    if isinstance(value, str):
        value = resolve(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse()
    return value


def _whole(value: object) -> object:
    number = _number(value)
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _flag(value: object) -> object:
    """Truth values, and the words that older YAML readers take for them."""
    if isinstance(value, str):
        value = _TRUTH_WORDS.get(value.strip().lower())
    if not isinstance(value, bool):
        refuse()
    return value


def _text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        refuse()
    return value


def _nothing_is_empty(value: object) -> object:
    return {} if value is None else value


def _web_socket_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError("is not a URL: check brackets and port") from None
    if parts.scheme not in ("ws", "wss"):
        raise ValueError("is not a WebSocket URL: it must begin with ws:// or wss://")
    if not parts.hostname:
        raise ValueError("names no host: write ws://HOST:PORT/PATH")
    if parts.fragment:
        raise ValueError("has a fragment (#...), which a WebSocket URL cannot have: write %23 for a #")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("holds spaces or characters outside ASCII: percent-encode them")
    return url


_OURS = re.compile(r"(?i)connection|upgrade|sec-websocket-.*")


def _header_name(name: str) -> str:
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
        raise ValueError("is not a header's name: letters, digits and hyphens only")
    if _OURS.fullmatch(name):
        raise ValueError("is written by the handshake itself: leave it out (for sub-protocols there is `subprotocols`)")
    return name


def _header_value(value: str) -> str:
    if not value.isprintable() or any(ord(character) > 255 for character in value):
        raise ValueError("is not a header's value: line breaks and characters outside Latin-1 cannot be sent")
    return value


def _token(name: str) -> str:
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
        raise ValueError("is not a sub-protocol's name: no spaces, commas or characters outside ASCII")
    return name


# Limits stand before the validator, so that they reach the JSON Schema as limits of the number.
Decibels: TypeAlias = Annotated[float, Field(ge=-200, le=0), BeforeValidator(_number)]
Level: TypeAlias = Annotated[float, Field(ge=-120, le=MAX_LEVEL_DB), BeforeValidator(_number)]
Seed: TypeAlias = Annotated[int, Field(ge=0, le=MAX_SEED), BeforeValidator(_whole)]
SampleRate: TypeAlias = Annotated[int, Field(ge=8000, le=MAX_SAMPLE_RATE_HZ), BeforeValidator(_whole)]
Flag: TypeAlias = Annotated[bool, BeforeValidator(_flag)]
Text: TypeAlias = Annotated[str, BeforeValidator(_text)]
Milliseconds: TypeAlias = Annotated[float, Field(ge=0, le=HOUR_MS), BeforeValidator(_number)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=600), BeforeValidator(_number)]
Headers: TypeAlias = Annotated[
    dict[Annotated[str, AfterValidator(_header_name)], Annotated[Text, AfterValidator(_header_value)]],
    BeforeValidator(_nothing_is_empty),
]


@dataclass(frozen=True, slots=True)
class MockOptions:
    """How the mock agent behaves. Times in ms; meaning of each: docs/scenario.md."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    endpoint_silence_ms: Annotated[
        Milliseconds, Field(description="Silence after the user's speech that the agent takes for the end of the turn.")
    ] = 300.0
    response_delay_ms: Annotated[
        Milliseconds, Field(description="Time from the end of the user's turn, once noticed, to the reply.")
    ] = 400.0
    jitter_ms: Annotated[
        Milliseconds, Field(description="Random extra delay of each reply, uniform from 0 to this, seeded.")
    ] = 0.0
    response_ms: Annotated[Milliseconds, Field(description="Length of each reply.")] = 1500.0
    greeting_ms: Annotated[
        Milliseconds, Field(description="Length of a greeting spoken at the start of the session; 0: none.")
    ] = 0.0
    level_db: Annotated[
        Level, Field(description="Loudness of the agent's speech, dBFS (RMS of its active part).")
    ] = -20.0
    threshold_db: Annotated[Decibels, Field(description="What the agent takes for the user's speech, dBFS.")] = -45.0
    interruptible: Annotated[Flag, Field(description="Whether the agent stops when the user talks over it.")] = True
    barge_in_min_ms: Annotated[
        Milliseconds, Field(description="User speech it takes to count as an interruption; shorter noise is no turn.")
    ] = 100.0
    interrupt_reaction_ms: Annotated[
        Milliseconds, Field(description="How long the agent keeps talking once it has noticed an interruption.")
    ] = 150.0
    transcripts: Annotated[
        tuple[Text, ...], Field(description="What the agent reports to have heard, one text a user turn, in order.")
    ] = ()
    seed: Annotated[Seed, Field(description="Of the jitter.")] = 0


@dataclass(frozen=True, slots=True)
class WebSocketOptions:
    """Where and how to open the generic PCM-over-WebSocket protocol. Every text may hold `${VAR}` in files."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    url: Annotated[
        Text, AfterValidator(_web_socket_url), Field(description="Where the agent listens: ws:// or wss://.")
    ] = "ws://127.0.0.1:8765"
    agent_sample_rate: Annotated[
        SampleRate | None,
        Field(description="Rate of the agent's audio, Hz; left out: the scenario's sample_rate."),
    ] = None
    start_message: Annotated[
        dict[str, Any] | None,
        Field(description="Sent once as JSON before any audio, with sample_rate in front unless it has its own."),
    ] = None
    headers: Annotated[
        Headers, Field(description="Further headers of the opening request. Values are never stored or shown.")
    ] = field(default_factory=dict)
    connect_timeout_s: Annotated[Seconds, Field(description="How long connecting (name, TCP, TLS) may take.")] = 10.0
    handshake_timeout_s: Annotated[Seconds, Field(description="How long the WebSocket handshake may take.")] = 10.0
    subprotocols: Annotated[
        tuple[Annotated[Text, AfterValidator(_token)], ...],
        Field(description="Sub-protocols to offer, the preferred one first. Never stored or shown."),
    ] = ()
    ca_file: Annotated[
        Text | None, Field(description="PEM file of the authorities to trust for wss://; left out: the system's.")
    ] = None
    client_cert_file: Annotated[
        Text | None, Field(description="PEM file of the client certificate for mutual TLS.")
    ] = None
    client_key_file: Annotated[
        Text | None, Field(description="PEM file of its private key; left out: it is in client_cert_file.")
    ] = None
    mask_per_session: Annotated[
        Flag, Field(description="A masking key of its own for every session; costs memory and start-up time.")
    ] = False


_MOCK: TypeAdapter[MockOptions] = TypeAdapter(MockOptions)
_WEB_SOCKET: TypeAdapter[WebSocketOptions] = TypeAdapter(WebSocketOptions)
BUILT_IN: dict[str, TypeAdapter[Any]] = {"mock": _MOCK, "websocket": _WEB_SOCKET}
"""Adapters whose options are known here."""


@lru_cache
def options_schema(adapter_type: str) -> dict[str, Any]:
    """The JSON Schema of a built-in adapter's options. Shared: copy before changing it."""
    return BUILT_IN[adapter_type].json_schema(mode="validation")


def mock_options(options: Mapping[str, Any], *, path: str = "adapter.options") -> MockOptions:
    """The mock agent's options from plain data, variables already filled in.

    Args:
        options: Option name to value; what is not there has its default.
        path: Where the options stand, for messages.

    Raises:
        ScenarioError: Every mistake, with a near name for an unknown one; no text of a value.

    >>> mock_options({"response_delay_ms": 250}).response_delay_ms
    250.0
    """
    _raise_if_any(option_mistakes("mock", options, waiting=False), path)
    return _MOCK.validate_python(dict(options))


def websocket_options(options: Mapping[str, Any], *, path: str = "adapter.options") -> WebSocketOptions:
    """The WebSocket adapter's options from plain data, variables already filled in. Raises as `mock_options`.

    >>> websocket_options({"url": "ws://localhost:9000/talk"}).connect_timeout_s
    10.0
    """
    _raise_if_any(option_mistakes("websocket", options, waiting=False), path)
    return _WEB_SOCKET.validate_python(dict(options))


def option_mistakes(adapter_type: str, options: Mapping[str, Any], *, waiting: bool = True) -> list[Mistake]:
    """Every mistake in the options of a built-in adapter; none for adapters that are not known here.

    Args:
        adapter_type: `mock`, `websocket` or another.
        options: As read.
        waiting: Texts that hold `${VAR}` are judged when they have been filled in; only their form is checked now.

    Returns:
        Mistakes with paths relative to the options.
    """
    mistakes = variable_mistakes(options, ()) if waiting else []
    adapter = BUILT_IN.get(adapter_type)
    if adapter is None:
        return mistakes
    try:
        adapter.validate_python(dict(options))
    except ValidationError as error:
        schema = options_schema(adapter_type)
        mistakes += mistakes_of(error, options, schema, secret=lambda _path: True, waiting=waiting)
    if adapter_type == "websocket":
        mistakes += _key_without_certificate(options)
    return mistakes


def _key_without_certificate(options: Mapping[str, Any]) -> list[Mistake]:
    if options.get("client_key_file") is None or options.get("client_cert_file") is not None:
        return []
    return [Mistake(("client_key_file",), "is of no use without client_cert_file: add the certificate")]


def _raise_if_any(mistakes: list[Mistake], path: str) -> None:
    if mistakes:
        raise ScenarioError(
            [
                Problem("", None, None, ".".join(filter(None, (path, path_text(each.path)))), each.message)
                for each in mistakes
            ]
        )
