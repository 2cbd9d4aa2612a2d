"""What interrupts the agent, and what must not: barge-ins and noise."""

from __future__ import annotations

from voicebench.instants import ms_to_ns, ns_to_ms
from voicebench.turns import Speech


def stop_ms(user_onset_ns: int, agent: Speech, *, heard_until_ns: int) -> float | None:
    """How long the agent goes on after the user has begun to speak over it.

    Args:
        user_onset_ns: Start of the user's speech in the turn, whole nanoseconds since session start.
        agent: The agent's speech as played out, on the same clock.
        heard_until_ns: End of the last whole analysis frame of the agent's track.

    Returns:
        Milliseconds from the onset to the end of the segment that was playing, unrounded. None when the agent was
        silent at the onset (a segment that ends exactly there no longer plays, one that starts there does), and when
        it was heard up to the track's last frame: then it never stopped. An agent silent for less than the detector's
        hangover at the end has stopped, at its last active frame.

    Error: one analysis frame at either end. Definition: specification, "Barge-in".

    >>> stop_ms(2_400_000_000, Speech((1_200_000_000,), (2_750_000_000,)), heard_until_ns=3_260_000_000)
    350.0
    """
    playing = agent.at(user_onset_ns)
    if playing is None or agent.ends_ns[playing] >= heard_until_ns:
        return None
    return ns_to_ms(agent.ends_ns[playing] - user_onset_ns)


def is_false_barge_in(stop_time_ms: float | None, *, max_stop_ms: float) -> bool:
    """Whether noise stopped the agent.

    Args:
        stop_time_ms: `stop_ms` from the noise's onset; None when the agent was silent or never stopped.
        max_stop_ms: Up to how long after the onset a stop is put down to the noise, inclusive.

    Known inaccuracy: a reply that ends naturally that close to the noise looks the same.
    Definition: specification, "Noise".

    >>> is_false_barge_in(600.0, max_stop_ms=1000.0), is_false_barge_in(None, max_stop_ms=1000.0)
    (True, False)
    """
    return stop_time_ms is not None and ms_to_ns(stop_time_ms) <= ms_to_ns(max_stop_ms)


def is_spurious_response(noise_onset_ns: int, noise_offset_ns: int, agent: Speech, *, timeout_ns: int) -> bool:
    """Whether a silent agent took noise for a turn and answered.

    Args:
        noise_onset_ns, noise_offset_ns: The noise as the user's detector heard it.
        agent: The agent's speech as played out.
        timeout_ns: Up to how long after the noise's end a start is put down to it, inclusive.

    Returns:
        True when the agent was silent at the onset and began strictly after it and in time.

    Definition: specification, "Noise".

    >>> is_spurious_response(1_000, 1_200, Speech((3_000,), (4_000,)), timeout_ns=5_000)
    True
    """
    if agent.at(noise_onset_ns) is not None:
        return False
    index = agent.first_start_after(noise_onset_ns)
    return index is not None and agent.starts_ns[index] <= noise_offset_ns + timeout_ns
