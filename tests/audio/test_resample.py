import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicebench.audio import synth
from voicebench.audio.files import decode_audio, to_track
from voicebench.audio.pcm import samples_of_ms, scaled_length, to_floats
from voicebench.audio.resample import PacketResampler, resample
from voicebench.clips import clip_bytes

RATES_HZ = [8000, 11025, 16000, 22050, 24000, 44100, 48000]
PAIRS_HZ = [(24000, 16000), (8000, 16000), (16000, 8000), (44100, 16000), (48000, 8000), (22050, 16000), (16000, 24000)]


def in_packets(track: np.ndarray, from_hz: int, to_hz: int, sizes: list[int]) -> np.ndarray:
    """Push a track in packets of those sizes, over and over."""
    resampler = PacketResampler(from_hz, to_hz)
    out, at = [], 0
    while at < len(track):
        size = sizes[len(out) % len(sizes)]
        out.append(resampler.push(track[at : at + size]))
        at += size
    return np.concatenate(out)


def whole(track: np.ndarray, from_hz: int, to_hz: int) -> np.ndarray:
    return resample(to_floats(track), from_hz, to_hz) * 32768


def error_db(found: np.ndarray, expected: np.ndarray) -> float:
    return float(10 * np.log10(np.mean((found - expected) ** 2) / np.mean(expected**2)))


@settings(deadline=None)
@given(st.integers(0, 3000), st.sampled_from(RATES_HZ), st.sampled_from(RATES_HZ))
def test_a_whole_signal_has_exactly_its_length_at_the_new_rate(n: int, from_hz: int, to_hz: int) -> None:
    assert len(resample(np.zeros(n), from_hz, to_hz)) == scaled_length(n, from_hz, to_hz)


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS_HZ)
def test_a_tone_stays_where_it_was(from_hz: int, to_hz: int) -> None:
    def tone(rate_hz: int) -> np.ndarray:
        return np.sin(2 * np.pi * 440 * np.arange(rate_hz) / rate_hz)

    inside = slice(to_hz // 10, -to_hz // 10)
    assert error_db(resample(tone(from_hz), from_hz, to_hz)[inside], tone(to_hz)[inside]) < -80


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 700), max_size=12), st.sampled_from(RATES_HZ), st.sampled_from(RATES_HZ))
def test_no_packet_is_held_back_or_doubled(sizes: list[int], from_hz: int, to_hz: int) -> None:
    resampler = PacketResampler(from_hz, to_hz)
    n_in = n_out = 0
    for size in sizes:
        n_in += size
        n_out += len(resampler.push(np.ones(size, dtype=np.int16)))
        assert n_out == scaled_length(n_in, from_hz, to_hz)


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS_HZ)
def test_odd_packets_never_drift(from_hz: int, to_hz: int) -> None:
    resampler = PacketResampler(from_hz, to_hz)
    n_in = n_out = 0
    for size in (1, 1, 1, 7, 333, from_hz, 1, 2, 3):
        n_in += size
        n_out += len(resampler.push(np.zeros(size, dtype=np.int16)))
        assert n_out == scaled_length(n_in, from_hz, to_hz)


