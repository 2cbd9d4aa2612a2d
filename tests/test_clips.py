import json
import re
from importlib import resources

import numpy as np
import pytest

from voicebench.audio import wav
from voicebench.clips import clip_bytes, clip_info, clip_names
from voicebench.errors import AudioError

SPOKEN = ("opening", "answer", "barge_in", "backchannel", "long_pause", "long_short_pause", "yes", "no")
NOISES = ("cough", "door_slam", "keyboard")


def test_the_names_are_the_documented_ones() -> None:
    assert clip_names() == SPOKEN + NOISES


@pytest.mark.parametrize("name", SPOKEN + NOISES)
def test_every_clip_is_a_track_of_the_length_it_claims(name: str) -> None:
    track, rate_hz = wav.read_track(clip_bytes(name), source=name)
    info = clip_info(name)
    assert rate_hz == 16000
    assert len(track) == info.duration_ms * 16
    assert np.abs(track.astype(int)).max() > 3000
    assert info.name == name
    assert info.expect in ("respond", "stop", "ignore")
    assert bool(info.text) == (name in SPOKEN)
    assert ("CC0" in info.licence) == (name in SPOKEN)


@pytest.mark.parametrize("name", ["long_pause", "long_short_pause"])
def test_the_pause_of_a_clip_is_as_long_as_it_claims(name: str) -> None:
    track, _ = wav.read_track(clip_bytes(name), source=name)
    loud = np.flatnonzero(np.abs(track.astype(int)) > 200)
    assert np.diff(loud).max() / 16 == pytest.approx(clip_info(name).pause_ms, rel=0.15)


def test_no_file_is_shipped_without_a_line_in_the_catalogue_and_the_licences() -> None:
    files = {entry.name for entry in resources.files("voicebench.clips").iterdir() if entry.name.endswith(".wav")}
    assert files == {f"{name}.wav" for name in clip_names()}
    licences = resources.files("voicebench.clips").joinpath("LICENSES.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`([a-z_]+)`", licences)) == set(clip_names())
    catalogue = json.loads(resources.files("voicebench.clips").joinpath("clips.json").read_text(encoding="utf-8"))
    assert list(catalogue["clips"]) == list(clip_names())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("barge-in", "there is no clip 'barge-in'. Did you mean 'barge_in'?"),
        ("zzz", "there is no clip 'zzz'. There are opening, answer, .*, keyboard."),
        ("../clips/yes", "there is no clip '../clips/yes'."),
    ],
)
def test_a_name_that_is_none_names_the_nearest(name: str, expected: str) -> None:
    for ask in (clip_bytes, clip_info):
        with pytest.raises(AudioError, match=expected):
            ask(name)
