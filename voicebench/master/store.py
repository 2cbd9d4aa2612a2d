"""The run on disk: `run.db`, the durable truth. A result is in it before its worker may forget it.

One SQLite file in WAL mode, fully synced: what a call stored is there whatever becomes of the machine. `kill -9` at any
moment leaves a file from which `read_run` gives everything that was acknowledged.
"""

from __future__ import annotations

import fcntl
import importlib.resources
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from voicebench.errors import TesterError, UsageError
from voicebench.load.closed import scenario_index
from voicebench.master.collector import Collector
from voicebench.master.coordinator import Fresh
from voicebench.master.report import HealthFacts, RunHead, RunTail, WorkerFacts
from voicebench.master.verdict import RunVerdict
from voicebench.wire.messages import SessionResult

DATABASE = "run.db"
LOCK = "run.lock"
SCHEMA_VERSION = 2
READABLE = (1, 2)
"""Version 1 has samples without how workers fared; nothing that is read of it differs."""
BUSY_S = 30.0
State = Literal["running", "ended", "unfinished"]
"""unfinished: its master is gone, and did not end it."""
NO_TRACE = "of sessions that started in the last second before the master ended there may be no trace"


@dataclass(frozen=True, slots=True)
class Placing:
    """What says which scenario a session number runs, also of a session that nobody heard of again."""

    scenarios: tuple[tuple[str, float], ...]
    """Name and weight, in the plan's order."""
    callers: int
    seed: int

    def scenario_of(self, number: int) -> str:
        weights = [weight for _, weight in self.scenarios]
        return self.scenarios[scenario_index(number, weights, self.seed)][0]


NOTHING_KNOWN = HealthFacts()
_HEALTH = tuple(field.name for field in fields(HealthFacts))
"""Columns of `samples`, too."""


@dataclass(frozen=True, slots=True)
class Sample:
    """How a worker fares, once a second."""

    epoch: int
    t_s: float
    started: int
    live: int
    loop_age_s: float
    cpu_s: float
    health: HealthFacts = NOTHING_KNOWN
    """The worst since the sample before."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as it was found on disk."""

    head: RunHead
    tail: RunTail
    collector: Collector
    state: State


@dataclass(frozen=True, slots=True)
class Glance:
    """What can be said of a run without reading its sessions."""

    name: str
    started_at: str
    state: State
    started: int
    duration_s: float | None = None
    verdict: str | None = None
    exit_code: int | None = None
    complete: bool | None = None
    p95_response_latency_ms: float | None = None


