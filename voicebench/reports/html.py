"""`report.html`: one file that needs nothing else, and no script to be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from voicebench.reports import digest, figures, incidents
from voicebench.reports.charts import WRONG, calls_chart, latency_chart, wrong_chart
from voicebench.reports.foreign import shown, shown_lines
from voicebench.reports.kept import Kept
from voicebench.reports.turn_tables import turn_tables
from voicebench.reports.waves import session_picture
from voicebench.words import count, duration

EVENTS_SHOWN = 500
WORKERS_SHOWN = 500
INCIDENTS_SHOWN = 50
TURNS_SHOWN = 400
"""Of one scenario."""
LONGEST_PLAN = 200_000
LONGEST_TRANSCRIPT = 240
CARDS_SHOWN = 60
"""Turns of one recorded session that are told in words."""


@dataclass(frozen=True, slots=True)
class Card:
    """One turn of a recorded session, in words."""

    id: str
    kind: str
    came: str
    transcript: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded session as the page has it."""

    anchor: str
    session: Mapping[str, Any]
    tags: tuple[tuple[str, str], ...]
    picture: Markup | None
    why: str
    cards: tuple[Card, ...]
    n_turns: int


def render_html(report: Mapping[str, Any], details: Mapping[str, str], kept: Iterable[Kept]) -> bytes:
    """The whole report.

    Args:
        report: docs/report.md.
        details: An example for each reason of failure.
        kept: Recorded sessions, the worst first; taken one at a time, since each holds its audio.
    """
    recorded = [_recorded(each, place) for place, each in enumerate(kept, 1)]
    rows = figures.distribution_rows(report)
    tiles, strip = figures.tiles(report), figures.strip(report)
    values = [cell for row in rows for cell in row] + [each.value for each in tiles + strip]
    text = _template().render(
        report=report,
        run=report["run"],
        account=report["accounting"],
        verdict=digest.verdict_word(report),
        headline=digest.headline(report),
        warnings=digest.warnings(report),
        reasons=digest.reasons(report),
        limits=digest.limit_rows(report),
        tiles=tiles,
        strip=strip,
        rows=rows,
        few=figures.has_few(values + [value for tile in tiles for _, value in tile.further]),
        account_line=digest.account_line(report["accounting"]),
        account_notes=digest.account_notes(report["accounting"]),
        shares=_shares(report["accounting"]),
        reason_rows=digest.reason_rows(report["accounting"], details),
        charts=_charts(report),
        tables=turn_tables(report),
        turns_shown=TURNS_SHOWN,
        incidents=_incidents(report),
        anchors={each.session["session_id"]: each.anchor for each in recorded},
        recorded=recorded,
        n_recorded=sum(1 for session in report["sessions"] if session.get("bundle")),
        cards_shown=CARDS_SHOWN,
        workers=digest.worker_rows(report)[:WORKERS_SHOWN],
        events=report["events"][-EVENTS_SHOWN:],
        plan=_plan(report["run"]["plan"]),
    )
    return text.encode("utf-8", "replace")


def _incidents(report: Mapping[str, Any]) -> list[tuple[str, list[incidents.Incident], int]]:
    """Title, those that are shown, how many there are."""
    found = [
        ("Sessions that failed", incidents.failed_sessions(report)),
        ("Turns that did not pass", incidents.broken_turns(report)),
        ("Slowest answers", incidents.slowest_turns(report)),
    ]
    return [(title, each[:INCIDENTS_SHOWN], len(each)) for title, each in found if each]


def _charts(report: Mapping[str, Any]) -> list[tuple[str, str, Markup | None, tuple[tuple[str, str], ...]]]:
    """Title, what is drawn, the picture if there is one, and a key of colours."""
    timeline = report.get("timeline")
    if not timeline or not timeline["t_s"]:
        return []
    limits = {each["name"]: each["limit"] for each in report["assertions"] if each["scenario"] is None}
    window = duration(timeline["window_s"])
    key = tuple((label, kind) for name, label, kind in WRONG if any(timeline[name]))
    found = [
        ("Response latency", f"percentiles, windows of {window}; wider ones where values are few; ms",
         latency_chart(timeline, limits), ()),
        ("Concurrent calls", "and call starts per second", calls_chart(timeline), ()),
        ("What went wrong", f"count per {window}", wrong_chart(timeline), key),
    ]  # fmt: skip
    if found[0][2] is None:
        found[0] = ("Response latency", "too few answers for percentiles over time: 20 within a minute", None, ())
    return [each for each in found if each[2] is not None or each is found[0]]


def _shares(account: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Of 100, for the bar."""
    started = account["started"]
    return [(state, 100 * account[state] / started) for state in digest.STATES if started and account[state]]


def _recorded(kept: Kept, place: int) -> Recorded:
    session, key = kept.session, f"wave-{place}"
    turns = session["turns"]
    return Recorded(
        anchor=f"session-{place}",
        session=session,
        tags=tuple(_tags(session)),
        picture=None if kept.recording is None else session_picture(kept.recording, session, key),
        why=kept.why,
        cards=tuple(_card(turn) for turn in turns[:CARDS_SHOWN]),
        n_turns=len(turns),
    )


def _tags(session: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    outcome, turns = session["outcome"], session["turns"]
    if outcome["state"] != "finished":
        yield "bad", outcome["reason"] or outcome["state"]
    missed = sum(turn["status"] == "missed" for turn in turns)
    wrong = sum(incidents.is_broken(turn) for turn in turns) - missed
    if missed:
        yield "bad", f"{missed:,} missed"
    if wrong:
        yield "bad", f"{count(wrong, 'turn')} failed"
    if not missed and not wrong and outcome["state"] == "finished":
        yield "good", "all turns passed"
    yield ("mute", "reliable") if session["reliable"] else ("warn", "unreliable")


def _card(turn: Mapping[str, Any]) -> Card:
    dull = turn["status"] in ("not_played", "unfinished")
    kind = "mute" if dull else "good" if turn["passed"] else "bad"
    return Card(turn["id"], kind, incidents.what_came(turn), turn["transcript"] or "")


def _plan(documents: Mapping[str, Any]) -> str:
    """The plan and its scenarios as files would have them."""
    parts = [documents["plan"], *documents["scenarios"]] if documents.get("scenarios") else [documents]
    unlike = [part for place, part in enumerate(parts) if part not in parts[:place]]
    text = "---\n".join(yaml.safe_dump(part, sort_keys=False, allow_unicode=True, width=100) for part in unlike)
    rest = "\n# report.json has the rest" if len(text) > LONGEST_PLAN else ""
    return shown_lines(text, LONGEST_PLAN) + rest


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("voicebench.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(words=shown, counted=count, said=_said)
    return environment.get_template("report.html.j2")


def _said(transcript: str) -> str:
    return shown(transcript, LONGEST_TRANSCRIPT)
