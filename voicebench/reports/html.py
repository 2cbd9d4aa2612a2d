"""`report.html`: one file that needs nothing else, and no script to be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from voicebench.reports import digest
from voicebench.reports.charts import WRONG, calls_chart, latency_chart, wrong_chart
from voicebench.reports.kept import Kept
from voicebench.reports.waves import session_picture, what_came
from voicebench.words import count, duration, ms, number, share

EVENTS_SHOWN = 500
LONGEST_PLAN = 200_000
LONGEST_WORDS = 600


def render_html(report: Mapping[str, Any], details: Mapping[str, str], kept: Sequence[Kept]) -> bytes:
    """The whole report.

    Args:
        report: docs/report.md.
        details: An example for each reason of failure.
        kept: Recorded sessions, the worst first.
    """
    anchors = {each.session["session_id"]: f"session-{n}" for n, each in enumerate(kept, 1)}
    failed, broken = digest.failed_sessions(report, anchors), digest.broken_turns(report, anchors)
    rows = digest.distribution_rows(report["summary"])
    text = _template().render(
        report=report,
        run=report["run"],
        account=report["accounting"],
        verdict=digest.VERDICTS[report["run"]["verdict"]],
        headline=digest.headline(report),
        warnings=digest.warnings(report),
        limits=digest.limit_rows(report),
        rows=rows,
        few=digest.has_few(rows),
        rates=digest.rate_rows(report["summary"]),
        account_line=digest.account_line(report["accounting"]),
        shares=_shares(report["accounting"]),
        details=details,
        charts=_charts(report),
        wrong=WRONG,
        scenarios={name: digest.turn_rows(each["by_turn"]) for name, each in report["by_scenario"].items()},
        incidents=[
            ("Sessions that failed", failed[: digest.FAILURES_SHOWN], len(failed)),
            ("Turns that did not pass", broken[: digest.FAILURES_SHOWN], len(broken)),
            ("Slowest answers", digest.slowest_turns(report, anchors), 0),
        ],
        sessions=[
            (f"session-{n}", each, _picture(each, f"wave-{n}"), [what_came(turn) for turn in each.session["turns"]])
            for n, each in enumerate(kept, 1)
        ],
        workers=digest.worker_rows(report),
        events=report["events"][-EVENTS_SHOWN:],
        plan=_plan(report["run"]["plan"]),
    )
    return text.encode("utf-8", "replace")


def _charts(report: Mapping[str, Any]) -> list[tuple[str, str, Markup]]:
    timeline = report.get("timeline")
    if not timeline or not timeline["t_s"]:
        return []
    limits = {each["name"]: each["limit"] for each in report["assertions"] if each["scenario"] is None}
    window = duration(timeline["window_s"])
    found = [
        ("Response latency", f"percentiles of windows of {window}", latency_chart(timeline, limits)),
        ("Concurrent calls", "and call starts per second", calls_chart(timeline)),
        ("What went wrong", f"count per {window}", wrong_chart(timeline)),
    ]
    return [(title, words, chart) for title, words, chart in found if chart is not None]


def _shares(account: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Of 100, for the bar."""
    states = ("finished", "failed", "cut", "lost")
    return [
        (state, 100 * account[state] / account["started"]) for state in states if account["started"] and account[state]
    ]


def _picture(kept: Kept, key: str) -> Markup | None:
    return None if kept.recording is None else session_picture(kept.recording, kept.session, key)


def _plan(documents: Mapping[str, Any]) -> str:
    """The plan and its scenarios as files would have them."""
    parts = [documents["plan"], *documents["scenarios"]] if documents.get("scenarios") else [documents]
    unlike = [part for n, part in enumerate(parts) if part not in parts[:n]]
    text = "---\n".join(yaml.safe_dump(part, sort_keys=False, allow_unicode=True, width=100) for part in unlike)
    rest = "\n# report.json has the rest" if len(text) > LONGEST_PLAN else ""
    return _visible(text[:LONGEST_PLAN]) + rest


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("voicebench.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(count=count, ms=ms, number=number, share=share, words=_bounded)
    return environment.get_template("report.html.j2")


def _bounded(text: str | None) -> str:
    """Somebody's words, not too many of them."""
    kept = _visible((text or "")[: LONGEST_WORDS + 1])
    return kept if len(kept) <= LONGEST_WORDS else kept[: LONGEST_WORDS - 1] + "…"


def _visible(text: str) -> str:
    """Without characters that are not seen, or turn the text around them."""
    return "".join(each if each.isprintable() or each in "\n\t" else "\N{REPLACEMENT CHARACTER}" for each in text)
