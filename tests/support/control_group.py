"""Sessions of good agents in a worker of their own, at the same time on the same machine: what a disturbance is held against.

python -m tests.support.control_group URL SESSIONS    prints "ready", starts when it is told to, prints its `Calm`
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from tests.support.placing import Placing, ask, script
from voicebench.script import Script
from voicebench.worker.engine import Placed

LATE_MS = 10.0
"""From here on a turn is unreliable."""
TURNS = 2


def conversation() -> Script:
    """Three seconds or four: two questions, each answered."""
    return script(ask(), ask("again", after="agent_speech_end", delay_ms=200), max_duration_ms=6000)


@dataclass(frozen=True)
class Calm:
    """How undisturbed a group of sessions was."""

    finished: int
    turns: int
    unreliable: int
    late_share: float
    """Of their frames: sent, or the socket before them looked at, 10 ms late or more."""

    def as_calm_as(self, control: Calm) -> bool:
        """No less reliable than the control group, and late no more often: twice as often, or one frame in a hundred."""
        return (
            self.finished >= control.finished
            and self.unreliable <= control.unreliable
            and self.late_share <= 2 * control.late_share + 0.01
        )


def calm_of(sessions: Sequence[Placed]) -> Calm:
    turns = [turn for each in sessions for turn in each.record.turns]
    late = [np.maximum(each.recording.lateness.send_ms, each.recording.lateness.drain_gap_ms) for each in sessions]
    return Calm(
        sum(each.record.outcome.state == "finished" for each in sessions),
        len(turns),
        sum(not turn.reliable for turn in turns),
        float(np.mean(np.concatenate(late) >= LATE_MS)),
    )


class ControlGroup:
    """The process, ready to start; `calm()` waits for it."""

    def __init__(self, url: str, sessions: int) -> None:
        command = [sys.executable, "-m", "tests.support.control_group", url, str(sessions)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def start(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def calm(self) -> Calm:
        out, _ = self._process.communicate(timeout=60)
        return Calm(**json.loads(out))


def main(url: str, sessions: int) -> None:
    with Placing() as placing:
        outcome = placing.prepare([placing.way(url, conversation())] * sessions)
        print("ready", flush=True)
        sys.stdin.readline()
        outcome.engine.run()
    print(json.dumps(asdict(calm_of(outcome.placed))))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
