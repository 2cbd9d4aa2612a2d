"""The closed model by arithmetic: a fixed number of callers, each placing sessions back to back.

Session numbers count from 0 over the whole run. Caller *c* of *C* runs sessions *c*, *c + C*, *c + 2C*, ..., whatever
the number of workers, so a session's scenario, seed and pause follow from its number alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_PAUSE = 1
_MIX_STEP = 0.6180339887498949
"""Golden ratio: successive multiples fill the unit interval as evenly as any sequence does."""


def session_number(caller: int, placed: int, callers: int) -> int:
    """The number of a caller's next session, after `placed` of them.

    >>> [session_number(1, placed, callers=3) for placed in range(3)]
    [1, 4, 7]
    """
    return caller + placed * callers


def session_name(run_id: str, number: int) -> str:
    """What a session is called everywhere: in the agent's logs, in reports, on disk.

    >>> session_name("monday", 7)
    'monday-000007'
    """
    return f"{run_id}-{number:06d}"


def first_start_s(caller: int, spawn_rate_per_s: float | None) -> float:
    """When a caller places its first session, seconds since the run's start; all at once without a rate.

    >>> first_start_s(3, 2.0)
    1.5
    """
    return caller / spawn_rate_per_s if spawn_rate_per_s else 0.0


def scenario_index(number: int, weights: Sequence[float], seed: int) -> int:
    """Which scenario of the mix a session runs.

    Among any hundred neighbours the shares are within a few sessions of the weights: an even sequence, not dice, so
    that a short run holds its mix too.

    >>> [scenario_index(number, [3, 1], seed=0) for number in range(8)]
    [0, 1, 0, 0, 1, 0, 0, 0]
    """
    place = ((number + 0.5) * _MIX_STEP + seed * _MIX_STEP**2) % 1.0 * sum(weights)
    for index, weight in enumerate(weights):
        place -= weight
        if place < 0:
            return index
    return len(weights) - 1


def pause_s(number: int, bounds_s: tuple[float, float], seed: int) -> float:
    """How long the caller waits after session `number`, uniform between the bounds."""
    shortest_s, longest_s = bounds_s
    return shortest_s + (longest_s - shortest_s) * _uniform(seed, number, _PAUSE)


def _uniform(seed: int, number: int, purpose: int) -> float:
    # numpy promises the streams of its seed sequences and bit generators, not those of its distributions.
    return float(np.random.PCG64([abs(seed), number, purpose]).random_raw() >> 11) * 2.0**-53
