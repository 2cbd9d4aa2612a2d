"""Test signals whose edges and levels are known: speech-like sound, tones, noise, silence.

Same arguments, same int16 within one step on every machine: random numbers are the raw 64-bit output of PCG64, which
numpy keeps stable for ever, made into floats here; its distributions change between versions.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt

from voicebench.audio.pcm import round_to_int16, samples_of_ms
from voicebench.errors import AudioError
from voicebench.events import Samples

Floats = npt.NDArray[np.float64]

MAX_LEVEL_DB = -3.0
"""RMS of the loudest sine there is. Up to here peaks beyond full scale are limited and the gain made good."""

MAX_DURATION_MS = 3_600_000.0
"""An hour; beyond it a duration is a slip of the unit, and would take gigabytes."""

_FADE_MS = 4.0
"""Long enough not to click, short enough that the first and the last 10 ms are as good as full."""

_CONTROL_MS = 5.0
"""Pitch and loudness are drawn on this grid and joined by straight lines, so that all rates hear the same voice."""

_TABLE = 2048
"""Samples of one stored period; with 24 harmonics straight lines between them are off by -60 dB at most."""

_MAX_HARMONICS = 24
_NYQUIST_MARGIN = 0.95
_PITCH_SPREAD = 0.12
"""Largest deviation of the wandering pitch from `pitch_hz`, as a fraction."""

_SYLLABLE_MS = (150.0, 280.0)
_DIP = 0.38
"""Loudness between syllables against that inside: a dip to hear, that no detector takes for a pause."""
_STRESS_DB = 2.0
_FIRST_SYLLABLE_AT = 0.3
"""Where in its first syllable speech begins: loud at once, so that the onset is at sample 0 for any detector."""

_VOWELS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410))
"""Formants in Hz of five vowels, averages of men's voices (Peterson and Barney 1952)."""
_FORMANT_WIDTH_HZ = 110.0


class SynthSource(Protocol):
    """What a scenario says of a synthetic sound; its `AudioSource` is one, which this floor does not know."""

    @property
    def synth(self) -> str | None: ...
    @property
    def duration_ms(self) -> float: ...
    @property
    def level_db(self) -> float: ...
    @property
    def freq_hz(self) -> float: ...
    @property
    def seed(self) -> int: ...


def speech(
    duration_ms: float, rate_hz: int, *, level_db: float = -20.0, seed: int = 0, pitch_hz: float = 140.0
) -> Samples:
    """A voiced, syllable-modulated signal: energy detectors take it for speech, neural ones and recognizers do not.

    Args:
        duration_ms: Milliseconds, all of it active: it begins and ends within the first and the last 10 ms.
        rate_hz: Sample rate, Hz.
        level_db: RMS of the whole signal in dBFS (full scale 32768), at most -3.
        seed: Chooses vowels, rhythm and melody.
        pitch_hz: Mean fundamental.

    Returns:
        int16, shape (samples,), `samples_of_ms(duration_ms, rate_hz)` of them.

    Raises:
        AudioError: A level, duration or pitch that cannot be made.

    >>> len(speech(100, 16000))
    1600
    """
    n = _checked_length(duration_ms, rate_hz, level_db)
    if not 20.0 <= pitch_hz <= rate_hz / 4:
        raise AudioError(f"pitch_hz {pitch_hz:g} is outside 20 to {rate_hz // 4} at {rate_hz} Hz")
    draw = _Draws(seed)
    step = max(1, samples_of_ms(_CONTROL_MS, rate_hz))
    control_s: Floats = np.arange(math.ceil(n / step) + 1, dtype=np.float64) * (step / rate_hz)
    cycles = _cycles(control_s, pitch_hz, draw)
    vowel_mix = 0.5 + 0.5 * np.sin(2 * np.pi * (draw.between(1.5, 3.0) * control_s + draw.between(0, 1)))
    tables = _vowel_tables(pitch_hz, rate_hz, draw)
    loudness = _syllables(control_s, draw)

    ramp = np.arange(step) / step
    place = (_joined(cycles, ramp, wrap=1.0) * _TABLE)[:n]
    index = place.astype(np.intp)
    place -= index
    index &= _TABLE - 1
    signal = np.zeros(n)
    for table, share in zip(tables, (vowel_mix, 1.0 - vowel_mix), strict=True):
        wave = np.diff(table)[index]
        wave *= place
        wave += table[index]
        wave *= _joined(loudness * share, ramp)[:n]
        signal += wave
    return _at_level(_faded(signal, rate_hz), level_db)


