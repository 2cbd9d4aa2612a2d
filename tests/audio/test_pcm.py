from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from voicebench.audio.pcm import from_bytes, round_to_int16, samples_of_ms, scaled_length, to_bytes, to_floats

RATES_HZ = [8000, 11025, 16000, 22050, 24000, 44100, 48000]
INT16 = hnp.arrays(np.int16, st.integers(0, 50))


@pytest.mark.parametrize(
    ("ms", "rate_hz", "expected"),
    [
        (10, 22050, 220),  # 220.5
        (30, 22050, 662),  # 661.5
        (50, 22050, 1102),  # 1102.5
        (0.1, 5000, 0),  # 0.5, as a decimal
        (0.3, 5000, 2),  # 1.5, as a decimal
        (0.1 + 0.2, 5000, 2),  # the same with float noise
        (0.35, 10000, 4),  # 3.5; in binary a little less
        (1.005, 100_000, 100),  # 100.5; in binary a little less
        (0, 16000, 0),
        (1234.5, 16000, 19752),
    ],
)
def test_a_duration_in_samples_rounds_halves_to_even_in_decimal_time(ms: float, rate_hz: int, expected: int) -> None:
    assert samples_of_ms(ms, rate_hz) == expected


@given(st.decimals(0, 10**6, places=3), st.sampled_from(RATES_HZ))
def test_every_duration_of_whole_microseconds_is_as_exact_as_on_paper(ms: Decimal, rate_hz: int) -> None:
    assert samples_of_ms(float(ms), rate_hz) == int((ms * rate_hz / 1000).to_integral_value(ROUND_HALF_EVEN))


@pytest.mark.parametrize("ms", [-1, float("nan"), float("inf")])
def test_a_duration_that_is_none_is_refused(ms: float) -> None:
    with pytest.raises(ValueError, match="duration"):
        samples_of_ms(ms, 16000)


def test_a_rate_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="sample rate must be above 0 Hz, got 0"):
        samples_of_ms(10, 0)


@given(st.integers(0, 10**7), st.sampled_from(RATES_HZ), st.sampled_from(RATES_HZ))
def test_lengths_at_another_rate_round_halves_to_even(n: int, from_hz: int, to_hz: int) -> None:
    exact = Decimal(n) * to_hz / from_hz
    assert scaled_length(n, from_hz, to_hz) == int(exact.to_integral_value(ROUND_HALF_EVEN))


def test_rounding_goes_to_the_even_step_and_stays_in_range() -> None:
    steps = np.array([0.5, 1.5, -0.5, -1.5, 2.4999, 32766.5, 32767.5, 40000, -32768.5, -40000])
    assert round_to_int16(steps / 32768).tolist() == [0, 2, 0, -2, 2, 32766, 32767, 32767, -32768, -32768]


def test_rounding_does_not_change_its_argument() -> None:
    signal = np.array([0.1, 2.0])
    round_to_int16(signal)
    assert signal.tolist() == [0.1, 2.0]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_signal_with_a_hole_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="NaN"):
        round_to_int16(np.array([0.0, value, 0.0]))


@given(INT16)
def test_int16_survives_the_way_through_floats_and_through_bytes(samples: np.ndarray) -> None:
    assert np.array_equal(round_to_int16(to_floats(samples)), samples)
    assert np.array_equal(from_bytes(to_bytes(samples)), samples)


def test_bytes_are_little_endian() -> None:
    assert to_bytes(np.array([0x0102, -1], dtype=np.int16)) == b"\x02\x01\xff\xff"


def test_half_a_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="3 bytes leave half a sample over"):
        from_bytes(b"abc")


def test_bytes_of_anything_but_int16_are_refused() -> None:
    with pytest.raises(ValueError, match="int32"):
        to_bytes(np.array([70000], dtype=np.int32))  # type: ignore[arg-type]
