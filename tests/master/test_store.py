"""run.db: what was stored comes back whole, once, and whatever becomes of the process that stored it."""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.made import a_head, a_worker, ignore, not_played, respond, result, session, stop
from voicebench import errors
from voicebench.errors import UsageError
from voicebench.master import store as store_module
from voicebench.master.collector import Collector
from voicebench.master.coordinator import Fresh
from voicebench.master.ending import conclude
from voicebench.master.report import HealthFacts, RunTail
from voicebench.master.store import DATABASE, LOCK, Placing, Sample, Store, glance, read_run
from voicebench.records import Outcome, Segment, SessionRecord, TurnRecord
from voicebench.wire.messages import SessionResult

PLACING = Placing((("made", 1.0),), callers=1, seed=0)


def a_store(folder: Path) -> Store:
    store = Store(folder, a_head(), PLACING)
    store.set_workers([(1, a_worker("w", started=3))])
    return store


def fresh(number: int, record: SessionRecord | None = None, *, seq: int | None = None, **rest) -> Fresh:
    record = replace(record or session(respond()), session_id=f"run-{number:06d}")
    return Fresh(1, "w", number + 1 if seq is None else seq, result(record, number=number, **rest))


def killed(store: Store) -> None:
    """What is left of a store when its process is gone."""
    store._db.close()
    os.close(store._lock)


def ended(store: Store, folder: Path, **rest) -> dict:
    """End a run as a master does; returns its report."""
    tail = RunTail(9.0, (a_worker("w", started=3),), ("a note",), ((0.0, "start", ""),), **rest)
    report, verdict = conclude(a_head(), tail, read_run(folder).collector)
    store.end(tail, verdict, report["summary"])
    store.close()
    return report


def report_of(folder: Path) -> dict:
    stored = read_run(folder)
    return conclude(stored.head, stored.tail, stored.collector)[0]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
times = st.one_of(st.none(), st.integers(-50_000, 50_000).map(lambda tick: tick / 10))
turns = st.one_of(
    st.builds(lambda ms, text: respond(ms, transcript=text, wer=0.3333, wer_words=3, wer_deletions=1), times, texts),
    st.builds(stop, times),
    st.builds(lambda a, b: ignore(false_barge_in=a, spurious=b, notes=("x",)), st.booleans(), st.booleans()),
    st.builds(lambda late: respond(reliable=late < 10, error_ms=late), st.floats(0, 1e4)),
    st.just(not_played()),
)
outcomes = st.one_of(
    st.just(Outcome("finished")),
    st.builds(lambda text: Outcome("failed", "refused", text), texts),
    st.just(Outcome("cut", None, "cut by the end of the run")),
)
sessions = st.builds(lambda turns, outcome: session(*turns, outcome=outcome), st.lists(turns, max_size=5), outcomes)

