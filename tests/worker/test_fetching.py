"""Scenarios and audio fetched in pieces, over a link that loses, repeats and reorders."""

from __future__ import annotations

import hashlib
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicebench.errors import WireError
from voicebench.wire.messages import PIECE_BYTES, AssetPiece, WantAsset
from voicebench.worker.fetching import ASK_AGAIN_S, IN_FLIGHT, LOOKED_AT_BYTES, Fetching


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def a_scenario(*clips: bytes, title: str = "made") -> bytes:
    """A scenario asset as far as fetching looks into it: the audio it names."""
    return msgspec.msgpack.encode(
        {
            "document": {"name": title}, "adapter": "mock", "options": {}, "sample_rate": 16000, "file": b"made.yaml",
            "clips": [sha(clip) for clip in clips],
        }
    )  # fmt: skip


class Master:
    """Answers as the master does, from what it has."""

    def __init__(self, *assets: bytes) -> None:
        self.assets = {sha(data): data for data in assets}
        self.asked: list[WantAsset] = []

    def answer(self, want: WantAsset) -> AssetPiece:
        self.asked.append(want)
        whole = self.assets[want.sha]
        data = whole[want.offset : want.offset + PIECE_BYTES]
        return AssetPiece(sha=want.sha, offset=want.offset, size=len(whole), data=data)


class Kept(dict):
    """Audio that is here: what a cache would hold."""

    def put(self, name: str, data: bytes) -> None:
        self[name] = data


def fetching(*scenarios: bytes, kept: Kept | None = None) -> Fetching:
    kept = Kept() if kept is None else kept
    return Fetching([sha(each) for each in scenarios], have=kept.get, keep=kept.put)


def run(machine: Fetching, master: Master) -> None:
    """To the end, over a link that works."""
    now_s = 0.0
    while not machine.done:
        wants = machine.asks(1, now_s)
        assert wants or not machine.done, "it waits, and nobody owes it anything"
        for want in wants:
            machine.hear(master.answer(want))
        now_s += 0.001


@st.composite
def worlds(draw):
    seed = draw(st.integers(0, 999))
    sizes = st.sampled_from([1, 2, 1000, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES + 7])
    clips = [random.Random(f"{seed}/{n}").randbytes(draw(sizes)) for n in range(draw(st.integers(1, 6)))]
    chosen = st.lists(st.sampled_from(clips), min_size=1, max_size=5)
    scenarios = [a_scenario(*draw(chosen), title=f"s{n}") for n in range(draw(st.integers(1, 3)))]
    kept = draw(st.sets(st.sampled_from(clips)))
    return scenarios, clips, kept


@settings(max_examples=60, deadline=None)
@given(worlds(), st.integers(0, 1 << 32).map(random.Random), st.floats(0, 0.6))
def test_everything_arrives_byte_for_byte_over_a_bad_link(world, chance, trouble):
    scenarios, clips, kept = world
    store = Kept({sha(clip): clip for clip in kept})
    machine, master = fetching(*scenarios, kept=store), Master(*scenarios, *clips)
    on_the_way: list[AssetPiece] = []
    now_s = 0.0
    while not machine.done:
        now_s += chance.choice([0.02, 0.5])
        for want in machine.asks(1, now_s):
            if chance.random() >= trouble:
                on_the_way += [master.answer(want)] * (2 if chance.random() < trouble else 1)
        chance.shuffle(on_the_way)
        late = [piece for piece in on_the_way if chance.random() < trouble]
        for piece in on_the_way:
            if piece not in late:
                machine.hear(piece)
        on_the_way = late
        assert now_s < 10_000, "it never ends"
    named = {name for each in scenarios for name in msgspec.msgpack.decode(each)["clips"]}
    assert machine.scenarios == {sha(each): each for each in scenarios}
    assert machine.audio == {sha(clip): clip for clip in clips if sha(clip) in named}
    assert {want.sha for want in master.asked}.isdisjoint({sha(clip) for clip in kept})
    assert store == {sha(clip): clip for clip in (*kept, *(each for each in clips if sha(each) in named))}


def test_scenarios_come_before_audio():
    clip = b"\1\2" * 10
    one, two = a_scenario(clip, title="1"), a_scenario(clip, title="2")
    machine, master = fetching(one, two), Master(one, two, clip)
    run(machine, master)
    assert [want.sha for want in master.asked] == [sha(one), sha(two), sha(clip)]


def test_a_scenario_named_twice_is_fetched_once():
    clip = b"\1\2"
    one = a_scenario(clip)
    machine, master = fetching(one, one), Master(one, clip)
    run(machine, master)
    assert len(master.asked) == 2


