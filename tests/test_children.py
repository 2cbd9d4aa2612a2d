"""Workers as child processes: what they leave behind, and what their parents do. tests/test_run.py kills parents."""

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import voicebench, wait_for
from voicebench.children import Children, default_workers


@pytest.fixture
def temporary(monkeypatch) -> Iterator[Path]:
    """A temporary folder whose name is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="vb", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def test_the_folder_is_this_users_alone_and_gone_at_the_end(temporary):
    children = Children()
    assert children.folder.parent == temporary
    assert children.folder.stat().st_mode & 0o777 == 0o700
    assert children.endpoint == f"ipc://{children.folder}/master"
    children.close()
    assert list(temporary.iterdir()) == []


def test_what_a_killed_run_left_is_swept_and_what_a_living_one_uses_is_not(temporary):
    dead, living, starting = (temporary / f"voicebench-{name}" for name in ("deadrun1", "living12", "starting"))
    for folder in (dead, living, starting):
        folder.mkdir()
    with socket.socket(socket.AF_UNIX) as left, socket.socket(socket.AF_UNIX) as used:
        left.bind(str(dead / "master"))
        used.bind(str(living / "master"))
        used.listen()
        left.close()
        children = Children()
        assert not dead.exists()
        assert living.exists()
        assert starting.exists()  # its socket is yet to come
    children.close()


@pytest.mark.slow
def test_a_worker_whose_parent_is_gone_already_does_not_begin(tmp_path):
    done = voicebench("worker", "--parent", str(1 << 22), cwd=tmp_path)
    assert done.returncode == 4
    assert "the run that this worker belonged to is gone" in done.stderr


def test_there_are_no_more_workers_than_callers_and_at_least_one():
    assert default_workers(1) == 1
    assert 1 <= default_workers(1000) <= 1000


@pytest.mark.slow
def test_a_child_that_ends_is_reaped_once_with_its_last_words(temporary, monkeypatch):
    monkeypatch.setattr(Children, "endpoint", property(lambda self: "no endpoint"))
    children = Children()
    children.start(1)
    (ended,) = wait_for(children.reap, "the child has ended")
    assert ended[0] == "local-1"
    assert ended[1].startswith("ended with exit code 2: error: --master: 'no endpoint' is no address")
    assert children.reap() == []
    assert children.alive == 0
    children.close()
