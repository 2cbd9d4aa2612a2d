"""Tables and JSON on stdout, everything else on stderr."""

from __future__ import annotations

import codecs
import io
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from voicebench.assertions import AssertionResult
from voicebench.cli.format import FEW, ms, number, percentile, share
from voicebench.distribution import FEW_FOR_P95, FEW_FOR_P99
from voicebench.records import SessionRecord, TurnRecord
from voicebench.score_document import Scored
from voicebench.summary import Tally

_MARKS = {"pass": "[green]✓ pass[/]", "fail": "[red]✗ FAIL[/]", "cant_tell": "[yellow]! can't tell[/]"}


def console() -> Console:
    """Stdout for people: colours only where they belong, 110 columns where nobody says how many there are."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that can't show a letter still shows the rest
    return Console(file=sys.stdout, highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else 110)


def json_bytes(document: Mapping[str, Any]) -> bytes:
    """A document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def emit_json(document: Mapping[str, Any]) -> None:
    """JSON to stdout; escaped where the terminal's encoding can't show every letter, so that it stays JSON."""
    text = json_bytes(document).decode()
    if codecs.lookup(sys.stdout.encoding or "utf-8").name != "utf-8":
        text = json.dumps(msgspec.json.decode(text), indent=1) + "\n"
    sys.stdout.write(text)
    sys.stdout.flush()


def print_score(sessions: Sequence[SessionRecord], scored: Scored) -> None:
    """What `voicebench score` shows people."""
    out = console()
    if len(sessions) == 1:
        print_session(out, sessions[0])
    else:
        turns: dict[str, dict[str, Tally]] = {}
        for session in sessions:
            for turn in session.turns:
                turns.setdefault(session.scenario, {}).setdefault(turn.id, Tally()).add_turn(turn)
        print_turns(out, turns)
    print_numbers(out, scored.tally)
    print_assertions(out, scored.assertions)


def print_session(out: Console, session: SessionRecord) -> None:
    """Every turn of one session, with its notes."""
    table = Table(title=f"{escape(session.session_id)}: {escape(session.scenario)}", title_justify="left", box=None)
    for column in ("Turn", "Expect", "Response", "First audio", "Stop", "WER", "Result"):
        table.add_column(column, justify="left" if column in ("Turn", "Expect", "Result") else "right")
    for turn in session.turns:
        table.add_row(
            escape(turn.id),
            turn.expect,
            ms(turn.response_latency_ms),
            ms(turn.ttfa_ms),
            ms(turn.stop_ms),
            number(turn.wer),
            _result(turn),
        )
    out.print(table)
    for turn in session.turns:
        for note in turn.notes:
            out.print(f"  {escape(turn.id)}: {escape(note)}")
    if session.outcome.state != "finished":
        detail = f": {session.outcome.detail}" if session.outcome.detail else ""
        out.print(f"  session {session.outcome.state} ({session.outcome.reason or 'no reason'}){escape(detail)}")


def _result(turn: TurnRecord) -> str:
    if turn.status in ("not_played", "unfinished"):
        return turn.status.replace("_", " ")
    verdict = "[green]pass[/]" if turn.passed else f"[red]{'missed' if turn.status == 'missed' else 'FAIL'}[/]"
    return verdict if turn.reliable else f"{verdict} [yellow](unreliable)[/]"


def print_turns(out: Console, by_scenario: Mapping[str, Mapping[str, Tally]]) -> None:
    """One row a turn of each scenario: its distributions over all sessions."""
    table = Table(box=None)
    for column in (
        "Turn",
        "n",
        "Passed",
        "Response p50",
        "p95",
        "max",
        "First audio p50",
        "Stop p50",
        "Stop max",
        "WER",
    ):
        table.add_column(column, justify="left" if column == "Turn" else "right")
    few = False
    for scenario, turns in by_scenario.items():
        if len(by_scenario) > 1:
            table.add_row(f"[bold]{escape(scenario)}[/]")
        for name, tally in turns.items():
            latency, stop = tally.response_latency_ms, tally.barge_in_stop_ms
            few |= 0 < latency.count < FEW_FOR_P95
            table.add_row(
                escape(name),
                str(tally.counts["turns"]),
                str(tally.counts["turns_passed"]),
                ms(latency.percentile(50)),
                percentile(latency, 95),
                ms(latency.max),
                ms(tally.ttfa_ms.percentile(50)),
                ms(stop.percentile(50)),
                ms(stop.max),
                number(tally.mean_wer),
            )
    out.print(table)
    if few:
        out.print(f"  {FEW} few values: p95 wants {FEW_FOR_P95}, p99 {FEW_FOR_P99}", style="dim")


def print_numbers(out: Console, tally: Tally) -> None:
    """The run's numbers, a line each."""
    counts, latency, first_audio, stop = tally.counts, tally.response_latency_ms, tally.ttfa_ms, tally.barge_in_stop_ms
    rows = [
        ("Turns passed", f"{counts['turns_passed']} of {counts['turns']}"),
        ("Response latency p50 / p95 / max", _three(latency)),
        ("Time to first audio p50 / p95 / max", _three(first_audio)),
        ("Missed responses", str(counts["missed_responses"])),
        ("Talk-overs", str(counts["talk_overs"])),
        ("Barge-ins that stopped the agent", f"{share(tally.barge_in_success_rate)} of {counts['barge_in_turns']}"),
        ("Barge-in stop time p50 / p95 / max", _three(stop)),
        ("False barge-ins", f"{counts['false_barge_ins']} of {counts['noise_turns']} noises"),
        ("Spurious responses", f"{counts['spurious_responses']} of {counts['noise_turns']} noises"),
        ("Word error rate mean / pooled", f"{number(tally.mean_wer)} / {number(tally.pooled_wer)}"),
        ("Unreliable turns", f"{counts['unreliable_turns']} of {counts['judged_turns']}"),
        ("Not played, unfinished", f"{counts['not_played']}, {counts['unfinished']}"),
    ]
    table = Table(box=None, show_header=False)
    table.add_column()
    table.add_column(no_wrap=True)
    for row in rows:
        table.add_row(*row)
    out.print()
    out.print(table)


def _three(values: Any) -> str:
    return " / ".join((ms(values.percentile(50)), percentile(values, 95), ms(values.max)))


def print_assertions(out: Console, assertions: Sequence[AssertionResult]) -> None:
    """Each limit with the value it was held against."""
    if not assertions:
        return
    out.print()
    for result in assertions:
        sign = ">=" if result.name.startswith("min_") else "<="
        actual = "not measured" if result.actual is None else f"actual {number(result.actual)}"
        if result.verdict == "cant_tell":
            actual += f", without unreliable turns {number(result.actual_reliable)}"
        whose = f" [{escape(result.scenario)}]" if result.scenario else ""
        out.print(f"{_MARKS[result.verdict]}  {result.name} {sign} {number(result.limit)} ({actual}){escape(whose)}")
