"""The demo: a mock agent, a master and two workers; sixteen calls at once with a barge-in and a cough in each.

    python examples/demo.py [RESULTS_FOLDER]

It starts all of them on this machine, as they would run on several, and ends with the report's path.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VOICEBENCH = [sys.executable, "-m", "voicebench"]
CALLERS, CALLS, WORKERS = 16, 32, 2
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
        print(f"a mock agent listens on {url}", flush=True)
        exit_code = _run(url, results)
        if exit_code == 4 and _is_untrusted(results):
            # The demo did what it should, and so did the run: agent, master and workers shared a machine that was busy.
            print("\nthe machine was too busy to measure by: on a pipeline exit code 4 would say so")
            exit_code = 0
        if exit_code == 0:
            print(NEXT)
        return exit_code
    finally:
        agent.terminate()
        agent.wait(timeout=10)


def _run(url: str, results: Path) -> int:
    """A master and its workers, who find it over TCP."""
    print(f"{CALLERS} callers on {WORKERS} workers ring it {CALLS} times: this takes half a minute or so", flush=True)
    address = f"127.0.0.1:{_free_port()}"
    workers: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "demo.yaml"
        subprocess.run([*VOICEBENCH, "example", "websocket", "-O", str(scenario)], check=True, capture_output=True)
        master = subprocess.Popen(
            [*VOICEBENCH, "master", str(scenario), "--url", url, "-u", str(CALLERS), "-n", str(CALLS), "-r", "4/s",
             "--expect-workers", str(WORKERS), "--bind", address, "--record", "all", "--out", str(results)]
        )  # fmt: skip
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the master has it too, and knows what to do
        try:
            for number in range(1, WORKERS + 1):
                command = [*VOICEBENCH, "worker", "--master", address, "--name", f"worker-{number}", "--quiet"]
                workers.append(subprocess.Popen(command, start_new_session=True))
            return master.wait()
        finally:
            for worker in workers:
                _let_go(worker)


def _is_untrusted(results: Path) -> bool:
    """Whether everything was measured, and the run itself says that the tester was late."""
    return json.loads((results / "report.json").read_text())["run"]["verdict"] == "untrusted"


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _let_go(worker: subprocess.Popen[bytes]) -> None:
    """It goes by itself when the run is over; without a master it would wait for one for ever."""
    try:
        worker.wait(timeout=5)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()


if __name__ == "__main__":
    sys.exit(main())