numbers = st.floats(-1e9, 1e9)
any_record = st.builds(
    SessionRecord,
    session_id=st.just("s"),
    scenario=texts,
    outcome=outcomes,
    **dict.fromkeys(("duration_s", "user_speech_ms", "agent_speech_ms", "overlap_ms", "talk_over_ms"), numbers),
    truncated=st.booleans(),
    user_segments=st.lists(st.builds(Segment, numbers, numbers), max_size=2).map(tuple),
    agent_segments=st.just(()),
    turns=st.lists(
        st.builds(
            TurnRecord,
            id=texts,
            response_latency_ms=st.one_of(st.none(), numbers),
            error_ms=st.one_of(st.none(), numbers),
            talk_over=st.one_of(st.none(), st.booleans()),
            transcript=st.one_of(st.none(), texts),
            wer_words=st.one_of(st.none(), st.integers(0, 99)),
            notes=st.lists(texts, max_size=2).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(sessions, st.booleans(), st.dictionaries(st.integers(-5, 90), st.integers(1, 9))), max_size=6)
)
def test_what_was_stored_gives_the_same_report_as_what_was_taken_in(tmp_path_factory, taken):
    folder = tmp_path_factory.mktemp("run")
    store = a_store(folder)
    batch = [fresh(n, record, warmup=warmup, lateness=late) for n, (record, warmup, late) in enumerate(taken)]
    store.add_results(batch)
    tail = RunTail(9.0, (a_worker("w", started=len(batch)),), (), ())
    collector = Collector()
    for each in batch:
        collector.take(each.session, worker="w")
    report, verdict = conclude(a_head(), tail, collector)
    store.end(tail, verdict, report["summary"])
    store.close()
    assert json.dumps(report_of(folder)) == json.dumps(report)


def test_a_session_or_batch_that_comes_again_is_stored_once(tmp_path):
    store = a_store(tmp_path)
    assert store.have(1) == 0
    assert store.add_results([fresh(0), fresh(1)]) == (0, 1)
    assert store.add_results([fresh(1), fresh(7, seq=2), fresh(1, session(respond(None)), seq=8), fresh(2, seq=9)]) == (
        2,
    )
    assert store.have(1) == 9
    store.close()
    with sqlite3.connect(tmp_path / DATABASE) as db:
        assert db.execute("SELECT number, seq FROM sessions").fetchall() == [(0, 1), (1, 2), (2, 9)]
        assert db.execute("SELECT count(*) FROM turns").fetchone() == (3,)
        assert db.execute("SELECT status FROM turns WHERE number = 1").fetchall() == [("measured",)]
        assert db.execute("SELECT have FROM workers").fetchone() == (9,)


def test_lost_sessions_recordings_and_samples_come_back(tmp_path):
    store = a_store(tmp_path)
    store.add_results([fresh(0)])
    store.set_bundle(0, "bundles/run-000000")
    store.add_lost([(1, "run-000001", 1, "made")])
    store.set_workers([(1, a_worker("w", state="lost", started=3))], [Sample(1, 1.0, 3, 2, 0.01, 0.5)])
    report = ended(store, tmp_path)
    assert [each["bundle"] for each in report["sessions"]] == ["bundles/run-000000", None]
    assert report["accounting"]["lost"] == 1
    assert report_of(tmp_path) == report


def test_a_run_whose_master_was_killed_misses_what_had_started_and_was_not_stored(tmp_path):
    store = a_store(tmp_path)
    store.add_results([fresh(0)])
    store.add_events([(0.0, "start", "")])
    killed(store)
    stored = read_run(tmp_path)
    report, verdict = conclude(stored.head, stored.tail, stored.collector)
    assert (stored.state, verdict.verdict, verdict.exit_code) == ("unfinished", "incomplete", 4)
    assert (report["accounting"]["started"], report["accounting"]["lost"]) == (3, 2)
    assert "the master ended before the run did" in report["run"]["reasons"][0]
    assert report["run"]["complete"] is False
    assert any("no trace" in note for note in report["run"]["notes"])
    assert (report["sessions_listed"], len(report["sessions"])) == ("all", 1)  # all of which more than a count is known
    assert (glance(tmp_path).state, glance(tmp_path).started) == ("unfinished", 3)


def test_a_run_that_goes_on_is_known_by_its_lock(tmp_path):
    store = a_store(tmp_path)
    store.add_results([fresh(0)])
    assert read_run(tmp_path).state == "running"
    report = report_of(tmp_path)
    assert report["run"]["reasons"] == [
        "the run is still going on: 2 sessions have started and are not in these numbers yet"
    ]
    assert (report["run"]["complete"], report["run"]["exit_code"], report["accounting"]["lost"]) == (False, 4, 0)
    ended(store, tmp_path)
    assert read_run(tmp_path).state == glance(tmp_path).state == "ended"
    assert not (tmp_path / LOCK).exists()


def test_what_is_read_while_a_master_writes_is_of_one_moment(tmp_path):
    store = a_store(tmp_path)
    with store_module._reading(tmp_path) as (db, _):
        assert db.execute("SELECT count(*) FROM workers").fetchone() == (1,)
        store.set_workers([(2, a_worker("late", started=1))])
        store.add_results([Fresh(2, "late", 1, result(session(respond(), session_id="new"), number=9))])
        assert db.execute("SELECT count(*) FROM workers").fetchone() == (1,)
        assert db.execute("SELECT count(*) FROM sessions").fetchone() == (0,)
    assert read_run(tmp_path).collector.n_taken == 1
    store.close()


def test_a_master_that_ends_while_its_run_is_read_has_not_left_it_unfinished(tmp_path, monkeypatch):
    store = a_store(tmp_path)

    def ends_just_before(lock: Path) -> bool:
        ended(store, tmp_path)
        return lock.exists()

    monkeypatch.setattr(store_module, "_is_held", lambda lock: monkeypatch.undo() or ends_just_before(lock))
    assert read_run(tmp_path).state == "ended"


def test_a_store_that_was_given_up_still_says_that_its_run_goes_on(tmp_path):
    store = a_store(tmp_path)
    store.give_up()
    assert read_run(tmp_path).state == "running"
    os.close(store._lock)
    assert read_run(tmp_path).state == "unfinished"


@pytest.mark.slow
@pytest.mark.parametrize("left", [("run.db", "run.db-wal"), ("run.db", "run.db-wal", "run.db-shm")])
def test_a_folder_that_can_not_be_written_to_is_read_whole(left):
    with tempfile.TemporaryDirectory() as made:
        store = a_store(Path(made) / "run")
        store.add_results([fresh(0)])
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        store.add_results([fresh(1), fresh(2)])  # these are in the WAL alone
        copy = Path(made) / "copy"
        copy.mkdir()
        for name in left:
            shutil.copy(Path(made) / "run" / name, copy)
        killed(store)
        os.chmod(made, 0o755)
        os.chmod(copy, 0o555)
        assert _in_a_child_without_rights(lambda: read_run(copy).collector.n_known) == 3


def _in_a_child_without_rights(what: Callable[[], int]) -> int:
    """A small number, found by a process that is not root."""
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            os._exit(what())
        finally:
            os._exit(255)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@settings(max_examples=60, deadline=None)
@given(st.lists(any_record, min_size=1, max_size=3))
def test_a_result_comes_back_as_it_was(tmp_path_factory, records):
    folder = tmp_path_factory.mktemp("run")
    store = a_store(folder)
    batch = [fresh(n, record, lateness={-3: 1, n: 2}) for n, record in enumerate(records)]
    store.add_results(batch)
    store.close()
    with sqlite3.connect(folder / DATABASE) as db:
        rows = db.execute("SELECT result FROM sessions ORDER BY number").fetchall()
        n_turns = db.execute("SELECT count(*) FROM turns").fetchone()[0]
    assert [msgspec.json.decode(text, type=SessionResult) for (text,) in rows] == [each.session for each in batch]
    assert n_turns == sum(len(record.turns) for record in records)


def test_text_that_no_file_takes_is_stored_as_near_as_can_be(tmp_path):
    store = Store(tmp_path, a_head(name="a\ud800b\0c"), PLACING)
    store.set_workers([(1, a_worker("w", started=1))])
    store.add_events([(0.0, "error", "lone \udfff surrogate")])
    store.close()
    with sqlite3.connect(tmp_path / DATABASE) as db:
        assert db.execute("SELECT name FROM run").fetchone() == ("a?b\N{REPLACEMENT CHARACTER}c",)
        assert db.execute("SELECT detail FROM events").fetchone() == ("lone ? surrogate",)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda path: path.unlink(), "holds no run"),
        (lambda path: path.write_bytes(b""), "the file is not whole"),
        (lambda path: path.write_bytes(b"no database" * 100), "can't be read as a run"),
        (lambda path: path.write_bytes(path.read_bytes()[:5000]), "can't be read as a run"),
        (lambda path: path.write_bytes(path.read_bytes()[:40_000]), "can't be read as a run"),
        (
            lambda path: _overwrite(path, b"CREATE TABLE sessions", b"CREATE \xff\xfeBLE sessions"),
            "can't be read as a run",
        ),
        (lambda path: _set_version(path, 99), "has schema 99, this version reads 2: upgrade voicebench"),
    ],
)
def test_what_is_no_run_is_told_in_a_sentence(tmp_path, spoil, told):
    store = a_store(tmp_path)
    store.add_results([fresh(0)])
    ended(store, tmp_path)
    spoil(tmp_path / DATABASE)
    for read in (read_run, glance):
        with pytest.raises(UsageError, match=told):
            read(tmp_path)


