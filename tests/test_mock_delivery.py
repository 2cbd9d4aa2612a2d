from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicebench.mock_delivery import Delivery, ServerOptions, Stutter, capacity_delay_ms

RATE_HZ = 16000
FRAME = 320  # 20 ms


def reply_of(duration_ms: int) -> np.ndarray:
    return np.arange(1, duration_ms * RATE_HZ // 1000 + 1, dtype=np.int16)


def sent_by_frame(delivery: Delivery, frames: int) -> list[int]:
    """How many samples go out with each frame heard."""
    return [sum(map(len, delivery.advance(FRAME))) for _ in range(frames)]


def options(**more):
    return ServerOptions(**more)


def test_in_real_time_one_frame_goes_out_for_each_one_heard():
    delivery = Delivery(reply_of(100), FRAME, RATE_HZ, options())
    assert sent_by_frame(delivery, 7) == [320, 320, 320, 320, 320, 0, 0]
    assert delivery.done


def test_the_last_frame_is_filled_up_with_silence():
    delivery = Delivery(reply_of(30), FRAME, RATE_HZ, options())
    first, second = delivery.advance(FRAME)[0], delivery.advance(FRAME)[0]
    assert first.tolist() == list(range(1, 321))
    assert second.tolist() == [*range(321, 481), *[0] * 160]


def test_a_burst_of_three_sends_three_frames_for_each_one_heard():
    delivery = Delivery(reply_of(140), FRAME, RATE_HZ, options(burst=3.0))
    assert sent_by_frame(delivery, 4) == [960, 960, 320, 0]


def test_a_burst_of_zero_sends_the_whole_reply_at_once_in_frames():
    messages = Delivery(reply_of(100), FRAME, RATE_HZ, options(burst=0.0)).advance(FRAME)
    assert [len(message) for message in messages] == [320] * 5


def test_slower_than_real_time_starves_the_caller():
    delivery = Delivery(reply_of(60), FRAME, RATE_HZ, options(burst=0.5))
    assert sent_by_frame(delivery, 6) == [160] * 6
    assert delivery.done


def heard_gaps(delivery: Delivery) -> list[tuple[int, int]]:
    """Where play-out at arrival runs dry: (ms of audio played before, ms of gap)."""
    gaps, played, queued_until = [], 0, 0
    for frame in range(1000):
        now = frame * FRAME
        sent = sum(map(len, delivery.advance(FRAME)))
        if sent and now > queued_until and played:
            gaps.append((played * 1000 // RATE_HZ, (now - queued_until) * 1000 // RATE_HZ))
        if sent:
            queued_until = max(queued_until, now) + sent
            played += sent
    return gaps


@pytest.mark.parametrize("burst", [1.0, 2.0, 10.0, 0.0])
def test_a_stutter_is_heard_at_its_place_with_its_length_however_fast_the_rest_comes(burst: float):
    delivery = Delivery(reply_of(1000), FRAME, RATE_HZ, options(burst=burst, stutter=(Stutter(200, 500),)))
    assert heard_gaps(delivery) == [(500, 200)]
    assert delivery.done


def test_two_stutters_are_two_gaps():
    both = (Stutter(100, 600), Stutter(60, 200))
    assert heard_gaps(Delivery(reply_of(1000), FRAME, RATE_HZ, options(stutter=both))) == [(200, 60), (600, 100)]


def test_a_stutter_near_the_end_makes_the_reply_outlast_the_agents_own_time():
    delivery = Delivery(reply_of(100), FRAME, RATE_HZ, options(stutter=(Stutter(100, 80),)))
    sent_by_frame(delivery, 5)
    assert not delivery.done
    assert sent_by_frame(delivery, 5) == [0, 0, 0, 0, 320]
    assert delivery.done


def test_the_rest_can_be_had_at_once():
    delivery = Delivery(reply_of(100), FRAME, RATE_HZ, options())
    delivery.advance(FRAME)
    assert sum(map(len, delivery.rest())) == 4 * FRAME
    assert delivery.done


@given(
    st.integers(1, 300),
    st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    st.lists(st.builds(Stutter, st.integers(0, 90), st.integers(0, 300)), max_size=3),
    st.sampled_from([160, 320, 441]),
)
def test_every_sample_goes_out_once_and_in_order(duration_ms: int, burst: float, stutters: list, frame: int):
    reply = reply_of(duration_ms)
    delivery = Delivery(reply, frame, RATE_HZ, options(burst=burst, stutter=tuple(stutters)))
    sent = [sample for _ in range(300) for message in delivery.advance(frame) for sample in message.tolist()]
    assert sent[: len(reply)] == reply.tolist()
    assert sent[len(reply) :] == [0] * (-len(reply) % frame)


@pytest.mark.parametrize(("sessions", "extra_ms"), [(1, 0.0), (10, 0.0), (11, 50.0), (30, 1000.0)])
def test_the_knee_is_where_it_was_put(sessions: int, extra_ms: float):
    assert capacity_delay_ms(10, sessions) == extra_ms
    assert capacity_delay_ms(None, sessions) == 0.0
