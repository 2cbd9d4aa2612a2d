"""WAV bytes: read strictly, written canonically.

A file that says something a track cannot represent is refused with a sentence, never guessed at: a recording read
wrongly would be scored wrongly, and nobody would see it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voicebench.errors import AudioError
from voicebench.events import Samples

Floats = npt.NDArray[np.float64]
Buffer = bytes | bytearray | memoryview

MIN_RATE_HZ = 1000
MAX_RATE_HZ = 768_000
"""Beyond these a header is damaged or means no sound: 1 Hz would turn a kilobyte into minutes of audio."""

_PCM, _FLOAT, _EXTENSIBLE = 0x0001, 0x0003, 0xFFFE
_NAMES = {
    0x0002: "ADPCM",
    0x0006: "A-law",
    0x0007: "mu-law",
    0x0011: "IMA ADPCM",
    0x0031: "GSM 6.10",
    0x0055: "MP3 in a WAV",
}
_EXTENSIBLE_SUFFIX = bytes.fromhex("000000001000800000aa00389b71")
"""What follows the two bytes of the encoding in the sub-format of WAVE_FORMAT_EXTENSIBLE."""

_UNKNOWN_SIZE_BYTES = 0x7FFFF000
"""Writers into a pipe don't know the length. ffmpeg writes 0xFFFFFFFF, sox 0x7FFFF000 in whole frames, some 0."""

_MAX_CHUNKS = 1000
"""Real files have a dozen; a damaged one could send us through millions of empty chunks."""

_OVERSHOOT = 2.0
"""Loud float files pass 1.0 by a little (lossy decoders, resampling). Twice full scale is another scale."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Audio as a file holds it.

    `samples` are floats in [-1, 1), shape (frames, channels); they may be read-only. `encoding` is what people call it.
    """

    samples: Floats
    rate_hz: int
    encoding: str

    @property
    def n_channels(self) -> int:
        return int(self.samples.shape[1])

    @property
    def n_frames(self) -> int:
        return int(self.samples.shape[0])


@dataclass(frozen=True, slots=True)
class _Format:
    """What the fmt chunk says, checked."""

    is_float: bool
    bits: int
    n_channels: int
    rate_hz: int

    @property
    def block_bytes(self) -> int:
        return self.n_channels * self.bits // 8

    @property
    def encoding(self) -> str:
        return f"{self.bits}-bit {'float' if self.is_float else 'PCM'}"


def decode(data: Buffer, *, source: str) -> Decoded:
    """Read a WAV file: PCM of 8, 16, 24 or 32 bits, or IEEE float of 32 or 64, any number of channels.

    Args:
        data: The whole file. A data chunk of unknown size (a writer into a pipe) reaches to the end of the file.
        source: What the file is called in errors.

    Raises:
        AudioError: One sentence that names the source, what was found and what would do.

    >>> decode(encode(np.array([16384, -32768], dtype=np.int16), 8000), source="a.wav").samples.tolist()
    [[0.5], [-1.0]]
    """
    form, body = _parse(memoryview(data), source)
    flat = _floats(body, form, source)
    return Decoded(flat.reshape(-1, form.n_channels), form.rate_hz, form.encoding)


def read_track(data: Buffer, *, source: str) -> tuple[Samples, int]:
    """Read one track of a recording: mono 16-bit PCM and nothing else, since anything else would be rounded again.

    Returns:
        The samples (int16, shape (samples,), looking into `data`, so read-only for bytes) and the rate in Hz.

    Raises:
        AudioError: The file is damaged, or is another kind of WAV.
    """
    form, body = _parse(memoryview(data), source)
    if form.is_float or form.bits != 16 or form.n_channels != 1:
        raise AudioError(
            f"{source}: a recorded track is mono 16-bit PCM, but this is {channels_text(form.n_channels)} "
            f"{form.encoding}; save it as mono 16-bit PCM"
        )
    return np.frombuffer(body, dtype="<i2").astype(np.int16, copy=False), form.rate_hz


def encode(samples: Samples, rate_hz: int) -> bytes:
    """A mono 16-bit PCM WAV file with the canonical header of 44 bytes.

    Raises:
        ValueError: Not a track (int16, one dimension), or too long for the 32-bit sizes of a WAV file.
    """
    if samples.dtype != np.int16 or samples.ndim != 1:
        raise ValueError(f"a track is int16 of one dimension, got {samples.dtype} of {samples.ndim}")
    n_bytes = 2 * len(samples)
    if n_bytes + 36 >= _UNKNOWN_SIZE_BYTES:
        raise ValueError(f"a WAV file holds less than 2 GiB, got {n_bytes} bytes")
    header = struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", n_bytes + 36, b"WAVE"),
        *(b"fmt ", 16, _PCM, 1, rate_hz, 2 * rate_hz, 2, 16),
        *(b"data", n_bytes),
    )
    return b"".join((header, np.ascontiguousarray(samples, dtype="<i2").data))


def channels_text(n_channels: int) -> str:
    """`mono`, `stereo`, or the number.

    >>> channels_text(1), channels_text(6)
    ('mono', '6-channel')
    """
    return {1: "mono", 2: "stereo"}.get(n_channels, f"{n_channels}-channel")


def check_rate(rate_hz: int, source: str) -> None:
    """Refuse a sample rate that is no sound's: AudioError."""
    if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
        raise AudioError(
            f"{source}: a sample rate of {rate_hz} Hz is outside {MIN_RATE_HZ} to {MAX_RATE_HZ} Hz; "
            "the header is damaged or this is no sound"
        )