def tone(duration_ms: float, rate_hz: int, *, level_db: float = -20.0, freq_hz: float = 440.0) -> Samples:
    """A sine; `level_db` is its RMS in dBFS between the short fades, so its peak is 3.01 dB higher.

    Returns:
        int16, shape (samples,), `samples_of_ms(duration_ms, rate_hz)` of them.

    Raises:
        AudioError: A level or duration that cannot be made, or a frequency that the rate cannot carry.

    >>> int(abs(tone(100, 8000, level_db=-20, freq_hz=1000)).max())
    4634
    """
    n = _checked_length(duration_ms, rate_hz, level_db)
    if not 0.0 < freq_hz < rate_hz / 2:
        raise AudioError(
            f"freq_hz {freq_hz:g} cannot be carried at {rate_hz} Hz: choose one above 0 and below {rate_hz / 2:g}"
        )
    wave: Floats = np.sin(np.arange(n, dtype=np.float64) * (2 * math.pi * freq_hz / rate_hz))
    wave *= math.sqrt(2.0) * 10 ** (level_db / 20)
    return round_to_int16(_faded(wave, rate_hz))


def noise(duration_ms: float, rate_hz: int, *, level_db: float = -20.0, seed: int = 0) -> Samples:
    """White Gaussian noise; `level_db` is the RMS of the whole signal in dBFS.

    Returns:
        int16, shape (samples,), `samples_of_ms(duration_ms, rate_hz)` of them.

    Raises:
        AudioError: A level or duration that cannot be made.
    """
    n = _checked_length(duration_ms, rate_hz, level_db)
    return _at_level(_faded(_Draws(seed).normals(n), rate_hz), level_db)


def silence(duration_ms: float, rate_hz: int) -> Samples:
    """Zeros, `samples_of_ms(duration_ms, rate_hz)` of them.

    Raises:
        AudioError: A duration that cannot be made.
    """
    return np.zeros(_checked_length(duration_ms, rate_hz, MAX_LEVEL_DB), dtype=np.int16)


def render(source: SynthSource, rate_hz: int) -> Samples:
    """The signal of a scenario's `audio: {synth: ...}`.

    Raises:
        AudioError: Values that cannot be made.
        ValueError: The source is a file or a clip, which are not made but read.
    """
    if source.synth == "speech":
        return speech(source.duration_ms, rate_hz, level_db=source.level_db, seed=source.seed)
    if source.synth == "tone":
        return tone(source.duration_ms, rate_hz, level_db=source.level_db, freq_hz=source.freq_hz)
    if source.synth == "noise":
        return noise(source.duration_ms, rate_hz, level_db=source.level_db, seed=source.seed)
    if source.synth == "silence":
        return silence(source.duration_ms, rate_hz)
    raise ValueError(f"only synth sources are rendered, got {source}")


class _Draws:
    """Random floats from PCG64's raw output."""

    def __init__(self, seed: int) -> None:
        if seed < 0:
            raise AudioError(f"seed {seed} is negative; choose a whole number from 0 up")
        self._bits = np.random.PCG64(seed)

    def uniform(self, n: int) -> Floats:
        """Floats in [0, 1), shape (n,): the upper 53 bits of each draw."""
        raw: npt.NDArray[np.uint64] = self._bits.random_raw(n)
        return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * float(self.uniform(1)[0])

    def normals(self, n: int) -> Floats:
        """Standard normals, shape (n,), by Box and Muller."""
        pairs = (n + 1) // 2
        radius = np.sqrt(-2.0 * np.log(1.0 - self.uniform(pairs)))  # 1 - u is never 0
        angle = 2.0 * np.pi * self.uniform(pairs)
        both: Floats = np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))
        return both[:n]


def _checked_length(duration_ms: float, rate_hz: int, level_db: float) -> int:
    if not 0.0 <= duration_ms <= MAX_DURATION_MS:
        raise AudioError(f"duration_ms {duration_ms:g} is outside 0 to {MAX_DURATION_MS:.0f} (an hour)")
    if not -math.inf < level_db <= MAX_LEVEL_DB:
        raise AudioError(
            f"level_db {level_db:g} cannot be made: it is an RMS in dBFS, and the loudest is {MAX_LEVEL_DB:g} "
            "(a sine at full scale)"
        )
    return samples_of_ms(duration_ms, rate_hz)


def _joined(control: Floats, ramp: Floats, wrap: float = math.inf) -> Floats:
    """Straight lines between control points, shape ((controls - 1) * len(ramp),), each begun anew modulo `wrap`."""
    starts: Floats = np.fmod(control[:-1], wrap)
    lines: Floats = np.multiply.outer(np.diff(control), ramp)
    lines += starts[:, None]
    return lines.ravel()


def _cycles(control_s: Floats, pitch_hz: float, draw: _Draws) -> Floats:
    """Periods gone by at each control point: a slow melody and a quicker unrest around the mean pitch."""
    cycles: Floats = pitch_hz * control_s
    for low_hz, high_hz, depth in ((0.4, 0.9, 0.08), (1.7, 3.1, 0.04)):  # together _PITCH_SPREAD
        wander_hz = draw.between(low_hz, high_hz)
        start = draw.between(0.0, 1.0)
        swing = pitch_hz * depth / (2 * np.pi * wander_hz)
        cycles -= swing * np.cos(2 * np.pi * (wander_hz * control_s + start))
    cycles -= cycles[0]
    return cycles


