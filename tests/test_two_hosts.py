"""Two network namespaces as two hosts: the agent and a worker on one, the master and another worker on the other."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.namespaces import ip, make_namespace
from tests.support.processes import VOICEBENCH, went_well

pytestmark = pytest.mark.slow

HERE, THERE = "10.213.77.1", "10.213.77.2"
SCENARIO = """\
name: talk
tail_ms: 200
turns:
  - {id: ask, audio: {synth: speech, duration_ms: 400}, start: {after: session_start, delay_ms: 100}}
adapter: {type: websocket, options: {url: "ws://10.213.77.2:8765"}}
"""


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Two namespaces with a cable between them."""
    here, there = (f"vb{os.getpid()}{side}" for side in "ab")
    make_namespace(here)
    try:
        ip("netns", "add", there)
        ip("link", "add", f"{here}c", "type", "veth", "peer", "name", f"{there}c")
        for name, address in ((here, HERE), (there, THERE)):
            ip("link", "set", f"{name}c", "netns", name)
            ip("-n", name, "addr", "add", f"{address}/24", "dev", f"{name}c")
            ip("-n", name, "link", "set", f"{name}c", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield here, there
    finally:
        for name in (here, there):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def on(host: str, *arguments: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["ip", "netns", "exec", host, *VOICEBENCH, *arguments],
        cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_run_over_two_hosts_is_one_run_and_says_that_nobody_was_authenticated(hosts, tmp_path):
    here, there = hosts
    (tmp_path / "talk.yaml").write_text(SCENARIO)
    agent = on(there, "mock-server", "--host", THERE, "--insecure", "-o", "response_ms=500", cwd=tmp_path)
    try:
        assert agent.stdout is not None
        assert agent.stdout.readline().startswith("listening")
        flags = ("-u", "4", "-n", "8", "-w", "2", "--record", "all", "--out", "out", "--bind", HERE, "--insecure")
        master = on(here, "master", "talk.yaml", *flags, cwd=tmp_path)
        workers = [
            on(host, "worker", "--master", HERE, "--name", name, cwd=tmp_path)
            for host, name in ((here, "near"), (there, "far"))
        ]
        _, stderr = master.communicate(timeout=90)
        said = [worker.communicate(timeout=60)[1] for worker in workers]
    finally:
        agent.kill()
        agent.communicate()
    assert went_well(master.returncode, stderr), stderr
    assert [worker.returncode for worker in workers] == [0, 0], said
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert {name: each["finished"] for name, each in report["accounting"]["by_worker"].items()} == {"near": 4, "far": 4}
    assert report["run"]["insecure"] is True
    assert "without authentication" in report["run"]["notes"][0]
    assert all((tmp_path / "out" / each["bundle"] / "agent.wav").exists() for each in report["sessions"])
