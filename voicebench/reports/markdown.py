"""`report.md`: the report for pull requests and job summaries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from voicebench.reports import digest
from voicebench.words import NOTHING, shortened

MAX_BYTES = 60_000
INCIDENTS_SHOWN = 15
LONGEST_WORDS = 200
_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+!|~&-])")


def render_markdown(report: Mapping[str, Any], details: Mapping[str, str]) -> str:
    """The verdict first, then limits, numbers, accounting, turns, failures, workers.

    Args:
        report: docs/report.md.
        details: An example for each reason of failure.
    """
    text = "\n".join(_lines(report, details)) + "\n"
    if len(text.encode()) <= MAX_BYTES:
        return text
    cut = text.encode()[: MAX_BYTES - 200].decode("utf-8", "ignore").rpartition("\n")[0]
    return f"{cut}\n\nThis is not all of it: report.json has the rest.\n"


def _lines(report: Mapping[str, Any], details: Mapping[str, str]) -> Iterable[str]:
    run, account = report["run"], report["accounting"]
    yield f"# {digest.VERDICTS[run['verdict']]}: {plain(run['name'])}"
    yield ""
    yield f"{digest.headline(report)}. Exit code {run['exit_code']}."
    for sentence in [*digest.warnings(report), *run["reasons"]]:
        yield f"- {plain(sentence)}"
    yield ""
    limits = digest.limit_rows(report)
    if limits:
        yield "## Assertions"
        yield ""
        yield from table(
            ("", "assertion", "limit", "actual", "reliable turns only"),
            [
                (
                    row.word,
                    row.name + (f" of {row.scenario}" if row.scenario else ""),
                    row.limit,
                    row.actual,
                    row.reliable,
                )
                for row in limits
            ],
        )
    summary = report["summary"]
    rows = digest.distribution_rows(summary)
    yield "## Numbers"
    yield ""
    if rows:
        yield from table(("", "n", "p50", "p90", "p95", "p99", "max"), rows)
        if digest.has_few(rows):
            yield f"{plain(digest.FEW)} of few values: a p95 wants 20, a p99 100."
            yield ""
    yield from table(("", "share", ""), digest.rate_rows(summary)) if summary["turns"] else ("No turn was judged.", "")
    yield "## Sessions"
    yield ""
    yield f"{digest.account_line(account)}."
    for reason, times in account["reasons"].items():
        detail = f": {plain(details[reason])}" if details.get(reason) else ""
        yield f"- {times:,} {plain(reason)}{detail}"
    yield ""
    for name, document in report["by_scenario"].items():
        yield f"## Turns of {plain(name)}"
        yield ""
        yield from table(
            ("turn", "expect", "judged", "passed", "p50", "p95", "p99", "max", "first audio p95", "WER"),
            [
                (
                    row.id,
                    row.expect,
                    row.judged,
                    row.good,
                    row.p50,
                    row.p95,
                    row.p99,
                    row.longest,
                    row.first_audio,
                    row.wer,
                )
                for row in digest.turn_rows(document["by_turn"])
            ],
        )
    yield from _incidents("Failed sessions", digest.failed_sessions(report, {}))
    yield from _incidents("Turns that did not pass", digest.broken_turns(report, {}))
    yield "## Workers"
    yield ""
    keys = ("name", "state", "started", "failed", "lost", "unreliable", "late_p99", "late_max", "cpu", "why")
    yield from table(
        ("worker", "state", "started", "failed", "lost", "unreliable turns", "frames late p99", "max", "CPU", ""),
        [[row[key] for key in keys] for row in digest.worker_rows(report)],
    )
    for note in run["notes"]:
        yield f"- {plain(note)}"


def _incidents(title: str, incidents: Sequence[digest.Incident]) -> Iterable[str]:
    if not incidents:
        return
    yield f"## {title}"
    yield ""
    yield from table(
        ("session", "turn", "what", "started", "worker"),
        [(each.session_id, each.where, each.what, each.when, each.worker) for each in incidents[:INCIDENTS_SHOWN]],
    )
    if len(incidents) > INCIDENTS_SHOWN:
        yield f"And {len(incidents) - INCIDENTS_SHOWN:,} more."
        yield ""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    """A table, with an empty line behind it."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(plain(cell) or NOTHING for cell in row)} |"
    yield ""


def plain(text: str) -> str:
    """Somebody's words as words: no markup, no link, nobody mentioned, one line.

    >>> plain("<b>|x|</b> @all https://a.b"), plain("a\\nb")
    ('\\\\<b\\\\>\\\\|x\\\\|\\\\</b\\\\> @\\u200ball https:\\u200b//a.b', 'a b')
    """
    line = " ".join("".join(each if each.isprintable() else " " for each in shortened(text, LONGEST_WORDS)).split())
    escaped = _SPECIAL.sub(r"\\\1", line)
    return re.sub(r"\b(www)\.", "\\1\N{ZERO WIDTH SPACE}.", escaped.replace("@", "@\N{ZERO WIDTH SPACE}")).replace(
        "://", ":\N{ZERO WIDTH SPACE}//"
    )
