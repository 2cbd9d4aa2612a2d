import pytest

from tests.support.made import ignore, respond, session, stop
from voicebench.assertions import EXAMPLES, actual_value, check, explain_unknown
from voicebench.records import Outcome
from voicebench.summary import Tally


def judge(limits, *turns):
    made = [session(*turns)]
    return check(limits, Tally.of(made), Tally.of(made, reliable_only=True))


@pytest.mark.parametrize(
    ("name", "limit", "actual", "verdict"),
    [
        ("p50_response_latency_ms", 600, 600.0, "pass"),  # limits are inclusive
        ("p50_response_latency_ms", 599.9, 600.0, "fail"),
        ("p99.9_response_latency_ms", 1000, 799.6, "pass"),
        ("mean_response_latency_ms", 599, 600.0, "fail"),
        ("max_response_latency_ms", 800, 800.0, "pass"),
        ("max_ttfa_ms", 700, 800.0, "fail"),
        ("p90_barge_in_stop_ms", 300, 300.0, "pass"),
        ("min_barge_in_success_rate", 0.51, 0.5, "fail"),
        ("min_barge_in_success_rate", 0.5, 0.5, "pass"),
        ("max_false_barge_ins", 0, 1, "fail"),
        ("max_spurious_responses", 0, 0, "pass"),
        ("max_missed_responses", 1, 1, "pass"),
        ("max_talk_overs", 0, 0, "pass"),
        ("max_failed_session_rate", 0.01, 0.0, "pass"),
        ("max_unreliable_turn_rate", 0.0, 0.0, "pass"),
    ],
)
def test_each_assertion_is_held_against_its_own_value(name, limit, actual, verdict):
    turns = (respond(400.0), respond(800.0), respond(None), stop(300.0), stop(None), ignore(false_barge_in=True))
    (result,) = judge({name: limit}, *turns)
    assert (result.actual, result.verdict, result.passed) == (pytest.approx(actual), verdict, verdict == "pass")


@pytest.mark.parametrize("name", ["max_wer", "p95_response_latency_ms", "min_barge_in_success_rate"])
def test_a_limit_on_a_value_that_does_not_exist_fails(name):
    (result,) = judge({name: 1000})
    assert (result.actual, result.verdict) == (None, "fail")


def test_where_unreliable_turns_decide_the_verdict_is_cant_tell():
    slow = respond(9000.0, reliable=False)
    over, never_over = judge({"max_response_latency_ms": 1000, "max_missed_responses": 0}, respond(400.0), slow)
    assert (over.verdict, over.passed, over.actual, over.actual_reliable) == ("cant_tell", False, 9000.0, 400.0)
    assert never_over.verdict == "pass"


def test_a_pass_that_rests_on_unreliable_turns_alone_is_cant_tell():
    (result,) = judge({"max_response_latency_ms": 1000}, respond(400.0, reliable=False))
    assert result.verdict == "cant_tell"


def test_failed_sessions_are_judged_over_all_sessions():
    made = [session(outcome=Outcome("failed", "dropped")), session(respond(reliable=False))]
    tally, reliable = Tally.of(made), Tally.of(made, reliable_only=True)
    (result,) = check({"max_failed_session_rate": 0.5}, tally, reliable)
    assert (result.actual, result.verdict) == (0.5, "pass")


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_an_assertion(name):
    assert explain_unknown(name) is None
    assert actual_value(name, Tally()) is None


@pytest.mark.parametrize(
    ("name", "near"),
    [("p95_responce_latency_ms", "p95_response_latency_ms"), ("max_false_bargeins", "max_false_barge_ins")],
)
def test_a_misspelt_name_is_refused_with_the_near_one(name, near):
    assert near in explain_unknown(name)
    with pytest.raises(ValueError, match=near):
        actual_value(name, Tally())


@pytest.mark.parametrize("name", ["", "p100_ttfa_ms", "p5._ttfa_ms", "min_ttfa_ms", "latency", "p95_ttfa_ms "])
def test_other_names_are_refused(name):
    assert explain_unknown(name)