class Store:
    """An open run.db. Used by the one thread that made it."""

    def __init__(self, directory: Path, head: RunHead, placing: Placing) -> None:
        """Make a run's database in its folder.

        Raises:
            TesterError: The disk does not take it.
        """
        self._path = directory / DATABASE
        with self._telling():
            directory.mkdir(parents=True, exist_ok=True)
            # A lock ends with the process, however that ends: so others see whether the run still goes on.
            self._lock = os.open(directory / LOCK, os.O_WRONLY | os.O_CREAT, 0o644)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                self._db = self._made(head, placing)
            except BaseException:
                os.close(self._lock)
                raise

    def _made(self, head: RunHead, placing: Placing) -> sqlite3.Connection:
        db = self._db = sqlite3.connect(self._path, isolation_level=None, timeout=BUSY_S)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            db.execute(f"PRAGMA {pragma}")
        with self._transaction():
            for statement in _schema():
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            db.execute(
                "INSERT INTO run (only_one, id, name, started_at, head, scenarios, callers, seed, state) "
                "VALUES (1, ?, ?, ?, ?, ?, ?, ?, 'running')",
                (
                    head.id,
                    _clean(head.name),
                    head.started_at,
                    as_json(head),
                    as_json(placing.scenarios),
                    placing.callers,
                    placing.seed,
                ),
            )
        return db

    def add_results(self, batch: Sequence[Fresh]) -> tuple[int, ...]:
        """Store these for good, all or none.

        Returns:
            Numbers of the sessions that were not there before: one that came before, or a result that did, is left out.
        """
        with self._telling(), self._transaction():
            return tuple(each.session.number for each in batch if self._add(each))

    def have(self, epoch: int) -> int:
        """`seq` of a worker's last result that is stored; 0: there is none."""
        with self._telling():
            row = self._db.execute("SELECT have FROM workers WHERE epoch = ?", (epoch,)).fetchone()
            return 0 if row is None else int(row[0])

    def _add(self, fresh: Fresh) -> bool:
        result = fresh.session
        record, outcome = result.record, result.record.outcome
        newer = self._db.execute(
            "UPDATE workers SET have = ?1 WHERE epoch = ?2 AND have < ?1", (fresh.seq, fresh.epoch)
        ).rowcount
        if not newer and self.have(fresh.epoch) >= fresh.seq:
            return False
        stored = self._db.execute(
            "INSERT INTO sessions (number, session_id, epoch, seq, scenario, started_s, warmup, state, reason, detail, "
            "duration_s, reliable, frames_sent, result) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (number) DO NOTHING",
            (
                result.number,
                record.session_id,
                fresh.epoch,
                fresh.seq,
                _clean(record.scenario),
                result.started_s,
                result.warmup,
                outcome.state,
                _clean(outcome.reason),
                _clean(outcome.detail),
                record.duration_s,
                record.reliable,
                result.frames_sent,
                as_json(result),
            ),
        )
        if not stored.rowcount:
            return False
        self._db.executemany(
            "INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    result.number, position, _clean(turn.id), turn.expect, turn.status, turn.passed, turn.reliable,
                    turn.error_ms, turn.response_latency_ms, turn.ttfa_ms, turn.talk_over, turn.stopped,
                    turn.stop_ms, turn.false_barge_in, turn.spurious_response, turn.wer,
                )
                for position, turn in enumerate(record.turns)
            ],
        )  # fmt: skip
        return True

    def add_lost(self, lost: Iterable[tuple[int, str, int, str]]) -> None:
        """Sessions that started and of which nothing will come: number, session id, epoch, scenario of each."""
        with self._telling(), self._transaction():
            self._db.executemany(
                "INSERT INTO sessions (number, session_id, epoch, scenario, warmup, state, duration_s, reliable, "
                "frames_sent) VALUES (?, ?, ?, ?, 0, 'lost', 0.0, 1, 0) ON CONFLICT (number) DO NOTHING",
                [(number, session_id, epoch, _clean(scenario)) for number, session_id, epoch, scenario in lost],
            )

    def set_bundle(self, number: int, bundle: str) -> None:
        """A session's recording is in the run's folder."""
        self.set_bundles([(number, bundle)])

    def set_bundles(self, bundles: Iterable[tuple[int, str]]) -> None:
        """The same of several sessions: number and where the recording lies."""
        with self._telling(), self._transaction():
            self._db.executemany(
                "UPDATE sessions SET bundle = ? WHERE number = ?", [(bundle, number) for number, bundle in bundles]
            )

    def set_workers(self, workers: Iterable[tuple[int, WorkerFacts]], samples: Iterable[Sample] = ()) -> None:
        """How the workers stand now, by epoch."""
        with self._telling(), self._transaction():
            for epoch, facts in workers:
                self._db.execute(
                    "INSERT INTO workers (epoch, name, host, state, started, maybe_started, facts) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (epoch) DO UPDATE SET state = excluded.state, "
                    "started = excluded.started, maybe_started = excluded.maybe_started, facts = excluded.facts",
                    (
                        epoch,
                        _clean(facts.name),
                        _clean(facts.host),
                        facts.state,
                        facts.started,
                        facts.maybe_started,
                        as_json(facts),
                    ),
                )
            self._db.executemany(
                f"INSERT OR IGNORE INTO samples (epoch, t_s, started, live, loop_age_s, cpu_s, {', '.join(_HEALTH)}) "
                f"VALUES (?, ?, ?, ?, ?, ?{', ?' * len(_HEALTH)})",
                [
                    (each.epoch, each.t_s, each.started, each.live, each.loop_age_s, each.cpu_s, *astuple(each.health))
                    for each in samples
                ],
            )

    def add_events(self, events: Iterable[tuple[float, str, str]]) -> None:
        """What happened: run time, what, and the particulars."""
        with self._telling(), self._transaction():
            self._db.executemany(
                "INSERT INTO events (t_s, event, detail) VALUES (?, ?, ?)",
                [(t_s, _clean(event), _clean(detail)) for t_s, event, detail in events],
            )

    def end(self, tail: RunTail, verdict: RunVerdict, summary: Mapping[str, Any]) -> None:
        """The run is over and accounted for."""
        with self._telling(), self._transaction():
            self._db.execute(
                "UPDATE run SET state = 'ended', duration_s = ?, verdict = ?, exit_code = ?, complete = ?, "
                "summary = ?, tail = ?",
                (
                    tail.duration_s,
                    verdict.verdict,
                    verdict.exit_code,
                    verdict.complete,
                    as_json(summary),
                    as_json(tail),
                ),
            )

    def give_up(self) -> None:
        """Let go of a database that can't be written any more. The lock stays: the run goes on in memory."""
        self._db.close()

    def close(self) -> None:
        """Everything in one file, so that it can be copied."""
        with self._telling():
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._db.close()
            self._path.with_name(LOCK).unlink(missing_ok=True)
        os.close(self._lock)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeError, OverflowError) as error:
            raise TesterError(
                f"{self._path} can't be written ({error}): make room there, or give another folder with --out; the "
                "numbers of this run go on in memory"
            ) from None


