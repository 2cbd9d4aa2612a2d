"""Draws the live block: snapshots come in as lines of JSON, until the run closes the pipe."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from voicebench.cli.format import fit
from voicebench.cli.progress import title_of
from voicebench.words import NOTHING, ms

LABEL, CELL = 10, 16


def block(state: Mapping[str, Any]) -> Group:
    """One snapshot as a few lines, cut where the terminal ends: a wrapped line could not be wiped off again."""
    failed, unreliable = state["failed"], state["unreliable"]
    reasons = ", ".join(f"{n} {why}" for why, n in state["reasons"].items())
    late = NOTHING if state["late_p99_ms"] is None else f"{state['late_p99_ms']:.1f} ms"
    lines = [
        [("sessions", ""), (f"{state['live']} live", ""), (f"{state['started']} started", ""),
         (f"{state['finished']} finished", "")],
        [("", ""), (f"{failed} failed", "red" if failed else ""), (f"{state['cut']} cut", ""), (reasons, "")],
    ]  # fmt: skip
    if state["turns"]:
        lines += [
            [("response", ""), (f"p50 {ms(state['p50_ms'])}", ""), (f"p95 {ms(state['p95_ms'])}", ""),
             (f"max {ms(state['max_ms'])}", "")],
            [("turns", ""), (f"{state['turns']} judged", ""), (f"{state['missed']} missed", ""),
             (f"{unreliable} unreliable", "yellow" if unreliable else "")],
            [("tester", ""), (f"frames late p99 {late}", "")],
        ]  # fmt: skip
    else:
        lines.append([("turns", ""), ("judged when their session ends", "")])
    return Group(Text(fit(title_of(state), sys.stderr), style="bold", no_wrap=True, overflow="crop"), *map(_row, lines))


def _row(cells: list[tuple[str, str]]) -> Text:
    row = Text("  ", no_wrap=True, overflow="crop")
    for place, (text, style) in enumerate(cells):
        shown = fit(text, sys.stderr)
        row.append(shown, style=style)
        row.append(" " * max(2, (CELL if place else LABEL) - len(shown)))
    row.rstrip()
    return row


def main() -> None:
    """Read and draw until end of input. Ctrl-C is for the run, which closes the pipe when it is done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    console = Console(stderr=True, highlight=False)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for line in sys.stdin:
            try:
                document = json.loads(line)
                if "note" in document:
                    console.print(fit(document["note"], sys.stderr), markup=False)
                else:
                    live.update(block(document), refresh=True)
            except (ValueError, KeyError):
                continue  # a picture cut short by a full pipe; the next one is whole


if __name__ == "__main__":
    main()
