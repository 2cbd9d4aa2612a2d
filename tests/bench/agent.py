"""The agent in C that the benchmarks call, and the client in C beside it: built here, run on core 0."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trustme

from tests.bench.machine import MissingError

SOURCES = Path(__file__).parent / "c"
AGENT_CPU, WORKER_CPU = 0, 1


def build(folder: Path) -> None:
    """Agent and client, without TLS. Raises MissingError."""
    if not shutil.which("taskset"):
        raise MissingError("there is no `taskset` to pin processes to cores with (apt-get install util-linux)")
    if (os.cpu_count() or 1) <= WORKER_CPU:
        raise MissingError(f"agent and worker each want a core of their own: {AGENT_CPU} and {WORKER_CPU}")
    for name in ("agent", "client"):
        _compile(folder / name, SOURCES / f"{name}.c", "-lm")


def build_tls(folder: Path) -> None:
    """The agent with TLS, and its certificate. Raises MissingError."""
    try:
        _compile(folder / "agent-tls", SOURCES / "agent.c", "-DTLS", "-lm", "-lssl", "-lcrypto")
    except subprocess.CalledProcessError as error:
        if b"openssl/ssl.h" not in error.stderr:
            raise
        raise MissingError(
            "there are no headers of OpenSSL to build an agent that speaks TLS (apt-get install libssl-dev)"
        ) from error
    ca = trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "agent.pem")


def _compile(to: Path, source: Path, *flags: str) -> None:
    if not shutil.which("cc"):
        raise MissingError("there is no `cc` to build the agent with (apt-get install gcc libc6-dev)")
    subprocess.run(["cc", "-O2", "-o", str(to), str(source), *flags], check=True, capture_output=True)


@dataclass(frozen=True)
class Agent:
    """Where it listens, and what its process is."""

    port: int
    pid: int
    tls: bool

    @property
    def url(self) -> str:
        return f"{'wss' if self.tls else 'ws'}://127.0.0.1:{self.port}/?session={{session_id}}"


@contextlib.contextmanager
def an_agent(folder: Path, *, tls: bool = False) -> Iterator[Agent]:
    """The agent; its truth log is `truth.jsonl`, complete once it has ended. Prints how late it was itself."""
    program = folder / ("agent-tls" if tls else "agent")
    process = subprocess.Popen(
        ["taskset", "-c", str(AGENT_CPU), str(program), "0", str(folder / "truth.jsonl")],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "AGENT_PEM": str(folder / "agent.pem")},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield Agent(int(process.stdout.readline().split()[1]), process.pid, tls)
    finally:
        process.send_signal(signal.SIGTERM)
        print(f"  the agent: {process.communicate()[0].strip()}", flush=True)
