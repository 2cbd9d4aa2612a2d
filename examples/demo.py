"""The demo: two dozen calls at once to the mock agent over WebSocket, with a barge-in and a cough in each.

    python examples/demo.py [RESULTS_FOLDER]

It starts the agent, runs `voicebench run` on the shipped `websocket` example and ends with the report's path.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VOICEBENCH = [sys.executable, "-m", "voicebench"]
CALLS = 24
# The agent waits out the pauses of real speech, and a cough is shorter than what it takes for an interruption.
AGENT = {"endpoint_silence_ms": 600, "response_ms": 3000, "barge_in_min_ms": 400, "jitter_ms": 200}
NEXT = """
next: call an agent of your own that speaks PCM over a WebSocket (docs/websocket.md)
  source .venv/bin/activate
  voicebench example websocket > my.yaml
  voicebench run my.yaml --url ws://127.0.0.1:8765"""


def main() -> int:
    """Run the demo and return the run's exit code."""
    results = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-results") / time.strftime("%Y%m%d-%H%M%S")
    options = [flag for name, value in AGENT.items() for flag in ("-o", f"{name}={value}")]
    # In a session of its own, so that Ctrl-C is for the run, whose calls the agent has yet to finish.
    agent = subprocess.Popen(
        [*VOICEBENCH, "mock-server", "--port", "0", *options],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert agent.stdout is not None
        listening = agent.stdout.readline()
        if not listening:
            return agent.wait()  # it has said why
        url = listening.split()[-1]
        print(f"a mock agent listens on {url}; {CALLS} callers ring it, eight a second, for 20 s or so", flush=True)
        exit_code = _run(url, results)
        if exit_code == 0:
            print(NEXT)
        return exit_code
    finally:
        agent.terminate()
        agent.wait(timeout=10)


def _run(url: str, results: Path) -> int:
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "demo.yaml"
        subprocess.run([*VOICEBENCH, "example", "websocket", "-O", str(scenario)], check=True, capture_output=True)
        run = subprocess.Popen(
            [*VOICEBENCH, "run", str(scenario), "--url", url, "-u", str(CALLS), "-n", str(CALLS), "-r", "8/s",
             "--record", "all", "--out", str(results)]
        )  # fmt: skip
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run has it too, and knows what to do
        return run.wait()


if __name__ == "__main__":
    sys.exit(main())