def _overwrite(path: Path, what: bytes, by: bytes) -> None:
    content = path.read_bytes()
    assert content.count(what) == 1
    assert len(what) == len(by)
    path.write_bytes(content.replace(what, by))


def test_how_workers_fared_is_kept_with_the_samples_and_with_their_facts(tmp_path):
    store = a_store(tmp_path)
    health = HealthFacts(loop_cpu_share=0.7, waited_share=0.1, throttled_ms=30.0, widest_gap_ms=12.0)
    store.set_workers([(1, replace(a_worker("w"), health=health))], [Sample(1, 1.0, 1, 1, 0.0, 0.5, health)])
    killed(store)
    with sqlite3.connect(tmp_path / DATABASE) as db:
        names = (
            "loop_cpu_share, process_cpu_share, waited_share, throttled_ms, steal_share, widest_gap_ms, worst_late_ms"
        )
        row = db.execute(f"SELECT epoch, t_s, cpu_s, {names} FROM samples").fetchone()
    assert row == (1, 1.0, 0.5, 0.7, None, 0.1, 30.0, None, 12.0, None)
    run = read_run(tmp_path)
    assert run.tail.workers[0].health == health
    report, _ = conclude(run.head, run.tail, run.collector)
    assert report["workers"][0]["health"]["waited_share"] == 0.1
    assert report["workers"][0]["health"]["steal_share"] is None


