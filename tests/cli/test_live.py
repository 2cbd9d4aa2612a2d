"""The live view on a terminal, as it is looked at: it appears, keeps up, says what is going on, and leaves no trace."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.support.processes import VOICEBENCH, went_well

pytestmark = pytest.mark.slow

ASK = """\
name: ask
turns: [{id: ask, audio: {synth: speech, duration_ms: 300}}]
tail_ms: 300
adapter: {type: mock, options: {response_ms: 300}}
"""
RUN = [*VOICEBENCH, "run", "ask.yaml", "--realtime", "--no-write"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ask.yaml").write_text(ASK)
    return tmp_path


def ended(terminal: Terminal, expected: int) -> bool:
    return went_well(terminal.finish(), "\n".join(terminal.screen), expected)


def painter_of(run_pid: int) -> int | None:
    """The process that draws for a run, if it is there."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if b"voicebench.cli.painter" in command and parent == run_pid:
            return int(path.name)
    return None


def gone(pid: int) -> bool:
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s:
        try:
            if (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_the_block_keeps_up_and_is_wiped_off(folder):
    terminal = Terminal([*RUN, "-n", "2"], folder)
    terminal.wait_for("1 finished")
    assert ended(terminal, 0)
    for shown in ("running 1 s, 1 more session", "1 live", "judged when their session ends", "p50 ", "frames late p99"):
        assert shown in terminal.raw
    screen = "\n".join(terminal.screen)
    assert re.match(r"(warning: .*?)*(! untrusted: .*?)?ask: 2 sessions in ", screen, re.DOTALL), screen
    assert "live" not in screen
    assert terminal.raw.count("\x1b[?25l") == terminal.raw.count("\x1b[?25h") == 1, "the cursor is back"


def test_in_a_narrow_terminal_no_line_wraps(folder):
    terminal = Terminal([*RUN, "-n", "1"], folder, columns=40)
    terminal.wait_for("1 live")
    assert ended(terminal, 0)
    painted = terminal.raw.partition("ask: 1 session")[0].partition("! untrusted")[0]
    assert all(len(line) <= 40 for line in terminal_lines(painted))


def terminal_lines(raw: str) -> list[str]:
    return re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", raw).replace("\r", "\n").split("\n")


def test_ctrl_c_says_what_happens_next_and_the_sentence_stays(folder):
    terminal = Terminal([*RUN, "-t", "5m"], folder)
    terminal.wait_for("1 live")
    terminal.type("\x03")
    terminal.wait_for("until they are cut")
    assert ended(terminal, 130)
    screen = terminal.screen
    assert sum("SIGINT: letting 1 session finish, up to 30 s; again to cut" in line for line in screen) == 1
    assert any(
        line.startswith(("exit 130: ended early by a signal", "exit 4: generator overloaded")) for line in screen
    )
    assert not any("until they are cut" in line for line in screen)


def test_a_second_ctrl_c_ends_it_at_once(folder):
    terminal = Terminal([*RUN, "-t", "5m"], folder)
    terminal.wait_for("1 live")
    terminal.type("\x03")
    terminal.wait_for("again to cut")
    terminal.type("\x03")
    assert ended(terminal, 130)
    assert any("1 cut" in line for line in terminal.screen)


def test_a_painter_that_is_killed_takes_nothing_with_it(folder):
    terminal = Terminal([*RUN, "-n", "2"], folder)
    terminal.wait_for("1 live")
    painter = painter_of(terminal.process.pid)
    assert painter is not None
    os.kill(painter, signal.SIGKILL)
    assert ended(terminal, 0)
    assert any(line.startswith("ask: 2 sessions in ") for line in terminal.screen)
    assert terminal.raw.count("\x1b[?25h") == 1, "the cursor is back"


def test_a_run_that_is_killed_takes_its_painter_with_it(folder):
    terminal = Terminal([*RUN, "-n", "9"], folder)
    terminal.wait_for("1 live")
    painter = painter_of(terminal.process.pid)
    assert painter is not None
    terminal.process.kill()
    assert gone(painter)
    assert terminal.finish() == -signal.SIGKILL


def test_a_dumb_terminal_gets_no_control_codes_and_a_colourless_one_no_colours(folder):
    dumb = Terminal([*RUN, "-n", "1"], folder, TERM="dumb")
    assert ended(dumb, 0)
    assert "\x1b" not in dumb.raw
    colourless = Terminal([*RUN, "-n", "1", "-o", "threshold_db=0"], folder, NO_COLOR="1")
    assert ended(colourless, 1), "nobody answers, so that there is something to show in red"
    assert "\x1b[3" not in colourless.raw
    assert "\x1b[1m" in colourless.raw
