"""Prepared scenarios <-> the bytes that go to workers.

An asset is known by its SHA-256 alone: one for each scenario, one for each different audio. What a scenario asset holds
is the document as read (`${VAR}` unexpanded: a worker fills in its own) with the adapter as settled by plan and flags.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec
import numpy as np

from voicebench.errors import ScenarioError, WireError
from voicebench.scenario.adapter_options import option_mistakes
from voicebench.scenario.checks import explain_adapter
from voicebench.scenario.document import MAX_SAMPLE_RATE_HZ
from voicebench.scenario.mistakes import path_text
from voicebench.scenario.model import AdapterSpec
from voicebench.scenario.parse import scenario_from_document
from voicebench.scenario.prepared import PreparedScenario

MAX_ASSET_BYTES = 256 << 20
_SAMPLES = np.dtype("<i2")
_Sha = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]


class _Scenario(msgspec.Struct, frozen=True):
    document: dict[str, Any]
    adapter: str
    options: dict[str, Any]
    sample_rate: Annotated[int, msgspec.Meta(ge=8000, le=MAX_SAMPLE_RATE_HZ)]
    file: bytes
    """As typed: a name need not be UTF-8."""
    clips: Annotated[tuple[_Sha, ...], msgspec.Meta(min_length=1, max_length=100_000)]


_decoder = msgspec.msgpack.Decoder(_Scenario)


def sha_of(data: bytes | bytearray | memoryview) -> str:
    """The name of an asset."""
    return hashlib.sha256(data).hexdigest()


def pack(prepared: Sequence[PreparedScenario]) -> tuple[tuple[str, ...], dict[str, bytes]]:
    """The scenarios as assets.

    Returns:
        The names of the scenarios in their order, and all assets by name; audio that several turns share is there once.

    Raises:
        WireError: Something is too large to be sent, or can't be packed (an option with a lone surrogate).
    """
    assets: dict[str, bytes] = {}
    names = []
    for each in prepared:
        clips = tuple(_keep(assets, np.ascontiguousarray(clip, dtype=_SAMPLES).tobytes()) for clip in each.clips)
        scenario = each.scenario
        packed = _Scenario(
            document=dict(scenario.document),
            adapter=scenario.adapter.type,
            options=dict(scenario.adapter.options),
            sample_rate=scenario.sample_rate,
            file=each.file.encode("utf-8", "surrogateescape"),
            clips=clips,
        )
        try:
            data = msgspec.msgpack.encode(packed)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise WireError(f"scenario '{scenario.name}' can't be sent to workers: {error}") from None
        names.append(_keep(assets, data))
    return tuple(names), assets


def _keep(assets: dict[str, bytes], data: bytes) -> str:
    if len(data) > MAX_ASSET_BYTES:
        raise WireError(f"a scenario or its audio of {len(data) >> 20} MiB is more than workers take")
    name = sha_of(data)
    assets[name] = data
    return name


def clips_of(scenario: bytes) -> tuple[str, ...]:
    """The audio that a scenario asset names, turn by turn.

    Raises:
        WireError: It is no scenario.
    """
    return _unpacked(scenario).clips


def unpack(scenario: bytes, audio: Mapping[str, bytes]) -> PreparedScenario:
    """A scenario that plays as it does on the master.

    Raises:
        WireError: It is none, or audio is missing or is no audio.
    """
    packed = _unpacked(scenario)
    file = packed.file.decode("utf-8", "surrogateescape")
    try:
        made = scenario_from_document(packed.document, source=file, prefix="")
    except ScenarioError as error:
        raise WireError(f"the master sent a scenario with mistakes: {error}") from None
    _check_adapter(packed.adapter, packed.options)
    if len(made.turns) != len(packed.clips):
        raise WireError(f"the master sent {len(packed.clips)} clips for {len(made.turns)} turns")
    made = replace(made, adapter=AdapterSpec(packed.adapter, packed.options), sample_rate=packed.sample_rate)
    return PreparedScenario(made, tuple(_samples(audio, name) for name in packed.clips), file)


def _check_adapter(adapter: str, options: Mapping[str, Any]) -> None:
    unknown = explain_adapter(adapter)
    wrong = [("adapter.type", unknown)] if unknown else []
    wrong += [
        (path_text(("adapter", "options", *each.path)), each.message) for each in option_mistakes(adapter, options)
    ]
    if wrong:
        told = "; ".join(f"{path}: {message}" for path, message in wrong[:3])
        raise WireError(f"the master sent a scenario with mistakes: {told}")


def _samples(audio: Mapping[str, bytes], name: str) -> np.ndarray:
    data = audio.get(name)
    if data is None or not data or len(data) % _SAMPLES.itemsize:
        raise WireError(f"the master sent audio that is none: {name[:12]}")
    samples = np.frombuffer(data, dtype=_SAMPLES).astype(
        np.int16, copy=False
    )  # turns that share audio share its memory
    samples.setflags(write=False)
    return samples


def _unpacked(scenario: bytes) -> _Scenario:
    try:
        return _decoder.decode(scenario)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError) as error:
        raise WireError(f"the master sent a scenario that is none: {str(error)[:200]}") from None
