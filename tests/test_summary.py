from hypothesis import given
from hypothesis import strategies as st

from tests.support.made import ignore, not_played, respond, session, stop
from voicebench.distribution import round_ms
from voicebench.records import Outcome, TurnRecord
from voicebench.summary import Tally

latencies = st.one_of(st.none(), st.floats(-500, 6000).map(round_ms))
turns = st.one_of(
    st.builds(respond, latencies, reliable=st.booleans()),
    st.builds(stop, st.one_of(st.none(), st.floats(0, 3000).map(round_ms)), reliable=st.booleans()),
    st.builds(ignore, false_barge_in=st.booleans(), spurious=st.booleans()),
    st.builds(not_played),
)
outcomes = st.sampled_from([Outcome("finished"), Outcome("failed", "dropped"), Outcome("cut"), Outcome("lost")])
sessions = st.lists(
    st.builds(
        lambda own, outcome, overlap_ms: session(*own, outcome=outcome, overlap_ms=overlap_ms),
        st.lists(turns, max_size=5),
        outcomes,
        st.floats(0, 5000).map(round_ms),
    ),
    max_size=12,
)


@given(st.lists(sessions, max_size=5), st.randoms())
def test_the_split_over_workers_and_the_order_of_arrival_change_no_bit(shares, random):
    together = Tally.of(one for share in shares for one in share)
    random.shuffle(shares)
    merged = Tally()
    for share in shares:
        merged.update(Tally.of(share))
    assert merged == together


def test_turns_that_never_played_or_stayed_open_count_in_turns_alone():
    open_turn = TurnRecord("open", "stop", "anchor", "unfinished")
    summary = Tally.of([session(not_played(expect="ignore"), open_turn)]).as_dict()
    assert (summary["turns"], summary["turns_passed"], summary["not_played_turns"], summary["unfinished_turns"]) == (
        2,
        0,
        1,
        1,
    )
    counted = ("missed_responses", "barge_in_turns", "noise_turns", "talk_overs", "false_barge_ins")
    assert [summary[key] for key in counted] == [0, 0, 0, 0, 0]
    assert summary["barge_in_success_rate"] is None


def test_latencies_of_stop_turns_stay_out_of_the_distribution():
    summary = Tally.of([session(respond(400.0), stop(300.0, response_latency_ms=900.0, ttfa_ms=900.0))]).as_dict()
    assert summary["response_latency_ms"]["max"] == 400.0
    assert summary["ttfa_ms"]["count"] == 1
    assert summary["barge_in_stop_ms"]["max"] == 300.0


def test_a_miss_enters_no_distribution_neither_as_0_nor_as_the_time_out():
    summary = Tally.of([session(respond(None), respond(700.0))]).as_dict()
    assert summary["response_latency_ms"]["count"] == 1
    assert summary["missed_responses"] == 1


def test_mean_wer_is_the_mean_of_turns_and_pooled_wer_that_of_words():
    short = respond(wer=1.0, wer_substitutions=1, wer_deletions=0, wer_insertions=0, wer_words=1)
    long = respond(wer=0.1, wer_substitutions=0, wer_deletions=1, wer_insertions=0, wer_words=10)
    tally = Tally.of([session(short, long)])
    assert (tally.mean_wer, tally.pooled_wer) == (0.55, 0.1818)


def test_cut_sessions_are_in_neither_part_of_the_failed_rate():
    made = [session(outcome=outcome) for outcome in (Outcome("finished"), Outcome("failed", "dropped"), Outcome("cut"))]
    assert Tally.of(made).failed_session_rate == 0.5


def test_leaving_out_unreliable_turns_keeps_the_shape():
    made = [session(respond(400.0), respond(9000.0, reliable=False))]
    everything, reliable = Tally.of(made), Tally.of(made, reliable_only=True)
    assert everything.as_dict().keys() == reliable.as_dict().keys()
    assert (everything.response_latency_ms.max, reliable.response_latency_ms.max) == (9000.0, 400.0)
    assert (everything.unreliable_turn_rate, reliable.unreliable_turn_rate) == (0.5, 0.0)
