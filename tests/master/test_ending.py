"""From what was taken in to report and verdict: whoever measured it, in whatever order it came."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.made import a_head, a_worker, ignore, not_played, respond, result, session, stop
from voicebench.master.collector import Collector
from voicebench.master.ending import conclude
from voicebench.master.report import RunTail
from voicebench.records import Outcome

WORKERS = ("u", "v", "w")
LIMITS = {"p95_response_latency_ms": 2000.0, "max_failed_session_rate": 0.2}
HEAD = a_head(limits=LIMITS, scenario_limits={"a": {"max_missed_responses": 1}, "b": {}})

turns = st.one_of(
    st.builds(
        lambda ms, reliable: respond(ms, reliable=reliable),
        st.one_of(st.none(), st.integers(0, 60_000).map(lambda ticks: ticks / 10)),
        st.booleans(),
    ),
    st.builds(stop, st.one_of(st.none(), st.floats(0, 900).map(lambda ms: round(ms, 1)))),
    st.builds(lambda woken: ignore(false_barge_in=woken), st.booleans()),
    st.just(not_played()),
)
outcomes = st.sampled_from(
    [Outcome("finished"), Outcome("failed", "refused", "no"), Outcome("failed", "dropped", "gone"), Outcome("cut")]
)
results = st.lists(
    st.tuples(
        st.lists(turns, max_size=3),
        outcomes,
        st.sampled_from("ab"),
        st.booleans(),
        st.dictionaries(st.integers(0, 50), st.integers(1, 9), max_size=3),
    ),
    max_size=12,
).map(
    lambda drawn: [
        result(session(*turns, outcome=outcome, scenario=scenario), number=n, warmup=warmup, lateness=late)
        for n, (turns, outcome, scenario, warmup, late) in enumerate(drawn)
    ]
)


def concluded(results, workers) -> dict:
    """The report when these came in this order, each from its worker."""
    collector = Collector()
    for each, worker in zip(results, workers, strict=True):
        collector.take(each, worker=worker)
    facts = tuple(a_worker(name, started=list(workers).count(name)) for name in WORKERS)
    return conclude(HEAD, RunTail(9.0, facts, (), ()), collector)[0]


def without_workers(report: dict) -> dict:
    """What must not depend on who measured."""
    by_turn = {name: sorted(part.pop("by_turn").items()) for name, part in report["by_scenario"].items()}
    return {
        **{key: report[key] for key in ("summary", "summary_reliable", "assertions", "by_scenario")},
        "by_turn": by_turn,
        "run": report["run"],
        "accounting": {key: value for key, value in report["accounting"].items() if key != "by_worker"},
        "sessions": [{**each, "worker": None} for each in report["sessions"]],
    }


@given(results, st.randoms())
def test_neither_order_nor_split_changes_a_number(results, random):
    one = concluded(results, ["u"] * len(results))
    shuffled = random.sample(results, len(results))
    several = concluded(shuffled, [random.choice(WORKERS) for _ in shuffled])
    assert json.dumps(without_workers(one)) == json.dumps(without_workers(several))


@given(results, st.randoms())
def test_the_accounts_of_the_workers_sum_to_that_of_the_run(results, random):
    report = concluded(results, [random.choice(WORKERS) for _ in results])
    total, by_worker = report["accounting"], report["accounting"]["by_worker"]
    for key in ("started", "finished", "failed", "cut", "lost", "warmup", "maybe_started"):
        assert total[key] == sum(each[key] for each in by_worker.values())
    assert total["started"] == total["finished"] + total["failed"] + total["cut"] + total["lost"] == len(results)
    frames = sum(sum(each.lateness.values()) for each in results)
    assert sum(each["frame_lateness_ms"]["count"] for each in report["workers"]) == frames


@given(results)
def test_percentiles_are_numpys_of_all_turns_outside_the_warm_up(results):
    shown = concluded(results, ["v"] * len(results))["summary"]["response_latency_ms"]
    measured = [
        turn.response_latency_ms
        for each in results
        if not each.warmup
        for turn in each.record.turns
        if turn.response_latency_ms is not None
    ]
    assert shown["count"] == len(measured)
    for percent in (50, 95, 99):
        expected = pytest.approx(float(np.percentile(measured, percent)), abs=1e-9) if measured else None
        assert shown[f"p{percent}"] == expected


def test_a_lost_worker_that_took_nothing_along_makes_the_run_incomplete_all_the_same():
    lost = a_worker("v", state="lost", why="its process died", started=0, maybe_started=2)
    report, verdict = conclude(HEAD, RunTail(9.0, (a_worker(started=0), lost), (), ()), Collector())
    assert (verdict.verdict, verdict.exit_code, verdict.complete) == ("incomplete", 4, False)
    assert verdict.reasons[0] == (
        "worker v was lost (its process died): it had started 0 sessions, and may have started 2 more"
    )
    assert report["accounting"]["by_worker"]["v"]["maybe_started"] == 2


def test_a_run_that_goes_on_is_neither_failed_nor_unreachable_yet():
    collector = Collector()
    refused = session(outcome=Outcome("failed", "refused", "no"), scenario="a")
    collector.take(result(refused, number=0, frames_sent=0), worker="w")
    tail = RunTail(9.0, (a_worker(started=4, state="here"),), (), (), going_on=True)
    _, verdict = conclude(HEAD, tail, collector)
    assert (verdict.verdict, verdict.exit_code, verdict.complete) == ("incomplete", 4, False)
    assert verdict.reasons[0] == "the run is still going on: 3 sessions have started and are not in these numbers yet"
    assert "every session failed" not in verdict.reasons
