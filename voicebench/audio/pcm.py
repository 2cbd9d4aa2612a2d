"""Samples and bytes: where audio becomes int16, and how long a duration is in samples."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import numpy.typing as npt

from voicebench.events import Samples

FULL_SCALE = 32768.0
"""The float 1.0 in int16 steps; the largest int16 is one step below it."""

_LITTLE_ENDIAN = np.dtype("<i2")

_DECIMALS_OF_MS = 9
"""Sums of decimal milliseconds (0.1 + 0.2) are off by 1e-16; nobody means picoseconds."""


def samples_of_ms(ms: float, rate_hz: int) -> int:
    """How many samples a duration has: the nearest whole number, halves to the even one, in decimal time.

    Args:
        ms: Duration, milliseconds, 0 or more.
        rate_hz: Sample rate, above 0.

    Raises:
        ValueError: The duration is negative, infinite or not a number, or the rate is not positive.

    >>> samples_of_ms(10, 22050), samples_of_ms(30, 22050), samples_of_ms(0.1 + 0.2, 5000)
    (220, 662, 2)
    """
    if not math.isfinite(ms) or ms < 0:
        raise ValueError(f"a duration must be a number of milliseconds from 0 up, got {ms}")
    if rate_hz <= 0:
        raise ValueError(f"a sample rate must be above 0 Hz, got {rate_hz}")
    exact = Decimal(repr(round(float(ms), _DECIMALS_OF_MS))) * int(rate_hz)
    return int(exact.scaleb(-3).to_integral_value(ROUND_HALF_EVEN))


def scaled_length(n_samples: int, from_hz: int, to_hz: int) -> int:
    """How many samples a signal has at another rate: `n * to / from` to the nearest, halves to the even one.

    >>> scaled_length(480, 24000, 16000), scaled_length(1, 16000, 8000), scaled_length(3, 16000, 8000)
    (320, 0, 2)
    """
    whole, rest = divmod(n_samples * to_hz, from_hz)
    return whole + (2 * rest > from_hz or (2 * rest == from_hz and whole % 2 == 1))


def round_to_int16(signal: npt.NDArray[np.floating]) -> Samples:
    """Turn floats into a track: the one rounding a signal goes through.

    Args:
        signal: Floats of any shape, full scale 1.0.

    Returns:
        int16 of the same shape: `signal * 32768`, halves to the even step, held at -32768 and 32767.

    Raises:
        ValueError: A value is infinite or not a number, so something upstream divided by zero.

    >>> round_to_int16(np.array([0.5, -1.0, 1.0, 1.5 / 32768, 2.5 / 32768])).tolist()
    [16384, -32768, 32767, 2, 2]
    """
    steps: npt.NDArray[np.float64] = np.multiply(signal, FULL_SCALE, dtype=np.float64)
    if not steps.size:
        return steps.astype(np.int16)
    lowest, highest = float(steps.min()), float(steps.max())  # a NaN anywhere makes both NaN
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        raise ValueError("a signal with infinite values or NaN cannot become a track")
    np.rint(steps, out=steps)
    if lowest < -FULL_SCALE or highest > FULL_SCALE - 1:
        np.clip(steps, -FULL_SCALE, FULL_SCALE - 1, out=steps)
    return steps.astype(np.int16)


def to_floats(samples: Samples) -> npt.NDArray[np.float64]:
    """The way back: int16 of any shape to floats in [-1, 1), exactly.

    >>> to_floats(np.array([-32768, 16384], dtype=np.int16)).tolist()
    [-1.0, 0.5]
    """
    floats: npt.NDArray[np.float64] = np.multiply(samples, 1.0 / FULL_SCALE, dtype=np.float64)
    return floats


def to_bytes(samples: Samples) -> bytes:
    """16-bit little-endian PCM of a track, whatever the machine's byte order.

    Raises:
        ValueError: The array is not int16; casting it here would wrap or truncate in silence.

    >>> to_bytes(np.array([1, -2], dtype=np.int16)).hex()
    '0100feff'
    """
    if samples.dtype != np.int16:
        raise ValueError(f"PCM bytes are made of int16 samples, got {samples.dtype}")
    return samples.astype("<i2", copy=False).tobytes()


def from_bytes(data: bytes | bytearray | memoryview, at: int = 0) -> Samples:
    """A track out of 16-bit little-endian PCM.

    Args:
        data: An even number of bytes from `at` on.
        at: Where the PCM begins.

    Returns:
        int16, shape (bytes / 2,). It looks into `data` instead of copying: copy it before the buffer is reused.

    Raises:
        ValueError: Half a sample is left over.

    >>> from_bytes(bytes.fromhex("0100feff")).tolist()
    [1, -2]
    """
    if (len(data) - at) % 2:
        raise ValueError(f"16-bit PCM has two bytes a sample, but {len(data) - at} bytes leave half a sample over")
    samples = np.frombuffer(data, _LITTLE_ENDIAN, offset=at)
    return samples if _LITTLE_ENDIAN.isnative else samples.astype(np.int16)
