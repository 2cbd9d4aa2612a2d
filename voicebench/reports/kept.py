"""Which recorded sessions a report shows: the worst first, as far as their recordings can be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import Path
from typing import Any

from voicebench.bundle_files import read_bundle
from voicebench.errors import VoicebenchError
from voicebench.recording import Recording
from voicebench.reports.incidents import is_broken

SHOWN = 12


@dataclass(frozen=True, slots=True)
class Kept:
    """A session with its recording; None: `why` says what is wrong with that."""

    session: Mapping[str, Any]
    recording: Recording | None
    why: str = ""


def kept_sessions(folder: Path | None, report: Mapping[str, Any]) -> Iterator[Kept]:
    """The worst sessions that were recorded, at most twelve, each read when its turn comes."""
    if folder is None:
        return
    recorded = (session for session in report["sessions"] if session.get("bundle"))
    for session in nsmallest(SHOWN, recorded, key=badness):
        yield _read(folder, session)


def badness(session: Mapping[str, Any]) -> tuple[float, ...]:
    """Sorts failed sessions first, then by turns that did not pass, then by the longest wait for an answer."""
    turns = session["turns"]
    longest_ms = max((turn["response_latency_ms"] or 0.0 for turn in turns), default=0.0)
    return (session["outcome"]["state"] != "failed", -sum(is_broken(turn) for turn in turns), -longest_ms)


def _read(folder: Path, session: Mapping[str, Any]) -> Kept:
    try:
        return Kept(session, read_bundle(folder / session["bundle"]))
    except VoicebenchError as error:
        where = str(error).removeprefix(f"{folder}/")  # wherever the run lies now, its report is the same
        return Kept(session, None, where)