def read_run(directory: Path) -> StoredRun:
    """A run from its folder, also one that still goes on, or that was cut off.

    Raises:
        UsageError: There is no run, or not one that this version can read.
    """
    with _reading(directory) as (db, held):
        return _read(db, directory, held)


def glance(directory: Path) -> Glance:
    """The little that a list of runs needs. Raises as `read_run`."""
    with _reading(directory) as (db, held):
        row = db.execute(
            "SELECT name, started_at, state, duration_s, verdict, exit_code, complete, summary FROM run"
        ).fetchone()
        if row is None:
            raise UsageError(f"{directory / DATABASE}: is empty: the master ended before the run began")
        (known,) = db.execute("SELECT coalesce(sum(started), 0) FROM workers").fetchone()
        (stored,) = db.execute("SELECT count(*) FROM sessions").fetchone()
        summary = {} if row[7] is None else msgspec.json.decode(row[7])
        return Glance(
            name=row[0],
            started_at=row[1],
            state=_state(row[2], held=held),
            started=max(known, stored),
            duration_s=row[3],
            verdict=row[4],
            exit_code=row[5],
            complete=None if row[6] is None else bool(row[6]),
            p95_response_latency_ms=summary.get("response_latency_ms", {}).get("p95"),
        )


def _state(stored: str, *, held: bool) -> State:
    if stored == "ended":
        return "ended"
    return "running" if held else "unfinished"


@contextmanager
def _reading(directory: Path) -> Iterator[tuple[sqlite3.Connection, bool]]:
    """The database as it is at one moment, and whether a master held the run just before."""
    path = directory / DATABASE
    if not path.is_file():
        raise UsageError(f"{directory}: holds no run: there is no {DATABASE} in it")
    try:
        held = _is_held(directory / LOCK)  # first: a run that ends meanwhile has ended, and was not left unfinished
        with _opened_to_read(path) as db:
            db.execute("BEGIN")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version not in READABLE:
                raise UsageError(
                    f"{path}: has schema {version}, this version reads {SCHEMA_VERSION}: "
                    + ("upgrade voicebench" if version > SCHEMA_VERSION else "the file is not whole, or none of ours")
                )
            yield db, held
    except (sqlite3.Error, msgspec.MsgspecError, OSError, UnicodeError) as error:
        raise UsageError(f"{path}: can't be read as a run: {error}") from None


