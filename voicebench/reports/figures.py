"""The numbers that a report begins with: over all turns, and beside them without the unreliable ones, if they differ.

Nothing is computed here but shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from voicebench.distribution import FEW_FOR_P95, FEW_FOR_P99
from voicebench.reports.digest import relation
from voicebench.words import NOTHING, ms, share

Document = Mapping[str, Any]
FEW = "*"
SHOWN = ("p50", "p90", "p95", "p99", "max")
DISTRIBUTIONS = (
    ("Response latency", "response_latency_ms"),
    ("Time to first audio", "ttfa_ms"),
    ("Barge-in stop time", "barge_in_stop_ms"),
)
_LATE = ("p50_response_latency_ms", "p90_response_latency_ms", "p95_response_latency_ms", "p99_response_latency_ms")


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a run."""

    name: str
    value: str
    of: str
    """What it is a share or a percentile of."""
    further: tuple[tuple[str, str], ...] = ()
    limits: tuple[str, ...] = ()
    """Assertions that hold it to something."""
    reliable: str = ""
    """The value without unreliable turns; empty where that is the same."""
    tags: tuple[tuple[str, str], ...] = ()
    """Verdict and words of the assertions of the whole run."""


def percentile(values: Document, name: str) -> str:
    """A value of a distribution, marked where it is a percentile of few.

    >>> percentile({"count": 1, "p95": 100.0}, "p95")
    '100 ms*'
    """
    enough = FEW_FOR_P99 if name == "p99" else FEW_FOR_P95 if name == "p95" else 0
    return ms(values[name]) + (FEW if 0 < values["count"] < enough and values[name] is not None else "")


def has_few(values: Sequence[str]) -> bool:
    """Whether any of them is marked as a percentile of few."""
    return any(value.endswith(FEW) for value in values)


def tiles(report: Document) -> list[Figure]:
    """What matters most."""
    found = _beside(_tiles(report["summary"]), _tiles(report["summary_reliable"]))
    assertions = [each for each in report["assertions"] if each["scenario"] is None]
    return [replace(each, tags=tuple(_tags(each, assertions))) for each in found]


def strip(report: Document) -> list[Figure]:
    """What else is worth a glance."""
    return _beside(_strip(report["summary"]), _strip(report["summary_reliable"]))


def distribution_rows(report: Document) -> list[tuple[str, ...]]:
    """Name, n, p50 to p99 and max of whatever was measured at all; reliable turns on a line of their own."""
    rows = []
    for label, key in DISTRIBUTIONS:
        every, reliable = report["summary"][key], report["summary_reliable"][key]
        if every["count"]:
            rows.append(_row(label, every))
            if reliable != every:
                rows.append(_row(f"{label}, reliable turns", reliable))
    return rows


def _row(label: str, values: Document) -> tuple[str, ...]:
    return (label, f"{values['count']:,}", *(percentile(values, name) for name in SHOWN))


def _tiles(summary: Document) -> Iterator[Figure]:
    late, stop = summary["response_latency_ms"], summary["barge_in_stop_ms"]
    yield Figure(
        "Response latency p95",
        percentile(late, "p95"),
        f"n {late['count']:,}",
        tuple((name, percentile(late, name)) for name in ("p50", "p90", "p99")),
        _LATE,
    )
    yield Figure(
        "Barge-in success",
        share(summary["barge_in_success_rate"]),
        f"of {summary['barge_in_turns']:,}",
        (("stops in p50", ms(stop["p50"])), ("p95", percentile(stop, "p95"))),
        ("min_barge_in_success_rate",),
    )
    respond = late["count"] + summary["missed_responses"]
    yield Figure(
        "Missed responses",
        _share(summary["missed_responses"], respond),
        _of(summary["missed_responses"], respond),
        (("talk-overs", f"{summary['talk_overs']:,}" if respond else NOTHING),),
        ("max_missed_responses",),
    )
    yield Figure(
        "Failed sessions",
        share(summary["failed_session_rate"]),
        f"of {summary['sessions']:,}",
        (("turns passed", _of(summary["turns_passed"], summary["turns"])),),
        ("max_failed_session_rate",),
    )


def _strip(summary: Document) -> Iterator[Figure]:
    first, stop, noises = summary["ttfa_ms"], summary["barge_in_stop_ms"], summary["noise_turns"]
    judged = summary["turns"] - summary["not_played_turns"] - summary["unfinished_turns"]
    yield Figure("First audio p95", percentile(first, "p95"), f"n {first['count']:,}")
    yield Figure("Stop time p95", percentile(stop, "p95"), f"n {stop['count']:,}")
    for name, key in (("False barge-ins", "false_barge_ins"), ("Spurious responses", "spurious_responses")):
        yield Figure(name, *_counted(summary[key], noises))
    yield Figure("Word error rate", share(summary["mean_wer"]), f"pooled {share(summary['pooled_wer'])}")
    yield Figure("Turns not played", *_counted(summary["not_played_turns"], summary["turns"]))
    yield Figure("Turns unfinished", *_counted(summary["unfinished_turns"], summary["turns"]))
    yield Figure("Unreliable turns", *_counted(summary["unreliable_turns"], judged))


def _counted(part: int, of: int) -> tuple[str, str]:
    return _share(part, of), _of(part, of)


def _of(part: int, of: int) -> str:
    return f"{part:,} of {of:,}" if of else "of none"


def _share(part: int, of: int) -> str:
    return share(round(part / of, 4)) if of else NOTHING


_OF_ALL = ("Failed sessions", "Turns not played", "Turns unfinished", "Unreliable turns")
"""These say nothing about single turns, or speak of the unreliable ones themselves."""


def _beside(every: Iterator[Figure], reliable: Iterator[Figure]) -> list[Figure]:
    return [
        one if one.name in _OF_ALL or (one.value, one.further) == (other.value, other.further) else _with(one, other)
        for one, other in zip(every, reliable, strict=True)
    ]


def _with(one: Figure, other: Figure) -> Figure:
    differ = [
        f"{name} {value}" for (name, value), own in zip(other.further, one.further, strict=True) if value != own[1]
    ]
    value = [other.value] if other.value != one.value else []
    return replace(one, reliable=", ".join(value + differ))


def _tags(figure: Figure, assertions: Sequence[Document]) -> Iterator[tuple[str, str]]:
    for each in assertions:
        if each["name"] in figure.limits:
            which = "" if each["name"][:3] in (figure.name[-3:], "max", "min") else f"{each['name'][:3]} "
            limit = f"{each['limit']:,.10g}"
            yield each["verdict"], f"{which}{relation(each['name'])} {limit}"
