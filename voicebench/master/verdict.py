"""What a run comes to: one verdict, the reasons for it, one exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from voicebench.assertions import AssertionResult

Verdict = Literal["pass", "fail", "cant_tell", "untrusted", "incomplete", "unreachable", "interrupted"]

EXIT_UNREACHABLE, EXIT_UNTRUSTED, EXIT_FAIL = 3, 4, 1


@dataclass(frozen=True, slots=True)
class RunEnd:
    """Everything the verdict depends on."""

    assertions: Sequence[AssertionResult]
    started: int
    accounted: int
    with_frames: int
    """Sessions that sent at least one frame."""
    failed: int
    lost: int
    overloaded: bool
    generator_failures: int
    """Of the failed ones, those by our own fault."""
    signal_exit: int | None
    """130 or 143 when a signal ended the run."""
    trouble: tuple[str, ...] = ()
    """What else went wrong on our side (a recording that could not be written)."""
    aborted: str | None = None
    """What ended the run before its time, on our side."""
    missing: tuple[str, ...] = ()
    """What went missing with workers that were lost, a sentence each."""
    going_on: bool = False
    """The run has not ended: what is not accounted for may still come."""


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """`complete` is false when sessions are missing, or a signal or an error of our own ended the run early."""

    verdict: Verdict
    exit_code: int
    complete: bool
    reasons: tuple[str, ...]


def judge(end: RunEnd) -> RunVerdict:
    """The verdict of a run. When several exit codes hold: 3, 4, 130/143, 1."""
    whole = end.accounted == end.started and end.lost == 0 and not end.missing
    complete = whole and end.signal_exit is None and end.aborted is None and not end.going_on
    found = [*_unreachable(end), *_incomplete(end), *_untrusted(end), *_interrupted(end), *_limits(end)]
    if not found:
        return RunVerdict("pass", 0, complete, ())
    verdict, exit_code, _ = found[0]
    return RunVerdict(verdict, exit_code, complete, tuple(reason for _, _, reason in found))


_Finding = tuple[Verdict, int, str]


def _unreachable(end: RunEnd) -> list[_Finding]:
    if end.with_frames or end.signal_exit is not None or end.aborted is not None or end.going_on:
        return []
    if end.failed > end.generator_failures:
        why = "no session got as far as its first frame: the agent was not reached"
        return [("unreachable", EXIT_UNREACHABLE, why)]
    return []


def _incomplete(end: RunEnd) -> list[_Finding]:
    found: list[_Finding] = []
    if end.going_on:
        open_sessions = end.started - end.accounted
        why = f"the run is still going on: {open_sessions} sessions have started and are not in these numbers yet"
        return [("incomplete", EXIT_UNTRUSTED, why), *[("incomplete", EXIT_UNTRUSTED, why) for why in end.missing]]
    if end.aborted is not None:
        found.append(("incomplete", EXIT_UNTRUSTED, f"the run ended before its time: {end.aborted}"))
    if end.accounted != end.started or end.lost:
        missing = end.started - end.accounted + end.lost
        found.append(("incomplete", EXIT_UNTRUSTED, f"{missing} started sessions are missing from these numbers"))
    found += [("incomplete", EXIT_UNTRUSTED, why) for why in end.missing]
    if end.started and not end.with_frames and not end.failed and end.signal_exit is None:
        found.append(
            ("incomplete", EXIT_UNTRUSTED, "every session was cut before its first frame: nothing was measured")
        )
    return found


def _untrusted(end: RunEnd) -> list[_Finding]:
    found: list[_Finding] = []
    if end.overloaded:
        why = "generator overloaded: more than 1 % of the turns are unreliable, because this machine sent or read late"
        found.append(("untrusted", EXIT_UNTRUSTED, why))
    if end.generator_failures:
        why = f"{end.generator_failures} sessions failed by the load generator's own fault"
        found.append(("untrusted", EXIT_UNTRUSTED, why))
    found += [("incomplete", EXIT_UNTRUSTED, why) for why in end.trouble]
    for result in end.assertions:
        if result.verdict == "cant_tell":
            why = f"{result.name}: can't tell, the verdict hangs on unreliable turns"
            found.append(("cant_tell", EXIT_UNTRUSTED, why))
    return found


def _interrupted(end: RunEnd) -> list[_Finding]:
    if end.signal_exit is None:
        return []
    return [("interrupted", end.signal_exit, "ended early by a signal")]


def _limits(end: RunEnd) -> list[_Finding]:
    broken: list[_Finding] = []
    if end.failed and end.failed == end.accounted and not end.going_on:
        # Limits or not: nobody would call that a pass.
        broken.append(("fail", EXIT_FAIL, "every session failed"))
    return broken + [
        ("fail", EXIT_FAIL, f"{result.name}: {_found(result.actual)}, the limit is {result.limit:g}")
        for result in end.assertions
        if result.verdict == "fail"
    ]


def _found(actual: float | None) -> str:
    return "nothing was measured" if actual is None else f"{actual:g}"