def test_a_run_of_the_version_before_is_read(tmp_path):
    store = a_store(tmp_path)
    store.add_results([fresh(0)])
    store.close()
    with sqlite3.connect(tmp_path / DATABASE) as db:
        db.execute("DROP TABLE samples")
        db.execute("CREATE TABLE samples (t_s REAL, epoch INTEGER, started INTEGER, live INTEGER, cpu_s REAL)")
        db.execute("INSERT INTO samples VALUES (1.0, 1, 1, 1, 0.5)")
    _set_version(tmp_path / DATABASE, 1)
    assert read_run(tmp_path).collector.n_taken == 3


def _set_version(path: Path, version: int) -> None:
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {version}")


def test_a_session_of_a_worker_that_is_not_there_is_a_damaged_file(tmp_path):
    store = a_store(tmp_path)
    store.add_results([fresh(0)])
    ended(store, tmp_path)
    with sqlite3.connect(tmp_path / DATABASE) as db:
        db.execute("DELETE FROM workers")
    with pytest.raises(UsageError, match="session 0 belongs to no worker: the file is damaged"):
        read_run(tmp_path)


def test_a_disk_that_takes_no_more_is_told_with_path_and_reason(tmp_path):
    store = a_store(tmp_path)
    store._db.execute("PRAGMA max_page_count = 1")
    with pytest.raises(errors.TesterError, match=r"run\.db can't be written .*full"):
        store.add_results([fresh(number, session(*[respond()] * 200)) for number in range(50)])
    store.give_up()
    with pytest.raises(errors.TesterError, match="can't be written"):
        Store(tmp_path / DATABASE, a_head(), PLACING)  # a file where a folder should be


WRITER = """
import sys
from pathlib import Path
from tests.master.test_store import a_store, fresh
store = a_store(Path(sys.argv[1]))
for number in range(100_000):
    store.add_results([fresh(number)])
    print(number, flush=True)
"""


@pytest.mark.slow
def test_whatever_was_acknowledged_survives_a_kill_at_any_moment(tmp_path):
    dice = random.Random(7)
    for nth in range(8):
        folder = tmp_path / str(nth)
        writer = subprocess.Popen([sys.executable, "-c", WRITER, folder], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        for _ in range(dice.randint(1, 200)):
            acknowledged = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        rest = writer.communicate()[0].split()
        acknowledged = int(rest[-1]) if rest else acknowledged
        with sqlite3.connect(folder / DATABASE) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        stored = read_run(folder)
        assert stored.collector.n_known >= acknowledged + 1
        assert stored.state == "unfinished"
