import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.made import not_played, respond, result, session, stop
from voicebench.distribution import Distribution
from voicebench.master import collector as collector_module
from voicebench.master.collector import Collector
from voicebench.records import Outcome
from voicebench.summary import Tally

REFUSED = Outcome("failed", "refused", "nobody there")


def take(collector: Collector, *records, worker="local", bundle=None, **rest) -> Collector:
    for record in records:
        collector.take(result(record, number=collector.n_taken, **rest), worker=worker, bundle=bundle)
    return collector


def test_sessions_are_summed_in_total_by_scenario_and_by_turn():
    collector = take(
        Collector(),
        session(respond(400.0), stop(), scenario="a"),
        session(respond(600.0), stop(None), scenario="a"),
        session(respond(None), scenario="b"),
    )
    assert collector.total.all.counts["turns"] == 5
    assert collector.by_scenario["a"].all.response_latency_ms.percentile(50) == 500.0
    assert collector.by_scenario["b"].all.counts["missed_responses"] == 1
    assert collector.by_turn["a"]["ask"].counts["turns"] == 2
    assert collector.by_turn["a"]["barge-in"].counts["turns_passed"] == 1
    assert list(collector.by_turn["b"]) == ["ask"]


def test_unreliable_turns_are_in_the_headline_and_not_among_the_reliable_ones():
    collector = take(
        Collector(), session(respond(400.0), respond(900.0, turn_id="late", reliable=False, error_ms=40.0))
    )
    assert collector.total.all.response_latency_ms.count == 2
    assert collector.total.reliable.response_latency_ms.count == 1
    assert collector.total.all.counts["unreliable_turns"] == 1


@pytest.mark.parametrize(("n_unreliable", "overloaded"), [(0, False), (1, False), (2, True)])
def test_more_than_1_in_100_unreliable_turns_is_an_overloaded_generator(n_unreliable, overloaded):
    turns = [respond(turn_id=str(index), reliable=index >= n_unreliable) for index in range(100)]
    assert take(Collector(), session(*turns)).generator_overloaded is overloaded


def test_a_run_without_turns_is_not_overloaded():
    assert take(Collector(), session(outcome=REFUSED)).generator_overloaded is False


def test_sessions_of_the_warm_up_are_accounted_for_listed_and_in_no_other_number():
    collector = take(Collector(), session(respond(9000.0, reliable=False)), warmup=True)
    take(collector, session(respond(400.0)))
    assert collector.account.as_dict(2) == {
        "started": 2, "finished": 2, "failed": 0, "cut": 0, "lost": 0, "warmup": 1, "reasons": {},
    }  # fmt: skip
    assert collector.total.all.response_latency_ms.max == 400.0
    assert not collector.generator_overloaded
    assert [each["warmup"] for each in collector.sessions()] == [True, False]


def test_what_ended_sessions_is_counted_by_reason():
    collector = take(
        Collector(),
        session(respond()),
        session(respond(), outcome=Outcome("cut", None, "cut by the end of the run")),
        session(respond(None), outcome=Outcome("failed", "no_audio", "")),
    )
    take(collector, session(outcome=REFUSED), session(outcome=REFUSED), frames_sent=0)
    account = collector.account.as_dict(5)
    assert account["reasons"] == {"no_audio": 1, "refused": 2}
    assert account["started"] == account["finished"] + account["failed"] + account["cut"] + account["lost"] == 5
    assert (collector.with_frames, collector.n_taken) == (3, 5)


def test_a_session_that_never_sent_a_frame_adds_no_turns_and_an_unplayed_one_does():
    collector = take(Collector(), session(outcome=REFUSED), session(respond(), not_played("later")))
    assert collector.total.all.counts["turns"] == 2
    assert collector.total.all.failed_session_rate == 0.5


def test_lateness_of_all_frames_is_merged_exactly():
    collector = take(Collector(), session(respond()), lateness={1: 3, 5: 1})
    take(collector, session(respond()), lateness={5: 2})
    assert collector.account.lateness_ms == Distribution.from_counts({1: 3, 5: 3})


