"""A terminal for tests: a program behind a pseudo-terminal, and the screen it would have painted."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from pathlib import Path

_STEP = re.compile(
    r"\x1b\[(?P<number>[\d;]*)(?P<what>[A-Za-z])|\x1b\[\?\d+[hl]|(?P<text>[^\x1b\r\n]+)|(?P<control>[\r\n])"
)


class Terminal:
    """`screen` is what stands there at the end, `raw` everything that was written."""

    def __init__(self, arguments: Sequence[str], cwd: Path, *, columns: int = 80, **environment: str) -> None:
        self._master, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
        self.process = subprocess.Popen(
            arguments, cwd=cwd, stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
            env={**inherited, "TERM": "xterm", **environment}, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(inner)
        self.raw = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str, timeout_s: float = 30.0) -> None:
        """Until the text has been written. Raises AssertionError when it takes too long."""
        deadline_s = time.monotonic() + timeout_s
        while text not in self.raw and self._read(deadline_s):
            pass
        assert text in self.raw, self.raw

    def finish(self, timeout_s: float = 60.0) -> int:
        """The exit code, all output read."""
        deadline_s = time.monotonic() + timeout_s
        while self._read(deadline_s):
            pass
        os.close(self._master)
        return self.process.wait(timeout=10)

    def _read(self, deadline_s: float) -> bool:
        left_s = deadline_s - time.monotonic()
        assert left_s > 0, self.raw
        if not select.select([self._master], [], [], min(left_s, 1.0))[0]:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:  # nobody holds the other end any more
            return False
        self.raw += data.decode(errors="replace")
        return bool(data)

    @property
    def screen(self) -> list[str]:
        """The lines that are left when everything was painted, as far as a run uses a terminal: no scrolling."""
        lines, row, column = [""], 0, 0
        for step in _STEP.finditer(self.raw):
            if step["text"]:
                lines[row] = lines[row].ljust(column)[:column] + step["text"] + lines[row][column + len(step["text"]) :]
                column += len(step["text"])
            elif step["control"] == "\r":
                column = 0
            elif step["control"] == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif step["what"] == "A":
                row = max(0, row - int(step["number"] or 1))
            elif step["what"] == "K":
                lines[row] = "" if step["number"] == "2" else lines[row][:column]
        return [line.rstrip() for line in lines]