def _vowel_tables(pitch_hz: float, rate_hz: int, draw: _Draws) -> tuple[Floats, Floats]:
    """One period of two different vowels, each `_TABLE` samples and the first again."""
    top_hz = _NYQUIST_MARGIN * rate_hz / 2
    count = max(1, min(_MAX_HARMONICS, int(top_hz / (pitch_hz * (1 + _PITCH_SPREAD)))))
    freqs_hz: Floats = pitch_hz * np.arange(1, count + 1, dtype=np.float64)
    first = int(draw.between(0, len(_VOWELS)))
    second = (first + 1 + int(draw.between(0, len(_VOWELS) - 1))) % len(_VOWELS)
    amplitudes = [_formants(freqs_hz, _VOWELS[vowel], draw.between(0.85, 1.15)) for vowel in (first, second)]
    # Schroeder's phases (1970) spread a period's energy evenly; in phase, it would be a click with a gap behind it.
    share = amplitudes[0] ** 2 + amplitudes[1] ** 2
    phases = -2 * np.pi * np.cumsum(np.cumsum(share / share.sum()))
    spectrum = np.zeros(_TABLE // 2 + 1, dtype=np.complex128)
    tables = []
    for amplitude in amplitudes:
        spectrum[1 : count + 1] = amplitude * np.exp(1j * phases)
        period = np.fft.irfft(spectrum, _TABLE) * (_TABLE / np.sqrt(2 * np.sum(amplitude**2)))
        tables.append(np.append(period, period[0]))
    return tables[0], tables[1]


def _formants(freqs_hz: Floats, formants_hz: tuple[int, int, int], size: float) -> Floats:
    """Amplitude of each harmonic: a falling source through three resonances. `size` is the speaker's throat."""
    total = np.full(len(freqs_hz), 0.1)
    for rank, formant_hz in enumerate(formants_hz):
        total += 0.7**rank / (1.0 + ((freqs_hz - size * formant_hz) / _FORMANT_WIDTH_HZ) ** 2)
    amplitudes: Floats = total / np.sqrt(freqs_hz / freqs_hz[0])
    return amplitudes


def _syllables(control_s: Floats, draw: _Draws) -> Floats:
    """Loudness at each control point: a hump a syllable, each of its own length and stress."""
    starts_s = [-_FIRST_SYLLABLE_AT * draw.between(*_SYLLABLE_MS) / 1000.0]
    while starts_s[-1] <= control_s[-1]:
        starts_s.append(starts_s[-1] + draw.between(*_SYLLABLE_MS) / 1000.0)
    stress = 10 ** (_STRESS_DB / 20 * (2 * draw.uniform(len(starts_s)) - 1))
    # The syllable's number and how far into it, as one number; stress changes in between, so that nothing jumps.
    place = np.interp(control_s, starts_s, np.arange(len(starts_s)))
    hump = _DIP + (1 - _DIP) * np.sin(np.pi * (place % 1.0)) ** 2
    loudness: Floats = hump * np.interp(place, np.arange(len(starts_s)) + 0.5, stress)
    return loudness


def _faded(signal: Floats, rate_hz: int) -> Floats:
    """Raise and lower the ends, in place; a signal shorter than two fades has half of itself for each."""
    n = min(samples_of_ms(_FADE_MS, rate_hz), len(signal) // 2)
    ramp = np.sin(np.pi / 2 * (np.arange(n) + 0.5) / max(n, 1)) ** 2
    signal[:n] *= ramp
    signal[len(signal) - n :] *= ramp[::-1]
    return signal


def _at_level(signal: Floats, level_db: float) -> Samples:
    """Scale to an RMS. Peaks beyond full scale are limited and the rest raised, so that the level stays true."""
    rms = _rms(signal)
    if rms == 0.0:  # nothing there to scale: no samples
        return round_to_int16(signal)
    wanted = 10 ** (level_db / 20)
    gain = wanted / rms
    if gain * max(float(signal.max()), -float(signal.min())) > 1.0:
        gain = _gain_when_limited(signal, gain, wanted)
    return round_to_int16(signal * gain)


def _gain_when_limited(signal: Floats, gain: float, wanted: float) -> float:
    for _ in range(100):  # each step closes most of what is missing; loud noise at -3 dBFS takes about 20
        missing = wanted / _rms(np.clip(signal * gain, -1.0, 1.0))
        gain *= missing
        if missing < 1.0 + 1e-5:
            break
    return gain


def _rms(signal: Floats) -> float:
    # Not np.dot: its threads cost more than they save here, and take cores from whoever is measuring.
    return math.sqrt(float(np.einsum("i,i", signal, signal)) / len(signal)) if len(signal) else 0.0
