"""bench_truth.py: measured latency against the mock server's own log, 1, 20 and 100 sessions at once, real sockets.

Budget: one frame of 20 ms, for every reply. The agent runs on core 0, the caller on core 1.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.support.processes import mock_server, voicebench
from tests.support.truth import errors_ms, read_truth

FRAME_MS = 20.0
SCENARIO = """\
name: truth
tail_ms: 500
turns:
  - {id: one, audio: {synth: speech, duration_ms: 1200}}
  - {id: two, audio: {synth: speech, duration_ms: 900, seed: 1}, start: {after: agent_speech_end, delay_ms: 300}}
  - {id: three, audio: {synth: speech, duration_ms: 700, seed: 2}, start: {after: agent_speech_end, delay_ms: 410}}
"""


def measure(callers: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "truth.yaml").write_text(SCENARIO)
        flags = ("-o", "response_delay_ms=350", "-o", "jitter_ms=200", "--truth", str(folder / "truth.jsonl"))
        with mock_server(*flags, cpu=0) as url:
            done = voicebench(
                "run", "truth.yaml", "--url", url + "?session={session_id}", "-u", str(callers), "-r", "20/s",
                "--no-write", "--json", "report.json", "-q", cwd=folder, cpu=1,
            )  # fmt: skip
        report = json.loads((folder / "report.json").read_text())
        truth = read_truth(folder / "truth.jsonl")
        errors = np.abs(errors_ms(report, truth, FRAME_MS))
        vouched = np.abs(errors_ms(report, truth, FRAME_MS, reliable_only=True))
        worker = report["workers"][0]
    worst = errors.max()
    print(
        f"truth_{callers}_sessions_error_ms p50={np.percentile(errors, 50):.2f} p99={np.percentile(errors, 99):.2f} "
        f"max={worst:.2f} reliable_max={vouched.max(initial=0.0):.2f} budget={FRAME_MS:g} n={len(errors)} exit={done.returncode} "
        f"unreliable={report['summary']['unreliable_turns']} late_p99_ms={worker['frame_lateness_ms']['p99']:.2f} "
        f"cpu_s={worker['cpu_s']:.2f} {'ok' if worst <= FRAME_MS else 'OVER'}"
    )


if __name__ == "__main__":
    print(f"machine: {platform.machine()}, Python {platform.python_version()}")
    for count in map(int, sys.argv[1:] or ("1", "20", "100")):
        measure(count)
