import socket
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicebench.clock import monotonic_s, realtime_s
from voicebench.worker.stamps import (
    ANCILLARY_BYTES,
    SO_TIMESTAMPNS,
    arrival_s,
    ask_for_stamps,
    realtime_ahead_s,
)

NOW_S, REALTIME_NOW_S = 100.0, 1_700_000_000.0


def stamped(realtime: float):
    seconds = int(realtime)
    return [(socket.SOL_SOCKET, SO_TIMESTAMPNS, struct.pack("ll", seconds, round((realtime - seconds) * 1e9)))]


def arrival(ancillary, since_s: float = 99.0) -> float:
    return arrival_s(ancillary, now_s=NOW_S, realtime_now_s=REALTIME_NOW_S, since_s=since_s)


def test_a_stamp_is_translated_to_the_monotonic_clock():
    assert arrival(stamped(REALTIME_NOW_S - 0.03)) == pytest.approx(NOW_S - 0.03, abs=1e-6)


@pytest.mark.parametrize("step_s", [-3600.0, -0.5, 0.5, 3600.0])
def test_a_step_of_the_realtime_clock_moves_an_arrival_no_further_than_the_looks_around_it(step_s):
    assert 99.0 <= arrival(stamped(REALTIME_NOW_S - 0.03 + step_s)) <= NOW_S


@pytest.mark.parametrize(
    "ancillary",
    [[], [(socket.SOL_SOCKET, 99, bytes(16))], [(socket.SOL_SOCKET, SO_TIMESTAMPNS, b"short")], [(0, 35, bytes(16))]],
)
def test_without_a_stamp_bytes_arrived_when_they_were_read(ancillary):
    assert arrival(ancillary) == NOW_S


@given(st.floats(-1e6, 1e6), st.floats(0, 50))
def test_no_stamp_is_believed_beyond_the_two_looks(age_s, gap_s):
    found = arrival(stamped(max(0.0, REALTIME_NOW_S - age_s)), since_s=NOW_S - gap_s)
    assert NOW_S - gap_s <= found <= NOW_S


def test_the_clocks_are_compared_as_they_stand():
    assert monotonic_s() + realtime_ahead_s() == pytest.approx(realtime_s(), abs=0.05)


@pytest.mark.slow
@pytest.mark.alone
def test_the_kernel_stamps_what_waits_to_be_read():
    ours, theirs = _connected()
    with ours, theirs:
        assert ask_for_stamps(ours)
        theirs.send(b"hello")
        sent_s = monotonic_s()
        time.sleep(0.05)
        _, ancillary, _, _ = ours.recvmsg(100, ANCILLARY_BYTES)
        now_s = monotonic_s()
        found = arrival_s(ancillary, now_s=now_s, realtime_now_s=now_s + realtime_ahead_s(), since_s=sent_s - 1.0)
    assert found == pytest.approx(sent_s, abs=0.02)


def _connected():
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    return ours, theirs