def limited(signal: Floats, source: str) -> Floats:
    """Hold floats inside [-1, 1) as a track would; refuse NaN, infinity, and files on another scale."""
    if not signal.size:
        return signal
    lowest, highest = float(signal.min()), float(signal.max())
    peak = max(-lowest, highest)
    if not peak <= _OVERSHOOT:  # so written that NaN, which compares to nothing, is refused too
        found = f"values up to {peak:.4g}" if np.isfinite(peak) else "infinite values or NaN"
        raise AudioError(f"{source}: float samples lie between -1 and 1, but this holds {found}; export it again")
    if lowest < -1.0 or highest >= 1.0:
        return np.clip(signal, -1.0, np.nextafter(1.0, 0.0))
    return signal


def _parse(data: memoryview, source: str) -> tuple[_Format, memoryview]:
    """Walk the chunks to the format and the bytes of whole frames."""
    _check_container(data, source)
    form: _Format | None = None
    at = 12
    for _ in range(_MAX_CHUNKS):
        if at + 8 > len(data):
            break
        name, size = bytes(data[at : at + 4]), int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8
        if name == b"data":
            if form is None:
                raise AudioError(f"{source}: not a usable WAV file: no fmt chunk says what its data is")
            return form, _body(data, at, size, form, source)
        if name == b"fmt ":
            form = _format(data[at : at + size], source)
        at += size + size % 2  # chunks start at even places; the padding byte is not in the size
    raise AudioError(f"{source}: not a usable WAV file: no data chunk; it is cut off or damaged")


def _check_container(data: memoryview, source: str) -> None:
    kind = bytes(data[:4])
    if kind in (b"RF64", b"BW64"):
        raise AudioError(f"{source}: {kind.decode()} (a WAV of over 4 GiB) is not supported; save it as ordinary WAV")
    if kind == b"RIFX":
        raise AudioError(f"{source}: RIFX (a big-endian WAV) is not supported; save it as ordinary WAV")
    if kind != b"RIFF" or bytes(data[8:12]) != b"WAVE":
        raise AudioError(f"{source}: not a WAV file: it doesn't begin with RIFF and WAVE")


def _format(chunk: memoryview, source: str) -> _Format:
    if len(chunk) < 16:
        raise AudioError(f"{source}: not a usable WAV file: its fmt chunk has {len(chunk)} bytes instead of 16 or more")
    tag, n_channels, rate_hz, _, block_bytes, bits = struct.unpack_from("<HHIIHH", chunk)
    if tag == _EXTENSIBLE:
        if len(chunk) < 40 or bytes(chunk[26:40]) != _EXTENSIBLE_SUFFIX:
            raise AudioError(f"{source}: an extensible WAV without a standard sub-format; save it as 16-bit PCM")
        tag = int.from_bytes(chunk[24:26], "little")
    if tag not in (_PCM, _FLOAT):
        raise AudioError(
            f"{source}: encoded as {_NAMES.get(tag, f'format {tag:#06x}')}, but WAV files are read as PCM or float; "
            "save it as 16-bit PCM"
        )
    form = _Format(tag == _FLOAT, bits, n_channels, rate_hz)
    if bits not in ((32, 64) if form.is_float else (8, 16, 24, 32)):
        raise AudioError(
            f"{source}: {form.encoding} is not supported, only PCM of 8, 16, 24 or 32 bits and float of 32 or 64; "
            "save it as 16-bit PCM"
        )
    if not n_channels:
        raise AudioError(f"{source}: its header says 0 channels; the header is damaged")
    check_rate(rate_hz, source)
    if block_bytes != form.block_bytes:
        raise AudioError(
            f"{source}: its header says {block_bytes} bytes a frame, but {n_channels} x {bits} bits are "
            f"{form.block_bytes}; the header is damaged"
        )
    return form


def _body(data: memoryview, at: int, size: int, form: _Format, source: str) -> memoryview:
    """The data chunk's bytes; a stream of unknown size is taken up to its last whole frame."""
    there = len(data) - at
    unknown = size > max(there, _UNKNOWN_SIZE_BYTES - form.block_bytes) or (size == 0 and _never_sized(data, at))
    if unknown:
        return data[at : at + there - there % form.block_bytes]
    if size > there:
        raise AudioError(f"{source}: cut off: its data should have {size} bytes, but {there} are there")
    if size % form.block_bytes:
        raise AudioError(
            f"{source}: cut off or damaged: {size} bytes of data are no whole number of frames of "
            f"{form.block_bytes} bytes"
        )
    return data[at : at + size]


def _never_sized(data: memoryview, at: int) -> bool:
    """Whether a data size of 0 was left by a writer that never came back, rather than meaning an empty track."""
    riff_end = 8 + int.from_bytes(data[4:8], "little")
    return riff_end <= at or riff_end > len(data) + 1


def _floats(body: memoryview, form: _Format, source: str) -> Floats:
    if form.is_float:
        with np.errstate(invalid="ignore"):  # a signalling NaN warns when it is cast; it is refused just below
            return limited(np.frombuffer(body, dtype=f"<f{form.bits // 8}").astype(np.float64, copy=False), source)
    if form.bits == 8:  # the only unsigned one
        return np.subtract(np.frombuffer(body, dtype=np.uint8), 128.0, dtype=np.float64) * 2.0**-7
    if form.bits == 24:  # becomes the upper three bytes of 32
        widened = np.zeros((len(body) // 3, 4), dtype=np.uint8)
        widened[:, 1:] = np.frombuffer(body, dtype=np.uint8).reshape(-1, 3)
        return _scaled(widened.view("<i4").ravel(), 32)
    return _scaled(np.frombuffer(body, dtype=f"<i{form.bits // 8}"), form.bits)


def _scaled(steps: npt.NDArray[np.signedinteger], bits: int) -> Floats:
    floats: Floats = np.multiply(steps, 2.0 ** (1 - bits), dtype=np.float64)
    return floats
