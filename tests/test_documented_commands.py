"""Every command in README and docs is run as it is printed, or stands here with the reason why not.

Each runs in a folder of its own that holds what its page speaks of; the agent is a mock server. Loads are made small: what
is documented for minutes takes seconds here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.processes import VOICEBENCH, mock_server

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"^(\$ )?([A-Z_]+=\S+ )*(voicebench|make|python|source|sqlite3|ssh|\.venv/bin)\b")
SIDE_BY_SIDE = 5

NOT_RUN = {
    r"voicebench \S+ \[OPTIONS\].*|voicebench COMMAND \.\.\.": "a usage line",
    r"make (demo|test)\b.*": "run by tests/test_examples.py, and by whoever reads this",
    r"source .*": "of the shell alone",
    r"ssh .*": "another machine",
    r"(\S+=\S+ )?voicebench worker --master (10\.0\.0\.7|load-1).*": "another machine: tests/test_two_hosts.py",
    r"voicebench master .*--bind 10\.0\.0\.7.*": "another machine: tests/test_two_hosts.py",
    r"voicebench worker( --stay)?": "run with its master, here",
    r"sqlite3 .*": "its second line is run by a test of its own, here",
    r"\.venv/bin/python tests/support/compare_with_peer\.py .*": "make test-counterparts",
}
SERVERS = r"voicebench mock-server.*"
MASTERS = r"voicebench master .*"
SMALLER = (
    (r"-u \d+", "-u 2"), (r"-t \d+m\b", "-t 1s"), (r"-r \S+", "-r 2/s"), (r"--warmup \S+", "--warmup 500ms"), (r"-w \d+", "-w 1"),
    (r" --wait --stay", " --headless"), (r"voicebench-results/RUN|voicebench-results/booking-20260131-101500", "voicebench-results/made"),
    (r"booking-20260131-101500", "made"),
)  # fmt: skip
AGENT = ("-o", "endpoint_silence_ms=600", "-o", "response_ms=3000", "-o", "barge_in_min_ms=400")
EXIT_CODES = {
    r"voicebench score call-17 --scenario .*": (0, 1),  # a stricter one may fail
    r".*examples/custom_adapter\.yaml": (0, 1),  # it wants a mock agent with other settings
}
"""All others end with 0, or 4 where the run itself says that the machine was too busy."""


def documented() -> dict[str, str]:
    """Each command once, without what is said beside it, and the first page that has it."""
    found: dict[str, str] = {}
    for page in PAGES:
        fence: str | None = None
        for line in page.read_text(encoding="utf-8").splitlines():
            mark = re.match(r"^```(\w*)", line)
            if mark:
                fence = mark[1] if fence is None else None
                continue
            code = (
                line[4:]
                if fence is None and line.startswith("    ")
                else line
                if fence in ("", "sh", "console")
                else ""
            )
            if COMMAND.match(code):
                found.setdefault(re.split(r"\s+#\s|\s{3,}", code.removeprefix("$ "))[0].strip(), page.name)
    return found


def is_left_out(command: str) -> bool:
    return any(re.fullmatch(pattern, command) for pattern in NOT_RUN)


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    with mock_server(*AGENT) as url:
        yield url


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, agent: str) -> Path:
    """What the pages speak of."""
    folder = tmp_path_factory.mktemp("documented")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (booking,) = re.findall(r"^```yaml\n(name: booking\n.*?)^```", readme, flags=re.MULTILINE | re.DOTALL)
    (folder / "booking.yaml").write_text(booking.replace("ws://127.0.0.1:8765", agent))
    ran("voicebench example websocket -O my.yaml", folder)
    for name in ("plan", "mock-conversation", "short-question"):
        ran(f"voicebench example {name} -O {name}.yaml", folder)
    shutil.copy(folder / "short-question.yaml", folder / "stricter.yaml")
    my = folder / "my.yaml"
    my.write_text(my.read_text().replace("ws://127.0.0.1:8765", agent))
    ran("voicebench run stricter.yaml -q --record all --out voicebench-results/made", folder)
    shutil.copytree(folder / "voicebench-results", folder / "old-results")
    (bundle, *_) = (folder / "voicebench-results" / "made" / "bundles").iterdir()
    shutil.copytree(bundle, folder / "call-17")
    (folder / "scenarios").mkdir()
    shutil.copy(folder / "booking.yaml", folder / "scenarios")
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("pipecat"))
    custom = folder / "examples" / "custom_adapter.yaml"
    custom.write_text(custom.read_text().replace("ws://127.0.0.1:8765", agent))
    return folder


def as_run(command: str, agent: str) -> str:
    for pattern, smaller in SMALLER:
        command = re.sub(pattern, smaller, command)
    command = command.replace("ws://127.0.0.1:8765", agent)
    first, pipe, rest = command.partition("|")
    if pipe and shutil.which(rest.split()[0]) is None:
        command = f"{first}> piped"  # the reader of the pipe is not ours
    return command


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "VOICEBENCH_HEADLESS": "1",
    }
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=90,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


def ran(command: str, folder: Path) -> None:
    done = shell(command, folder)
    assert done.returncode == 0, (command, done.stderr)


def trouble_with(command: str, prepared: Path, folder: Path, agent: str) -> str:
    """What is wrong with a documented command; empty: it does what its page says."""
    shutil.copytree(prepared, folder)
    if re.fullmatch(SERVERS, command):
        return _served(command, folder)
    smaller = as_run(command, agent)
    for made in re.findall(r"-O (\S+)", smaller):
        (folder / made).unlink(missing_ok=True)
    worker = None
    if re.fullmatch(MASTERS, command):
        port = 20_000 + os.getpid() % 10_000 + int(folder.name)
        smaller += f" --bind 127.0.0.1:{port}" + ("" if " -t " in smaller else " -u 2 -n 2")
        worker = subprocess.Popen([*VOICEBENCH, "worker", "-q", "--master", f"127.0.0.1:{port}"], cwd=folder)
    try:
        done = shell(smaller, folder)
    finally:
        if worker is not None:
            try:
                worker.wait(timeout=20)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
    expected = next((codes for pattern, codes in EXIT_CODES.items() if re.fullmatch(pattern, command)), (0,))
    busy = done.returncode == 4 and "generator overloaded" in done.stderr
    return "" if done.returncode in expected or busy else f"{smaller}: exit {done.returncode}: {done.stderr[-600:]}"


def _served(command: str, folder: Path) -> str:
    words = [*command.split()[1:], *(() if "--port" in command else ("--port", "0"))]
    process = subprocess.Popen(
        [*VOICEBENCH, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    process.terminate()
    _, said = process.communicate(timeout=20)
    return "" if first.startswith("listening on ws://") else f"{command}: {first}{said}"


def test_there_are_commands_and_each_reason_to_leave_one_out_is_needed() -> None:
    commands = documented()
    assert len(commands) > 30
    unused = [pattern for pattern in NOT_RUN if not any(re.fullmatch(pattern, command) for command in commands)]
    assert unused == []


@pytest.mark.slow
def test_every_documented_command_does_what_it_is_documented_for(prepared, agent, tmp_path) -> None:
    commands = [command for command in documented() if not is_left_out(command)]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        troubles = threads.map(
            lambda each: trouble_with(each[1], prepared, tmp_path / str(each[0]), agent), enumerate(commands)
        )
        found = [trouble for trouble in troubles if trouble]
    assert not found, "\n\n".join(found)


@pytest.mark.slow
def test_the_documented_question_to_the_database_has_an_answer(prepared) -> None:
    import sqlite3
    from contextlib import closing

    (question,) = re.findall(r'^      "(SELECT .*)"$', (ROOT / "docs" / "report.md").read_text(), flags=re.MULTILINE)
    with closing(sqlite3.connect(prepared / "voicebench-results" / "made" / "run.db")) as db:
        assert db.execute(question).fetchall()