def test_beyond_a_thousand_sessions_only_those_that_were_kept_are_listed(monkeypatch):
    monkeypatch.setattr(collector_module, "SESSIONS_LISTED", 3)
    collector = Collector()
    for number in (2, 0, 1):
        collector.take(result(session(respond(), session_id=str(number)), number=number), worker="w")
    assert [each["session_id"] for each in collector.sessions()] == ["0", "1", "2"]
    kept = result(session(respond(), session_id="kept"), number=3, files={"user.wav": 1})
    collector.take(kept, worker="w")
    collector.take(result(session(respond(), session_id="not kept"), number=4), worker="w")
    collector.kept(3, "bundles/kept")
    assert [(each["session_id"], each["bundle"]) for each in collector.sessions()] == [("kept", "bundles/kept")]
    assert collector.n_taken == 5


def test_the_example_of_a_failure_is_that_of_the_lowest_number_whichever_came_first(monkeypatch):
    monkeypatch.setattr(collector_module, "SESSIONS_LISTED", 1)
    collector = Collector()
    for number in (5, 3, 4):
        refused = session(outcome=Outcome("failed", "refused", f"of session {number}"))
        collector.take(result(refused, number=number), worker="w")
    assert collector.details() == {"refused": "of session 3"}


def test_sessions_of_which_only_the_count_is_known_are_lost_and_in_no_list(monkeypatch):
    monkeypatch.setattr(collector_module, "SESSIONS_LISTED", 2)
    collector = take(Collector(), session(respond()), session(respond()))
    collector.take_missing(3, worker="gone")
    assert (collector.n_taken, collector.n_known, len(collector.sessions())) == (5, 2, 2)
    assert collector.account.as_dict(5)["lost"] == collector.by_worker["gone"].as_dict(3)["lost"] == 3
    assert collector.total.all.as_dict()["sessions"] == 5


def test_a_session_that_comes_again_changes_nothing():
    collector = Collector()
    once = result(session(respond(400.0)), number=7)
    assert collector.take(once, worker="w")
    assert not collector.take(once, worker="other")
    assert not collector.take_lost(7, worker="w", session_id="x", scenario="made")
    assert collector.n_taken == collector.account.total == 1
    assert collector.total.all.response_latency_ms.count == 1
    assert list(collector.by_worker) == ["w"]


def test_a_lost_session_counts_among_the_sessions_and_has_no_turns():
    collector = take(Collector(), session(respond()), session(outcome=REFUSED))
    assert collector.take_lost(2, worker="gone", session_id="run-000002", scenario="made")
    summary = collector.total.all.as_dict()
    assert (summary["sessions"], summary["turns"]) == (3, 1)
    assert summary["failed_session_rate"] == 0.3333  # of finished, failed and lost
    assert collector.by_worker["gone"].as_dict(1)["lost"] == 1
    assert collector.sessions()[-1]["outcome"]["state"] == "lost"


some_sessions = st.lists(
    st.builds(
        lambda ms, scenario, reliable: session(respond(ms, reliable=reliable), scenario=scenario),
        st.one_of(st.none(), st.integers(0, 5000).map(float)),
        st.sampled_from("ab"),
        st.booleans(),
    ),
    max_size=12,
)


@given(some_sessions, st.randoms())
def test_the_order_in_which_sessions_come_changes_no_number(sessions, random):
    shuffled = list(sessions)
    random.shuffle(shuffled)
    one, other = take(Collector(), *sessions), take(Collector(), *shuffled)
    assert one.total.all == other.total.all == Tally.of(sessions)
    assert one.total.reliable == other.total.reliable == Tally.of(sessions, reliable_only=True)
    assert {name: sums.all.as_dict() for name, sums in one.by_scenario.items()} == {
        name: sums.all.as_dict() for name, sums in other.by_scenario.items()
    }


@given(some_sessions, st.lists(st.integers(0, 3), min_size=12, max_size=12))
def test_percentiles_are_numpys_of_all_turns_whatever_worker_measured_which(sessions, workers):
    collector = Collector()
    for number, record in enumerate(sessions):
        collector.take(result(record, number=number), worker=str(workers[number]))
    measured = [turn.response_latency_ms for record in sessions for turn in record.turns]
    measured = [ms for ms in measured if ms is not None]
    shown = collector.total.all.as_dict()["response_latency_ms"]
    assert shown["count"] == len(measured)
    for percent in (50, 90, 95, 99):
        expected = np.percentile(measured, percent) if measured else None
        assert shown[f"p{percent}"] == (None if expected is None else pytest.approx(expected, abs=1e-9))
    assert sum(account.total for account in collector.by_worker.values()) == len(sessions)
