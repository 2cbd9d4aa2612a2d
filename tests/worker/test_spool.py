"""Recordings that wait at the worker: bounded, private, readable by name and offset only, gone at the end."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.shelved import shelve
from voicebench.wire.messages import PIECE_BYTES
from voicebench.worker.clerk import Shelf
from voicebench.worker.spool import Spool, sweep


def files(session_id: str, n_bytes: int = 30) -> dict[str, bytes]:
    """A recording whose content follows from its name."""
    return {
        name: random.Random(f"{session_id}/{name}").randbytes(n_bytes)
        for name in ("session.json", "user.wav", "agent.wav")
    }


@pytest.fixture
def spool(tmp_path):
    made = Spool(parent=str(tmp_path))
    yield made
    made.close()


def folders(parent: Path) -> list[str]:
    return sorted(os.listdir(parent))


def left_behind(parent: Path, name: str, *, lock: bool = True) -> Path:
    """What a worker that was killed leaves."""
    folder = parent / f"voicebench-spool-{name}"
    (folder / "run-000001").mkdir(parents=True)
    (folder / "run-000001" / "user.wav").write_bytes(b"old")
    if lock:
        (folder / ".lock").touch()
    return folder


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3 * PIECE_BYTES))
def test_a_recording_is_read_in_pieces_that_make_the_whole(tmp_path_factory, n_bytes):
    spool = Spool(parent=str(tmp_path_factory.mktemp("spool")))
    content = files("run-000001", n_bytes)
    sizes = shelve(spool, "run-000001", content)
    assert sizes == dict.fromkeys(content, n_bytes)
    for name, whole in content.items():
        pieces = [spool.read("run-000001", name, offset) for offset in range(0, n_bytes, PIECE_BYTES)]
        assert b"".join(pieces) == whole
    spool.close()


def test_a_piece_can_be_read_again(spool):
    shelve(spool, "run-000001", files("run-000001"))
    assert spool.read("run-000001", "user.wav", 7) == spool.read("run-000001", "user.wav", 7)


@pytest.mark.parametrize(
    ("session_id", "file"),
    [
        ("run-000002", "user.wav"),
        ("run-000001", "more.wav"),
        ("..", ".lock"),
        ("run-000001", "../.lock"),
        ("", ".lock"),
    ],
)
def test_what_is_no_recording_of_this_worker_is_not_read(spool, session_id, file):
    shelve(spool, "run-000001", files("run-000001"))
    with pytest.raises(KeyError):
        spool.read(session_id, file, 0)


def test_nothing_is_read_behind_the_end(spool):
    shelve(spool, "run-000001", files("run-000001", 30))
    with pytest.raises(ValueError, match="30 bytes"):
        spool.read("run-000001", "user.wav", 30)


def test_what_was_dropped_is_gone_and_dropping_again_is_nothing(spool, tmp_path):
    shelve(spool, "run-000001", files("run-000001"))
    spool.drop("run-000001")
    spool.drop("run-000001")
    spool.drop("run-999999")
    with pytest.raises(KeyError):
        spool.read("run-000001", "user.wav", 0)
    assert list(tmp_path.rglob("*.wav")) == []
    assert spool.waiting == 0


def test_beyond_its_size_nothing_fits_until_something_was_fetched(tmp_path):
    spool = Spool(kept_bytes=200, parent=str(tmp_path))
    shelf = Shelf(spool.folder, spool.kept_bytes, ())
    for each in ("run-000001", "run-000002"):
        spool.enter(each, shelf.keep(each, files(each, 30)))
    with pytest.raises(OSError, match="fill their space"):
        shelf.keep("run-000003", files("run-000003", 30))
    assert len(list(tmp_path.rglob("user.wav"))) == 2
    spool.drop("run-000001")
    shelf.keep("run-000003", files("run-000003", 30))
    spool.close()


def test_exactly_its_size_fits(tmp_path):
    spool = Spool(kept_bytes=90, parent=str(tmp_path))
    with pytest.raises(OSError, match="fill their space"):
        shelve(spool, "run-000001", files("run-000001", 31))
    shelve(spool, "run-000001", files("run-000001", 30))
    spool.close()


def test_what_was_written_and_never_answered_is_written_anew(spool):
    shelf = Shelf(spool.folder, spool.kept_bytes, ())
    shelf.keep("run-000001", files("run-000009"))
    spool.enter("run-000001", shelf.keep("run-000001", files("run-000001")))
    assert spool.read("run-000001", "user.wav", 0) == files("run-000001")["user.wav"]


def test_the_folder_is_private(spool, tmp_path):
    (folder,) = folders(tmp_path)
    assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700


def test_a_disk_that_does_not_take_it_leaves_nothing_and_is_told(spool, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("voicebench.bundle_files.os.rename", full)
    with pytest.raises(OSError, match="No space left"):
        shelve(spool, "run-000001", files("run-000001"))
    monkeypatch.undo()
    assert list(tmp_path.rglob("*.wav")) == []
    assert spool.waiting == 0
    with pytest.raises(KeyError):
        spool.read("run-000001", "user.wav", 0)


def test_closing_removes_everything(tmp_path):
    spool = Spool(parent=str(tmp_path))
    shelve(spool, "run-000001", files("run-000001"))
    spool.close()
    assert folders(tmp_path) == []


def test_it_lies_where_temporary_files_do(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spool = Spool()
    assert len(folders(tmp_path)) == 1
    spool.close()


def test_what_a_killed_worker_left_is_swept_away(tmp_path):
    old = left_behind(tmp_path, "old")
    spool = Spool(parent=str(tmp_path))
    assert old.exists()  # not yet: making a spool must not hold up the loop it is made in
    sweep(str(tmp_path))
    assert not old.exists()
    assert spool.folder.exists()
    spool.close()


def test_what_a_worker_that_lives_has_stays(tmp_path):
    first, second = Spool(parent=str(tmp_path)), Spool(parent=str(tmp_path))
    shelve(first, "run-000001", files("run-000001"))
    shelve(second, "run-000002", files("run-000002"))
    sweep(str(tmp_path))
    assert first.read("run-000001", "user.wav", 0) == files("run-000001")["user.wav"]
    first.close()
    second.close()


def test_a_folder_without_a_lock_may_be_just_being_made_and_stays(tmp_path):
    fresh = left_behind(tmp_path, "fresh", lock=False)
    spool = Spool(parent=str(tmp_path))
    sweep(str(tmp_path))
    assert fresh.exists()
    spool.close()


def test_a_link_to_somewhere_else_is_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / ".lock").touch()
    (precious / "work").write_text("mine")
    (tmp_path / "voicebench-spool-link").symlink_to(precious)
    spool = Spool(parent=str(tmp_path))
    sweep(str(tmp_path))
    assert (precious / "work").read_text() == "mine"
    spool.close()


@pytest.mark.slow
def test_a_worker_killed_by_force_leaves_its_folder_to_the_next(tmp_path):
    holds = (
        "import sys; from tests.support.shelved import shelve; "
        "from voicebench.worker.spool import Spool; spool = Spool(parent=sys.argv[1]); "
        "shelve(spool, 'run-000001', {'user.wav': b'x'}); print('written', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", holds, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "written\n"
        (theirs,) = folders(tmp_path)
        spool = Spool(parent=str(tmp_path))
        sweep(str(tmp_path))
        assert theirs in folders(tmp_path)
        spool.close()
        child.send_signal(signal.SIGKILL)
        child.wait()
    spool = Spool(parent=str(tmp_path))
    sweep(str(tmp_path))
    assert theirs not in folders(tmp_path)
    spool.close()
