"""Makes the README's picture of the status page, from a real run: `make screenshot`.

A mock agent that slows down when more than sixteen call at once and refuses some calls; a master with two workers, and
callers who join one after the other: about two minutes. It wants a machine that does nothing else.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.support.browser import CHROMIUM, CORES, Opened, Runs, a_browser
from tests.support.processes import mock_server

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "status-page.png"
SIZE = {"width": 1280, "height": 940}
AGENT = {
    "endpoint_silence_ms": 500, "response_delay_ms": 0, "jitter_ms": 250, "response_ms": 2500, "barge_in_min_ms": 400,
}  # fmt: skip
SCENARIO = """\
name: booking line
description: A caller who interrupts once and coughs once.
tail_ms: 500
defaults: {response_timeout_ms: 960}
turns:
  - {id: opening, audio: {clip: opening}}
  - {id: interruption, audio: {clip: barge_in}, start: {after: agent_speech_start, delay_ms: 800}, expect: stop}
  - {id: cough, audio: {clip: cough}, start: {after: agent_speech_start, delay_ms: 800}, expect: ignore}
  - {id: answer, audio: {clip: answer}}
  - {id: confirmation, audio: {clip: yes}}
assert:
  p95_response_latency_ms: 990
  min_barge_in_success_rate: 0.95
  max_false_barge_ins: 5
  max_missed_responses: 20
  max_failed_session_rate: 0.05
"""
LOAD = ("-u", "20", "-t", "110s", "-r", "0.7/s", "-w", "2")
SHOWN_AT_S = 85.0
BETTER = -10
"""Niceness, where whoever runs this may: a picture of a machine that did something else meanwhile is of no use."""


def main() -> int:
    """Take the picture, and return an exit code."""
    if CHROMIUM is None:
        print("there is no chromium here: apt-get install chromium")
        return 2
    flags = [flag for name, value in AGENT.items() for flag in ("-o", f"{name}={value}")]
    with (
        tempfile.TemporaryDirectory() as name,
        mock_server(*flags, "--capacity", "16", "--fail-rate", "0.02", cpu=CORES[0]) as agent,
    ):
        runs = Runs(Path(name), agent)
        (Path(name) / "booking.yaml").write_text(SCENARIO)
        try:
            master = runs.master(*LOAD, file="booking.yaml")
            for name_of_worker in ("load-1", "load-2"):
                worker = runs.worker(master, name_of_worker)
                os.sched_setaffinity(worker.pid, CORES)
                with contextlib.suppress(PermissionError):
                    os.setpriority(os.PRIO_PROCESS, worker.pid, BETTER)
            master.until("(load-2.*)")
            # The browser comes late and gives way, so that the picture is not of a machine busy with being looked at.
            time.sleep(SHOWN_AT_S)
            os.nice(15)
            with a_browser() as browser:
                page = Opened(browser, master.url, viewport=SIZE, color_scheme="light")
                page.until("#pill", "Steady|overloaded", 60)
                page.page.wait_for_timeout(1_500)
                picture, told = page.page.screenshot(), page.text("#pill")
        finally:
            runs.close()
    if "overloaded" in told:
        print("this machine was too busy for a run that can be trusted, and the picture is left as it is: try again")
        return 4
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_bytes(picture)
    print(f"{PICTURE}: {len(picture):,} bytes; {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
