"""`make test-counterparts`: programs that nobody here wrote, each in an environment of its own.

The single-machine package voicebench 0.2.0 scores the same recordings; a real Pipecat agent is called and its own log
set beside what was measured. Environments are made once, in `.counterparts/` (2.5 GB with Pipecat's voice).

    .venv/bin/python tests/support/counterparts.py [peer] [pipecat]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".counterparts"
PIPECAT = ROOT / "examples" / "pipecat"
PORT = 7861


def environment(name: str, *requirements: str) -> Path:
    """The interpreter of an environment that holds these packages."""
    python = ENVIRONMENTS / name / "bin" / "python"
    ready = ENVIRONMENTS / name / "ready"
    if not ready.exists():
        print(f"making the environment {name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", ENVIRONMENTS / name], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True)
        ready.touch()
    return python


def peer() -> int:
    """Our scores against the peer's, turn by turn."""
    python = environment("peer", "voicebench==0.2.0")
    return subprocess.call([sys.executable, ROOT / "tests" / "support" / "compare_with_peer.py", python], cwd=ROOT)


def pipecat() -> int:
    """One call, then five at once, against the agent's own log."""
    python = environment("pipecat", "-r", str(PIPECAT / "requirements.txt"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        events = folder / "events.jsonl"
        agent = subprocess.Popen(
            [python, PIPECAT / "pipecat_agent.py", "--port", str(PORT), "--events", events, "--prewarm", "16"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert agent.stdout is not None
            while not (line := agent.stdout.readline()).startswith("ready"):
                if not line:
                    raise SystemExit("the Pipecat agent ended before it was ready")
            return max(call_and_compare(folder, events, callers) for callers in (1, 5))
        finally:
            agent.terminate()
            agent.wait(timeout=30)


def call_and_compare(folder: Path, events: Path, callers: int) -> int:
    """0 when what was measured lies within a frame of what the agent logged."""
    results = folder / f"results-{callers}"
    url = f"ws://127.0.0.1:{PORT}/pcm?call={{session_id}}"
    subprocess.run(
        [sys.executable, "-m", "voicebench", "run", PIPECAT / "scenarios" / "talk.yaml", "--url", url,
         "-u", str(callers), "-r", "2/s", "--record", "all", "--out", results],
        cwd=folder, check=False,
    )  # fmt: skip
    compare: Sequence[str | Path] = (PIPECAT / "compare_with_log.py", results, events, "--within-ms", "20")
    return subprocess.call([sys.executable, *compare])


def main() -> int:
    """Run the named counterparts, all by default; 1 when any disagrees."""
    wanted = sys.argv[1:] or ["peer", "pipecat"]
    found = {name: {"peer": peer, "pipecat": pipecat}[name]() for name in wanted}
    for name, code in found.items():
        print(f"{name}: {'agrees' if code == 0 else f'exit code {code}'}")
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
