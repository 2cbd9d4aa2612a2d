"""How long the user waits: response latency and time to first audio."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from voicebench.instants import NS_PER_S, ns_to_ms
from voicebench.turns import Speech

AUDIBLE_DBFS = -70.0
"""A packet is the first audio of a reply only strictly above this. Source: specification, "Time to first audio"."""

InstantsNs = npt.NDArray[np.int64]


def find_reply(user_onset_ns: int, user_offset_ns: int, agent: Speech, *, timeout_ns: int) -> int | None:
    """Which of the agent's segments answers the turn.

    Args:
        user_onset_ns, user_offset_ns: The user's speech in the turn, whole nanoseconds since session start.
        agent: The agent's speech as played out, on the same clock.
        timeout_ns: How long after the offset an answer may begin, inclusive.

    Returns:
        Index of the first segment that starts strictly after the user's onset and in time, also when the next turn
        has begun by then. None: the turn is missed.

    Error: one analysis frame. Definition: specification, "Response latency".

    >>> find_reply(1_000, 2_000, Speech((300, 2_500), (900, 3_000)), timeout_ns=5_000)
    1
    """
    index = agent.first_start_after(user_onset_ns)
    return index if index is not None and agent.starts_ns[index] <= user_offset_ns + timeout_ns else None


def response_latency_ms(user_offset_ns: int, reply_start_ns: int) -> float:
    """How long the user waits between finishing and being answered.

    Args:
        user_offset_ns: End of the user's speech in the turn, whole nanoseconds since session start.
        reply_start_ns: Start of the reply (`find_reply`), on the same clock.

    Returns:
        Milliseconds, unrounded; negative when the agent talked over the user.

    Error: one analysis frame at either end; onsets are floored and offsets ceiled to the frame grid, which makes
    latencies short by half a frame each on average. Definition: specification, "Response latency".

    >>> response_latency_ms(2_000_000_000, 2_500_000_000)
    500.0
    """
    return ns_to_ms(reply_start_ns - user_offset_ns)


def audible_instants(time_s: npt.NDArray[np.float64], level_db: npt.NDArray[np.float64]) -> InstantsNs:
    """When packets with sound arrived.

    Args:
        time_s, level_db: Arrival and RMS level of the agent's packets, both of shape (packets,).

    Returns:
        int64, ascending, whole nanoseconds, only packets strictly above -70 dBFS.

    >>> audible_instants(np.array([0.5, 0.52]), np.array([-70.0, -69.9])).tolist()
    [520000000]
    """
    audible_s = time_s[level_db > AUDIBLE_DBFS]
    return np.sort(np.rint(audible_s * NS_PER_S).astype(np.int64))


def ttfa_ms(user_offset_ns: int, reply: int, agent: Speech, audible_ns: InstantsNs) -> float | None:
    """How long the user waits for the first packet with sound that belongs to the reply.

    Args:
        user_offset_ns: End of the user's speech in the turn.
        reply: Index of the reply among the agent's segments (`find_reply`).
        agent: The agent's speech as played out.
        audible_ns: Arrivals of packets with sound (`audible_instants`), on the same clock.

    Returns:
        Milliseconds, unrounded. None when the reply talked over the user, and when no packet with sound arrived from
        the user's offset and the end of the agent's segment before the reply up to the reply's own end.

    Definition: specification, "Time to first audio".

    >>> ttfa_ms(1_400_000_000, 0, Speech((1_900_000_000,), (2_800_000_000,)), np.array([1_700_000_000]))
    300.0
    """
    if agent.starts_ns[reply] < user_offset_ns:
        return None
    earliest_ns = max(user_offset_ns, agent.ends_ns[reply - 1]) if reply > 0 else user_offset_ns
    index = int(audible_ns.searchsorted(earliest_ns))
    if index == len(audible_ns) or audible_ns[index] > agent.ends_ns[reply]:
        return None
    return ns_to_ms(int(audible_ns[index]) - user_offset_ns)
