"""Levels from exact integer energies: one function for stream and batch, so that both decide alike to the last bit."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from voicebench.events import Samples

FULL_SCALE = 32768.0
SILENCE_DBFS = -120.0
"""What the level of digital silence is written as."""
TIE = 1.0 - 1e-9
"""A level exactly on a threshold counts as reaching it, whatever the last bit of `10 ** (db / 10)` says."""

Energies = npt.NDArray[np.float64]
"""Sums of squares of int16 samples: integers below 2**53 for any frame under 8 million samples, so float64 is exact."""


def energy_of(samples: Samples) -> int:
    """The sum of squares of the samples, exact.

    >>> energy_of(np.array([3, -4], dtype=np.int16))
    25
    """
    wide = samples.astype(np.float64)
    # Not `@`: on long packets it wakes BLAS's threads, which spin on the cores that sessions are paced on.
    return int(np.einsum("i,i->", wide, wide))


def frame_energies(track: Samples, frame_samples: int) -> Energies:
    """Energy of each whole analysis frame; a last part shorter than a frame is ignored.

    Args:
        track: int16, shape (samples,).
        frame_samples: Length of an analysis frame, at least 1.

    Returns:
        float64, shape (frames,), integer-valued.
    """
    n_frames = len(track) // frame_samples
    frames = track[: n_frames * frame_samples].reshape(n_frames, frame_samples).astype(np.float64)
    energies: Energies = np.einsum("ij,ij->i", frames, frames)
    return energies


def energy_limit(level_db: float, n_samples: int) -> float:
    """The energy from which `n_samples` samples are at or above a level (dBFS of the RMS, full scale 32768)."""
    try:
        mean_square: float = FULL_SCALE**2 * 10.0 ** (level_db / 10.0)
    except OverflowError:
        return math.inf
    # Silence has no level at all: no threshold, however low, is reached by it.
    return max(n_samples * mean_square * TIE, 5e-324)


def level_dbfs(energy: float, n_samples: int) -> float:
    """RMS level in dBFS, never below -120, which is also what silence and nothing are written as.

    >>> round(level_dbfs(100 * 3276.8**2, 100), 1)
    -20.0
    """
    if energy <= 0 or n_samples <= 0:
        return SILENCE_DBFS
    return max(SILENCE_DBFS, 10.0 * math.log10(energy / n_samples) - 20.0 * math.log10(FULL_SCALE))
