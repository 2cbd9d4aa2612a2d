"""Which sessions are due when: the frames of one length laid over the slots of a frame, so that no moment is a spike.

Pure arithmetic, on whatever clock is handed in.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Generic, TypeVar

SLOTS = 10
"""A visit every 2 ms at frames of 20 ms: few wake-ups, each for no more calls than go out in half a millisecond."""
CallT = TypeVar("CallT")


class Wheel(Generic[CallT]):
    """Turns once a frame. Its n-th visit is due at `origin_s + n * frame_s / SLOTS` and belongs to slot `n % SLOTS`.

    Due times are multiples, never sums of what passed: an oversleep is not carried on.
    """

    def __init__(self, frame_s: float, origin_s: float) -> None:
        self.frame_s = frame_s
        self.n = 0
        """The next visit."""
        self._origin_s = origin_s
        self._step_s = frame_s / SLOTS
        self._slots: list[list[CallT]] = [[] for _ in range(SLOTS)]
        self._slot_of: dict[CallT, int] = {}
        self._joining: defaultdict[int, list[CallT]] = defaultdict(list)
        """By visit: whose first it is."""

    def __len__(self) -> int:
        return len(self._slot_of)

    @property
    def crowd(self) -> list[int]:
        """How many calls each slot has, those that have yet to join included."""
        counts = [0] * SLOTS
        for slot in self._slot_of.values():
            counts[slot] += 1
        return counts

    def due_s(self, n: int) -> float:
        """When a visit is due."""
        return self._origin_s + n * self._step_s

    def join(self, call: CallT, now_s: float) -> float:
        """Take a call in, in the least crowded slot, and return when its first frame is due: never before now."""
        crowd = self.crowd
        slot = min(range(SLOTS), key=crowd.__getitem__)
        first = max(self.n, math.ceil((now_s - self._origin_s) / self._step_s))
        first += (slot - first) % SLOTS
        while self.due_s(first) < now_s:  # the division may have lost a bit
            first += SLOTS
        self._slot_of[call] = slot
        self._joining[first].append(call)
        return self.due_s(first)

    def leave(self, call: CallT) -> None:
        """Let a call go, whether it has had its first frame or not."""
        calls = self._slots[self._slot_of.pop(call)]
        if call in calls:
            calls.remove(call)
            return
        for joining in self._joining.values():
            if call in joining:
                joining.remove(call)

    def next_visit(self, now_s: float) -> tuple[float, list[CallT]] | None:
        """The next visit once it is due: when it was due, and whom it visits, in a list of the caller's own."""
        if not any(self._slots) and not self._joining.get(self.n):
            self._skip(now_s)
        due_s = self.due_s(self.n)
        if due_s > now_s:
            return None
        slot = self._slots[self.n % SLOTS]
        slot += self._joining.pop(self.n, ())
        self.n += 1
        return due_s, slot.copy() if slot else slot

    def _skip(self, now_s: float) -> None:
        """Nobody is visited before the first who joins: whatever time has passed is owed to nobody."""
        upcoming = min((n for n, calls in self._joining.items() if calls), default=None)
        soon = math.ceil((now_s - self._origin_s) / self._step_s)
        self.n = max(self.n, soon if upcoming is None else min(soon, upcoming))
        for n in [n for n in self._joining if n < self.n]:
            del self._joining[n]
