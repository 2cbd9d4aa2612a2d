"""Every command in README and docs is run as it is printed, or stands here with the reason why not.

Each runs in a folder of its own that holds what its page speaks of: the files that the page shows, and some that its
commands take for granted. The agent is what the page itself starts with `voicebench mock-server`. Loads are made small by the
rules below: what is documented for minutes takes seconds here.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tests.support.documented import PAGES, ROOT, Block, Command, blocks_of, commands_of, inline_calls
from tests.support.processes import VOICEBENCH, mock_server, wait_for, went_well
from voicebench.cli import COMMANDS, group
from voicebench.cli.settle import refuse_unsupported
from voicebench.load_files import load_plan
from voicebench.scenario.schema import json_schema

SIDE_BY_SIDE = 6

NOT_RUN = {
    r"voicebench( \S+)? (\[|[A-Z]+\b).*": "a usage line",
    r"make demo": "run by tests/test_examples.py",
    r"make test": "runs this",
    r"ssh .*": "another machine",
    r"(\S+=\S+ )?voicebench worker --master (10\.0\.0\.7|load-1).*": "another machine: tests/test_two_hosts.py",
    r"voicebench master .*--bind 10\.0\.0\.7.*": "another machine: tests/test_two_hosts.py",
    r"voicebench worker( --stay)?": "run here, with each master",
    r"\.venv/bin/python tests/support/compare_with_peer\.py .*": "wants another package: make test-counterparts",
}

SMALLER = (
    (r"-u \d+", "-u 2"),
    (r"-t \d+m\b", "-t 1s"),
    (r"-r \S+", "-r 2/s"),
    (r"--warmup \S+", "--warmup 100ms"),
    (r"-w \d+", "-w 1"),
    (r"\bRUN\b|\bbooking-20260131-101500\b", "made"),
    (r"\.venv/bin/", ""),
)
"""What is typed here instead, so that it takes seconds and finds what is there."""

MOCK_SERVER = "voicebench mock-server"
URL = "ws://127.0.0.1:8765"
"""Where all pages expect their agent."""
STRICTER = "max_response_latency_ms: 100"


# ---------------------------------------------------------------- what is there


def documented() -> dict[str, Command]:
    """Each command once: where it stands first."""
    found: dict[str, Command] = {}
    for page in PAGES:
        for command in commands_of(page):
            found.setdefault(command.text, command)
    return found


def reason_not_to_run(text: str) -> str | None:
    return next((reason for pattern, reason in NOT_RUN.items() if re.fullmatch(pattern, text)), None)


def shown_files() -> dict[str, Block]:
    return {block.named: block for page in PAGES for block in blocks_of(page) if block.named is not None}


class Agents:
    """A mock agent for each page: the one that it starts first, or else the README's."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._urls: dict[tuple[str, ...], str] = {}

    def url(self, page: Path) -> str:
        flags = self._flags(page) or self._flags(ROOT / "README.md")
        assert flags is not None
        if flags not in self._urls:
            self._urls[flags] = self._stack.enter_context(mock_server(*flags))
        return self._urls[flags]

    def _flags(self, page: Path) -> tuple[str, ...] | None:
        """Of a server that is documented as one to call, not as one of several kinds."""
        started = [each.text for each in commands_of(page) if each.text.startswith(MOCK_SERVER)]
        return tuple(started[0].split()[2:]) if len(started) == 1 and "--port" not in started[0] else None


