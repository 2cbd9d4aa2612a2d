"""Recordings on their way: each arrives byte for byte or is given up with a reason, whatever the link does."""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.made import respond, result, session
from tests.support.shelved import shelve
from voicebench.master import recordings
from voicebench.master.recordings import (
    ASK_AGAIN_S,
    IN_FLIGHT,
    IN_FLIGHT_IN_ALL,
    PATIENCE_S,
    REASONS_TOLD,
    TRIES,
    Recordings,
)
from voicebench.wire.messages import PIECE_BYTES, Fetched, FilePiece, WantFile
from voicebench.worker import spool as spool_module
from voicebench.worker.spool import Spool

NAMES = ("agent.wav", "session.json", "user.wav")


def content(session_id: str, sizes: tuple[int, int, int] = (40, 30, 20)) -> dict[str, bytes]:
    """A recording whose bytes follow from its name."""
    return {
        name: random.Random(f"{session_id}/{name}").randbytes(size) for name, size in zip(NAMES, sizes, strict=True)
    }


def offered(number: int, files: dict[str, bytes] | None = None, *, session_id: str | None = None):
    session_id = session_id or f"run-{number:06d}"
    files = content(session_id) if files is None else files
    sizes = {name: len(data) for name, data in files.items()}
    return result(session(respond(), session_id=session_id), number=number, files=sizes)


class Worker:
    """Answers as a worker does, from memory."""

    def __init__(self, epoch: int = 1) -> None:
        self.epoch = epoch
        self.files: dict[str, dict[str, bytes]] = {}
        self.told: list[str] = []

    def record(self, pulls: Recordings, number: int, sizes: tuple[int, int, int] = (40, 30, 20)) -> str:
        session_id = f"run-{number:06d}"
        self.files[session_id] = content(session_id, sizes)
        pulls.offer(self.epoch, offered(number, self.files[session_id]))
        return session_id

    def answer(self, want: WantFile, **other) -> FilePiece:
        data = self.files[want.session_id][want.file][want.offset : want.offset + PIECE_BYTES]
        values = {"epoch": self.epoch, "session_id": want.session_id, "file": want.file, "offset": want.offset}
        return FilePiece(**{**values, "data": data, **other})


def run(pulls: Recordings, *workers: Worker, now_s: float = 0.0) -> list[tuple[int, str]]:
    """Over a link that works, until nothing is pending; what became whole."""
    by_epoch = {worker.epoch: worker for worker in workers}
    whole = []
    while any(pulls.pending(epoch) for epoch in by_epoch):
        sends = list(pulls.sends(now_s))
        assert sends, "it waits, and nobody owes it anything"
        for epoch, message in sends:
            if isinstance(message, Fetched):
                by_epoch[epoch].told.append(message.session_id)
            else:
                kept = pulls.hear(by_epoch[epoch].answer(message))
                whole += [kept] if kept is not None else []
    for epoch, message in pulls.sends(now_s):
        assert isinstance(message, Fetched)
        by_epoch[epoch].told.append(message.session_id)
    return whole


def on_disk(folder: Path) -> dict[str, dict[str, bytes]]:
    """All there is, hidden or not."""
    if not (folder / "bundles").exists():
        return {}
    return {
        each.name: {file.name: file.read_bytes() for file in each.iterdir()} for each in (folder / "bundles").iterdir()
    }


def asked(pulls: Recordings, now_s: float = 0.0) -> list[WantFile]:
    return [message for _, message in pulls.sends(now_s) if isinstance(message, WantFile)]


def test_a_recording_of_many_pieces_arrives_byte_for_byte(tmp_path):
    pulls, worker = Recordings(tmp_path), Worker()
    name = worker.record(pulls, 7, (2 * PIECE_BYTES + 3, PIECE_BYTES, 1))
    assert run(pulls, worker) == [(7, f"bundles/{name}")]
    assert on_disk(tmp_path) == {name: worker.files[name]}
    assert pulls.trouble == ()


def test_pieces_go_to_disk_as_they_come_and_are_not_seen_before_all_are_there(tmp_path):
    pulls, worker = Recordings(tmp_path), Worker()
    name = worker.record(pulls, 1, (2 * PIECE_BYTES, 10, 10))
    (want,) = asked(pulls)
    assert pulls.hear(worker.answer(want)) is None
    ((folder, files),) = on_disk(tmp_path).items()
    assert folder.startswith(f".{name}-")
    assert files == {"agent.wav": worker.files[name]["agent.wav"][:PIECE_BYTES]}


