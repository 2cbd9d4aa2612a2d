"""What a session leaves when it has ended, as plain data, and what is made of it: its account, energies and recording.

The process that held the session may make these, or another to which the data was sent: the same functions, the same
numbers.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from voicebench.audio.level import FULL_SCALE, SILENCE_DBFS, Energies, frame_energies
from voicebench.events import AgentTranscript, Samples
from voicebench.instants import ns_to_s
from voicebench.recording import Account, Lateness, Packets, PlayedTurn, Recording
from voicebench.records import Outcome, SessionRecord
from voicebench.scoring import analysis_rules, score_energies
from voicebench.script import Script

LEVEL_DIGITS = 4


class PlayedAt(msgspec.Struct, frozen=True, array_like=True):
    """One turn that was played; they come in the script's order."""

    tick: int
    trigger: Literal["anchor", "timeout"]
    start_ns: int
    end_ns: int


class Proceedings(msgspec.Struct, frozen=True, kw_only=True):
    """Of one session; columns are the bytes of their arrays, float64 unless said otherwise.

    A second of it takes 2.8 KB: 100 frames of energy, 50 packets in three columns, 50 frames sent in two.
    """

    session_id: str
    clock: Literal["virtual", "real"]
    outcome: Outcome
    ticks: int
    """Its length in frames of the session's grid."""
    at_max: bool
    """It reached the longest that its scenario allows."""
    played: tuple[PlayedAt, ...]
    packet_time_s: bytes
    packet_samples: bytes
    """int64."""
    packet_energy: bytes
    agent_energies: bytes
    """Of the agent's analysis frames, as heard."""
    clears_s: bytes
    transcripts: tuple[AgentTranscript, ...]
    late_ms: tuple[bytes, bytes] | None
    """How late each frame was sent, and the widest gap between two looks before it."""
    extra: dict[str, Any]

    def n_samples(self, script: Script) -> int:
        """Its length."""
        return self.ticks * script.frame_samples

    def duration_s(self, script: Script) -> float:
        return self.n_samples(script) / script.scenario.sample_rate


def account_of(script: Script, of: Proceedings) -> Account:
    """All that happened but the sound."""
    duration_s = of.duration_s(script)
    turns = script.scenario.turns
    started = tuple(
        PlayedTurn(turn.id, played.trigger, ns_to_s(played.start_ns), ns_to_s(played.end_ns))
        for turn, played in zip(turns, of.played, strict=False)
        if played.tick < of.ticks
    )
    clears_s = _floats(of.clears_s)
    return Account(
        session_id=of.session_id,
        scenario=script.scenario,
        duration_s=duration_s,
        turns=started,
        packets=_packets(script, of, duration_s),
        clears_s=tuple(clears_s[clears_s <= duration_s].tolist()),
        transcripts=tuple(said for said in of.transcripts if said.time_s <= duration_s),
        truncated=of.at_max and len(started) < len(turns),
        clock=of.clock,
        outcome=of.outcome,
        lateness=None if of.late_ms is None else Lateness(*map(_floats, of.late_ms)),
        extra=of.extra,
    )


def energies_of(script: Script, of: Proceedings) -> tuple[Energies, Energies]:
    """Of both tracks' analysis frames: the user's and the agent's."""
    return _user_energies(script, of), _floats(of.agent_energies)


def record_of(script: Script, of: Proceedings) -> SessionRecord:
    """The session as measured: `score` of its recording gives the same."""
    return score_energies(account_of(script, of), *energies_of(script, of))


def recording_of(script: Script, of: Proceedings, agent: Samples) -> Recording:
    """The whole recording.

    Args:
        agent: The agent's track.
    """
    account = account_of(script, of)
    parts = {name: getattr(account, name) for name in Account.__dataclass_fields__}
    return Recording(**parts, user=_user_track(script, of), agent=agent)


def _floats(column: bytes) -> npt.NDArray[np.float64]:
    return np.frombuffer(column, dtype=np.float64)


def _packets(script: Script, of: Proceedings, duration_s: float) -> Packets:
    """Those that arrived up to the session's end."""
    time_s = _floats(of.packet_time_s)
    heard = time_s <= duration_s
    n_samples = np.frombuffer(of.packet_samples, dtype=np.int64)[heard].astype(np.float64)
    # Rounded here, once: the live score and the one from the bundle must see the same number.
    level_db = _levels_dbfs(_floats(of.packet_energy)[heard], n_samples).round(LEVEL_DIGITS)
    return Packets(time_s[heard], level_db, n_samples / script.scenario.sample_rate)


def _levels_dbfs(energy: npt.NDArray[np.float64], n_samples: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """`level_dbfs` for many."""
    levels: npt.NDArray[np.float64] = np.full(len(energy), SILENCE_DBFS)
    sounds = energy > 0
    levels[sounds] = 10.0 * np.log10(energy[sounds] / n_samples[sounds]) - 20.0 * np.log10(FULL_SCALE)
    return levels.clip(min=SILENCE_DBFS)


def _user_track(script: Script, of: Proceedings) -> Samples:
    n_samples = of.n_samples(script)
    track = np.zeros(n_samples, dtype=np.int16)
    for played, clip in zip(of.played, script.clips, strict=False):
        start = played.tick * script.frame_samples
        part = clip[: max(0, n_samples - start)]
        track[start : start + len(part)] = part
    return track


def _user_energies(script: Script, of: Proceedings) -> Energies:
    """From those of the clips, where turns start on the grid of the analysis, and else from the track."""
    frame_samples = analysis_rules(script.scenario)[0].frame_samples
    starts = [played.tick * script.frame_samples for played in of.played]
    if any(start % frame_samples for start in starts):
        return frame_energies(_user_track(script, of), frame_samples)
    energies = np.zeros(of.n_samples(script) // frame_samples)
    for start, clip in zip(starts, script.clip_energies, strict=False):
        first = start // frame_samples
        part = clip[: max(0, len(energies) - first)]
        energies[first : first + len(part)] = part
    return energies
