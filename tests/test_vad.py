import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicebench.audio.level import FULL_SCALE, energy_limit
from voicebench.records import Segment
from voicebench.scenario.model import VadSettings
from voicebench.vad import StreamingVad, detect_segments, frame_rule

RATE_HZ = 8000
HOP = 80  # 10 ms
LOUD, BETWEEN, QUIET = 1000, 130, 10  # -30, -48 and -70 dBFS of a constant; the detector opens at -45, holds at -51


def drawn_track(drawn: str) -> np.ndarray:
    """One sign is one hop of 10 ms: '#' opens, '-' holds, '.' is silence."""
    levels = {"#": LOUD, "-": BETWEEN, ".": QUIET}
    return np.repeat(np.array([levels[sign] for sign in drawn], dtype=np.int16), HOP)


def segments_ms(track: np.ndarray, **settings: float) -> list[tuple[int, int]]:
    found = detect_segments(track, RATE_HZ, VadSettings(**settings))
    return [(round(1000 * part.start_s), round(1000 * part.end_s)) for part in found]


@pytest.mark.parametrize(
    ("drawn", "expected_ms"),
    [
        ("....####....", [(40, 80)]),
        ("..##.##.....", [(20, 70)]),  # a gap shorter than the hangover does not split
        ("..##...##...", [(20, 40), (70, 90)]),  # a gap of exactly the hangover does
        ("............", []),
        ("#.#.#.#.....", []),  # a run must be unbroken to open
        ("..##--......", [(20, 60)]),  # between the thresholds an open segment goes on, and its end moves
        ("..##..-.##..", [(20, 100)]),  # and the silence starts anew
        ("--##........", [(20, 40)]),  # but nothing opens there
        ("..-#-#-#....", []),  # nor does it keep a run of opening frames going
        ("..##", [(20, 40)]),  # open at the end of the track: ends at its last active frame
        ("..##..", [(20, 40)]),
        ("##", [(0, 20)]),
        ("", []),
    ],
)
def test_segments_as_drawn(drawn, expected_ms):
    assert segments_ms(drawn_track(drawn), min_silence_ms=30, min_speech_ms=20) == expected_ms


def test_a_part_of_a_frame_at_the_end_is_ignored():
    track = np.concatenate([drawn_track("..####"), np.full(HOP - 1, LOUD, np.int16)])
    assert segments_ms(track) == []
    assert segments_ms(np.append(track, np.int16(LOUD))) == [(20, 70)]


def test_durations_between_frames_round_up_to_whole_frames():
    assert segments_ms(drawn_track("..##.."), min_speech_ms=20.1) == []
    assert segments_ms(drawn_track("..###."), min_speech_ms=20.1) == [(20, 50)]


@pytest.mark.parametrize("level_db", [-45.0, -51.0, -20.0, -3.5])
def test_a_level_exactly_on_a_threshold_reaches_it(level_db):
    # A square wave of amplitude a has an RMS of exactly a: the threshold is set to that level.
    amplitude = round(FULL_SCALE * 10 ** (level_db / 20))
    exact_db = 20 * math.log10(amplitude / FULL_SCALE)
    square = np.tile(np.array([amplitude, -amplitude], dtype=np.int16), 400)
    assert segments_ms(square, threshold_db=exact_db, hysteresis_db=0) == [(0, 100)]
    assert segments_ms(square, threshold_db=exact_db + 0.001, hysteresis_db=0) == []


def test_a_dc_offset_counts_as_level():
    assert segments_ms(np.full(800, 300, dtype=np.int16)) == [(0, 100)]


def test_digital_silence_reaches_no_threshold():
    assert segments_ms(np.zeros(8000, dtype=np.int16), threshold_db=-4000.0, hysteresis_db=0) == []


def test_zero_durations_mean_one_frame():
    assert segments_ms(drawn_track(".#.#."), min_speech_ms=0, min_silence_ms=0) == [(10, 20), (30, 40)]


@pytest.mark.parametrize(
    ("rate_hz", "frame_ms", "samples"),
    [(22050, 10, 220), (11025, 10, 110), (44100, 10, 441), (8000, 0.01, 1), (11025, 20, 220), (48000, 7.5, 360)],
)
def test_an_analysis_frame_is_the_nearest_whole_number_of_samples(rate_hz, frame_ms, samples):
    assert frame_rule(rate_hz, VadSettings(frame_ms=frame_ms)).frame_samples == samples


def test_float_audio_is_refused():
    with pytest.raises(TypeError, match="int16"):
        StreamingVad(8000).push(np.zeros(10))


def test_an_onset_is_told_when_confirmed_and_backdated():
    vad = StreamingVad(RATE_HZ, VadSettings(min_speech_ms=30))
    assert vad.push(drawn_track("..##")) == []
    assert vad.undecided
    assert not vad.speaking
    (onset,) = vad.push(drawn_track("#"))
    assert (onset.kind, onset.time_s, vad.speaking) == ("onset", 0.02, True)


def test_limits_beyond_any_level_are_reached_by_nothing():
    assert energy_limit(1e6, 80) == math.inf
    assert energy_limit(-1e6, 80) > 0


def streamed(track: np.ndarray, cuts: list[int], rate_hz: int, settings: VadSettings) -> tuple[Segment, ...]:
    vad = StreamingVad(rate_hz, settings)
    edges = [0, *sorted(cut % (len(track) + 1) for cut in cuts), len(track)]
    events = [event for a, b in pairwise(edges) for event in vad.push(track[a:b])]
    times = [event.time_s for event in events + vad.flush()]
    assert [event.kind for event in events] == ["onset", "offset"] * (len(events) // 2) + ["onset"] * (len(events) % 2)
    return tuple(Segment(a, b) for a, b in zip(times[::2], times[1::2], strict=True))


@given(
    drawn=st.text("#-.", max_size=60),
    cuts=st.lists(st.integers(0, 10_000), max_size=12),
    rate_hz=st.sampled_from([8000, 11025, 22050, 48000]),
    settings=st.builds(
        VadSettings,
        frame_ms=st.sampled_from([5.0, 7.5, 10.0, 33.3]),
        hysteresis_db=st.sampled_from([0.0, 6.0, 30.0]),
        min_speech_ms=st.sampled_from([0.0, 10.0, 25.0, 50.0]),
        min_silence_ms=st.sampled_from([0.0, 10.0, 35.0, 250.0]),
    ),
)
def test_blocks_of_any_size_and_the_whole_track_at_once_find_the_same(drawn, cuts, rate_hz, settings):
    track = drawn_track(drawn)
    assert streamed(track, cuts, rate_hz, settings) == detect_segments(track, rate_hz, settings)