# What the docs state. The half sample that going up must foresee at each join grows with the frequency.
@pytest.mark.parametrize(
    ("freq_hz", "limit_down_db", "limit_up_db"), [(200, -60, -50), (440, -58, -48), (1000, -54, -33), (2000, -46, -26)]
)
@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS_HZ)
def test_a_tone_in_packets_of_20_ms_is_the_tone_resampled_whole(
    from_hz: int, to_hz: int, freq_hz: float, limit_down_db: float, limit_up_db: float
) -> None:
    track = synth.tone(990, from_hz, level_db=-20, freq_hz=freq_hz)
    found = in_packets(track, from_hz, to_hz, [from_hz // 50])
    limit_db = limit_down_db if to_hz < from_hz else limit_up_db
    assert error_db(found, whole(track, from_hz, to_hz)) < limit_db


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS_HZ)
@pytest.mark.parametrize(("sizes_ms", "limit_db"), [([20], -36), ([40], -36), ([3, 17, 1, 29], -32)])
def test_a_voice_in_packets_is_the_voice_resampled_whole(
    from_hz: int, to_hz: int, sizes_ms: list[int], limit_db: float
) -> None:
    track = to_track(decode_audio(clip_bytes("opening"), source="opening"), from_hz)
    found = in_packets(track, from_hz, to_hz, [samples_of_ms(ms, from_hz) for ms in sizes_ms])
    assert error_db(found, whole(track, from_hz, to_hz)) < limit_db


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS_HZ)
def test_joins_do_not_click(from_hz: int, to_hz: int) -> None:
    """No single sample is far off. With zeros instead of a guess, joins going up would be off by half the peak."""
    track = synth.tone(1000, from_hz, level_db=-10, freq_hz=300)
    found = in_packets(track, from_hz, to_hz, [from_hz // 50, from_hz // 50 + 1, 77])
    peak = 32768 * np.sqrt(2) * 10 ** (-10 / 20)
    assert np.abs(found - whole(track, from_hz, to_hz)).max() < (0.03 if to_hz < from_hz else 0.08) * peak


@pytest.mark.parametrize("sizes", [[320], [1], [13, 400]])
@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS_HZ)
def test_the_first_sound_does_not_move_by_a_millisecond(from_hz: int, to_hz: int, sizes: list[int]) -> None:
    def first_ms(track: np.ndarray, rate_hz: int) -> float:
        return 1000 * np.flatnonzero(np.abs(track) > 1000)[0] / rate_hz

    track = np.concatenate((synth.silence(33, from_hz), synth.tone(40, from_hz, level_db=-10, freq_hz=500)))
    found = in_packets(track, from_hz, to_hz, sizes)
    assert abs(first_ms(found, to_hz) - first_ms(track, from_hz)) < 1.0


@pytest.mark.parametrize(("from_hz", "to_hz"), [(16000, 8000), (24000, 16000), (48000, 16000)])
def test_what_the_lower_rate_cannot_carry_does_not_fold_down(from_hz: int, to_hz: int) -> None:
    track = synth.tone(500, from_hz, level_db=-10, freq_hz=0.7 * to_hz)
    found = in_packets(track, from_hz, to_hz, [from_hz // 50])
    assert 20 * np.log10(np.std(found) / np.std(track)) < -33


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS_HZ)
def test_noise_keeps_the_level_that_resampling_it_whole_gives(from_hz: int, to_hz: int) -> None:
    track = synth.noise(1000, from_hz, level_db=-20, seed=3)
    found = in_packets(track, from_hz, to_hz, [from_hz // 50])
    assert 20 * np.log10(np.std(found) / np.std(whole(track, from_hz, to_hz))) == pytest.approx(0, abs=0.5)


def test_after_a_reset_nothing_of_before_is_heard() -> None:
    resampler = PacketResampler(24000, 16000)
    resampler.push(synth.noise(31, 24000, level_db=-10))
    resampler.reset()
    packet = synth.speech(20, 24000)
    assert np.array_equal(resampler.push(packet), PacketResampler(24000, 16000).push(packet))


def test_silence_stays_digital_silence() -> None:
    assert not in_packets(np.zeros(5000, dtype=np.int16), 44100, 16000, [882, 1, 5]).any()


def test_a_burst_of_seconds_equals_the_same_audio_in_one_second_packets() -> None:
    track = synth.speech(5000, 24000)
    burst = PacketResampler(24000, 16000).push(track)
    assert error_db(burst, whole(track, 24000, 16000)) < -60


def test_equal_rates_change_nothing() -> None:
    packet = synth.speech(20, 16000)
    assert PacketResampler(16000, 16000).push(packet) is packet


def test_full_scale_square_waves_are_held_and_do_not_wrap_around() -> None:
    square = np.repeat(np.array([32767, -32768] * 50, dtype=np.int16), 40)
    found = in_packets(square, 24000, 16000, [480])
    settled = np.abs(found.astype(int) - np.round(whole(square, 24000, 16000)).clip(-32768, 32767))
    assert settled.max() < 12000  # a wrapped peak would be off by 65536


def test_anything_but_int16_of_one_dimension_is_refused() -> None:
    with pytest.raises(ValueError, match="float64"):
        PacketResampler(24000, 16000).push(np.zeros(4))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="above 0 Hz"):
        PacketResampler(0, 16000)
