"""Audio kept between runs: what is read is what its name says, and no disk can make a worker fail."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import stat
from pathlib import Path

import pytest

from voicebench.worker.asset_cache import AssetCache, cache_folder


def audio(seed: int, n_bytes: int = 1000) -> tuple[str, bytes]:
    data = random.Random(seed).randbytes(n_bytes)
    return hashlib.sha256(data).hexdigest(), data


def keep(cache: AssetCache, seed: int, *, used_s: float, n_bytes: int = 1000) -> str:
    """Keep audio that was used last at a time of our choice."""
    name, data = audio(seed, n_bytes)
    cache.put(name, data)
    assert cache._folder is not None
    if (cache._folder / name).exists():
        os.utime(cache._folder / name, (used_s, used_s))
    return name


def test_what_was_put_is_got_by_the_next_worker(tmp_path):
    name, data = audio(1)
    AssetCache(tmp_path / "assets").put(name, data)
    assert AssetCache(tmp_path / "assets").get(name) == data


def test_what_was_never_put_is_not_there(tmp_path):
    assert AssetCache(tmp_path / "assets").get(audio(1)[0]) is None


def test_looking_makes_no_folder(tmp_path):
    AssetCache(tmp_path / "assets").get(audio(1)[0])
    assert not (tmp_path / "assets").exists()


def test_the_folder_is_private(tmp_path):
    AssetCache(tmp_path / "a" / "assets").put(*audio(1))
    assert stat.S_IMODE((tmp_path / "a" / "assets").stat().st_mode) == 0o700


def test_nothing_but_the_named_file_is_left(tmp_path):
    name, data = audio(1)
    AssetCache(tmp_path).put(name, data)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: b"\1" + data[1:], lambda _: b""]
)
def test_a_damaged_file_is_not_used_and_makes_room_for_a_good_one(tmp_path, damage):
    name, data = audio(1)
    cache = AssetCache(tmp_path)
    cache.put(name, data)
    (tmp_path / name).write_bytes(damage(data))
    assert cache.get(name) is None
    assert not (tmp_path / name).exists()
    cache.put(name, data)
    assert cache.get(name) == data


def test_a_file_too_large_to_be_audio_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("voicebench.worker.asset_cache.MAX_ASSET_BYTES", 999)
    name, data = audio(1, 1000)
    cache = AssetCache(tmp_path)
    cache.put(name, data)
    assert cache.get(name) is None


def test_what_was_used_least_recently_goes_first(tmp_path):
    cache = AssetCache(tmp_path, kept_bytes=2500)
    first, second = keep(cache, 1, used_s=1000.0), keep(cache, 2, used_s=2000.0)
    third = keep(cache, 3, used_s=3000.0)
    assert sorted(os.listdir(tmp_path)) == sorted([second, third])
    assert cache.get(first) is None


def test_reading_counts_as_use(tmp_path):
    cache = AssetCache(tmp_path, kept_bytes=2500)
    first, second = keep(cache, 1, used_s=1000.0), keep(cache, 2, used_s=2000.0)
    cache.get(first)
    third = keep(cache, 3, used_s=3000.0)
    assert sorted(os.listdir(tmp_path)) == sorted([first, third])
    assert second not in os.listdir(tmp_path)


def test_audio_larger_than_the_whole_cache_is_no_failure(tmp_path):
    cache = AssetCache(tmp_path, kept_bytes=500)
    name = keep(cache, 1, used_s=1000.0)
    assert cache.get(name) is None
    assert cache.trouble == ""


def test_without_a_folder_nothing_is_kept_and_nothing_fails():
    cache = AssetCache(None)
    name, data = audio(1)
    cache.put(name, data)
    assert cache.get(name) is None
    assert cache.trouble == ""


def test_a_folder_that_can_not_be_made_is_a_note_and_no_failure(tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = AssetCache(tmp_path / "file" / "assets")
    name, data = audio(1)
    cache.put(name, data)
    assert cache.get(name) is None
    assert "audio is not kept between runs" in cache.trouble
    assert "Not a directory" in cache.trouble


def test_a_full_disk_is_a_note_and_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("voicebench.worker.asset_cache.os.replace", full)
    cache = AssetCache(tmp_path)
    cache.put(*audio(1))
    assert os.listdir(tmp_path) == []
    assert "No space left on device" in cache.trouble


def test_a_folder_under_the_name_of_audio_is_not_read(tmp_path):
    name, data = audio(1)
    (tmp_path / name).mkdir()
    cache = AssetCache(tmp_path)
    assert cache.get(name) is None
    cache.put(name, data)
    assert "audio is not kept" in cache.trouble
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, Path("/c/voicebench/assets")),
        ({"HOME": "/h"}, Path("/h/.cache/voicebench/assets")),
        ({"XDG_CACHE_HOME": "", "HOME": "/h"}, Path("/h/.cache/voicebench/assets")),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, Path("/h/.cache/voicebench/assets")),  # as the XDG text has it
        ({"HOME": "relative"}, None),
        ({}, None),
    ],
)
def test_where_audio_is_kept(environment, folder):
    assert cache_folder(environment) == folder