def test_at_most_a_few_pieces_are_on_their_way():
    scenarios = [a_scenario(b"\0\0", title=str(n)) for n in range(20)]
    machine = fetching(*scenarios)
    assert len(machine.asks(1, 0.0)) == IN_FLIGHT
    assert machine.asks(1, ASK_AGAIN_S / 2) == []


def test_what_got_no_answer_is_asked_for_again():
    one = a_scenario(b"\0\0")
    machine = fetching(one)
    first = machine.asks(1, 0.0)
    assert machine.asks(1, ASK_AGAIN_S - 0.1) == []
    assert machine.asks(1, ASK_AGAIN_S + 0.1) == first == [WantAsset(epoch=1, sha=sha(one), offset=0)]


def test_it_is_not_done_while_kept_audio_has_not_been_looked_at():
    clips = [bytes([n]) * (LOOKED_AT_BYTES // 2) for n in range(5)]
    one = a_scenario(*clips)
    looked: list[str] = []
    kept = {sha(clip): clip for clip in clips}

    def have(name: str) -> bytes | None:
        looked.append(name)
        return kept.get(name)

    machine = Fetching([sha(one)], have=have, keep=lambda name, data: None)
    (want,) = machine.asks(1, 0.0)
    machine.hear(Master(one).answer(want))
    assert not machine.done
    rounds = 0
    while not machine.done:
        assert machine.asks(1, 0.0) == []
        rounds += 1
        assert len(looked) <= 2 * rounds, "the thread that sends beats reads more than a portion at a time"
    assert machine.audio == kept


def test_what_is_something_else_than_its_name_is_refused_by_name():
    one = a_scenario(b"\0\0")
    machine = fetching(one)
    machine.asks(1, 0.0)
    other = b"\xff" * len(one)
    with pytest.raises(WireError, match=f"{sha(one)[:12]} is something else"):
        machine.hear(AssetPiece(sha=sha(one), offset=0, size=len(other), data=other))


def test_audio_that_does_not_match_is_neither_used_nor_kept():
    clip = b"\1\2" * 10
    one, kept = a_scenario(clip), Kept()
    machine, master = fetching(one, kept=kept), Master(one)
    machine.hear(master.answer(machine.asks(1, 0.0)[0]))
    machine.asks(1, 0.0)
    with pytest.raises(WireError, match=sha(clip)[:12]):
        machine.hear(AssetPiece(sha=sha(clip), offset=0, size=20, data=b"\0" * 20))
    assert machine.audio == {}
    assert kept == {}


@pytest.mark.parametrize(
    ("size", "data"),
    [
        (100, b"x" * 99),  # shorter than what is left
        (100, b"x" * 101),
        (100, b""),
        (3 * PIECE_BYTES, b"x" * 100),  # less than a piece in the middle
        ((256 << 20) + 1, b"x" * PIECE_BYTES),  # larger than any asset
    ],
)
def test_a_piece_that_does_not_fit_is_refused(size, data):
    one = a_scenario(b"\0\0")
    machine = fetching(one)
    machine.asks(1, 0.0)
    with pytest.raises(WireError, match=sha(one)[:12]):
        machine.hear(AssetPiece(sha=sha(one), offset=0, size=size, data=data))


def test_a_whole_that_changes_its_size_is_refused():
    one = b"x" * (2 * PIECE_BYTES)
    machine = fetching(one)
    machine.asks(1, 0.0)
    machine.hear(AssetPiece(sha=sha(one), offset=0, size=len(one), data=one[:PIECE_BYTES]))
    with pytest.raises(WireError, match="does not fit"):
        machine.hear(AssetPiece(sha=sha(one), offset=PIECE_BYTES, size=len(one) + 1, data=one[:PIECE_BYTES]))


def test_what_nobody_asked_for_is_ignored():
    one = a_scenario(b"\0\0")
    machine = fetching(one)
    machine.asks(1, 0.0)
    machine.hear(AssetPiece(sha="0" * 64, offset=0, size=1, data=b"x"))
    machine.hear(AssetPiece(sha=sha(one), offset=5, size=len(one), data=one[5:]))
    run_on = machine.asks(1, ASK_AGAIN_S + 0.1)
    assert [want.offset for want in run_on] == [0]


def test_a_scenario_that_is_none_is_refused():
    one = b"no scenario"
    machine = fetching(one)
    machine.asks(1, 0.0)
    with pytest.raises(WireError, match="scenario that is none"):
        machine.hear(AssetPiece(sha=sha(one), offset=0, size=len(one), data=one))
