"""Advice on a scenario that is valid, and yet will not measure what its author wants."""

from __future__ import annotations

from collections.abc import Iterator

from voicebench.errors import Problem
from voicebench.scenario.mistakes import Mistake, Path
from voicebench.scenario.model import AudioSource, Scenario
from voicebench.scenario.placed import Document

GREETING_TIMEOUT_MS = 5000.0
"""Greetings of real agents last some seconds, and a call takes time to be picked up."""

_ON_AGENT = ("agent_speech_start", "agent_speech_end")


def lint(scenario: Scenario, document: Document | None = None) -> list[Problem]:
    """Warnings: each is true for every agent, and says what to do.

    Args:
        scenario: As it will run, its adapter included.
        document: What it was read from, for lines and columns.

    Returns:
        Warnings in the order of the file; empty when there is nothing to say.
    """
    document = document or Document(None, "")
    return document.problems(
        [
            *_about_starts(scenario),
            *_about_sounds(scenario),
            *_about_expectations(scenario),
            *_about_limits(scenario),
        ]
    )


def _about_starts(scenario: Scenario) -> Iterator[Mistake]:
    for index, turn in enumerate(scenario.turns):
        start, path = turn.start, _at(index, "start")
        waits = start.after in _ON_AGENT
        if index == 0 and start.after == "agent_speech_end" and start.timeout_ms < GREETING_TIMEOUT_MS:
            yield Mistake(
                (*path, "timeout_ms"),
                f"a greeting that takes longer than {start.timeout_ms:g} ms is talked over: allow it "
                f"{GREETING_TIMEOUT_MS:g} ms or more",
            )
        if index > 0 and start.after == "session_start":
            yield Mistake(
                (*path, "after"), "counts from the start of the session: previous_turn_end is what usually fits"
            )
        if waits and start.delay_ms < 0:
            yield Mistake(
                (*path, "delay_ms"), "a turn never starts before its anchor is heard: a negative delay means at once"
            )
        before = scenario.turns[index - 1] if index else None
        if waits and before and before.expect == "respond" and start.timeout_ms < before.response_timeout_ms:
            yield Mistake(
                (*path, "timeout_ms"),
                f"starts after {start.timeout_ms:g} ms without a reply, while turn '{before.id}' may be answered for "
                f"{before.response_timeout_ms:g} ms: a late reply would count as this turn's talk-over. Allow it more",
            )


def _about_sounds(scenario: Scenario) -> Iterator[Mistake]:
    threshold_db = scenario.vad_user.threshold_db
    for index, turn in enumerate(scenario.turns):
        audio, path = turn.audio, _at(index, "audio")
        if turn.expect != "ignore" and _is_unheard(audio, threshold_db):
            yield Mistake(
                path,
                f"is not louder than vad.user.threshold_db ({threshold_db:g} dBFS): the turn counts as never spoken, "
                "and fails",
            )
        if audio.synth == "speech" and turn.expect != "ignore" and scenario.adapter.type != "mock":
            yield Mistake(
                (*path, "synth"),
                "real agents do not take synthetic speech for speech: use clip (a spoken clip that comes with "
                "voicebench) or file",
            )


def _about_expectations(scenario: Scenario) -> Iterator[Mistake]:
    for index, turn in enumerate(scenario.turns):
        if turn.expect == "stop" and turn.start.after != "agent_speech_start":
            yield Mistake(
                _at(index, "expect"),
                "a barge-in needs an agent that is talking: start it after agent_speech_start, or it may fail for "
                "lack of something to stop",
            )
        if turn.expect == "ignore" and turn.text is not None:
            yield Mistake(
                _at(index, "text"),
                "an agent does well not to transcribe what it should ignore, and the word error rate would count that "
                "as missing words: leave text out",
            )


def _about_limits(scenario: Scenario) -> Iterator[Mistake]:
    expected = {turn.expect for turn in scenario.turns}
    for name in scenario.limits:
        lacking = None
        if name == "max_wer" and all(turn.text is None for turn in scenario.turns):
            lacking = "no turn has a text"
        elif "barge_in_s" in name and "stop" not in expected:
            lacking = "no turn has expect: stop"
        elif name.endswith(("_response_latency_ms", "_ttfa_ms")) and "respond" not in expected:
            lacking = "no turn has expect: respond"
        if lacking:
            yield Mistake(("assert", name), f"can only fail: {lacking}, so there will be no value", at_key=True)


def _is_unheard(audio: AudioSource, threshold_db: float) -> bool:
    return audio.synth == "silence" or (audio.synth is not None and audio.level_db < threshold_db)


def _at(index: int, key: str) -> Path:
    return ("turns", index, key)


def talk_time_problem(
    scenario: Scenario, durations_ms: list[float], document: Document | None = None
) -> Problem | None:
    """A warning when the turns' audio alone does not fit into the session.

    Args:
        durations_ms: Length of each turn's audio.
    """
    total_ms = sum(durations_ms)
    if total_ms <= scenario.max_duration_ms:
        return None
    message = (
        f"the turns' audio alone lasts {total_ms:.0f} ms, the session {scenario.max_duration_ms:g} ms: the last turns "
        "will not be played"
    )
    return (document or Document(None, "")).problem(Mistake(("max_duration_ms",), message))
