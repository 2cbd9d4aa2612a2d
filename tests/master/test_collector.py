import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.made import not_played, respond, session, stop
from voicebench.distribution import Distribution
from voicebench.master import collector as collector_module
from voicebench.master.collector import Collector
from voicebench.records import Outcome
from voicebench.summary import Tally

REFUSED = Outcome("failed", "refused", "nobody there")


def take(collector: Collector, *records, **rest) -> Collector:
    values = {"worker": "local", "started_s": 0.0, "warmup": False, "bundle": None, "frames_sent": 10}
    for record in records:
        late = rest.pop("lateness_ms", Distribution())
        collector.take(record, **{**values, **rest}, lateness_ms=late)
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
    assert collector.accounting(2) == {
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
    account = collector.accounting(5)
    assert account["reasons"] == {"no_audio": 1, "refused": 2}
    assert account["started"] == account["finished"] + account["failed"] + account["cut"] + account["lost"] == 5
    assert (collector.with_frames, collector.n_taken) == (3, 5)


def test_a_session_that_never_sent_a_frame_adds_no_turns_and_an_unplayed_one_does():
    collector = take(Collector(), session(outcome=REFUSED), session(respond(), not_played("later")))
    assert collector.total.all.counts["turns"] == 2
    assert collector.total.all.failed_session_rate == 0.5


def test_lateness_of_all_frames_is_merged_exactly():
    collector = take(Collector(), session(respond()), lateness_ms=Distribution.from_counts({1: 3, 5: 1}))
    take(collector, session(respond()), lateness_ms=Distribution.from_counts({5: 2}))
    assert collector.lateness_ms == Distribution.from_counts({1: 3, 5: 3})


def test_beyond_a_thousand_sessions_only_those_that_were_kept_are_listed(monkeypatch):
    monkeypatch.setattr(collector_module, "SESSIONS_LISTED", 3)
    collector = Collector()
    for index in range(3):
        take(collector, session(respond(), session_id=str(index)), started_s=3.0 - index)
    assert [each["session_id"] for each in collector.sessions()] == ["2", "1", "0"]
    take(collector, session(respond(), session_id="kept"), bundle="bundles/kept")
    take(collector, session(respond(), session_id="not kept"))
    assert [each["session_id"] for each in collector.sessions()] == ["kept"]
    assert collector.n_taken == 5


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
