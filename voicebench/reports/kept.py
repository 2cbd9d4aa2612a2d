"""Which recorded sessions a report shows: the worst first, as far as their recordings can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voicebench.bundle_files import read_bundle
from voicebench.errors import VoicebenchError
from voicebench.recording import Recording

SHOWN = 12


@dataclass(frozen=True, slots=True)
class Kept:
    """A session with its recording; None: `why` says what is wrong with that."""

    session: Mapping[str, Any]
    recording: Recording | None
    why: str = ""


def kept_sessions(folder: Path | None, report: Mapping[str, Any]) -> list[Kept]:
    """The worst sessions that were recorded, at most twelve."""
    if folder is None:
        return []
    recorded = [session for session in report["sessions"] if session.get("bundle")]
    return [_read(folder, session) for session in sorted(recorded, key=badness)[:SHOWN]]


def badness(session: Mapping[str, Any]) -> tuple[float, ...]:
    """Sorts failed sessions first, then by turns that did not pass, then by the longest wait for an answer."""
    turns = session["turns"]
    broken = sum(not turn["passed"] and turn["status"] in ("measured", "missed") for turn in turns)
    longest_ms = max((turn["response_latency_ms"] or 0.0 for turn in turns), default=0.0)
    return (session["outcome"]["state"] != "failed", -broken, -longest_ms)


def _read(folder: Path, session: Mapping[str, Any]) -> Kept:
    try:
        return Kept(session, read_bundle(folder / session["bundle"]))
    except VoicebenchError as error:
        return Kept(session, None, str(error))
