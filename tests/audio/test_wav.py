import contextlib
import io
import re
import struct
import timeit
import wave

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from voicebench.audio import wav
from voicebench.errors import AudioError

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
TRACK = np.array([0, 1, -1, 32767, -32768, 12345], dtype=np.int16)


def chunk(name: bytes, body: bytes, *, size: int | None = None) -> bytes:
    return name + struct.pack("<I", len(body) if size is None else size) + body + b"\0" * (len(body) % 2)


def fmt(
    tag: int = PCM, channels: int = 1, rate_hz: int = 16000, bits: int = 16, block: int | None = None, more: bytes = b""
) -> bytes:
    block = channels * bits // 8 if block is None else block
    return chunk(b"fmt ", struct.pack("<HHIIHH", tag, channels, rate_hz, rate_hz * block, block, bits) + more)


def extensible(tag: int, bits: int, *, channels: int = 1, suffix: str = "000000001000800000aa00389b71") -> bytes:
    more = struct.pack("<HHIH", 22, bits, 0, tag) + bytes.fromhex(suffix)
    return fmt(EXTENSIBLE, channels=channels, bits=bits, more=more)


def riff(*chunks: bytes, kind: bytes = b"RIFF", size: int | None = None) -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return kind + struct.pack("<I", len(body) if size is None else size) + body


def error_of(data: bytes, read: object = wav.decode) -> str:
    with pytest.raises(AudioError) as caught:
        read(data, source="hello.wav")  # type: ignore[operator]
    message = str(caught.value)
    assert message.startswith("hello.wav: ")
    assert "\n" not in message
    return message


def test_the_header_is_the_canonical_44_bytes() -> None:
    data = wav.encode(TRACK, 16000)
    assert data == riff(fmt(), chunk(b"data", TRACK.tobytes()))
    assert len(data) == 44 + 2 * len(TRACK)


def test_the_standard_library_reads_what_we_write() -> None:
    with wave.open(io.BytesIO(wav.encode(TRACK, 22050))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 22050)
        assert file.readframes(-1) == TRACK.tobytes()


@given(hnp.arrays(np.int16, st.integers(0, 100)), st.sampled_from([8000, 16000, 44100]))
def test_a_track_comes_back_bit_by_bit(track: np.ndarray, rate_hz: int) -> None:
    samples, read_hz = wav.read_track(wav.encode(track, rate_hz), source="a")
    assert np.array_equal(samples, track)
    assert samples.dtype == np.int16
    assert read_hz == rate_hz


def test_only_int16_of_one_dimension_is_written() -> None:
    with pytest.raises(ValueError, match="float64"):
        wav.encode(np.zeros(3), 16000)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="of 2"):
        wav.encode(np.zeros((3, 2), dtype=np.int16), 16000)


@pytest.mark.parametrize(
    ("form", "body", "expected"),
    [
        (fmt(bits=8), bytes([0, 128, 255]), [-1, 0, 127 / 128]),
        (fmt(bits=16), struct.pack("<3h", -32768, 0, 32767), [-1, 0, 32767 / 32768]),
        (fmt(bits=24), bytes.fromhex("000080 ffffff ffff7f"), [-1, -(2.0**-23), 1 - 2.0**-23]),
        (fmt(bits=32), struct.pack("<3i", -(2**31), -1, 2**31 - 1), [-1, -(2.0**-31), 1 - 2.0**-31]),
        (fmt(FLOAT, bits=32), struct.pack("<3f", -1, 0.25, 0.5), [-1, 0.25, 0.5]),
        (fmt(FLOAT, bits=64), struct.pack("<3d", -1, 0.1, 0.5), [-1, 0.1, 0.5]),
        (extensible(PCM, 16), struct.pack("<2h", -16384, 8192), [-0.5, 0.25]),
        (extensible(PCM, 24), bytes.fromhex("0000c0 000040"), [-0.5, 0.5]),
        (extensible(FLOAT, 32), struct.pack("<f", 0.5), [0.5]),
    ],
)
def test_every_encoding_is_scaled_to_one(form: bytes, body: bytes, expected: list[float]) -> None:
    decoded = wav.decode(riff(form, chunk(b"data", body)), source="a")
    assert decoded.samples.dtype == np.float64
    assert decoded.samples.tolist() == [[value] for value in expected]


