import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicebench.assertions import AssertionResult
from voicebench.master.verdict import RunEnd, judge

PASSED = AssertionResult("max_wer", 0.1, 0.05, True, "pass", 0.05)
FAILED = AssertionResult("p95_response_latency_ms", 1000.0, 1234.5, False, "fail", 1234.5)
UNMEASURED = AssertionResult("max_wer", 0.1, None, False, "fail", None)
OPEN = AssertionResult("max_wer", 0.1, 0.2, False, "cant_tell", 0.05)


def end(**rest) -> RunEnd:
    """A run of ten sessions in which nothing went wrong, but for what is said."""
    values = {
        "assertions": [PASSED], "started": 10, "accounted": 10, "with_frames": 10, "failed": 0, "lost": 0,
        "overloaded": False, "generator_failures": 0, "signal_exit": None,
    }  # fmt: skip
    return RunEnd(**{**values, **rest})


UNREACHABLE = {"with_frames": 0, "failed": 10}
MISSING = {"accounted": 9}
ABORTED = {"aborted": "ZeroDivisionError: made to fail"}


@pytest.mark.parametrize(
    ("found", "verdict", "exit_code", "reason"),
    [
        ({}, "pass", 0, None),
        ({"failed": 3}, "pass", 0, None),  # a limit on failed sessions is the plan's to set
        ({"failed": 10}, "fail", 1, "every session failed"),  # but nobody would call that a pass
        (UNREACHABLE, "unreachable", 3, "was not reached"),
        (MISSING, "incomplete", 4, "1 started sessions are missing"),
        ({"lost": 2}, "incomplete", 4, "2 started sessions are missing"),
        ({"with_frames": 0}, "incomplete", 4, "cut before its first frame"),
        (ABORTED, "incomplete", 4, "the run ended before its time: ZeroDivisionError: made to fail"),
        ({"going_on": True, "accounted": 7}, "incomplete", 4, "still going on: 3 sessions have started"),
        ({"trouble": ("the disk is full",)}, "incomplete", 4, "the disk is full"),
        ({"overloaded": True}, "untrusted", 4, "generator overloaded"),
        ({"failed": 2, "generator_failures": 2}, "untrusted", 4, "2 sessions failed by the load generator's own fault"),
        ({"assertions": [OPEN]}, "cant_tell", 4, "max_wer: can't tell"),
        ({"signal_exit": 130}, "interrupted", 130, "signal"),
        ({"signal_exit": 143}, "interrupted", 143, "signal"),
        ({"assertions": [PASSED, FAILED]}, "fail", 1, "p95_response_latency_ms: 1234.5, the limit is 1000"),
        ({"assertions": [UNMEASURED]}, "fail", 1, "max_wer: nothing was measured, the limit is 0.1"),
    ],
)
def test_what_a_run_comes_to(found, verdict, exit_code, reason):
    judged = judge(end(**found))
    assert (judged.verdict, judged.exit_code) == (verdict, exit_code)
    assert reason is None or reason in judged.reasons[0]


@pytest.mark.parametrize(
    ("found", "exit_code"),
    [
        ({**UNREACHABLE, "overloaded": True, "assertions": [FAILED]}, 3),
        ({**MISSING, "signal_exit": 130, "assertions": [FAILED]}, 4),
        ({"overloaded": True, "signal_exit": 143, "assertions": [FAILED]}, 4),
        ({"assertions": [OPEN, FAILED], "signal_exit": 130}, 4),
        ({"signal_exit": 130, "assertions": [FAILED]}, 130),
        ({"assertions": [FAILED, OPEN]}, 4),
    ],
)
def test_when_several_hold_the_order_is_3_then_4_then_the_signal_then_1(found, exit_code):
    assert judge(end(**found)).exit_code == exit_code


def test_every_reason_is_told_the_decisive_one_first():
    judged = judge(end(overloaded=True, signal_exit=130, assertions=[FAILED]))
    assert len(judged.reasons) == 3
    assert "overloaded" in judged.reasons[0]


def test_our_own_failures_are_no_agent_that_was_not_reached():
    """No descriptor was left for any call: the agent has done nothing wrong, and nothing was measured."""
    judged = judge(end(with_frames=0, failed=10, generator_failures=10))
    assert (judged.verdict, judged.exit_code) == ("untrusted", 4)
    one_was_refused = judge(end(with_frames=0, failed=10, generator_failures=9))
    assert one_was_refused.exit_code == 3


def test_an_interrupted_run_before_its_first_frame_is_interrupted():
    assert judge(end(with_frames=0, signal_exit=130)).exit_code == 130
    assert judge(end(started=0, accounted=0, with_frames=0, signal_exit=143)).exit_code == 143


@pytest.mark.parametrize("found", [MISSING, {"lost": 1}, {"signal_exit": 130}, ABORTED])
def test_a_run_with_sessions_missing_or_ended_early_is_not_complete(found):
    assert not judge(end(**found)).complete


@pytest.mark.parametrize("found", [{}, {"overloaded": True}, {"assertions": [FAILED]}, {"trouble": ("disk",)}])
def test_a_run_with_every_session_in_its_numbers_is_complete(found):
    assert judge(end(**found)).complete


@given(
    st.builds(
        RunEnd,
        assertions=st.lists(st.sampled_from([PASSED, FAILED, OPEN, UNMEASURED]), max_size=3),
        started=st.integers(0, 5),
        accounted=st.integers(0, 5),
        with_frames=st.integers(0, 5),
        failed=st.integers(0, 2),
        lost=st.integers(0, 2),
        overloaded=st.booleans(),
        generator_failures=st.integers(0, 3),
        signal_exit=st.sampled_from([None, 130, 143]),
        trouble=st.sampled_from([(), ("disk",)]),
        aborted=st.sampled_from([None, "why"]),
    )
)
def test_only_a_run_that_hides_nothing_passes(any_end):
    judged = judge(any_end)
    assert (judged.exit_code == 0) == (judged.verdict == "pass") == (not judged.reasons)
    if judged.exit_code == 0:
        assert judged.complete
        assert all(result.passed for result in any_end.assertions)
        assert not any([any_end.overloaded, any_end.trouble, any_end.lost, any_end.aborted])
        assert any_end.with_frames or not any_end.started
