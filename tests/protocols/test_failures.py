from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicebench.errors import FAILURE_REASONS
from voicebench.protocols.failures import (
    close_name,
    reason_of_close,
    reason_of_proxy_status,
    reason_of_status,
    status_name,
)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "auth"),
        (403, "auth"),
        (407, "auth"),
        (429, "limited"),
        (503, "limited"),
        (200, "handshake"),
        (301, "handshake"),
        (404, "handshake"),
        (426, "handshake"),
        (500, "handshake"),
        (502, "handshake"),
    ],
)
def test_a_status_at_the_upgrade_has_one_reason(status: int, reason: str):
    assert reason_of_status(status) == reason


@pytest.mark.parametrize(
    ("status", "reason"),
    [(407, "auth"), (403, "auth"), (502, "refused"), (503, "refused"), (504, "refused"), (405, "handshake")],
)
def test_a_proxy_that_cannot_reach_the_agent_means_refused(status: int, reason: str):
    assert reason_of_proxy_status(status) == reason


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (1000, "agent_hangup"),
        (1001, "agent_hangup"),
        (1013, "limited"),
        (1005, "dropped"),
        (1006, "dropped"),
        (1008, "dropped"),
        (1011, "dropped"),
        (4000, "dropped"),
        (None, "dropped"),
    ],
)
def test_a_close_code_has_one_reason(code: int | None, reason: str):
    assert reason_of_close(code) == reason


@given(st.integers(0, 70000))
def test_every_number_has_a_reason_from_the_fixed_list_and_a_name(number: int):
    assert {reason_of_status(number), reason_of_proxy_status(number), reason_of_close(number)} <= set(FAILURE_REASONS)
    assert str(number) in status_name(number)
    assert str(number) in close_name(number)
