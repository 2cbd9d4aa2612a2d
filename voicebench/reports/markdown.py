"""`report.md`: the report for pull requests and job summaries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from voicebench.reports import digest, figures, incidents
from voicebench.reports.foreign import shown
from voicebench.reports.turn_tables import TurnTable, turn_tables
from voicebench.words import NOTHING

MAX_BYTES = 60_000
INCIDENTS_SHOWN = 15
LIMITS_SHOWN = 100
TURNS_SHOWN = 60
WORKERS_SHOWN = 30
NOTES_SHOWN = 20
LONGEST_WORDS = 200
_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+!|~&$-])")
_HIDDEN = "\N{ZERO WIDTH SPACE}"
Lines = Iterator[str]


def render_markdown(report: Mapping[str, Any], details: Mapping[str, str]) -> str:
    """The verdict first, then limits, numbers, accounting, turns, failures, workers.

    Args:
        report: docs/report.md.
        details: An example for each reason of failure.
    """
    text = "\n".join(_lines(report, details)) + "\n"
    content = text.encode("utf-8", "replace")
    if len(content) <= MAX_BYTES:
        return text
    cut = content[: MAX_BYTES - 200].decode("utf-8", "ignore").rpartition("\n")[0]
    return f"{cut}\n\nThis is not all of it: report.json has the rest.\n"


def _lines(report: Mapping[str, Any], details: Mapping[str, str]) -> Lines:
    yield from _verdict(report)
    yield from _limits(report)
    yield from _numbers(report)
    yield from _account(report, details)
    for each in turn_tables(report):
        yield from _turns(each)
    yield from _incidents("Sessions that failed", incidents.failed_sessions(report))
    yield from _incidents("Turns that did not pass", incidents.broken_turns(report))
    yield from _workers(report)


def _verdict(report: Mapping[str, Any]) -> Lines:
    run = report["run"]
    yield f"# {digest.verdict_word(report)}: {plain(run['name'])}"
    yield ""
    yield f"{digest.headline(report)}. Exit code {run['exit_code']}."
    yield ""
    for warning in digest.warnings(report):
        yield f"> **{plain(warning)}**"
        yield ""
    yield from bullets(digest.reasons(report))


def _limits(report: Mapping[str, Any]) -> Lines:
    rows = digest.limit_rows(report)
    if rows:
        yield from heading("Assertions")
        names = [row.name + (f" of {row.scenario}" if row.scenario else "") for row in rows]
        cells = [(row.word, name, row.limit, row.actual, row.reliable or "the same")
                 for row, name in zip(rows, names, strict=True)]  # fmt: skip
        yield from table(("verdict", "assertion", "limit", "actual", "reliable turns only"), cells, LIMITS_SHOWN)


def _numbers(report: Mapping[str, Any]) -> Lines:
    yield from heading("Numbers")
    if not report["summary"]["turns"]:
        yield "No turn was judged."
        yield ""
        return
    rows = figures.distribution_rows(report)
    if rows:
        yield from table(("time", "n", *figures.SHOWN), rows)
        if figures.has_few([cell for row in rows for cell in row]):
            yield f"{plain(figures.FEW)} of few values: a p95 wants 20, a p99 100."
            yield ""
    told = [each for each in figures.tiles(report) + figures.strip(report) if not each.name.endswith("p95")]
    yield from table(("", "share", "", "reliable turns only"),
                     [(each.name, each.value, each.of, each.reliable or "the same") for each in told])  # fmt: skip


def _account(report: Mapping[str, Any], details: Mapping[str, str]) -> Lines:
    account = report["accounting"]
    yield from heading("Sessions")
    yield f"{digest.account_line(account)}."
    yield ""
    yield from bullets(digest.account_notes(account))
    rows = digest.reason_rows(account, details)
    if rows:
        yield from table(("why they failed", "sessions", "what the first of them said"), rows)


def _turns(each: TurnTable) -> Lines:
    yield from heading(f"Turns of {each.scenario}")
    cells = [
        (row.id, row.expect, row.judged, row.passed, row.missed, *row.times, row.first_audio, row.wer)
        for row in each.rows
    ]
    columns = ("turn", "expect", "judged", "passed", "missed", *figures.SHOWN, "first audio p95", "WER")
    yield from table(columns, cells, TURNS_SHOWN)


def _incidents(title: str, found: Sequence[incidents.Incident]) -> Lines:
    if found:
        yield from heading(title)
        cells = [(each.session_id, each.turn, each.what, each.when, each.worker) for each in found[:INCIDENTS_SHOWN]]
        yield from table(
            ("session", "turn", "what happened", "started", "worker"), cells, left_out=len(found) - len(cells)
        )


def _workers(report: Mapping[str, Any]) -> Lines:
    yield from heading("Workers")
    cells = [
        (row.name, row.host, row.state, row.started, row.failed, row.lost, row.unreliable, row.late_p99, row.late_max,
         row.cpu, row.why)
        for row in digest.worker_rows(report)
    ]  # fmt: skip
    columns = ("worker", "host", "state", "started", "failed", "lost", "unreliable turns", "frames late p99", "max")
    yield from table((*columns, "CPU", "why"), cells, WORKERS_SHOWN)
    yield from bullets(report["run"]["notes"])


def heading(title: str) -> Lines:
    """A heading, with an empty line behind it."""
    yield f"## {plain(title)}"
    yield ""


def bullets(sentences: Sequence[str]) -> Lines:
    """Sentences as a list, with an empty line behind it."""
    for sentence in sentences[:NOTES_SHOWN]:
        yield f"- {plain(sentence)}"
    if len(sentences) > NOTES_SHOWN:
        yield f"- and {len(sentences) - NOTES_SHOWN:,} more"
    if sentences:
        yield ""


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], longest: int | None = None, *, left_out: int = 0
) -> Lines:
    """A table, with an empty line behind it; what is too long for it is said to be missing."""
    rows = list(rows)
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows[:longest]:
        yield f"| {' | '.join(plain(cell) or NOTHING for cell in row)} |"
    yield ""
    left_out += len(rows) - len(rows[:longest])
    if left_out:
        yield f"And {left_out:,} more."
        yield ""


def plain(text: str) -> str:
    """Somebody's words as words: no markup, no link, nobody mentioned, one line.

    >>> plain("<b>|x|</b> @all https://a.b"), plain("a\\nb")
    ('\\\\<b\\\\>\\\\|x\\\\|\\\\</b\\\\> @\\u200ball https:\\u200b//a.b', 'a b')
    """
    line = " ".join(shown(text, LONGEST_WORDS).split())
    escaped = _SPECIAL.sub(r"\\\1", line)
    apart = re.sub(r"(?i)\b(www|mailto:|xmpp:)", rf"\1{_HIDDEN}", escaped.replace("@", f"@{_HIDDEN}"))
    return re.sub(r"(?<=[#])(?=\d)|(?i:(?<=\bGH\\-))(?=\d)", _HIDDEN, apart.replace("://", f":{_HIDDEN}//"))