def test_a_worker_is_told_only_once_the_recording_is_whole(tmp_path):
    pulls, worker = Recordings(tmp_path), Worker()
    name = worker.record(pulls, 1)
    while not on_disk(tmp_path).get(name):
        (message,) = [message for _, message in pulls.sends(0.0)]
        assert isinstance(message, WantFile)
        pulls.hear(worker.answer(message))
    assert [message for _, message in pulls.sends(0.0)] == [Fetched(session_id=name)]


def test_many_recordings_of_many_workers_all_arrive(tmp_path):
    pulls, workers = Recordings(tmp_path), [Worker(epoch) for epoch in range(1, 30)]
    for number in range(290):
        workers[number % 29].record(pulls, number)
    whole = run(pulls, *workers)
    assert sorted(number for number, _ in whole) == list(range(290))
    assert on_disk(tmp_path) == {name: files for worker in workers for name, files in worker.files.items()}


def test_a_few_are_on_their_way_of_one_worker_and_a_bounded_number_in_all(tmp_path):
    pulls, workers = Recordings(tmp_path), [Worker(epoch) for epoch in range(1, 30)]
    for number in range(290):
        workers[number % 29].record(pulls, number)
    sends = [epoch for epoch, _ in pulls.sends(0.0)]
    assert len(sends) == IN_FLIGHT_IN_ALL
    assert max(sends.count(epoch) for epoch in sends) == IN_FLIGHT
    assert asked(pulls, ASK_AGAIN_S / 2) == []


def test_what_got_no_answer_is_asked_for_again_and_then_given_up(tmp_path):
    pulls, worker = Recordings(tmp_path), Worker()
    name = worker.record(pulls, 1)
    n_asked, now_s, told = 0, 0.0, []
    while pulls.pending(1):
        for _, message in pulls.sends(now_s):
            n_asked += isinstance(message, WantFile)
            told += [message.session_id] if isinstance(message, Fetched) else []
        now_s += 0.5
    assert n_asked == TRIES
    assert told == [name]  # it may drop it: nobody will ask again
    assert pulls.trouble == ("1 recording is missing (their worker did not send them); the numbers are whole",)


def test_a_worker_that_sends_nothing_is_not_waited_for_longer_than_that(tmp_path):
    pulls, worker = Recordings(tmp_path), Worker()
    for number in range(1000):
        worker.record(pulls, number)
    now_s = 0.0
    while pulls.pending(1):
        list(pulls.sends(now_s))
        now_s += 0.5
    assert now_s <= PATIENCE_S + 1.0
    assert pulls.trouble == ("1000 recordings are missing (their worker did not send them); the numbers are whole",)


def test_a_slow_worker_that_goes_on_sending_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "PIECE_BYTES", 1)
    pulls, worker = Recordings(tmp_path), Worker()
    name = worker.record(pulls, 1, (40, 30, 20))
    now_s = 0.0
    while pulls.pending(1):
        for want in asked(pulls, now_s):
            one_byte = worker.files[want.session_id][want.file][want.offset : want.offset + 1]
            pulls.hear(worker.answer(want, data=one_byte))
        now_s += 1.0
    assert now_s > 2 * PATIENCE_S
    assert on_disk(tmp_path) == {name: worker.files[name]}


def test_a_piece_that_comes_twice_or_too_late_is_not_written_again(tmp_path):
    pulls, worker = Recordings(tmp_path), Worker()
    name = worker.record(pulls, 1, (3 * PIECE_BYTES, 1, 1))
    (first,) = asked(pulls)
    pulls.hear(worker.answer(first))
    pulls.hear(worker.answer(first))
    (second,) = asked(pulls)
    assert second.offset == PIECE_BYTES
    pulls.hear(worker.answer(second))
    pulls.hear(worker.answer(first))
    pulls.hear(worker.answer(second))
    run(pulls, worker)
    assert on_disk(tmp_path) == {name: worker.files[name]}
    assert pulls.trouble == ()


def test_a_master_that_stood_still_does_not_take_it_for_silence(tmp_path):
    pulls, worker = Recordings(tmp_path), Worker()
    name = worker.record(pulls, 1)
    (want,) = asked(pulls, 0.0)
    asked(pulls, 10 * PATIENCE_S)  # nobody looked for minutes
    assert pulls.pending(1)
    pulls.hear(worker.answer(want))
    run(pulls, worker, now_s=10 * PATIENCE_S)
    assert list(on_disk(tmp_path)) == [name]