def test_channels_are_columns() -> None:
    data = riff(fmt(channels=2, rate_hz=44100), chunk(b"data", struct.pack("<4h", 16384, -16384, 0, 8192)))
    decoded = wav.decode(data, source="a")
    assert decoded.samples.tolist() == [[0.5, -0.5], [0.0, 0.25]]
    assert (decoded.n_channels, decoded.n_frames, decoded.rate_hz, decoded.encoding) == (2, 2, 44100, "16-bit PCM")


def test_unknown_chunks_and_their_padding_are_skipped() -> None:
    data = riff(
        chunk(b"LIST", b"odd"), fmt(), chunk(b"bext", b"x" * 602), chunk(b"data", b"\1\0"), chunk(b"id3 ", b"z")
    )
    assert wav.read_track(data, source="a")[0].tolist() == [1]


def test_data_of_odd_length_needs_no_padding_at_the_end_of_the_file() -> None:
    data = riff(fmt(bits=8), chunk(b"data", b"\x80"))[:-1]
    assert wav.decode(data, source="a").samples.tolist() == [[0.0]]


def test_a_track_may_be_empty() -> None:
    assert len(wav.read_track(riff(fmt(), chunk(b"data", b"")), source="a")[0]) == 0
    followed = riff(fmt(), chunk(b"data", b""), chunk(b"LIST", b"abcd"))
    assert len(wav.read_track(followed, source="a")[0]) == 0


@pytest.mark.parametrize(
    ("riff_size", "data_size"),
    [
        (0xFFFFFFFF, 0xFFFFFFFF),  # ffmpeg into a pipe
        (0x7FFFF024, 0x7FFFF000),  # sox into a pipe
        (0, 0),
        (36, 0),  # a header written first and never again
        (0xFFFFFFFF, 0),
    ],
)
def test_a_stream_that_never_said_its_size_reaches_to_the_end(riff_size: int, data_size: int) -> None:
    data = riff(fmt(), chunk(b"data", TRACK.tobytes(), size=data_size), size=riff_size)
    assert wav.read_track(data, source="a")[0].tolist() == TRACK.tolist()
    assert wav.read_track(data + b"\7", source="a")[0].tolist() == TRACK.tolist()  # stopped inside a frame


