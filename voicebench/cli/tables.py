"""The numbers of `run` and `score` as tables. They show what the JSON documents say and compute nothing but shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from voicebench.cli.grid import MARK, Cell, Column, print_grid
from voicebench.distribution import FEW_FOR_P95, FEW_FOR_P99
from voicebench.reports.figures import percentile
from voicebench.words import NOTHING, count, ms, number, share

Document = Mapping[str, Any]
_MARKS = {"pass": ("✓ pass", "green"), "fail": ("✗ FAIL", "red"), "cant_tell": ("! can't tell", "yellow")}


TURN_COLUMNS = (
    Column("", "turn", left=True),
    Column("", "n"),
    Column("", "passed"),
    Column("response", "p50", 2),
    Column("response", "p95"),
    Column("response", "max", 3),
    Column("first audio", "p50", 6),
    Column("stop", "p50", 4),
    Column("stop", "max", 1),
    Column("", "WER", 5),
)
NUMBER_COLUMNS = (
    Column("", "", left=True),
    Column("", "n", 2),
    Column("", "p50"),
    Column("", "p95"),
    Column("", "p99", 1),
    Column("", "max"),
)
SESSION_COLUMNS = (
    Column("", "turn", left=True),
    Column("", "expect", left=True),
    Column("", "response"),
    Column("", "first audio", 3),
    Column("", "stop"),
    Column("", "WER", 2),
    Column("", "result", left=True),
)
WORKER_COLUMNS = (
    Column("", "worker", left=True),
    Column("sessions", "started"),
    Column("sessions", "failed", 3),
    Column("sessions", "lost", 1),
    Column("frames late", "p99"),
    Column("frames late", "max", 2),
    Column("", "CPU", 4),
    Column("", "state", 5, left=True),
)
WORKERS_SHOWN = 12


def print_turns(out: Console, by_scenario: Mapping[str, Document]) -> None:
    """One row a turn of each scenario: its numbers over all sessions.

    Args:
        by_scenario: As in the report: scenario to turn id (under `by_turn`) to summary.
    """
    rows: list[Sequence[Cell]] = []
    for scenario, document in by_scenario.items():
        if len(by_scenario) > 1:
            rows.append([Text(scenario, "bold")])
        rows += [_turn_row(name, summary) for name, summary in document["by_turn"].items()]
    if rows:
        out.print()
        print_grid(out, TURN_COLUMNS, rows)


def _turn_row(name: str, summary: Document) -> list[Cell]:
    response, first, stop = (summary[key] for key in ("response_latency_ms", "ttfa_ms", "barge_in_stop_ms"))
    turns, passed = summary["turns"], summary["turns_passed"]
    return [
        name,
        f"{turns:,}",
        Text(f"{passed:,}", "red" if passed < turns else ""),
        ms(response["p50"]),
        percentile(response, "p95"),
        ms(response["max"]),
        ms(first["p50"]),
        ms(stop["p50"]),
        ms(stop["max"]),
        number(summary["mean_wer"]),
    ]


def print_session(out: Console, session: Document) -> None:
    """Every turn of one session, with its notes."""
    out.print(Text.assemble((session["session_id"], "bold"), f": {session['scenario']}"))
    rows = [
        [turn["id"], turn["expect"], ms(turn["response_latency_ms"]), ms(turn["ttfa_ms"]), ms(turn["stop_ms"]),
         number(turn["wer"]), _result(turn)]
        for turn in session["turns"]
    ]  # fmt: skip
    if rows:
        print_grid(out, SESSION_COLUMNS, rows)
    for turn in session["turns"]:
        for note in turn["notes"]:
            out.print(f"   {turn['id']}: {note}", markup=False)
    outcome = session["outcome"]
    if outcome["state"] != "finished":
        reason = f" ({outcome['reason']})" if outcome["reason"] else ""
        detail = f": {outcome['detail']}" if outcome["detail"] else ""
        out.print(f" session {outcome['state']}{reason}{detail}", markup=False)


def _result(turn: Document) -> Text:
    if turn["status"] in ("not_played", "unfinished"):
        return Text(turn["status"].replace("_", " "), "dim")
    missed = "missed" if turn["status"] == "missed" else "FAIL"
    text = Text("pass", "green") if turn["passed"] else Text(missed, "red")
    return text if turn["reliable"] else Text.assemble(text, (" (unreliable)", "yellow"))


def print_numbers(out: Console, summary: Document) -> None:
    """The summary: distributions as a table, counts a line each. What there was none of has no line."""
    if not summary["turns"]:
        out.print(" no turn was played", markup=False)
        return
    out.print()
    distributions = [
        ("response latency", summary["response_latency_ms"]),
        ("time to first audio", summary["ttfa_ms"]),
        ("barge-in stop time", summary["barge_in_stop_ms"]),
    ]
    rows = [
        [label, f"{values['count']:,}", *(percentile(values, name) for name in ("p50", "p95", "p99", "max"))]
        for label, values in distributions
        if values["count"]
    ]
    if rows:
        print_grid(out, NUMBER_COLUMNS, rows)
        if any(MARK in cell for row in rows for cell in row):
            out.print(f"   {MARK} of few values: a p95 wants {FEW_FOR_P95}, a p99 {FEW_FOR_P99}", style="dim")
        out.print()
    _print_pairs(out, _counts(summary))


def _counts(summary: Document) -> list[tuple[str, str]]:
    judged = summary["turns"] - summary["not_played_turns"] - summary["unfinished_turns"]
    respond = summary["response_latency_ms"]["count"] + summary["missed_responses"]
    barge_ins, noises = summary["barge_in_turns"], summary["noise_turns"]
    rows = [("turns passed", f"{summary['turns_passed']:,} of {summary['turns']:,}")]
    if respond:
        rows.append(("missed responses", f"{summary['missed_responses']:,} of {respond:,}"))
        rows.append(("talk-overs", f"{summary['talk_overs']:,}"))
    if barge_ins:
        rows.append(("barge-in success", f"{share(summary['barge_in_success_rate'])} of {barge_ins:,}"))
    if noises:
        rows.append(("false barge-ins", f"{summary['false_barge_ins']:,} of {count(noises, 'noise')}"))
        rows.append(("spurious responses", f"{summary['spurious_responses']:,} of {count(noises, 'noise')}"))
    if summary["mean_wer"] is not None:
        rows.append(("word error rate", f"mean {number(summary['mean_wer'])}, pooled {number(summary['pooled_wer'])}"))
    for key, label in (("not_played_turns", "not played"), ("unfinished_turns", "unfinished")):
        if summary[key]:
            rows.append((label, f"{summary[key]:,} of {summary['turns']:,} turns"))
    rows.append(("unreliable turns", f"{summary['unreliable_turns']:,} of {judged:,}"))
    return rows


def _print_pairs(out: Console, rows: Sequence[tuple[str, str]]) -> None:
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        out.print(f" {label:<{width}}  {value}", markup=False)


def print_workers(out: Console, workers: Sequence[Document], accounts: Mapping[str, Document]) -> None:
    """Who placed the sessions, and how late: those first that did not stay to the end, then the latest.

    Args:
        workers: As in the report.
        accounts: What became of each one's sessions, by its id.
    """
    ranked = sorted(workers, key=lambda worker: (worker["state"] == "done", -(worker["frame_lateness_ms"]["p99"] or 0)))
    out.print()
    shown = ranked[:WORKERS_SHOWN]
    print_grid(out, WORKER_COLUMNS, [_worker_row(each, accounts[each["id"]]) for each in shown])
    if len(ranked) > len(shown):
        out.print(f"   and {len(ranked) - len(shown):,} more: the report has them all", style="dim")
    for worker in shown:
        if worker["state"] != "done" and worker["why"]:
            out.print(f"   {worker['id']} {worker['state']}: {worker['why']}", markup=False)


def _worker_row(worker: Document, account: Document) -> list[Cell]:
    late = worker["frame_lateness_ms"]
    return [
        worker["id"],
        f"{account['started']:,}",
        f"{account['failed']:,}" if account["failed"] else NOTHING,
        Text(f"{account['lost']:,}", "red") if account["lost"] else NOTHING,
        _tenths(late["p99"]),
        _tenths(late["max"]),
        f"{worker['cpu_s']:,.1f} s",
        worker["state"],
    ]


def _tenths(value_ms: float | None) -> str:
    return NOTHING if value_ms is None else f"{value_ms:,.1f} ms"


def print_assertions(out: Console, assertions: Sequence[Document]) -> None:
    """Each limit with the value it was held against."""
    if not assertions:
        return
    out.print()
    mark_width = max(len(_MARKS[result["verdict"]][0]) for result in assertions)
    name_width = max(len(result["name"]) for result in assertions)
    whose = None
    for result in assertions:
        if result["scenario"] != whose:
            whose = result["scenario"]
            out.print(Text(f" {whose}" if whose else " all sessions", "bold"))
        mark, style = _MARKS[result["verdict"]]
        out.print(
            Text.assemble((f" {mark:<{mark_width}}", style), f"  {result['name']:<{name_width}}  {_held(result)}")
        )


def _held(result: Document) -> str:
    """The limit and what was found.

    >>> _held({"name": "p95_ttfa_ms", "limit": 900.0, "actual": 1170.4, "verdict": "fail"})
    'limit <= 900 ms, actual 1170.4 ms'
    """
    unit = " ms" if result["name"].endswith("_ms") else ""
    sign = ">=" if result["name"].startswith("min_") else "<="
    actual = "not measured" if result["actual"] is None else f"actual {number(result['actual'])}{unit}"
    text = f"limit {sign} {number(result['limit'])}{unit}, {actual}"
    if result["verdict"] == "cant_tell":
        reliable = result["actual_reliable"]
        without = "nothing" if reliable is None else f"{number(reliable)}{unit}"
        text += f", without unreliable turns {without}"
    return text