def test_a_recording_that_cannot_be_read_is_given_up_with_the_workers_reason_and_the_others_go_on(tmp_path):
    pulls, worker = Recordings(tmp_path), Worker()
    bad, good = worker.record(pulls, 1), worker.record(pulls, 2)
    for want in asked(pulls):
        other = {"data": b"", "why": "Input/output error"} if want.session_id == bad else {}
        pulls.hear(worker.answer(want, **other))
    assert run(pulls, worker) == [(2, f"bundles/{good}")]
    assert pulls.trouble == ("1 recording is missing (Input/output error); the numbers are whole",)
    assert sorted(worker.told) == [bad, good]
    assert list(on_disk(tmp_path)) == [good]


@pytest.mark.parametrize("data", [b"x" * 39, b"x" * 41, b"x"])
def test_another_length_than_was_said_is_given_up(tmp_path, data):
    pulls, worker = Recordings(tmp_path), Worker()
    worker.record(pulls, 1, (40, 30, 20))
    (want,) = asked(pulls)
    assert pulls.hear(worker.answer(want, data=data)) is None
    assert not pulls.pending(1)
    assert on_disk(tmp_path) == {}
    assert "another length" in pulls.trouble[0]


def test_a_worker_that_went_away_takes_only_its_own_with_it(tmp_path):
    pulls, here, away = Recordings(tmp_path), Worker(1), Worker(2)
    kept = here.record(pulls, 1)
    away.record(pulls, 2, (2 * PIECE_BYTES, 1, 1))
    away.record(pulls, 3)
    for epoch, message in list(pulls.sends(0.0)):
        if epoch == 2:
            pulls.hear(away.answer(message))
    pulls.gone(2)
    assert not pulls.pending(2)
    run(pulls, here, away, now_s=ASK_AGAIN_S)
    assert list(on_disk(tmp_path)) == [kept]
    assert pulls.trouble == ("2 recordings are missing (their worker went away); the numbers are whole",)


def test_a_piece_of_a_worker_that_went_away_changes_nothing(tmp_path):
    pulls, away = Recordings(tmp_path), Worker()
    away.record(pulls, 1)
    (want,) = asked(pulls)
    pulls.gone(1)
    assert pulls.hear(away.answer(want)) is None
    assert on_disk(tmp_path) == {}


def test_what_has_not_come_at_the_end_is_given_up_and_nothing_half_is_left(tmp_path):
    pulls, worker = Recordings(tmp_path), Worker()
    worker.record(pulls, 1)
    (want,) = asked(pulls)
    pulls.hear(worker.answer(want))
    pulls.close()
    assert on_disk(tmp_path) == {}
    assert pulls.trouble == ("1 recording is missing (the run ended before they had come); the numbers are whole",)


def test_a_disk_that_takes_nothing_is_one_sentence_however_many_it_concerns(tmp_path):
    (tmp_path / "bundles").write_text("in the way")
    pulls, worker = Recordings(tmp_path), Worker()
    names = [worker.record(pulls, number) for number in range(12)]
    assert run(pulls, worker) == []
    assert pulls.trouble == ("12 recordings are missing (File exists); the numbers are whole",)
    assert sorted(worker.told) == names


def test_a_recording_that_is_there_already_is_not_overwritten(tmp_path):
    pulls, first, second = Recordings(tmp_path), Worker(1), Worker(2)
    name = first.record(pulls, 1)
    run(pulls, first)
    second.files[name] = content("another")
    pulls.offer(2, offered(1, second.files[name]))
    assert run(pulls, second) == []
    assert on_disk(tmp_path) == {name: first.files[name]}
    assert "1 recording is missing" in pulls.trouble[0]


def test_another_workers_piece_is_not_taken_for_it(tmp_path):
    pulls, worker = Recordings(tmp_path), Worker(1)
    name = worker.record(pulls, 1)
    (want,) = asked(pulls)
    assert pulls.hear(worker.answer(want, epoch=2, data=b"\xff" * 40)) is None
    run(pulls, worker, now_s=ASK_AGAIN_S)
    assert on_disk(tmp_path) == {name: worker.files[name]}


@pytest.mark.parametrize(
    "session_id", ["", ".", "..", ".hidden", "../up", "a/b", "/abs", "a\0b", "a b", "x" * 201, "ü", "a\n"]
)
def test_a_name_that_is_none_of_a_session_makes_no_folder(tmp_path, session_id):
    pulls = Recordings(tmp_path / "run")
    files = content("any")
    pulls.offer(1, result(session(respond(), session_id=session_id), files={name: len(files[name]) for name in files}))
    assert not pulls.pending(1)
    assert list(pulls.sends(0.0)) == []
    assert os.listdir(tmp_path) == []
    assert "is no recording" in pulls.trouble[0]


