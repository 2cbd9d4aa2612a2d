"""A recording <-> its files' bytes: `user.wav`, `agent.wav` (or FLAC) and `session.json`. No paths here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from voicebench.audio import wav
from voicebench.audio.files import read_recorded_track
from voicebench.audio.level import SILENCE_DBFS
from voicebench.errors import FAILURE_REASONS, BundleError
from voicebench.events import AgentTranscript, Samples
from voicebench.recording import Lateness, Packets, PlayedTurn, Recording
from voicebench.records import FINISHED, OUTCOME_STATES, Outcome, OutcomeState
from voicebench.scenario.model import Scenario
from voicebench.scenario.parse import scenario_from_document

FORMAT = "voicebench-recording/1"
SESSION_FILE = "session.json"
TRACK_NAMES = ("user", "agent")
TRACK_SUFFIXES = (".wav", ".flac")

# A day: beyond this a time is a mistake (ms for s), and nanoseconds would leave exact floats.
MAX_S = 86_400.0
LENGTH_TOLERANCE_S = 0.1
"""How far a track may differ from duration_s: recorders may end on a frame of their own; more is a missing piece."""
Instant = Annotated[float, msgspec.Meta(ge=0.0, le=MAX_S)]
Level = Annotated[float, msgspec.Meta(ge=-1e4, le=1e4)]


class _TurnEntry(msgspec.Struct):
    id: str
    trigger: Literal["anchor", "timeout"]
    start_s: Instant
    end_s: Instant


class _PacketEntry(msgspec.Struct):
    time_s: Instant
    level_db: Level
    duration_s: Instant


class _ClearEntry(msgspec.Struct):
    time_s: Instant


class _TranscriptEntry(msgspec.Struct):
    role: Literal["user", "agent"]
    text: str
    time_s: Instant
    final: bool = True


class _Document(msgspec.Struct):
    format: str
    session_id: str
    scenario: dict[str, Any]
    sample_rate: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    duration_s: Instant
    turns: list[_TurnEntry]
    packets: list[_PacketEntry]
    truncated: bool = False
    clock: Literal["virtual", "real"] = "real"
    clears: list[_ClearEntry] = []
    transcripts: list[_TranscriptEntry] = []


_KNOWN = frozenset(_Document.__struct_fields__) | {"outcome", "lateness"}


def decode(files: Mapping[str, bytes], *, source: str) -> Recording:
    """A recording from the bytes of its files.

    Args:
        files: File name to content: `session.json` and one track each for user and agent.
        source: What to call the bundle in errors.

    Raises:
        BundleError: A file is missing or is not what the format says; the sentence names file, key and what was found.
        AudioError: A track cannot be read, or is not mono 16-bit PCM.
        ScenarioError: The scenario inside has mistakes.
    """
    where = f"{source}/{SESSION_FILE}"
    raw = _parse_json(_file(files, SESSION_FILE, source), where)
    document = _typed(raw, where)
    scenario = scenario_from_document(document.scenario, source=where, prefix="scenario")
    scenario = replace(scenario, sample_rate=document.sample_rate)
    user, agent = (_track(files, name, document.sample_rate, source) for name in TRACK_NAMES)
    _check_turns(document, scenario, where)
    _check_lengths(document, {"user": user, "agent": agent}, where)
    return Recording(
        session_id=document.session_id,
        scenario=scenario,
        duration_s=document.duration_s,
        user=user,
        agent=agent,
        turns=tuple(PlayedTurn(turn.id, turn.trigger, turn.start_s, turn.end_s) for turn in document.turns),
        packets=_packets(document.packets),
        clears_s=tuple(clear.time_s for clear in document.clears),
        transcripts=tuple(AgentTranscript(t.role, t.text, t.time_s, t.final) for t in document.transcripts),
        truncated=document.truncated,
        clock=document.clock,
        outcome=_outcome(raw.get("outcome"), where),
        lateness=_lateness(raw.get("lateness"), where),
        extra={key: value for key, value in raw.items() if key not in _KNOWN},
    )


def encode(recording: Recording, scenario_document: Mapping[str, Any]) -> dict[str, bytes]:
    """The bundle's files from a recording.

    Args:
        recording: What to keep.
        scenario_document: The scenario as read, with secrets already redacted.

    Returns:
        File name to content.
    """
    rate_hz = recording.scenario.sample_rate
    document: dict[str, Any] = {
        "format": FORMAT,
        "session_id": recording.session_id,
        "scenario": dict(scenario_document),
        "sample_rate": rate_hz,
        "duration_s": recording.duration_s,
        "truncated": recording.truncated,
        "clock": recording.clock,
        "outcome": {
            "state": recording.outcome.state,
            "reason": recording.outcome.reason,
            "detail": recording.outcome.detail,
        },
        "turns": [
            {"id": turn.id, "trigger": turn.trigger, "start_s": turn.start_s, "end_s": turn.end_s}
            for turn in recording.turns
        ],
        "packets": _packet_entries(recording.packets),
        "clears": [{"time_s": time_s} for time_s in recording.clears_s],
        "transcripts": [
            {"role": said.role, "text": said.text, "time_s": said.time_s, "final": said.final}
            for said in recording.transcripts
        ],
        **recording.extra,
    }
    if recording.lateness is not None:
        document["lateness"] = {
            "send_ms": recording.lateness.send_ms.tolist(),
            "drain_gap_ms": recording.lateness.drain_gap_ms.tolist(),
        }
    return {
        "user.wav": wav.encode(recording.user, rate_hz),
        "agent.wav": wav.encode(recording.agent, rate_hz),
        SESSION_FILE: msgspec.json.format(msgspec.json.encode(document), indent=1),
    }


def _file(files: Mapping[str, bytes], name: str, source: str) -> bytes:
    if name not in files:
        raise BundleError(f"{source}: {name} is missing; a bundle holds user.wav, agent.wav and {SESSION_FILE}")
    return files[name]


def _parse_json(data: bytes, where: str) -> dict[str, Any]:
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BundleError(f"{where}: not JSON: {error}") from None
    except RecursionError:
        raise BundleError(f"{where}: nested too deeply to be a session") from None
    if not isinstance(raw, dict):
        raise BundleError(f"{where}: a session is a JSON object, this is a {type(raw).__name__}")
    if raw.get("format") != FORMAT:
        raise BundleError(f"{where}: format: expected {FORMAT!r}, found {_short(raw.get('format'))}")
    return raw


def _typed(raw: dict[str, Any], where: str) -> _Document:
    try:
        return msgspec.convert(raw, _Document)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at ")
        key = place.strip("`").removeprefix("$").removeprefix(".")
        raise BundleError(f"{where}: {f'{key}: ' if key else ''}{problem}") from None
    except RecursionError:
        raise BundleError(f"{where}: nested too deeply to be a session") from None


def _track(files: Mapping[str, bytes], name: str, sample_rate_hz: int, source: str) -> Samples:
    found = next((name + suffix for suffix in TRACK_SUFFIXES if name + suffix in files), None)
    if found is None:
        raise BundleError(f"{source}: {name}.wav is missing; a bundle holds user.wav, agent.wav and {SESSION_FILE}")
    samples, rate_hz = read_recorded_track(files[found], source=f"{source}/{found}")
    if rate_hz != sample_rate_hz:
        raise BundleError(f"{source}/{found}: {rate_hz} Hz, but {SESSION_FILE} says sample_rate {sample_rate_hz}")
    return samples


def _check_turns(document: _Document, scenario: Scenario, where: str) -> None:
    order = {turn.id: index for index, turn in enumerate(scenario.turns)}
    last_index, last_start_s = -1, 0.0
    for index, turn in enumerate(document.turns):
        key = f"{where}: turns[{index}]"
        if turn.id not in order:
            raise BundleError(f"{key}.id: {_short(turn.id)} is not a turn of the scenario in this bundle")
        if order[turn.id] <= last_index:
            raise BundleError(f"{key}.id: {_short(turn.id)} comes twice or out of the scenario's order")
        if turn.start_s > document.duration_s:
            raise BundleError(f"{key}.start_s: {turn.start_s:g} lies after the session's end, {document.duration_s:g}")
        if turn.start_s < last_start_s or turn.end_s < turn.start_s:
            raise BundleError(f"{key}: start_s {turn.start_s:g} and end_s {turn.end_s:g} must ascend from turn to turn")
        last_index, last_start_s = order[turn.id], turn.start_s


def _check_lengths(document: _Document, tracks: Mapping[str, Samples], where: str) -> None:
    for name, track in tracks.items():
        length_s = len(track) / document.sample_rate
        if abs(length_s - document.duration_s) > LENGTH_TOLERANCE_S:
            raise BundleError(
                f"{where}: duration_s: {document.duration_s:g}, but the {name} track lasts {length_s:g} s: cut off?"
            )


def _packets(entries: list[_PacketEntry]) -> Packets:
    return Packets(
        time_s=np.array([packet.time_s for packet in entries], dtype=np.float64),
        level_db=np.array([packet.level_db for packet in entries], dtype=np.float64),
        duration_s=np.array([packet.duration_s for packet in entries], dtype=np.float64),
    )


def _packet_entries(packets: Packets) -> list[dict[str, float]]:
    columns = (packets.time_s.tolist(), packets.level_db.tolist(), packets.duration_s.tolist())
    return [
        {"time_s": time_s, "level_db": max(level_db, SILENCE_DBFS), "duration_s": duration_s}
        for time_s, level_db, duration_s in zip(*columns, strict=True)
    ]


def _outcome(value: object, where: str) -> Outcome:
    """`outcome` as we write it, or just the state's or the failure's name; without one the session finished."""
    if value is None:
        return FINISHED
    if isinstance(value, str):
        value = {"state": "failed", "reason": value} if value in FAILURE_REASONS else {"state": value}
    if isinstance(value, dict) and value.get("state") in OUTCOME_STATES:
        state: OutcomeState = value["state"]
        reason, detail = value.get("reason"), value.get("detail")
        if (reason is None or reason in FAILURE_REASONS) and (detail is None or isinstance(detail, str)):
            return Outcome(state, reason, detail)
    raise BundleError(
        f"{where}: outcome: {_short(value)} is not understood; its state is one of {', '.join(OUTCOME_STATES)}, "
        f"its reason one of {', '.join(FAILURE_REASONS)}"
    )


def _lateness(value: object, where: str) -> Lateness | None:
    if value is None:
        return None
    try:
        columns = msgspec.convert(value, dict[str, list[float]])
        send_ms, gap_ms = (np.array(columns[key], dtype=np.float64) for key in ("send_ms", "drain_gap_ms"))
    except (msgspec.ValidationError, KeyError):
        raise BundleError(f"{where}: lateness: expected lists of numbers send_ms and drain_gap_ms") from None
    return Lateness(send_ms, gap_ms)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