def test_float_peaks_just_beyond_full_scale_are_held_below_it() -> None:
    decoded = wav.decode(riff(fmt(FLOAT, bits=32), chunk(b"data", struct.pack("<3f", 1, 1.2, -1.2))), source="a")
    assert decoded.samples.max() < 1.0
    assert decoded.samples.min() == -1.0


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "not a WAV file"),
        (b"RIFF", "not a WAV file"),
        (riff(kind=b"RF64"), "RF64 .* not supported"),
        (riff(kind=b"RIFX"), "RIFX .* not supported"),
        (riff(chunk(b"data", b"ab")), "no fmt chunk"),
        (riff(fmt()), "no data chunk"),
        (riff(fmt(), b"\0" * 80_000), "no data chunk"),
        (riff(chunk(b"fmt ", b"short"), chunk(b"data", b"")), "fmt chunk has 5 bytes"),
        (riff(fmt(channels=0), chunk(b"data", b"")), "0 channels"),
        (riff(fmt(rate_hz=0), chunk(b"data", b"")), "sample rate of 0 Hz"),
        (riff(fmt(rate_hz=4_000_000_000, block=0), chunk(b"data", b"")), "sample rate of 4000000000 Hz"),
        (riff(fmt(block=4), chunk(b"data", b"abcd")), "4 bytes a frame, but 1 x 16 bits are 2"),
        (riff(fmt(bits=12, block=2), chunk(b"data", b"ab")), "12-bit PCM is not supported"),
        (riff(fmt(FLOAT, bits=16), chunk(b"data", b"ab")), "16-bit float is not supported"),
        (riff(fmt(6, bits=8), chunk(b"data", b"ab")), "encoded as A-law"),
        (riff(fmt(7, bits=8), chunk(b"data", b"ab")), "encoded as mu-law"),
        (riff(fmt(2, bits=4), chunk(b"data", b"ab")), "encoded as ADPCM"),
        (riff(fmt(0x1234), chunk(b"data", b"ab")), "encoded as format 0x1234"),
        (riff(extensible(6, 8), chunk(b"data", b"ab")), "encoded as A-law"),
        (riff(extensible(PCM, 16, suffix="00" * 14), chunk(b"data", b"ab")), "standard sub-format"),
        (riff(fmt(EXTENSIBLE), chunk(b"data", b"ab")), "standard sub-format"),
        (riff(fmt(), chunk(b"data", b"abcd"))[:-1], "should have 4 bytes, but 3 are there"),
        (riff(fmt(), chunk(b"data", b"abc")), "3 bytes of data are no whole number of frames of 2 bytes"),
        (riff(fmt(FLOAT, bits=32), chunk(b"data", struct.pack("<f", 3e4))), "holds values up to 3e\\+04"),
        (riff(fmt(FLOAT, bits=32), chunk(b"data", struct.pack("<I", 0x7F800001))), "infinite values or NaN"),
        (riff(fmt(FLOAT, bits=64), chunk(b"data", struct.pack("<2d", 0, float("inf")))), "infinite values or NaN"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(data: bytes, expected: str) -> None:
    assert re.search(expected, error_of(data))


@pytest.mark.parametrize(
    ("form", "found"),
    [
        (fmt(channels=2), "stereo 16-bit PCM"),
        (fmt(channels=6), "6-channel 16-bit PCM"),
        (fmt(bits=8), "mono 8-bit PCM"),
        (fmt(bits=24), "mono 24-bit PCM"),
        (fmt(FLOAT, bits=32), "mono 32-bit float"),
    ],
)
def test_a_recorded_track_must_be_mono_16_bit_pcm(form: bytes, found: str) -> None:
    message = error_of(riff(form, chunk(b"data", b"\0" * 24)), wav.read_track)
    assert f"a recorded track is mono 16-bit PCM, but this is {found}; save it as" in message


def reads_or_refuses(data: bytes) -> None:
    for read in (wav.decode, wav.read_track):
        with contextlib.suppress(AudioError):
            read(data, source="fuzz.wav")


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_our_own_error(data: bytes) -> None:
    reads_or_refuses(data)
    reads_or_refuses(b"RIFF\0\0\0\0WAVE" + data)
    reads_or_refuses(b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0" + data)


VALID = [
    wav.encode(TRACK, 16000),
    riff(extensible(FLOAT, 32, channels=2), chunk(b"LIST", b"odd"), chunk(b"data", b"\0" * 40)),
    riff(fmt(FLOAT, bits=64), chunk(b"data", struct.pack("<4d", 0, 1, -1, 0.5))),
    riff(fmt(bits=24, channels=2), chunk(b"data", b"\x7f" * 24)),
]


@settings(deadline=None)
@given(
    st.sampled_from(VALID),
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 255)), max_size=4),
    st.integers(0, 120),
)
def test_no_mutation_of_a_valid_file_raises_anything_but_our_own_error(
    data: bytes, changes: list[tuple[int, int]], length: int
) -> None:
    mutated = bytearray(data)
    for at, value in changes:
        mutated[at % len(mutated)] = value
    reads_or_refuses(bytes(mutated))
    reads_or_refuses(bytes(mutated[:length]))


def test_a_minute_of_audio_is_read_without_copying_it() -> None:
    data = wav.encode(np.zeros(60 * 16000, dtype=np.int16), 16000)
    best_s = min(timeit.repeat(lambda: wav.read_track(data, source="a"), number=1, repeat=20))
    assert best_s < 0.002
    assert wav.read_track(data, source="a")[0].base is not None
