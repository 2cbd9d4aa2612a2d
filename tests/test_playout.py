import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicebench.playout import Playout

RATE_HZ = 8000


def drawn(playout: Playout, until: int) -> str:
    return "".join("." if sample == 0 else str(sample) for sample in playout.track(until))


def packet(value: int, n: int) -> np.ndarray:
    return np.full(n, value, dtype=np.int16)


def at(sample: int) -> float:
    return sample / RATE_HZ


def test_a_packet_is_heard_from_its_arrival():
    playout = Playout(RATE_HZ)
    playout.place(packet(1, 3), at(2), horizon=0)
    assert drawn(playout, 8) == "..111..."


def test_a_burst_queues_up_behind_itself():
    playout = Playout(RATE_HZ)
    for value in (1, 2, 3):
        playout.place(packet(value, 2), at(1), horizon=0)
    assert drawn(playout, 9) == ".112233.."
    assert playout.queued_until == 7


def test_a_clear_drops_what_has_not_been_played():
    playout = Playout(RATE_HZ)
    playout.place(packet(1, 8), at(0), horizon=0)
    assert playout.clear(at(3), horizon=2) == 5
    assert drawn(playout, 9) == "111......"


def test_audio_after_a_clear_is_heard_at_once():
    playout = Playout(RATE_HZ)
    playout.place(packet(1, 8), at(0), horizon=0)
    playout.clear(at(3), horizon=2)
    playout.place(packet(2, 2), at(4), horizon=2)
    assert drawn(playout, 9) == "111.22..."


def test_what_was_listened_to_never_changes():
    playout = Playout(RATE_HZ)
    playout.place(packet(1, 6), at(0), horizon=0)
    assert playout.clear(at(1), horizon=4) == 2
    playout.place(packet(2, 2), at(0), horizon=6)
    assert drawn(playout, 9) == "1111..22."


def test_a_clear_with_nothing_queued_drops_nothing():
    playout = Playout(RATE_HZ)
    playout.place(packet(1, 2), at(0), horizon=0)
    assert playout.clear(at(5), horizon=5) == 0
    assert drawn(playout, 4) == "11.."


moves = st.lists(
    st.tuples(st.sampled_from(["audio", "clear", "listen", "let go"]), st.integers(0, 400), st.integers(1, 90)),
    max_size=40,
)


@given(moves)
def test_the_track_is_what_a_sample_by_sample_player_plays(moves):
    """A naive player: a queue, one sample a tick, nothing else."""
    playout = Playout(RATE_HZ)
    kept_elsewhere: list[int] = []
    expected: dict[int, int] = {}
    queued_until = horizon = now = 0
    for value, (kind, gap, size) in enumerate(moves, start=1):
        now += gap
        if kind == "listen":
            horizon = max(horizon, now)
        elif kind == "let go":
            until = max(playout.base, horizon - size)
            kept_elsewhere += playout.heard(playout.base, until).tolist()
            playout.let_go(until)
        elif kind == "audio":
            playout.place(packet(value, size), at(now), horizon=horizon)
            start = max(now, queued_until, horizon)
            expected.update(dict.fromkeys(range(start, start + size), value))
            queued_until = start + size
        else:
            playout.clear(at(now), horizon=horizon)
            cut = max(now, horizon)
            expected = {position: sample for position, sample in expected.items() if position < cut}
            queued_until = min(queued_until, cut)
    end = max(horizon, queued_until) + 50
    whole = kept_elsewhere + playout.heard(playout.base, end).tolist()
    assert whole == [expected.get(position, 0) for position in range(end)]


def test_what_was_let_go_of_takes_no_memory_and_is_not_taken_for_silence():
    playout = Playout(RATE_HZ, longest=600 * RATE_HZ)
    playout.place(packet(3, 500 * RATE_HZ), at(0), horizon=0)
    playout.let_go(500 * RATE_HZ - 10)
    assert playout._track.nbytes <= 2 * 2 * RATE_HZ
    assert playout.heard(500 * RATE_HZ - 10, 500 * RATE_HZ + 10).tolist() == [3] * 10 + [0] * 10
    with pytest.raises(RuntimeError, match="kept elsewhere"):
        playout.track(1)


def test_of_what_would_be_heard_after_the_longest_end_nothing_is_kept_when_the_rest_is_let_go_of():
    playout = Playout(RATE_HZ, longest=100)
    playout.place(packet(3, 300), at(0), horizon=0)
    playout.let_go(90)
    assert playout.heard(90, 110).tolist() == [3] * 10 + [0] * 10
