"""From a script and what was heard to turns: whose speech belongs to which window."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from voicebench.instants import s_to_ns
from voicebench.records import Segment


@dataclass(frozen=True, slots=True)
class Speech:
    """Segments of one side, whole nanoseconds since session start, ascending and disjoint."""

    starts_ns: tuple[int, ...]
    ends_ns: tuple[int, ...]

    def at(self, instant_ns: int) -> int | None:
        """Index of the segment that was going on: one that starts exactly then is, one that ends then is not."""
        index = bisect_right(self.starts_ns, instant_ns) - 1
        return index if index >= 0 and self.ends_ns[index] > instant_ns else None

    def first_start_after(self, instant_ns: int) -> int | None:
        """Index of the first segment that starts strictly later."""
        index = bisect_right(self.starts_ns, instant_ns)
        return index if index < len(self.starts_ns) else None

    def overlap_ns(self, start_ns: int, end_ns: int) -> int:
        """How much of the span lies inside segments."""
        total = 0
        for index in range(bisect_right(self.ends_ns, start_ns), bisect_left(self.starts_ns, end_ns)):
            total += min(self.ends_ns[index], end_ns) - max(self.starts_ns[index], start_ns)
        return total

    @property
    def total_ns(self) -> int:
        return sum(self.ends_ns) - sum(self.starts_ns)

    def overlap_with_ns(self, other: Speech) -> int:
        """How long both sides spoke at once."""
        return sum(
            other.overlap_ns(start_ns, end_ns) for start_ns, end_ns in zip(self.starts_ns, self.ends_ns, strict=True)
        )


def speech_of(segments: Iterable[Segment]) -> Speech:
    """The segments of one track in whole nanoseconds.

    Raises:
        ValueError: Segments overlap or don't ascend, so those of several tracks were mixed.
    """
    edges = [s_to_ns(edge_s) for segment in segments for edge_s in (segment.start_s, segment.end_s)]
    if edges != sorted(edges):
        raise ValueError("segments of one track must ascend and not overlap")
    return Speech(tuple(edges[::2]), tuple(edges[1::2]))


@dataclass(frozen=True, slots=True)
class Window:
    """A turn's stretch of the session: from its audio's start to the next turn's, or the session's end."""

    start_ns: int
    end_ns: int
    last: bool
    """Whether it runs to the session's end, which it then includes."""
    pieces_ns: tuple[tuple[int, int], ...]
    """The user's speech that belongs to the turn, cut at the window's edges."""

    @property
    def onset_ns(self) -> int | None:
        """First detected boundary of the user's speech; None when the detector heard nothing."""
        return self.pieces_ns[0][0] if self.pieces_ns else None

    @property
    def offset_ns(self) -> int | None:
        """Last detected boundary of the user's speech."""
        return self.pieces_ns[-1][1] if self.pieces_ns else None

    def contains(self, instant_ns: int) -> bool:
        """Start included, end excluded, but for the session's end."""
        return self.start_ns <= instant_ns < self.end_ns or (self.last and instant_ns == self.end_ns)


def turn_windows(starts_ns: Sequence[int], duration_ns: int, user: Speech, frame_ns: int) -> list[Window]:
    """Cut the session into the turns' windows and give each its user speech.

    Args:
        starts_ns: When each played turn's audio started, ascending.
        duration_ns: Length of the session.
        user: The user's speech as detected.
        frame_ns: One analysis frame of the user's detector: how far a boundary may lie over an edge by detection alone.

    Returns:
        One window a turn. A segment that crosses an edge by more than a frame is cut there, and each part belongs to
        its window; one that crosses by a frame or less stays whole, with its boundary as detected, in the window that
        holds the rest of it.
    """
    edges = [*starts_ns, max(duration_ns, starts_ns[-1] if starts_ns else 0)]
    return [
        Window(start_ns, end_ns, last=index == len(starts_ns) - 1, pieces_ns=_pieces(start_ns, end_ns, user, frame_ns))
        for index, (start_ns, end_ns) in enumerate(pairwise(edges))
    ]


def _pieces(start_ns: int, end_ns: int, user: Speech, frame_ns: int) -> tuple[tuple[int, int], ...]:
    pieces = []
    first = bisect_right(user.ends_ns, start_ns)
    for index in range(first, bisect_left(user.starts_ns, end_ns)):
        onset_ns, offset_ns = user.starts_ns[index], user.ends_ns[index]
        early, late = onset_ns < start_ns - frame_ns, offset_ns > end_ns + frame_ns
        if early and offset_ns <= start_ns + frame_ns:
            continue  # the last frame of the turn before
        if onset_ns >= end_ns - frame_ns and offset_ns > end_ns:
            continue  # the first frame of the turn after
        pieces.append((start_ns if early else onset_ns, end_ns if late else offset_ns))
    return tuple(pieces)
