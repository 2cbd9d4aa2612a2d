"""A worker's side of the protocol, told message by message."""

from __future__ import annotations

import math

from tests.support import made
from voicebench import __version__
from voicebench.wire import codec
from voicebench.wire.messages import Beat, Final, Hello, Orders, Results, RunPlan, Share, Welcome
from voicebench.worker.member import HELLO_EVERY_S, RESEND_S, Given, Member, Over, Vitals

PLAN = RunPlan(
    run_id="r", scenarios=("0" * 64,), weights=(1.0,), callers=4, sessions=None, spawn_rate_per_s=None, run_time_s=None,
    stop_timeout_s=1.0, pause_s=(0.0, 0.0), warmup_s=0.0, seed=0, keep="none", preflight=False,
)  # fmt: skip
WELCOME = Welcome(epoch=7, worker="w", term=1, plan=PLAN, beat_s=0.25, lost_s=5.0, lease_s=3.0)


def a_member(*, welcomed: bool = True) -> Member:
    hello = Hello(
        version=__version__, incarnation="0" * 32, name="w", host="h", python="3", platform="p", cpus=1
    )  # fmt: skip
    member = Member(hello, Vitals())
    if welcomed:
        member.hear(WELCOME, 0.0)
    return member


def orders(beat: Beat | None = None, **rest) -> Orders:
    values = {
        "phase": "run", "phase_s": 0.0, "t0_s": 0.0, "share_version": 0, "acked": 0, "may_start": None, "leave": False,
        "over": False, "echo_n": beat.n if beat else 0, "echo_sent_s": 0.0, "received_s": 0.0, "sent_s": 0.0,
    }  # fmt: skip
    return Orders(epoch=7, term=1, **{**values, **rest})


def share(version: int, callers: dict[int, int]) -> Share:
    return Share(epoch=7, term=1, share_version=version, callers=tuple(callers.items()))


def said(member: Member, kind, now_s: float):
    return [message for message in member.sends(now_s) if isinstance(message, kind)]


def test_hello_is_said_again_until_it_is_answered():
    member = a_member(welcomed=False)
    assert [len(said(member, Hello, HELLO_EVERY_S * n / 2)) for n in range(4)] == [1, 0, 1, 0]
    member.hear(WELCOME, 1.0)
    assert said(member, Hello, 9.0) == []


def test_the_gate_opens_with_an_answered_beat_and_closes_when_the_lease_is_over():
    member = a_member()
    member.hear(share(1, {2: 5}), 0.0)
    assert not member.gate.is_open(2, 5, 0, 1.0)
    (beat,) = said(member, Beat, 1.0)
    member.hear(orders(beat), 2.0)
    assert member.gate.is_open(2, 5, 0, 3.9)  # three seconds from when it was sent, not from the answer
    assert not member.gate.is_open(2, 5, 0, 4.0)


def test_a_caller_waits_until_the_master_knows_of_its_session():
    member = a_member()
    member.hear(share(1, {2: 5}), 0.0)
    member.started(2, 6)
    (beat,) = said(member, Beat, 1.0)
    assert beat.placed == ((2, 6),)
    assert not member.gate.is_open(2, 6, 1, 1.0)
    member.hear(orders(beat), 1.1)
    assert member.gate.is_open(2, 6, 1, 1.2)
    assert said(member, Beat, 2.0)[0].placed == ()


def test_a_caller_that_is_taken_away_starts_nothing_more_even_before_the_loop_has_heard():
    member = a_member()
    member.hear(share(1, {2: 5, 3: 0}), 0.0)
    member.started(2, 6)
    (beat,) = said(member, Beat, 1.0)
    member.hear(share(2, {3: 0}), 1.1)
    member.hear(orders(beat), 1.2)
    assert not member.gate.is_open(2, 6, 1, 1.3)
    assert member.gate.is_open(3, 0, 1, 1.3)


def test_a_caller_that_comes_back_goes_on_from_where_it_was_let_go():
    member = a_member()
    member.hear(share(1, {2: 5}), 0.0)
    member.hear(share(2, {}), 0.1)
    member.started(2, 6)
    member.released(2, 6)
    member.hear(share(3, {2: 5}), 0.2)  # written before the master heard of the sixth
    assert [notice for notice in member.notices if isinstance(notice, Given)][-1] == Given({2: 6})


def test_an_old_echo_does_not_swallow_a_newer_release():
    member = a_member()
    member.hear(share(1, {2: 0}), 0.0)
    member.hear(share(2, {}), 0.1)
    member.released(2, 0)
    (old,) = said(member, Beat, 1.0)
    member.hear(share(3, {2: 0}), 1.1)
    member.hear(share(4, {}), 1.2)
    member.released(2, 0)
    member.hear(orders(old), 1.3)
    assert said(member, Beat, 2.0)[0].released == ((2, 0),)


def test_results_are_sent_again_until_they_are_acknowledged():
    member = a_member()
    member.result(made.result(made.session(), number=0))
    assert len(said(member, Results, 0.0)) == 1
    assert said(member, Results, 0.1) == []
    assert len(said(member, Results, RESEND_S + 0.2)) == 1
    member.hear(orders(acked=1), 3.0)
    assert said(member, Results, 9.0) == []
    assert member.unacked == ()


def test_a_record_that_cant_be_sent_goes_as_a_stub_that_can():
    member = a_member()
    member.result(made.result(made.session(duration_s=math.nan, scenario="\udc80"), number=3, started_s=math.inf))
    (results,) = said(member, Results, 0.0)
    heard = codec.decode_from_worker(codec.encode(results))
    assert heard.session.number == 3
    assert heard.session.record.outcome.reason == "generator"


def test_text_that_is_no_text_reaches_the_master_all_the_same():
    member = a_member()
    member.unable("no such file: /\udc80", 2)
    member.final(0.0, ("\udc80",), error="\udc80")
    for message in member.sends(0.0):
        codec.decode_from_worker(codec.encode(message))


def test_how_the_last_second_was_goes_out_before_the_last_word():
    member = a_member()
    member.sends(0.0)
    member.final(0.0)
    assert [type(message) for message in member.sends(0.001)] == [Beat, Final]


def test_it_is_over_only_when_everything_was_acknowledged():
    member = a_member()
    member.result(made.result(made.session()))
    member.final(0.0)
    (beat,) = said(member, Beat, 0.0)
    member.hear(orders(beat, over=True), 0.1)
    assert not member.over
    member.hear(orders(over=True, acked=1), 0.2)
    assert member.over
    assert isinstance(member.notices[-1], Over)


def test_the_final_word_follows_the_last_result():
    member = a_member()
    member.result(made.result(made.session()))
    member.final(0.0)
    kinds = [type(message) for message in member.sends(0.0)]
    assert kinds.index(Results) < kinds.index(Final)
