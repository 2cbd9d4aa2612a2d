import contextlib
import io

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from voicebench.audio import synth, wav
from voicebench.audio.files import decode_audio, encode_flac, read_recorded_track, to_track
from voicebench.audio.wav import Decoded
from voicebench.errors import AudioError

RATE_HZ = 16000
SIGNAL = np.random.default_rng(7).normal(0, 3000, 8000).astype(np.int16)


def written(format_: str, subtype: str, signal: np.ndarray = SIGNAL, rate_hz: int = RATE_HZ) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, signal, rate_hz, format=format_, subtype=subtype)
    return file.getvalue()


FLAC = written("FLAC", "PCM_16")
VOICE = synth.speech(500, RATE_HZ)  # lossy encoders keep voices, and throw noise away
VORBIS = written("OGG", "VORBIS", VOICE)
OPUS = written("OGG", "OPUS", VOICE)


def without_length(flac: bytes) -> bytes:
    """A FLAC stream as a writer into a pipe leaves it: no total in the header."""
    changed = bytearray(flac)
    changed[21] &= 0xF0
    changed[22:26] = b"\0\0\0\0"
    return bytes(changed)


@pytest.mark.parametrize("data", [wav.encode(SIGNAL, RATE_HZ), FLAC, without_length(FLAC)])
def test_lossless_files_come_out_bit_by_bit(data: bytes) -> None:
    decoded = decode_audio(data, source="a")
    assert decoded.rate_hz == RATE_HZ
    assert np.array_equal(to_track(decoded, RATE_HZ), SIGNAL)


@pytest.mark.parametrize(("data", "encoding"), [(VORBIS, "OGG VORBIS"), (OPUS, "OGG OPUS")])
def test_ogg_files_keep_length_and_level(data: bytes, encoding: str) -> None:
    decoded = decode_audio(data, source="a")
    assert decoded.encoding == encoding
    assert decoded.samples.shape == (8000, 1)
    assert np.std(decoded.samples) == pytest.approx(0.1, rel=0.05)


def test_loud_ogg_files_stay_within_full_scale() -> None:
    loud = (np.sign(np.sin(np.arange(16000) * 0.05)) * 32767).astype(np.int16)
    samples = decode_audio(written("OGG", "VORBIS", loud), source="a").samples
    assert -1.0 <= samples.min() < samples.max() < 1.0


def test_stereo_is_mixed_by_the_mean_of_its_channels() -> None:
    left, right = np.array([0.5, 0.25, -1.0]), np.array([0.0, 0.25, 0.5])
    decoded = Decoded(np.stack((left, right), axis=1), RATE_HZ, "16-bit PCM")
    assert to_track(decoded, RATE_HZ).tolist() == [8192, 8192, -8192]


@pytest.mark.parametrize(
    ("n", "from_hz", "to_hz", "expected"),
    [
        (44100, 44100, 16000, 16000),
        (1001, 16000, 8000, 500),
        (1003, 16000, 8000, 502),
        (1, 44100, 8000, 0),
        (0, 8000, 16000, 0),
    ],
)
def test_a_track_has_exactly_its_length_at_the_new_rate(n: int, from_hz: int, to_hz: int, expected: int) -> None:
    assert len(to_track(Decoded(np.zeros((n, 2)), from_hz, "16-bit PCM"), to_hz)) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "file is empty; files that work are WAV .*, FLAC and OGG"),
        (b"ID3\x04" + b"\0" * 50, "is an MP3 file; files that work are"),
        (b"\0\0\0\x20ftypM4A " + b"\0" * 50, "is an MP4 or M4A file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
        (b"hello world", r"is no audio file known here \(it begins with 68 65 6c 6c\)"),
        (b"RF64\0\0\0\0WAVE", "RF64 .* is not supported"),
        (FLAC[: len(FLAC) // 2], "cut off or damaged"),
        (FLAC[:-1], "cut off or damaged"),
        (FLAC[:20], "cut off or damaged"),
        (VORBIS[:-1], "cut off: its last Ogg page is not whole"),
        (VORBIS[: len(VORBIS) // 2], "cut off: its last Ogg page is not whole"),
        (OPUS[:-1], "cut off: its last Ogg page is not whole"),
        (b"OggS" + b"\0" * 40, "cannot be decoded"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(data: bytes, expected: str) -> None:
    with pytest.raises(AudioError, match=f"^talk.mp3: .*{expected}") as caught:
        decode_audio(data, source="talk.mp3")
    assert "\n" not in str(caught.value)
    assert "BytesIO" not in str(caught.value)


def test_a_flac_file_that_claims_more_than_it_holds_is_cut_off() -> None:
    claims = bytearray(FLAC)
    claims[21] |= 0x0F  # 68 billion samples, which must not be allocated either
    with pytest.raises(AudioError, match="cut off"):
        decode_audio(bytes(claims), source="a.flac")


def test_a_recorded_track_is_read_from_wav_and_from_flac() -> None:
    for data in (wav.encode(SIGNAL, RATE_HZ), encode_flac(SIGNAL, RATE_HZ)):
        samples, rate_hz = read_recorded_track(data, source="user")
        assert samples.dtype == np.int16
        assert np.array_equal(samples, SIGNAL)
        assert rate_hz == RATE_HZ


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (written("FLAC", "PCM_24"), "mono with 16 bits, but this is mono FLAC PCM 24"),
        (written("FLAC", "PCM_16", np.stack((SIGNAL, SIGNAL), axis=1)), "but this is stereo FLAC PCM 16"),
        (written("WAV", "PCM_24"), "mono 16-bit PCM, but this is mono 24-bit PCM"),
        (VORBIS, "not a WAV file"),
    ],
)
def test_a_recorded_track_that_would_be_rounded_again_is_refused(data: bytes, expected: str) -> None:
    with pytest.raises(AudioError, match=f"^agent.flac: .*{expected}"):
        read_recorded_track(data, source="agent.flac")


@pytest.mark.parametrize("n", [1, 15, 4096, 100_000])
def test_flac_keeps_every_sample(n: int) -> None:
    track = np.random.default_rng(n).integers(-32768, 32768, n).astype(np.int16)
    assert np.array_equal(read_recorded_track(encode_flac(track, 8000), source="a")[0], track)


def test_an_empty_flac_file_is_not_written() -> None:
    with pytest.raises(ValueError, match="not empty"):
        encode_flac(np.zeros(0, dtype=np.int16), 8000)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([FLAC, VORBIS, OPUS]),
    st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), max_size=3),
    st.integers(0, 9000),
)
def test_no_mutation_of_a_valid_file_raises_anything_but_our_own_error(
    data: bytes, changes: list[tuple[int, int]], length: int
) -> None:
    mutated = bytearray(data)
    for at, value in changes:
        mutated[at] = value
    for candidate in (bytes(mutated), bytes(mutated[:length])):
        for read in (decode_audio, read_recorded_track):
            with contextlib.suppress(AudioError):
                read(candidate, source="fuzz")
