"""A finished run, or recordings scored again, on the terminal: told from their JSON documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from voicebench.cli.output import console
from voicebench.cli.tables import print_assertions, print_numbers, print_session, print_turns, print_workers
from voicebench.records import SessionRecord
from voicebench.summary import Tally
from voicebench.words import count, duration


def show_report(report: Mapping[str, Any], *, details: Mapping[str, str], directory: Path | None) -> None:
    """Whether it can be trusted, what became of the sessions, the numbers, the verdicts, where the files lie.

    Args:
        report: The document of docs/report.md.
        details: An example for each reason of failure.
        directory: Where the report was written; None: nowhere.
    """
    out = console()
    run = report["run"]
    if run["verdict"] not in ("pass", "fail"):
        out.print(f"! {run['verdict'].replace('_', ' ')}: {run['reasons'][0]}", style="bold red", markup=False)
    out.print(f"{run['name']}: {_account(report)}", markup=False)
    for reason, times in report["accounting"]["reasons"].items():
        detail = f": {details[reason]}" if details.get(reason) else ""
        out.print(f"  {times:,} {reason}{detail}", markup=False)
    if report["summary"]["sessions"]:
        print_turns(out, report["by_scenario"])
        print_numbers(out, report["summary"])
    elif report["accounting"]["started"]:
        out.print(" all of them were warm-up: there are no numbers", markup=False)
    _print_tester(out, report)
    print_assertions(out, report["assertions"])
    if run["notes"]:
        out.print()
    for note in run["notes"]:
        out.print(f"note: {note}", markup=False)
    if directory is not None:
        _print_files(out, report, directory)


def _account(report: Mapping[str, Any]) -> str:
    run, account = report["run"], report["accounting"]
    if not account["started"]:
        return "no session was placed"
    clock = " on the virtual clock" if run["clock"] == "virtual" else ""
    warmup = f" ({account['warmup']:,} of them warm-up, in no number below)" if account["warmup"] else ""
    took = duration(run["duration_s"]) if run["duration_s"] >= 1 else "less than a second"
    return f"{count(account['started'], 'session')} in {took}{clock}: {_ends(account)}{warmup}"


def _ends(states: Mapping[str, int]) -> str:
    shown = [f"{states['finished']:,} finished", f"{states['failed']:,} failed"]
    return ", ".join(shown + [f"{states[state]:,} {state}" for state in ("cut", "lost") if states[state]])


def _print_tester(out: Console, report: Mapping[str, Any]) -> None:
    """How late the tester was and what it spent: whether the numbers above are the agent's."""
    if len(report["workers"]) > 1:
        print_workers(out, report["workers"], report["accounting"]["by_worker"])
        return
    for worker in report["workers"]:
        late = worker["frame_lateness_ms"]
        if late["count"]:
            times = ", ".join(f"{name} {late[name]:.1f} ms" for name in ("p50", "p99", "max"))
            out.print(f" frames sent late: {times}; CPU {worker['cpu_s']:.1f} s", markup=False)


def _print_files(out: Console, report: Mapping[str, Any], directory: Path) -> None:
    kept = sum(1 for session in report["sessions"] if session["bundle"] is not None)
    out.print(f"\nreport      {directory / 'report.html'} (and report.json, report.md, junit.xml)", markup=False)
    where = f"{directory / 'bundles'} ({count(kept, 'session')})" if kept else "none kept (--record all keeps them all)"
    out.print(f"recordings  {where}", markup=False)


def show_score(document: Mapping[str, Any], sessions: Sequence[SessionRecord]) -> None:
    """What `voicebench score` prints: every turn of one session, or the turns of several by their ids.

    Args:
        document: What `--json` would print.
        sessions: The same sessions as records.
    """
    out = console()
    if len(sessions) == 1:
        print_session(out, document["sessions"][0])
    else:
        out.print(f"{count(len(sessions), 'session')}: {_ends(Counter(each.outcome.state for each in sessions))}")
        print_turns(out, _by_turn(sessions))
    print_numbers(out, document["summary"])
    print_assertions(out, document["assertions"])


def _by_turn(sessions: Sequence[SessionRecord]) -> dict[str, dict[str, dict[str, Any]]]:
    tallies: dict[str, dict[str, Tally]] = {}
    for session in sessions:
        for turn in session.turns:
            tallies.setdefault(session.scenario, {}).setdefault(turn.id, Tally()).add_turn(turn)
    return {
        scenario: {"by_turn": {turn: tally.as_dict() for turn, tally in turns.items()}}
        for scenario, turns in tallies.items()
    }
