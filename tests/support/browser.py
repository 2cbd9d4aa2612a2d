"""Debian's Chromium, driven by Playwright, and runs whose page it looks at."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.processes import VOICEBENCH, went_well

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-quic",
    "--no-first-run",
)
SCENARIO = """\
name: {name}
tail_ms: 200
defaults: {{response_timeout_ms: 1500}}
turns:
  - {{id: ask, text: Where is it?, audio: {{synth: speech, duration_ms: 400}}, start: {{after: session_start, delay_ms: 100}}}}
  - {{id: {second}, audio: {{synth: speech, duration_ms: 300, seed: 1}}}}
  - {{id: barge-in, expect: stop, audio: {{synth: speech, duration_ms: 400, seed: 2}}, start: {{after: agent_speech_start, delay_ms: 300}}}}
  - {{id: cough, expect: ignore, audio: {{synth: noise, duration_ms: 150}}, start: {{after: previous_turn_end, delay_ms: 700}}}}
assert: {{p95_response_latency_ms: {limit_ms}, max_missed_responses: 0}}
"""
AGENT = (
    "-o",
    "endpoint_silence_ms=200",
    "-o",
    "response_delay_ms=200",
    "-o",
    "response_ms=900",
    "-o",
    "barge_in_min_ms=200",
)


CORES = sorted(os.sched_getaffinity(0))


@contextmanager
def a_browser() -> Iterator[Browser]:
    """Away from the core of the workers: what it draws, a few dozen milliseconds a second, would make their frames late."""
    os.sched_setaffinity(0, {CORES[0]})
    try:
        started = sync_playwright().start()
        browser = started.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
    finally:
        os.sched_setaffinity(0, set(CORES))
    try:
        yield browser
    finally:
        browser.close()
        started.stop()


class Opened:
    """One open page, with everything its console said."""

    def __init__(self, browser: Browser, url: str, **context: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        self.page.goto(url)

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning") and "ERR_" not in message.text and "status of" not in message.text:
            self.complaints.append(f"{message.type}: {message.text}")

    def text(self, selector: str) -> str:
        return " ".join(self.page.locator(selector).inner_text().split())

    def until(self, selector: str, words: str, timeout_s: float = 30.0) -> str:
        """Wait until an element says this (a pattern); what it says then."""
        self.page.locator(selector).filter(has_text=re.compile(words)).first.wait_for(timeout=1000 * timeout_s)
        return self.text(selector)

    def ask(self, path: str) -> Any:
        """What the page itself would get."""
        return self.page.evaluate("path => fetch(path).then(answer => answer.json())", path)

    def until_snapshot(self, holds: Callable[[Any], bool], timeout_s: float = 60.0) -> Any:
        """Wait until this holds of `/api/snapshot`, and return it."""
        ends_s = time.monotonic() + timeout_s
        while not holds(snapshot := self.ask("/api/snapshot")):
            assert time.monotonic() < ends_s, snapshot
            time.sleep(0.1)
        return snapshot

    def close(self) -> None:
        self.context.close()


class Runs:
    """Masters and workers with their pages; whatever is left of them is killed at the end."""

    def __init__(self, folder: Path, agent: str) -> None:
        self.folder = folder
        self.agent = agent
        self.processes: list[subprocess.Popen[str]] = []
        self._n = 0
        self.write("talk.yaml")

    def write(self, file: str, *, name: str = "talk", second: str = "more", limit_ms: int = 3000) -> None:
        (self.folder / file).write_text(SCENARIO.format(name=name, second=second, limit_ms=limit_ms))

    def master(self, *flags: str, file: str = "talk.yaml", page: str = "127.0.0.1:0") -> Master:
        self._n += 1
        out = self.folder / f"out-{self._n}"
        process = self._start(
            "master", file, "--url", self.agent, "--bind", "127.0.0.1:0", "--page", page, "--stay", "--out", str(out), *flags
        )  # fmt: skip
        return Master(process, out)

    def worker(self, master: Master, name: str, *flags: str) -> subprocess.Popen[str]:
        worker = self._start("worker", "--master", master.address, "--name", name, *flags)
        os.sched_setaffinity(worker.pid, {CORES[-1]})
        return worker

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            [*VOICEBENCH, *arguments], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()


class Master:
    """A master under way: where its page is, where its workers find it, what it has said."""

    def __init__(self, process: subprocess.Popen[str], out: Path) -> None:
        self.process, self.out = process, out
        self.said: list[str] = []
        self._news = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()
        self.url = self.until(r"page: (\S+)")
        self.address = self.until(r"listening at (\S+),")

    def until(self, pattern: str, timeout_s: float = 30.0) -> str:
        """Wait for a line on stderr; its first group."""
        with self._news:
            found: list[str] = []

            def heard() -> bool:
                found[:] = [match[1] for line in self.said if (match := re.search(pattern, line))]
                return bool(found)

            assert self._news.wait_for(heard, timeout_s), self.said
            return found[0]

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.said.append(line)
                self._news.notify_all()

    @property
    def report(self) -> Any:
        return json.loads((self.out / "report.json").read_text())

    def ended_as_it_should(self, expected: int) -> bool:
        """With this exit code; or with 4 on a machine so busy that the run itself says that it can't be trusted."""
        return went_well(self.end(), "".join(self.said), expected)

    def end(self) -> int:
        """Ctrl-C at a page that stays."""
        self.until("(the page stays)")
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=30)