@pytest.mark.parametrize("names", [("user.wav",), ("user.wav", "agent.wav"), ("session.json",)])
def test_half_a_recording_is_none(tmp_path, names):
    pulls, files = Recordings(tmp_path), content("run-000001")
    pulls.offer(1, offered(1, {name: files[name] for name in names}))
    assert not pulls.pending(1)
    assert "is no recording" in pulls.trouble[0]


def test_the_same_recording_offered_twice_arrives_once(tmp_path):
    pulls, worker = Recordings(tmp_path), Worker()
    name = worker.record(pulls, 1)
    pulls.offer(1, offered(1, worker.files[name]))
    assert run(pulls, worker) == [(1, f"bundles/{name}")]
    assert on_disk(tmp_path) == {name: worker.files[name]}
    assert "1 recording is missing" in pulls.trouble[0]


def test_a_workers_own_words_are_shown_harmless_short_and_few(tmp_path):
    pulls, worker = Recordings(tmp_path), Worker()
    for number in range(50):
        worker.record(pulls, number)
    while pulls.pending(1):
        for want in asked(pulls):
            pulls.hear(worker.answer(want, data=b"", why=f"\x1b[31m{want.session_id}\n" + "x" * 3000))
    assert len(pulls.trouble) == REASONS_TOLD + 1
    assert "40 recordings are missing (for other reasons)" in pulls.trouble[-1]
    assert all(sentence.isprintable() and len(sentence) < 300 for sentence in pulls.trouble)


def test_what_a_killed_master_left_half_is_removed_and_what_was_whole_stays(tmp_path):
    for name in (".run-000001-abcdefgh", "run-000002"):
        (tmp_path / "bundles" / name).mkdir(parents=True)
        (tmp_path / "bundles" / name / "user.wav").write_bytes(b"old")
    pulls, worker = Recordings(tmp_path), Worker()
    name = worker.record(pulls, 3)
    run(pulls, worker)
    assert on_disk(tmp_path) == {"run-000002": {"user.wav": b"old"}, name: worker.files[name]}


# --- master and workers over a bad link ----------------------------------------------------------------------------

SMALL_PIECE = 16
seeds = st.integers(0, 1 << 32).map(random.Random)