@pytest.fixture(scope="module")
def agents() -> Iterator[Agents]:
    with ExitStack() as stack:
        yield Agents(stack)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages show, and what their commands take for granted."""
    folder = tmp_path_factory.mktemp("documented")
    for name, block in shown_files().items():
        (folder / name).write_text(block.text, encoding="utf-8")
    for made_by in ("websocket -O my.yaml", "plan -O plan.yaml", "short-question -O short-question.yaml"):
        ran(f"voicebench example {made_by}", folder)
    short = (folder / "short-question.yaml").read_text() + "tail_ms: 300\n"
    (folder / "short-question.yaml").write_text(short)
    (folder / "mock-conversation.yaml").write_text(short.replace("name: short-question", "name: mock-conversation"))
    (folder / "stricter.yaml").write_text(re.sub("max_response_latency_ms: .*", STRICTER, short))
    ran("voicebench run short-question.yaml -q --record all --out voicebench-results/made", folder)
    shutil.copytree(folder / "voicebench-results", folder / "old-results")
    (bundle,) = (folder / "voicebench-results" / "made" / "bundles").iterdir()
    shutil.copytree(bundle, folder / "call-17")
    (folder / "scenarios").mkdir()
    shutil.copy(folder / "booking.yaml", folder / "scenarios")
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("pipecat", "__pycache__"))
    return folder


# ---------------------------------------------------------------- how it is run


@dataclass(frozen=True, slots=True)
class Ran:
    """One command, as it was typed here, and what came of it."""

    typed: str
    folder: Path
    exit_code: int
    stdout: str
    stderr: str


def shell(typed: str, folder: Path, **environment: str) -> Ran:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", typed], cwd=folder, capture_output=True, text=True, timeout=90, check=False,
        stdin=subprocess.DEVNULL, env=_environment(environment),
    )  # fmt: skip
    return Ran(typed, folder, done.returncode, done.stdout, done.stderr)


def _environment(further: Mapping[str, str]) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "VOICEBENCH_HEADLESS": "1", "COLUMNS": "100", **further}


def ran(typed: str, folder: Path) -> None:
    done = shell(typed, folder)
    assert done.exit_code == 0, (typed, done.stderr)


def as_typed(text: str) -> str:
    for pattern, smaller in SMALLER:
        text = re.sub(pattern, smaller, text)
    first, pipe, rest = text.partition(" | ")
    if pipe and rest.split()[0] in ("jq", "aplay"):
        return f"{first} > piped"  # the reader of the pipe is not ours: what it gets is looked at
    return text


def run_documented(command: Command, folder: Path, url: str) -> Ran:
    """In a folder that is prepared; the agent of its page is at `url`."""
    for path in (*folder.glob("*.yaml"), *folder.glob("*/*.yaml")):
        path.write_text(path.read_text(encoding="utf-8").replace(URL, url), encoding="utf-8")
    typed = as_typed(command.text).replace(URL, url)
    for made in re.findall(r"(?:-O|>) (\S+)", typed):
        (folder / made).unlink(missing_ok=True)
    if typed.startswith(MOCK_SERVER):
        return _served(typed, folder)
    if typed.startswith("voicebench master"):
        return _with_a_worker(typed, folder)
    if typed.startswith("sqlite3"):
        return _asked(typed, folder)
    return shell(typed, folder, AGENT_URL=url, GITHUB_STEP_SUMMARY=str(folder / "summary.md"))


def _served(typed: str, folder: Path) -> Ran:
    """A server until it listens, on a port that is free."""
    words = [*shlex.split(typed)[1:], *(() if "--port" in typed else ("--port", "0"))]
    process = subprocess.Popen([*VOICEBENCH, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert process.stdout is not None
    first = process.stdout.readline()
    process.terminate()
    rest, said = process.communicate(timeout=20)
    return Ran(typed, folder, process.returncode, first + rest, said)


def _asked(typed: str, folder: Path) -> Ran:
    """What the `sqlite3` shell would print."""
    _, database, question = shlex.split(typed)
    with closing(sqlite3.connect(folder / database)) as db:
        rows = db.execute(question).fetchall()
    return Ran(typed, folder, 0, "\n".join("|".join(map(str, row)) for row in rows), "")


def _with_a_worker(typed: str, folder: Path) -> Ran:
    """A master with the worker that its page has in the next line."""
    if "--stay" in typed:
        return _staying(typed, folder)
    address = f"127.0.0.1:{_free_port()}"
    typed += f" --bind {address}" + ("" if " -t " in typed else " -u 2 -n 2")
    with _started("voicebench worker", f"--master {address} -q", folder) as worker:
        done = shell(typed, folder)
        worker.wait(timeout=20)
    return done


def _staying(typed: str, folder: Path) -> Ran:
    """A master that waits for Start and stays, with a worker that stays: begun by what the page's button sends, twice."""
    address, port = f"127.0.0.1:{_free_port()}", _free_port()
    flags = f"--bind {address} --page 127.0.0.1:{port}"
    with (
        _started(typed, flags, folder) as master,
        _started("voicebench worker --stay", f"--master {address} -q", folder) as worker,
    ):
        run = None
        for _ in range(2):
            run = _begin(port, run)
            wait_for((folder / "voicebench-results" / run / "junit.xml").is_file, f"the reports of {run}", 40.0)
        time.sleep(1.0)  # now the page waits
        for process in (master, worker):
            process.send_signal(signal.SIGINT)
        stdout, stderr = master.communicate(timeout=20)
        worker.wait(timeout=20)
    return Ran(f"{typed} {flags}", folder, master.returncode, stdout, stderr)


