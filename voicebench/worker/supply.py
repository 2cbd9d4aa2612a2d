"""What goes over the bulk socket, from the worker's side: scenarios and audio in, recordings out.

`hear`, `sends` and `due_s` are called in the link's thread, everything else in the loop.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from typing import cast

import gevent

from voicebench.clock import monotonic_s
from voicebench.errors import WireError
from voicebench.scenario.prepared import PreparedScenario
from voicebench.scenario.shipping import unpack
from voicebench.script import Script
from voicebench.wire.messages import (
    AssetPiece,
    Fetched,
    FileName,
    FilePiece,
    FromWorker,
    RunPlan,
    SessionResult,
    WantFile,
)
from voicebench.worker.adapters.base import describe
from voicebench.worker.asset_cache import AssetCache, cache_folder
from voicebench.worker.engine import Placed
from voicebench.worker.fetching import Fetching
from voicebench.worker.sibling_desk import SiblingDesk
from voicebench.worker.spool import Spool

LOOK_S = 0.02
NOTHING_COMES_S = 30.0


class Supply:
    """One worker's bulk."""

    def __init__(self) -> None:
        self._plan: RunPlan | None = None
        self._fetching: Fetching | None = None
        self._wrong: WireError | None = None
        self._cache = AssetCache(None)
        self._progress_s = 0.0
        self._spool: Spool | None = None
        self._answers: deque[WantFile] = deque()
        self._n_not_kept = 0
        self._why_not_kept = ""

    # --- in the loop -------------------------------------------------------------------------------------------------

    def begin(self, plan: RunPlan) -> None:
        """Fetch what this plan says."""
        self._cache = AssetCache(cache_folder(os.environ))
        self._plan = plan
        self._fetching = Fetching(plan.scenarios, have=self._cache.get, keep=self._cache.put)

    def wait(self) -> list[PreparedScenario]:
        """The scenarios, once they are all here.

        Raises:
            WireError: What came is not what was promised, or nothing comes any more.
        """
        fetching, plan = self._fetching, self._plan
        assert fetching is not None
        assert plan is not None
        self._progress_s = monotonic_s()
        while not fetching.done:
            if self._wrong is not None:
                raise self._wrong
            if monotonic_s() - self._progress_s > NOTHING_COMES_S:
                raise WireError(f"the master has sent nothing of the scenarios for {NOTHING_COMES_S:g} s")
            gevent.sleep(LOOK_S)
        return [unpack(fetching.scenarios[name], fetching.audio) for name in plan.scenarios]

    def desk(self, prepared: Sequence[PreparedScenario], scripts: Sequence[Script]) -> SiblingDesk:
        """Where this plan's sessions are settled, and their recordings kept."""
        assert self._plan is not None
        why_not = ""
        if self._plan.keep != "none" and self._spool is None:
            try:
                self._spool = Spool()
            except OSError as error:
                why_not = error.strerror or describe(error)
        folder, kept_bytes = (str(self._spool.folder), self._spool.kept_bytes) if self._spool is not None else ("", 0)
        return SiblingDesk(
            prepared, scripts, keep=self._plan.keep, folder=folder, kept_bytes=kept_bytes, why_no_folder=why_not
        )

    def keep(self, placed: Placed) -> dict[FileName, int] | None:
        """Enter a session's recording, if there is one; what files it has, None: it was not kept."""
        settled = placed.settled
        if settled.why_not_kept:
            self._n_not_kept += 1
            self._why_not_kept = settled.why_not_kept
        if settled.files is not None:
            assert self._spool is not None  # else there would have been no folder to write them to
            self._spool.enter(placed.record.session_id, settled.files)
        return cast("dict[FileName, int] | None", settled.files)

    @property
    def note(self) -> str:
        """Why audio will have to be fetched again next time; empty: it won't."""
        return self._cache.trouble

    @property
    def trouble(self) -> str:
        """What became of recordings that should have been kept; empty: nothing happened to any."""
        if not self._n_not_kept:
            return ""
        return f"{self._n_not_kept} recordings could not be kept ({self._why_not_kept}); the numbers are whole"

    def close(self) -> None:
        """Remove what has been fetched or never will be."""
        if self._spool is not None:
            self._spool.close()

    # --- in the link's thread ----------------------------------------------------------------------------------------

    def hear(self, message: AssetPiece | WantFile | Fetched, now_s: float) -> None:
        """Take in what the master sent over the bulk socket."""
        if isinstance(message, WantFile):
            self._answers.append(message)
        elif isinstance(message, Fetched):
            if self._spool is not None:
                self._spool.drop(message.session_id)
        elif self._fetching is not None and self._wrong is None:
            self._progress_s = now_s
            try:
                self._fetching.hear(message)
            except WireError as error:
                self._wrong = error

    def sends(self, epoch: int, now_s: float) -> list[FromWorker]:
        """Pieces that the master wants, one at a time, and pieces to ask for."""
        sends: list[FromWorker] = []
        if self._fetching is not None and self._wrong is None:
            sends += self._fetching.asks(epoch, now_s)
        if self._answers:
            sends.append(self._piece(epoch, self._answers.popleft()))
        return sends

    def due_s(self, now_s: float) -> float:
        """When `sends` should be asked next."""
        busy = self._answers or (self._fetching is not None and not self._fetching.done)
        return now_s + (0.0 if self._answers else LOOK_S) if busy else now_s + 1.0

    def _piece(self, epoch: int, want: WantFile) -> FilePiece:
        data, why = b"", ""
        try:
            if self._spool is None:
                raise KeyError(want.session_id)
            data = self._spool.read(want.session_id, want.file, want.offset)
            why = "" if data else "the file has shrunk"
        except KeyError:
            why = "this worker has no such recording"
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
        return FilePiece(
            epoch=epoch, session_id=want.session_id, file=want.file, offset=want.offset, data=data, why=why
        )


def result_of(placed: Placed, files: dict[FileName, int] | None) -> SessionResult:
    """What travels of a session that is over.

    Args:
        files: Its recording's, where that was kept.
    """
    return SessionResult(
        number=placed.number,
        index=placed.index,
        started_s=placed.started_s,
        warmup=placed.warmup,
        frames_sent=placed.sent_frames,
        lateness=placed.settled.lateness,
        record=placed.record,
        files=files,
    )
