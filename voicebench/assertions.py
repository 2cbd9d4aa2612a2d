"""Limits on a summary: pass, fail, or can't tell. A limit on a value that does not exist fails."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from voicebench.distribution import Distribution, without_noise
from voicebench.summary import Tally

Verdict = Literal["pass", "fail", "cant_tell"]

DISTRIBUTIONS = ("response_latency_ms", "ttfa_ms", "barge_in_stop_ms")
_STATISTIC = re.compile(
    r"(?P<stat>mean|max|p(?P<percent>\d{1,2}(?:\.\d+)?))_(?P<metric>" + "|".join(DISTRIBUTIONS) + ")"
)

_NAMED: dict[str, Callable[[Tally], float | None]] = {
    "min_barge_in_success_rate": lambda tally: tally.barge_in_success_rate,
    "max_false_barge_ins": lambda tally: tally.counts["false_barge_ins"],
    "max_spurious_responses": lambda tally: tally.counts["spurious_responses"],
    "max_missed_responses": lambda tally: tally.counts["missed_responses"],
    "max_talk_overs": lambda tally: tally.counts["talk_overs"],
    "max_wer": lambda tally: tally.mean_wer,
    "max_failed_session_rate": lambda tally: tally.failed_session_rate,
    "max_unreliable_turn_rate": lambda tally: tally.unreliable_turn_rate,
}
_ABOUT_ALL = ("max_failed_session_rate", "max_unreliable_turn_rate")
"""Sessions and our own lateness: leaving unreliable turns out would make these meaningless."""

EXAMPLES = tuple(f"{stat}_{metric}" for metric in DISTRIBUTIONS for stat in ("mean", "max", "p50", "p90", "p95", "p99"))


@dataclass(frozen=True, slots=True)
class AssertionResult:
    """One limit as judged. `actual` is of all turns; `actual_reliable` leaves unreliable ones out; `scenario` names the
    scenario whose sessions the limit speaks of, None for all sessions."""

    name: str
    limit: float
    actual: float | None
    passed: bool
    verdict: Verdict
    actual_reliable: float | None
    scenario: str | None = None

    def as_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "limit": self.limit,
            "actual": self.actual,
            "passed": self.passed,
            "verdict": self.verdict,
            "actual_reliable": self.actual_reliable,
            "scenario": self.scenario,
        }


def explain_unknown(name: str) -> str | None:
    """None when the name is an assertion, else a sentence that says what would be right.

    >>> explain_unknown("p95_response_latency_ms")
    >>> explain_unknown("max_wer_rate")
    "'max_wer_rate' is not an assertion. Did you mean 'max_wer'?"
    """
    if name in _NAMED or _STATISTIC.fullmatch(name):
        return None
    near = difflib.get_close_matches(name, [*_NAMED, *EXAMPLES], n=1)
    if near:
        return f"{name!r} is not an assertion. Did you mean {near[0]!r}?"
    return (
        f"{name!r} is not an assertion: write mean, max or pNN before one of {', '.join(DISTRIBUTIONS)}, "
        f"or one of {', '.join(_NAMED)}"
    )


def is_rate(name: str) -> bool:
    """Whether the limit is a share between 0 and 1.

    >>> is_rate("max_failed_session_rate"), is_rate("max_wer")
    (True, False)
    """
    return name.endswith("_rate")


def actual_value(name: str, tally: Tally) -> float | None:
    """The value the limit speaks of; None when it does not exist.

    Raises:
        ValueError: The name is not an assertion.
    """
    if name in _NAMED:
        return _NAMED[name](tally)
    match = _STATISTIC.fullmatch(name)
    if match is None:
        raise ValueError(explain_unknown(name))
    distribution: Distribution = getattr(tally, match["metric"])
    if match["percent"] is not None:
        return distribution.percentile(float(match["percent"]))
    return distribution.mean if match["stat"] == "mean" else distribution.max


def check(
    limits: Mapping[str, float], tally: Tally, reliable: Tally, *, scenario: str | None = None
) -> list[AssertionResult]:
    """Judge every limit on all turns and on the reliable ones.

    Args:
        limits: Assertion name to limit, as in `assert`.
        tally: Of all turns: the headline.
        reliable: Of the reliable turns only.
        scenario: Whose sessions these are, None for all.

    Returns:
        One result a limit, in the order given. Where the two verdicts differ the verdict is "cant_tell" and the
        limit has not passed.
    """
    return [_judge(name, limit, tally, reliable, scenario) for name, limit in limits.items()]


def _judge(name: str, limit: float, tally: Tally, reliable: Tally, scenario: str | None) -> AssertionResult:
    actual = without_noise(actual_value(name, tally))
    actual_reliable = actual if name in _ABOUT_ALL else without_noise(actual_value(name, reliable))
    holds, holds_reliable = _holds(name, limit, actual), _holds(name, limit, actual_reliable)
    verdict: Verdict = "cant_tell" if holds != holds_reliable else "pass" if holds else "fail"
    return AssertionResult(name, limit, actual, verdict == "pass", verdict, actual_reliable, scenario)


def _holds(name: str, limit: float, actual: float | None) -> bool:
    if actual is None:
        return False
    limit = without_noise(limit) or 0.0
    return actual >= limit if name.startswith("min_") else actual <= limit
