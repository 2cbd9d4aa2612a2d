"""What a turn's numbers mean: passed, missed, or left open because the session broke off."""

from __future__ import annotations

from voicebench.instants import ms_to_ns
from voicebench.records import Outcome
from voicebench.scenario.model import Turn
from voicebench.turns import Speech, Window

SCORED_TO_THE_END = ("agent_hangup", "no_audio")
"""Failures after which an open turn is the agent's doing and counts as missed, not as broken off."""


def broke_off(outcome: Outcome) -> bool:
    """Whether a session ended in a way that says nothing about a turn still open: cut, lost, or a line that broke."""
    if outcome.state == "finished":
        return False
    return outcome.state in ("cut", "lost") or outcome.reason not in SCORED_TO_THE_END


def is_open(
    turn: Turn, window: Window, audio_end_ns: int, agent: Speech, duration_ns: int, heard_until_ns: int
) -> bool:
    """Whether the turn was still undecided when the session ended.

    Args:
        turn: What was scripted.
        window: Its window and the user's speech in it.
        audio_end_ns: When its audio ended, or would have.
        agent: The agent's speech as played out.
        duration_ns: When the session ended.
        heard_until_ns: End of the last whole analysis frame of the agent's track.

    Returns:
        True when its audio was still playing, or when what it waits for (an answer, a stop, or the time-out of either)
        had not come.
    """
    if audio_end_ns > duration_ns:
        return True
    onset_ns = window.start_ns if window.onset_ns is None else window.onset_ns
    offset_ns = audio_end_ns if window.offset_ns is None else window.offset_ns
    interrupted = agent.at(onset_ns) if turn.expect != "respond" else None
    if interrupted is not None:
        still_going = agent.ends_ns[interrupted] >= heard_until_ns
        return still_going and onset_ns + ms_to_ns(turn.max_stop_ms) > duration_ns
    if turn.expect == "stop":
        return False
    answer = agent.first_start_after(onset_ns)
    deadline_ns = offset_ns + ms_to_ns(turn.response_timeout_ms)
    answered = answer is not None and agent.starts_ns[answer] <= deadline_ns
    return not answered and deadline_ns > duration_ns
