"""Audio files' bytes to samples and back: WAV by our own reader, FLAC and OGG by libsndfile.

soundfile is imported when a FLAC or OGG file is met, so that those who have only WAV files never wait for it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from voicebench.audio import wav
from voicebench.audio.pcm import round_to_int16
from voicebench.audio.resample import resample
from voicebench.audio.wav import Decoded
from voicebench.errors import AudioError
from voicebench.events import Samples

READABLE = "WAV (PCM or float), FLAC and OGG (Vorbis or Opus)"

_BLOCK_FRAMES = 1 << 16
_MAX_VALUES = 1 << 27
"""46 minutes of stereo at 48 kHz (1 GiB as floats): a few bytes of FLAC can claim, or even hold, days of silence."""

_KNOWN_STARTS = (
    (b"ID3", 0, "an MP3 file"),
    (b"\xff\xfb", 0, "an MP3 file"),
    (b"ftyp", 4, "an MP4 or M4A file"),
    (b"FORM", 0, "an AIFF file"),
    (b"\x1a\x45\xdf\xa3", 0, "a WebM or Matroska file"),
    (b"version https://git-lfs", 0, "a Git LFS pointer, not the file itself"),
)


def decode_audio(data: bytes, *, source: str) -> Decoded:
    """Read an audio file by what its first bytes say, not by its name.

    Args:
        data: The whole file.
        source: What the file is called in errors.

    Returns:
        Floats in [-1, 1), shape (frames, channels), at the file's own rate.

    Raises:
        AudioError: Another kind of file, or one that is cut off or damaged.
    """
    if data[:4] in (b"RIFF", b"RIFX", b"RF64", b"BW64"):
        return wav.decode(data, source=source)
    if data[:4] == b"OggS":
        _check_last_page(data, source)
    elif data[:4] != b"fLaC":
        raise AudioError(f"{source}: this {_looks_like(data)}; files that work are {READABLE}")
    with _opened(data, source) as file:
        samples = _read_all(file, "float64", source)
        encoding = f"{file.format} {file.subtype.replace('_', ' ')}"
        return Decoded(wav.limited(samples, source), file.samplerate, encoding)


def read_recorded_track(data: bytes, *, source: str) -> tuple[Samples, int]:
    """Read one track of a recording: mono and 16 bits, WAV or FLAC, since anything else would be rounded again.

    Returns:
        The samples (int16, shape (samples,), maybe read-only) and the rate in Hz.

    Raises:
        AudioError: Damaged, or not mono 16-bit PCM.
    """
    if data[:4] != b"fLaC":
        return wav.read_track(data, source=source)
    with _opened(data, source) as file:
        if file.channels != 1 or file.subtype != "PCM_16":
            raise AudioError(
                f"{source}: a recorded track is mono with 16 bits, but this is {wav.channels_text(file.channels)} "
                f"FLAC {file.subtype.replace('_', ' ')}; save it as mono 16-bit FLAC or WAV"
            )
        return _read_all(file, "int16", source)[:, 0], file.samplerate


def to_track(decoded: Decoded, rate_hz: int) -> Samples:
    """Make a file into a track: the mean of its channels, resampled if its rate differs, rounded once.

    Args:
        decoded: Audio as the file holds it.
        rate_hz: Rate of the session, Hz.

    Returns:
        int16, shape (samples,), `frames * rate_hz / decoded.rate_hz` samples (nearest, halves to even). A mono 16-bit
        file at the session's rate comes out bit by bit as it is.
    """
    mono = decoded.samples[:, 0] if decoded.n_channels == 1 else decoded.samples.mean(axis=1)
    return round_to_int16(resample(mono, decoded.rate_hz, rate_hz))


def encode_flac(samples: Samples, rate_hz: int) -> bytes:
    """A mono 16-bit FLAC file; about 17 ms of CPU for a minute at 16 kHz, so never beside the pacer.

    Raises:
        ValueError: Not a track (int16, one dimension), or an empty one, which FLAC cannot express.
    """
    if samples.dtype != np.int16 or samples.ndim != 1 or not len(samples):
        raise ValueError(f"FLAC wants int16 of one dimension, not empty; got {samples.dtype} {samples.shape}")
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, samples, rate_hz, format="FLAC", subtype="PCM_16")
    return file.getvalue()


@contextmanager
def _opened(data: bytes, source: str) -> Iterator[Any]:
    """A soundfile over the bytes, its errors turned into ours."""
    import soundfile

    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            wav.check_rate(file.samplerate, source)
            # soundfile seeks after every read, which fails in FLAC streams that do not say their length.
            file.seekable = lambda: False
            yield file
    except soundfile.SoundFileError as error:
        reason = str(getattr(error, "error_string", error)).strip().rstrip(".")
        raise AudioError(f"{source}: cannot be decoded, it is cut off or damaged ({reason})") from None


def _read_all(file: Any, dtype: str, source: str) -> npt.NDArray[Any]:
    """Every frame, shape (frames, channels), in blocks: the length a header claims allocates nothing."""
    blocks: list[npt.NDArray[Any]] = []
    n_frames = 0
    while len(block := file.read(_BLOCK_FRAMES, dtype=dtype, always_2d=True)):
        blocks.append(block)
        n_frames += len(block)
        if n_frames * file.channels > _MAX_VALUES:
            raise AudioError(f"{source}: longer than {_MAX_VALUES // file.channels} samples; cut it to what is said")
    if n_frames < file.frames < 2**62:  # beyond: libsndfile's way to say that the length is unknown
        raise AudioError(f"{source}: cut off: {file.frames} samples were announced, {n_frames} are there")
    return np.concatenate(blocks) if blocks else np.zeros((0, file.channels), dtype=dtype)


def _check_last_page(data: bytes, source: str) -> None:
    """libsndfile reads an Ogg file that was cut off as a shorter one; its last page must be whole."""
    at = data.rfind(b"OggS")
    n_segments = data[at + 26] if at + 26 < len(data) else len(data)
    lengths = data[at + 27 : at + 27 + n_segments]
    if len(lengths) < n_segments or at + 27 + n_segments + sum(lengths) > len(data):
        raise AudioError(f"{source}: cut off: its last Ogg page is not whole")


def _looks_like(data: bytes) -> str:
    if not data:
        return "file is empty"
    names = [name for start, at, name in _KNOWN_STARTS if data[at : at + len(start)] == start]
    return f"is {names[0]}" if names else f"is no audio file known here (it begins with {data[:4].hex(' ')})"
