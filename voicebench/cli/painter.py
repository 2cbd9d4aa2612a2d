"""Draws the live block: snapshots come in as lines of JSON, until the run closes the pipe."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from voicebench.cli.format import NOTHING, duration, ms


def block(state: Mapping[str, Any]) -> Table:
    """One snapshot as a small table."""
    left = f", {duration(state['left_s'])} left" if state["left_s"] is not None else ""
    table = Table(box=None, show_header=False, title=f"{state['state']} {duration(state['elapsed_s'])}{left}")
    table.title_justify = "left"
    table.add_row("sessions", f"{state['live']} live", f"{state['started']} started", f"{state['finished']} finished")
    failed = f"[red]{state['failed']} failed[/]" if state["failed"] else "0 failed"
    table.add_row("", failed, f"{state['cut']} cut", ", ".join(f"{n} {why}" for why, n in state["reasons"].items()))
    table.add_row("response", f"p50 {ms(state['p50_ms'])}", f"p95 {ms(state['p95_ms'])}", f"max {ms(state['max_ms'])}")
    unreliable = f"[yellow]{state['unreliable']} unreliable[/]" if state["unreliable"] else "0 unreliable"
    table.add_row("turns", f"{state['turns']} judged", f"{state['missed']} missed", unreliable)
    lateness = NOTHING if state["late_p99_ms"] is None else f"{state['late_p99_ms']:.1f} ms"
    table.add_row("this machine", f"frames late p99 {lateness}", "", "")
    return table


def main() -> None:
    """Read and draw until end of input. Ctrl-C is for the run, which closes the pipe when it is done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        for line in sys.stdin:
            try:
                live.update(block(json.loads(line)), refresh=True)
            except (ValueError, KeyError):
                continue  # a picture cut short by a full pipe; the next one is whole


if __name__ == "__main__":
    main()