class BadLink(RuleBasedStateMachine):
    """Recordings at workers' spools, a master that pulls them, and between them a link that does what it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(recordings, "PIECE_BYTES", SMALL_PIECE)
        self.patches.setattr(spool_module, "PIECE_BYTES", SMALL_PIECE)
        self.folder = Path(tempfile.mkdtemp())
        self.pulls = Recordings(self.folder / "run")
        self.now_s = 0.0
        self.number = 0
        self.made: dict[str, dict[str, bytes]] = {}
        self.whole: list[str] = []
        self.spools: dict[int, Spool] = {}
        self.dead: set[int] = set()
        self.to_workers: list[tuple[int, WantFile | Fetched]] = []
        self.to_master: list[FilePiece] = []

    @initialize(n=st.integers(1, 3))
    def workers_join(self, n: int) -> None:
        for epoch in range(1, n + 1):
            (self.folder / str(epoch)).mkdir()
            self.spools[epoch] = Spool(parent=str(self.folder / str(epoch)))

    @rule(
        chance=seeds,
        sizes=st.tuples(*[st.sampled_from([1, 15, 16, 17, 32, 50, 64])] * 3),
        n=st.integers(1, 6),
    )
    def sessions_end(self, chance: random.Random, sizes: tuple[int, int, int], n: int) -> None:
        for _ in range(n):
            epoch = chance.choice(list(self.spools))
            if epoch in self.dead:
                continue
            name = f"run-{self.number:06d}"
            self.made[name] = content(name, sizes)
            shelve(self.spools[epoch], name, self.made[name])
            self.pulls.offer(epoch, offered(self.number, self.made[name]))
            self.number += 1

    @rule(seconds=st.sampled_from([0.0, 0.05, 0.9, 2.1, 31.0]))
    def the_master_looks(self, seconds: float) -> None:
        self.now_s += seconds
        self.to_workers += self.pulls.sends(self.now_s)

    @precondition(lambda self: self.to_workers)
    @rule(chance=seeds)
    def a_worker_hears(self, chance: random.Random) -> None:
        epoch, message = self.to_workers.pop(chance.randrange(len(self.to_workers)))
        self._worker_hears(epoch, message)

    @precondition(lambda self: self.to_master)
    @rule(chance=seeds)
    def the_master_hears(self, chance: random.Random) -> None:
        self._master_hears(self.to_master.pop(chance.randrange(len(self.to_master))))

    @rule(chance=seeds, n=st.integers(1, 60), twice=st.sampled_from([0.0, 0.3]))
    def the_link_works_for_a_while(self, chance: random.Random, n: int, twice: float) -> None:
        for _ in range(n):
            self.to_workers += self.pulls.sends(self.now_s)
            self.to_workers += [each for each in self.to_workers[-1:] if chance.random() < twice]
            self.to_master += [each for each in self.to_master[-1:] if chance.random() < twice]
            if self.to_workers:
                self._worker_hears(*self.to_workers.pop(chance.randrange(len(self.to_workers))))
            if self.to_master:
                self._master_hears(self.to_master.pop(chance.randrange(len(self.to_master))))

    @rule(chance=seeds)
    def messages_are_lost(self, chance: random.Random) -> None:
        self.to_workers = [each for each in self.to_workers if chance.random() < 0.5]
        self.to_master = [each for each in self.to_master if chance.random() < 0.5]

    @rule()
    def messages_come_twice(self) -> None:
        self.to_workers = self.to_workers[-20:] * 2
        self.to_master = self.to_master[-20:] * 2

    @precondition(lambda self: len(self.dead) + 1 < len(self.spools))
    @rule(chance=seeds)
    def a_worker_goes_away(self, chance: random.Random) -> None:
        epoch = chance.choice(sorted(self.spools.keys() - self.dead))
        self.dead.add(epoch)
        self.pulls.gone(epoch)

    @rule(chance=seeds)
    def a_file_is_lost_at_a_worker(self, chance: random.Random) -> None:
        files = sorted(self.folder.glob("[0-9]/voicebench-spool-*/run-*/user.wav"))
        if files:
            chance.choice(files).unlink()

    @invariant()
    def whatever_can_be_seen_is_whole(self) -> None:
        seen = {name: files for name, files in on_disk(self.folder / "run").items() if not name.startswith(".")}
        assert seen == {name: self.made[name] for name in self.whole}

    @invariant()
    def nothing_became_whole_twice(self) -> None:
        assert len(set(self.whole)) == len(self.whole)

    def _worker_hears(self, epoch: int, message: WantFile | Fetched) -> None:
        """As the worker's thread does."""
        if epoch in self.dead:
            return
        spool = self.spools[epoch]
        if isinstance(message, Fetched):
            half = list(self.folder.glob(f"run/bundles/.{message.session_id}-*"))
            assert half == [], "it was told to drop what is still being fetched"
            spool.drop(message.session_id)
            return
        data, why = b"", ""
        try:
            data = spool.read(message.session_id, message.file, message.offset)
        except (OSError, KeyError, ValueError) as error:
            why = f"{type(error).__name__}"
        want = {"session_id": message.session_id, "file": message.file, "offset": message.offset}
        self.to_master.append(FilePiece(epoch=epoch, **want, data=data, why=why))

    def _master_hears(self, piece: FilePiece) -> None:
        kept = self.pulls.hear(piece)
        if kept is not None:
            number, folder = kept
            assert folder == f"bundles/run-{number:06d}"
            self.whole.append(f"run-{number:06d}")

    def teardown(self) -> None:
        try:
            if self.spools and sys.exc_info()[0] is None:  # one failure at a time
                self._at_last_everything_is_accounted_for()
        finally:
            self.patches.undo()
            for spool in self.spools.values():
                spool.close()
            shutil.rmtree(self.folder)

    def _at_last_everything_is_accounted_for(self) -> None:
        deadline_s = self.now_s + 600.0
        while any(self.pulls.pending(epoch) for epoch in self.spools):
            assert self.now_s < deadline_s, "the end of the run waits for ever"
            self.to_workers += self.pulls.sends(self.now_s)
            while self.to_workers:
                self._worker_hears(*self.to_workers.pop())
            while self.to_master:
                self._master_hears(self.to_master.pop())
            self.now_s += 0.05
        for epoch, message in self.pulls.sends(self.now_s):
            self._worker_hears(epoch, message)
        n_lost = sum(int(sentence.split()[0]) for sentence in self.pulls.trouble)
        assert len(self.whole) + n_lost == len(self.made)
        assert on_disk(self.folder / "run") == {name: self.made[name] for name in self.whole}


BadLink.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRecordingsOverABadLink = BadLink.TestCase
