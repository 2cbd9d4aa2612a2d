"""What is left of a session after its end, and what is made of it: record, lateness, files. No gevent here, so that the
sibling process makes it in the same way as the worker itself.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np

from voicebench.distribution import TICKS_PER_MS
from voicebench.proceedings import Proceedings, record_of
from voicebench.records import Outcome, SessionRecord
from voicebench.script import Script

Keep = Literal["all", "failed", "none"]


class Case(msgspec.Struct, frozen=True):
    """A session that has ended, to be settled."""

    index: int
    """Which scenario of the mix."""
    sent_frames: int
    proceedings: Proceedings


class Settled(msgspec.Struct, frozen=True):
    """What became of it."""

    record: SessionRecord
    lateness: dict[int, int]
    """Of sent frames: ticks of 0.1 ms to how many."""
    files: dict[str, int] | None = None
    """Of its recording, where that was kept: file to bytes."""
    why_not_kept: str = ""
    """Of a recording that should have been kept."""


def settled(script: Script, case: Case) -> Settled:
    """Its record and lateness.

    Raises:
        Exception: Whatever scoring raises.
    """
    return Settled(record_of(script, case.proceedings), lateness_ticks(case.proceedings))


def unscored(script: Script, case: Case, why: str) -> Settled:
    """What is told of a session that can't be scored: the load generator's failure, with its reason."""
    of = case.proceedings
    return Settled(record_of(script, unscored_proceedings(of.session_id, why, clock=of.clock, extra=of.extra)), {})


def loses_its_recording(made: Settled, keep: Keep, case: Case, why: str) -> Settled:
    """The same, and that its recording, if it should have been kept, is not."""
    return msgspec.structs.replace(made, why_not_kept=why) if is_wanted(keep, made.record, case.sent_frames) else made


def unscored_proceedings(
    session_id: str, why: str, *, clock: Literal["virtual", "real"], extra: dict[str, Any]
) -> Proceedings:
    """Those of a session that nothing is known of."""
    return Proceedings(
        session_id=session_id,
        clock=clock,
        outcome=Outcome("failed", "generator", f"the session could not be scored: {why}"),
        ticks=0,
        at_max=False,
        played=(),
        packet_time_s=b"",
        packet_samples=b"",
        packet_energy=b"",
        agent_energies=b"",
        clears_s=b"",
        transcripts=(),
        late_ms=None,
        extra=extra,
    )


def lateness_ticks(of: Proceedings) -> dict[int, int]:
    """How late its frames were sent: ticks of 0.1 ms to how many."""
    if of.late_ms is None:
        return {}
    send_ms = np.frombuffer(of.late_ms[0], dtype=np.float64)
    ticks, counts = np.unique(np.rint(send_ms * TICKS_PER_MS).astype(int), return_counts=True)
    return dict(zip(ticks.tolist(), counts.tolist(), strict=True))


def is_wanted(keep: Keep, record: SessionRecord, sent_frames: int) -> bool:
    """Whether a session's recording is kept. One that never sent a frame is nothing to listen to."""
    return keep != "none" and sent_frames > 0 and (keep == "all" or went_wrong(record))


def went_wrong(record: SessionRecord) -> bool:
    """Whether a session is worth listening to: it failed, or a turn that was judged did not pass."""
    if record.outcome.state in ("failed", "lost"):
        return True
    return any(not turn.passed and turn.status in ("measured", "missed") for turn in record.turns)