@contextmanager
def _opened_to_read(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        db = _connected(path, "mode=ro")
    except sqlite3.OperationalError:
        # A folder that can't be written to has no room for what readers of a WAL share.
        with _opened_elsewhere(path) as db:
            yield db
        return
    try:
        yield db
    finally:
        db.close()


@contextmanager
def _opened_elsewhere(path: Path) -> Iterator[sqlite3.Connection]:
    """Without writing beside it. What is in the WAL and not yet in the file counts as well, so both are copied."""
    wal = path.with_name(f"{path.name}-wal")
    with tempfile.TemporaryDirectory() as elsewhere:
        mode = "immutable=1"
        if wal.exists() and wal.stat().st_size:
            for each in (wal, path):
                shutil.copyfile(each, Path(elsewhere) / each.name)
            path, mode = Path(elsewhere) / path.name, "mode=rw"
        db = _connected(path, mode)
        try:
            yield db
        finally:
            db.close()


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    db = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None, timeout=BUSY_S)
    try:
        db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def _read(db: sqlite3.Connection, directory: Path, held: bool) -> StoredRun:
    row = db.execute("SELECT head, state, tail FROM run").fetchone()
    if row is None:
        raise UsageError(f"{directory / DATABASE}: is empty: the master ended before the run began")
    head = msgspec.json.decode(row[0], type=RunHead)
    collector = Collector()
    names = dict(db.execute("SELECT epoch, name FROM workers"))
    lost = []
    for number, session_id, epoch, scenario, bundle, result in db.execute(
        "SELECT number, session_id, epoch, scenario, bundle, result FROM sessions ORDER BY number"
    ):
        if epoch not in names:
            raise UsageError(f"{directory / DATABASE}: session {number} belongs to no worker: the file is damaged")
        if result is None:
            lost.append((number, session_id, epoch, scenario))
            continue
        collector.take(msgspec.json.decode(result, type=SessionResult), worker=names[epoch], bundle=bundle)
    for t_s, live, started in db.execute("SELECT t_s, live, started FROM samples ORDER BY t_s, epoch"):
        collector.timeline.sample(t_s, live=live, started=started)
    for number, session_id, epoch, scenario in lost:
        collector.take_lost(number, worker=names[epoch], session_id=session_id, scenario=scenario)
    state = _state(row[1], held=held)
    tail = msgspec.json.decode(row[2], type=RunTail) if state == "ended" else _tail_so_far(db, state)
    if state == "unfinished":
        for worker in tail.workers:
            stored = collector.by_worker[worker.name].total if worker.name in collector.by_worker else 0
            if worker.started > stored:
                collector.take_missing(worker.started - stored, worker=worker.name)
    return StoredRun(head, tail, collector, state)


def _tail_so_far(db: sqlite3.Connection, state: State) -> RunTail:
    """What can be said of a run that nobody ended."""
    workers = []
    for facts_json, stored in db.execute(
        "SELECT facts, (SELECT count(*) FROM sessions s WHERE s.epoch = w.epoch) FROM workers w ORDER BY epoch"
    ):
        facts = msgspec.json.decode(facts_json, type=WorkerFacts)
        workers.append(replace(facts, started=max(facts.started, stored)))
    events = tuple(db.execute("SELECT t_s, event, detail FROM events ORDER BY n"))
    (last_s,) = db.execute(
        "SELECT max(t) FROM (SELECT max(t_s) AS t FROM samples UNION SELECT max(started_s + duration_s) FROM sessions)"
    ).fetchone()
    return RunTail(
        duration_s=last_s or 0.0,
        workers=tuple(workers),
        notes=(NO_TRACE,) if state == "unfinished" else (),
        events=events,
        aborted="the master ended before the run did" if state == "unfinished" else None,
        going_on=state == "running",
    )


def _is_held(lock: Path) -> bool:
    """Whether a master lives that holds this run."""
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _schema() -> list[str]:
    text = importlib.resources.files("voicebench.master").joinpath("schema.sql").read_text()
    bare = "\n".join(line.partition("--")[0] for line in text.splitlines())
    return [statement for statement in bare.split(";") if statement.strip()]


def as_json(value: Any) -> str:
    """Plain data as JSON, whatever characters came with it."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(_cleaned(msgspec.to_builtins(value))).decode()


def _cleaned(value: Any) -> Any:
    """Plain data whose text any reader takes."""
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(each) for key, each in value.items()}
    return [_cleaned(each) for each in value] if isinstance(value, list | tuple) else value


def _clean(text: str | None) -> str | None:
    """Text that any file and any database takes: no lone surrogates, no NUL."""
    if text is None:
        return None
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
