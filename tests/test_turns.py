from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicebench.instants import NS_PER_MS, ms_to_ns, s_to_ns
from voicebench.records import Segment
from voicebench.turns import Speech, speech_of, turn_windows

FRAME_MS = 10


def windows_ms(starts_ms, segments_ms, duration_ms=5000):
    """Pieces of each window, in ms."""
    user = Speech(tuple(a * NS_PER_MS for a, _ in segments_ms), tuple(b * NS_PER_MS for _, b in segments_ms))
    starts_ns = [start * NS_PER_MS for start in starts_ms]
    found = turn_windows(starts_ns, duration_ms * NS_PER_MS, user, FRAME_MS * NS_PER_MS)
    return [[(a // NS_PER_MS, b // NS_PER_MS) for a, b in window.pieces_ns] for window in found]


@pytest.mark.parametrize(
    ("segments_ms", "expected"),
    [
        ([(300, 900), (2000, 2600)], [[(300, 900)], [(2000, 2600)]]),
        ([(300, 2600)], [[(300, 2000)], [(2000, 2600)]]),  # one segment over both turns: cut at the edge
        ([(300, 2010)], [[(300, 2010)], []]),  # over the edge by a frame: stays whole, where the rest of it is
        ([(300, 2011)], [[(300, 2000)], [(2000, 2011)]]),  # by more than a frame: cut
        ([(1990, 2600)], [[], [(1990, 2600)]]),  # early by a frame: the next turn's, with its onset as detected
        ([(1989, 2600)], [[(1989, 2000)], [(2000, 2600)]]),
        ([(1995, 2005)], [[], [(1995, 2005)]]),
        ([(300, 2000), (2000, 2600)], [[(300, 2000)], [(2000, 2600)]]),
        ([], [[], []]),
        ([(2300, 2400), (2700, 2900)], [[], [(2300, 2400), (2700, 2900)]]),
    ],
)
def test_whose_speech_it_is(segments_ms, expected):
    assert windows_ms([300, 2000], segments_ms) == expected


def test_the_last_window_runs_to_the_sessions_end_and_includes_it():
    first, last = turn_windows([0, s_to_ns(2)], s_to_ns(5), Speech((), ()), ms_to_ns(FRAME_MS))
    assert [first.contains(s_to_ns(t)) for t in (0, 1.999999999, 2)] == [True, True, False]
    assert [last.contains(s_to_ns(t)) for t in (2, 5, 5.000000001)] == [True, True, False]


def test_a_turn_without_detected_speech_has_no_onset():
    (window,) = turn_windows([0], s_to_ns(5), Speech((), ()), ms_to_ns(FRAME_MS))
    assert (window.onset_ns, window.offset_ns) == (None, None)


def test_segments_of_several_tracks_are_refused():
    with pytest.raises(ValueError, match="must ascend"):
        speech_of([Segment(0.0, 2.0), Segment(1.0, 3.0)])


edges = st.lists(st.integers(0, 400), unique=True, max_size=24).map(sorted)


def spans(values):
    return list(zip(values[::2], values[1::2], strict=False))


@given(starts=st.lists(st.integers(0, 400), unique=True, min_size=1, max_size=6).map(sorted), user=edges)
def test_speech_longer_than_a_frame_is_shared_out_without_loss_or_overlap(starts, user):
    """All speech from the first window on is in exactly one window, but for what lies before the first."""
    segments = [(10 * a, 10 * b) for a, b in spans(user)]
    pieces = [piece for window in windows_ms([10 * s for s in starts], segments, 5000) for piece in window]
    assert pieces == sorted(pieces)
    assert all(a[1] <= b[0] for a, b in pairwise(pieces))
    from_ms = 10 * starts[0]
    total = sum(b - max(a, from_ms) for a, b in segments if b > from_ms)
    assert abs(sum(b - max(a, from_ms) for a, b in pieces) - total) <= FRAME_MS


@given(one=edges, other=edges)
def test_overlap_is_counted_sample_by_sample(one, other):
    first = Speech(tuple(a for a, _ in spans(one)), tuple(b for _, b in spans(one)))
    second = Speech(tuple(a for a, _ in spans(other)), tuple(b for _, b in spans(other)))
    inside = {t for a, b in spans(one) for t in range(a, b)} & {t for a, b in spans(other) for t in range(a, b)}
    assert first.overlap_with_ns(second) == second.overlap_with_ns(first) == len(inside)
