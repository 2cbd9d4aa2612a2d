"""The same conversation held by others: a client in C, Locust with websocket-client, the single-machine package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.bench.agent import WORKER_CPU, an_agent
from tests.bench.machine import MissingError, family, watch_windows
from tests.bench.ours import CHURN_PER_S, TURN_S, Load
from tests.support.counterparts import environment

HERE = Path(__file__).parent
LOCUST = ("locust==2.47.0", "websocket-client==1.9.2")
PEER = "voicebench==0.2.0"
STARTING_S = 3.0


@dataclass(frozen=True)
class Other:
    """What a client used."""

    sessions: int
    cpu: float
    late_ms: dict[str, float] | None = None
    failures: int = 0

    @property
    def ms_per_session_s(self) -> float:
        return 1000.0 * self.cpu / self.sessions

    def line(self) -> str:
        late = "not known" if self.late_ms is None else " ".join(f"{key}={ms:.2f}" for key, ms in self.late_ms.items())
        return (
            f"sessions={self.sessions} cpu={100 * self.cpu:.1f}% ms_per_session_s={self.ms_per_session_s:.3f} "
            f"late_ms {late} failures={self.failures}{' NOT VALID' if self.failures else ''}"
        )


def client_in_c(folder: Path, load: Load) -> Other:
    """What this machine allows at best."""
    with an_agent(folder) as agent:
        done = subprocess.run(
            ["taskset", "-c", str(WORKER_CPU), str(folder / "client"), str(agent.port), str(load.sessions),
             f"{load.window_s:g}", str(load.windows), f"{CHURN_PER_S:g}"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    lines = [dict(re.findall(r"(\w+)=([\d.]+)", line)) for line in done.stdout.splitlines()]
    late = {key: median(float(line[f"late_{key}"]) for line in lines) for key in ("p50", "p99")}
    late["max"] = max(float(line["late_max"]) for line in lines)
    return Other(load.sessions, median(float(line["cpu"]) for line in lines), late)


def locust(folder: Path, load: Load) -> Other:
    """A Locust user with websocket-client."""
    python = _environment("locust", *LOCUST)
    with an_agent(folder) as agent, (folder / "locust.log").open("w") as log:
        told = {
            "TURN_S": f"{TURN_S:g}",
            "SESSION_TURNS": str(load.turns),
            "WARMUP_S": f"{load.ramp_s:g}",
            "LATENESS": str(folder / "locust.json"),
        }
        process = subprocess.Popen(
            ["taskset", "-c", str(WORKER_CPU), str(python), "-m", "locust", "-f", str(HERE / "locust_user.py"), "--headless",
             "-u", str(load.sessions), "-r", f"{CHURN_PER_S:g}", "-t", f"{_run_s(load):.0f}s", "-L", "ERROR",
             "--host", f"ws://127.0.0.1:{agent.port}", "--exit-code-on-error", "0"],
            stdout=log, stderr=log, env={**os.environ, **told},
        )  # fmt: skip
        try:
            used = _watched(process, load)
        except SystemExit:
            print((folder / "locust.log").read_text(), flush=True)
            raise
    late = json.loads((folder / "locust.json").read_text())
    return Other(load.sessions, used, {key: late[key] for key in ("p50", "p99", "max")}, late["failures"])


def peer(folder: Path, load: Load) -> Other:
    """The single-machine package, whose sessions share an asyncio loop."""
    python = _environment("peer", PEER)
    with an_agent(folder) as agent:
        process = subprocess.Popen(
            ["taskset", "-c", str(WORKER_CPU), str(python), "-I", str(HERE / "peer_user.py"), "calls",
             f"ws://127.0.0.1:{agent.port}", str(load.sessions), str(load.turns), f"{_run_s(load):g}"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        used = _watched(process, load)
        assert process.stdout is not None
        told = json.loads(process.stdout.read())
    return Other(load.sessions, used, None, told["failures"])


def peer_virtual_ms(folder: Path, scenario: dict[str, object]) -> float:
    """CPU milliseconds it needs for one scripted session with its own mock agent, score included."""
    python = _environment("peer", PEER)
    (folder / "scenario.json").write_text(json.dumps(scenario))
    done = subprocess.run(
        [str(python), "-I", str(HERE / "peer_user.py"), "virtual", str(folder / "scenario.json")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(json.loads(done.stdout)["cpu_ms"])


def _environment(name: str, *requirements: str) -> Path:
    try:
        return environment(name, *requirements)
    except subprocess.CalledProcessError as error:
        raise MissingError(f"{' and '.join(requirements)} could not be installed: is there a package index?") from error


def _run_s(load: Load) -> float:
    return load.run_s + STARTING_S + 1.0


def _watched(process: subprocess.Popen, load: Load) -> float:  # type: ignore[type-arg]
    time.sleep(load.ramp_s + STARTING_S)
    used, _ = watch_windows(lambda: family(process.pid), load.window_s - 1.0, load.windows)
    if process.poll() is not None:
        raise SystemExit(f"{process.args} ended too soon")
    process.wait(timeout=60)
    return median(used)