@contextmanager
def _started(typed: str, further: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    words = [*shlex.split(typed)[1:], *further.split()]
    process = subprocess.Popen(
        [*VOICEBENCH, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment({}),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _begin(port: int, before: str | None) -> str:
    """Press Start or Run again until another run than that before has begun; its name."""

    def ask(method: str, path: str, **headers: str) -> Any:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as line:
            line.request(method, path, "{}" if method == "POST" else None, headers)
            return json.loads(line.getresponse().read() or "null")

    def begun() -> str | None:
        try:
            told = ask("GET", "/api/run")
            if told["run"]["id"] != before and told["run"]["started_at"] is not None:
                return told["run"]["id"]
            headers = {"X-CSRF-Token": told["csrf"], "Origin": f"http://127.0.0.1:{port}"}
            ask("POST", "/api/start", **headers, **{"Content-Type": "application/json"})
        except (OSError, ValueError, KeyError, TypeError):
            pass  # not there yet
        return None

    return wait_for(begun, "a run begun from the page", 40.0)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


# ---------------------------------------------------------------- what must come of it


def reports_are_there(done: Ran) -> str:
    """Of the run that this command placed, all of them, in the folder that it was told or else chose."""
    told = re.search(r"--out (\S+)", done.typed)
    made = {done.folder / told[1]} if told else {*done.folder.glob("voicebench-results/*")} - {_made(done)}
    if not made:
        return "no folder for the run"
    lacking = [
        f"{folder.name}/{name}"
        for folder in made
        for name in ("run.db", "report.json", "report.html", "report.md", "junit.xml")
        if not (folder / name).is_file() or not (folder / name).stat().st_size
    ]
    if lacking:
        return f"not there: {', '.join(lacking)}"
    run = json.loads((next(iter(made)) / "report.json").read_text())["run"]
    return "" if run["complete"] else f"incomplete: {run['reasons']}"


def _made(done: Ran) -> Path:
    return done.folder / "voicebench-results" / "made"


def recordings_are_there(done: Ran) -> str:
    bundles = [path for path in done.folder.glob("voicebench-results/*/bundles/*") if _made(done) not in path.parents]
    return "" if bundles else "no recording was kept"


def summary_is_there(done: Ran) -> str:
    junit = ElementTree.parse(done.folder / "results" / "junit.xml").getroot()
    summary = done.folder / "summary.md"
    return "" if junit.findall(".//testcase") and summary.is_file() and summary.stat().st_size else "no job summary"


def says(*words: str) -> Callable[[Ran], str]:
    return lambda done: ", ".join(
        f"does not say {word!r}" for word in words if not re.search(word, done.stdout, re.MULTILINE)
    )


def piped_has(*keys: str) -> Callable[[Ran], str]:
    def check(done: Ran) -> str:
        value = json.loads((done.folder / "piped").read_text())
        for key in keys:
            value = value[key]
        return "" if value else f"nothing at {'.'.join(keys)}"

    return check


def file_has(name: str, pattern: bytes) -> Callable[[Ran], str]:
    def check(done: Ran) -> str:
        data = (done.folder / name).read_bytes()
        return "" if re.search(pattern, data) else f"{name} begins with {data[:40]!r}"

    return check


CHECKS: tuple[tuple[str, Callable[[Ran], str]], ...] = (
    (r"(PYTHONPATH=\S+ )?voicebench (run|master) .*", reports_are_there),
    (r"voicebench run .*--record all.*", recordings_are_there),
    (r"voicebench run .*--json report\.json.*", file_has("report.json", rb'"schema": ?"voicebench-report/1"')),
    (r"voicebench run .*--out results", summary_is_there),
    (r"voicebench score \S*/bundles/\*", says("response latency")),
    (r"voicebench score call-17 --scenario .*", says("response latency", "FAIL +max_response_latency_ms")),
    (r"voicebench score call-17 --json .*", piped_has("summary", "response_latency_ms", "p95")),
    (r"voicebench report voicebench-results/made", says("pass", "response latency")),
    (r"voicebench report made --json - .*", piped_has("summary", "response_latency_ms")),
    (r"voicebench runs", says("made")),
    (r"voicebench runs old-results --json", says(r'"made"')),
    (r"voicebench validate my\.yaml", says("^ok +websocket: 4 turns")),
    (r"voicebench validate booking\.yaml", says("^ok +booking: 3 turns, adapter websocket")),
    (r"voicebench validate scenarios/\*\.yaml plan\.yaml", says("^ok +booking: ", "^ok +example-plan: 2 scenarios")),
    (r"voicebench validate my\.yaml --json .*", file_has("piped", rb'"problems": ?\[\]')),
    (r"voicebench schema scenario .*", file_has("voicebench-scenario.schema.json", rb'"turns"')),
    (r"voicebench schema plan .*", file_has("voicebench-plan.schema.json", rb'"scenarios"')),
    (r"voicebench example", says("websocket", "plan", "short-question", "mock-conversation")),
    (r"voicebench example websocket .*", file_has("my.yaml", rb"type: websocket")),
    (r"voicebench example plan .*", file_has("plan.yaml", rb"scenarios:")),
    (rf"{MOCK_SERVER}.*", says(r"^listening on ws://127\.0\.0\.1:\d+")),
    (r"voicebench synth (\S+) .*wav.*|voicebench synth hello.*", file_has("hello.wav", rb"^RIFF")),
    (r"voicebench synth beep\.wav .*", file_has("beep.wav", rb"^RIFF")),
    (r"voicebench synth - .*", file_has("piped", rb"^RIFF")),
    (r"sqlite3 .*", says(r"^turn-1\|1\|\d")),
)
"""By what is typed; at least one fits every command."""

EXIT_CODES = {r"voicebench score call-17 --scenario stricter\.yaml": 1}
"""All others end with 0, or with 4 where the run itself says that the machine was too busy."""


def trouble_with(command: Command, prepared: Path, folder: Path, url: str) -> str:
    """What is wrong with a documented command; empty: it does what its page says."""
    shutil.copytree(prepared, folder)
    try:
        done = run_documented(command, folder, url)
        expected = next((code for pattern, code in EXIT_CODES.items() if re.fullmatch(pattern, done.typed)), 0)
        if not went_well(done.exit_code, done.stderr, expected):
            return f"{command.where}: {done.typed}: exit {done.exit_code}: {done.stdout[-300:]}{done.stderr[-600:]}"
        wrong = [check(done) for pattern, check in CHECKS if re.fullmatch(pattern, done.typed)]
    except Exception as error:  # noqa: BLE001 - one command's trouble must not hide the others'
        return f"{command.where}: {command.text}: {error!r}"
    return "\n".join(f"{command.where}: {done.typed}: {each}: {done.stdout[-300:]}" for each in wrong if each)


# ---------------------------------------------------------------- the tests


def test_there_are_commands_and_each_rule_is_needed() -> None:
    commands = documented()
    assert len(commands) > 40
    assert [each for each in NOT_RUN if not any(re.fullmatch(each, command) for command in commands)] == []
    assert [each for each, _ in SMALLER if not any(re.search(each, command) for command in commands)] == []
    typed = {as_typed(command) for command in commands}
    rules = [*EXIT_CODES, *(pattern for pattern, _ in CHECKS)]
    assert [each for each in rules if not any(re.fullmatch(each, command) for command in typed)] == []


def test_every_command_is_checked_or_left_out_for_a_reason() -> None:
    typed = {text: as_typed(text) for text in documented() if reason_not_to_run(text) is None}
    assert [text for text, short in typed.items() if not any(re.fullmatch(each, short) for each, _ in CHECKS)] == []


def test_the_calls_within_sentences_exist() -> None:
    context = click.Context(group, **group.context_settings)
    wrong = []
    for page in PAGES:
        for call in (*inline_calls(page), *(each.text for each in commands_of(page))):
            words = re.split(r"\s+", re.sub(r"^(\w+=\S+ )*(\S*bin/)?", "", call).partition(" | ")[0])
            if words[0] != "voicebench" or words[1] == "COMMAND":
                continue
            command = group.get_command(context, words[1])
            known = {"--help", "-h"} | {flag for each in command.params for flag in each.opts} if command else set()
            unknown = [word for word in words[2:] if re.match(r"--?[a-z]", word) and word not in known]
            if words[1] not in COMMANDS or unknown:
                wrong.append(f"{page.name}: {call}: {', '.join(unknown) or words[1]}")
    assert wrong == []


@pytest.mark.slow
def test_every_documented_command_does_what_it_is_documented_for(prepared, agents, tmp_path) -> None:
    commands = [command for text, command in documented().items() if reason_not_to_run(text) is None]
    commands.sort(
        key=lambda command: not re.search(r"--stay|voicebench (run|master)", command.text)
    )  # the long ones first
    urls = [agents.url(command.page) for command in commands]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        troubles = threads.map(
            lambda number: trouble_with(commands[number], prepared, tmp_path / str(number), urls[number]),
            range(len(commands)),
        )
        found = [trouble for trouble in troubles if trouble]
    assert not found, "\n\n".join(found)


# ---------------------------------------------------------------- what is shown of files


def yaml_blocks() -> list[Block]:
    return [block for page in PAGES for block in blocks_of(page) if block.language == "yaml"]


@pytest.mark.parametrize("block", yaml_blocks(), ids=lambda block: block.where)
def test_every_piece_of_yaml_can_be_run(block: Block, tmp_path: Path) -> None:
    shown = yaml.safe_load(block.text)
    if block.page.name == "ci.md":
        assert "voicebench run" in block.text  # a pipeline's, of whose keys nobody here knows
        return
    for each in shown.get("scenarios", ()):
        name = each["file"].partition(".")[0]
        (tmp_path / each["file"]).write_text(f"name: {name}\nturns: [{{audio: {{clip: yes}}}}]\n")
    rest = "" if {"turns", "scenarios"} & shown.keys() else "name: a\nturns: [{audio: {clip: yes}}]\n"
    (tmp_path / "shown.yaml").write_text(rest + block.text)
    refuse_unsupported(load_plan(str(tmp_path / "shown.yaml")).plan)


def keys_of(
    schema: Mapping[str, Any], shape: Mapping[str, Any], at: str = ""
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every key of a file, written as the reference does: `turns[].start.after`."""
    for name, value in shape.get("properties", {}).items():
        kinds = [value, *value.get("anyOf", ())]
        refs = [kind["$ref"] for kind in kinds if "$ref" in kind]
        items = [kind["items"] for kind in kinds if "items" in kind]
        yield f"{at}{name}", value
        for ref in refs:
            yield from keys_of(schema, schema["$defs"][ref.rpartition("/")[2]], f"{at}{name}.")
        for item in items:
            if "$ref" in item:
                yield from keys_of(schema, schema["$defs"][item["$ref"].rpartition("/")[2]], f"{at}{name}[].")


def reference(section: str) -> dict[str, list[str]]:
    """The rows of a section's tables in docs/scenario.md, by key."""
    text = (ROOT / "docs" / "scenario.md").read_text(encoding="utf-8")
    part = re.split(r"\n(?=## )", text)
    (own,) = [each for each in part if each.startswith(f"## {section}\n")]
    rows = re.findall(r"^\| `([^`]+)` \|(.*)\|$", own, flags=re.MULTILINE)
    return {key: [cell.strip() for cell in rest.split(" | ")] for key, rest in rows}


@pytest.mark.parametrize(
    ("section", "schema"),
    [("Scenario", json_schema("scenario")), ("Plan", json_schema("plan"))],
    ids=["scenario", "plan"],
)
def test_the_reference_has_every_key_with_its_default(section: str, schema: dict[str, Any]) -> None:
    rows = reference(section)
    lacking, wrong = [], []
    for key, value in keys_of(schema, schema):
        if any(row.startswith((f"{key}.", f"{key}[].")) for row in rows) or re.match(
            r"(abort_on|assert)\.[a-z0-9]+_", key
        ):
            continue  # explained by its parts, or an assertion's name
        default = value.get("default")
        if key not in rows:
            lacking.append(key)
        elif isinstance(default, int | float) and not isinstance(default, bool) and f"{default:.12g}" != rows[key][0]:
            wrong.append((key, default, rows[key][0]))
    assert (lacking, wrong) == ([], [])
