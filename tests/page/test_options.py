"""`--page`, `--headless` and `--stay` as typed: what makes no sense is refused in a sentence, before any call."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicebench.cli import main

TALK = """\
name: talk
turns: [{id: ask, audio: {synth: speech, duration_ms: 400}}]
adapter: {type: websocket, options: {url: "ws://127.0.0.1:9"}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talk.yaml").write_text(TALK)
    (tmp_path / "mock.yaml").write_text(TALK.partition("adapter")[0])
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--page", "0.0.0.0"], "listens on this machine alone"),
        (["--page", "10.0.0.7:80"], "ssh -L"),
        (["--page", "127.0.0.1:x"], "is no port"),
        (["--page", " "], "nothing is written there"),
        (["--page", "127.0.0.1:80000"], "is no port"),
        (["--page", "127.0.0.1:0", "--headless"], "exclude each other"),
        (["--stay", "--headless"], "exclude each other"),
    ],
)
@pytest.mark.parametrize("command", ["run", "master"])
def test_what_makes_no_sense_is_refused(folder, capsys, command, flags, told):
    assert main([command, "talk.yaml", *flags]) == 2
    said = capsys.readouterr()
    assert told in said.err
    assert said.out == ""
    assert not (folder / "voicebench-results").exists()


def test_a_run_on_the_virtual_clock_says_that_it_has_no_page(folder, capsys):
    assert main(["run", "mock.yaml", "-q", "--no-write", "--page", "127.0.0.1:0"]) == 0
    assert "has no status page" in capsys.readouterr().err
