"""The master's side of the protocol, told message by message."""

from __future__ import annotations

import msgspec
import pytest

from tests.support import made
from tests.worker.test_member import PLAN
from voicebench import __version__
from voicebench.load.budget import AudioBudget
from voicebench.load.closed import session_name
from voicebench.master.coordinator import STALL_S, Coordinator
from voicebench.wire.messages import PROTOCOL, Beat, Final, Hello, Orders, Refuse, Results, Unable, Welcome


def hello(n: int = 0, **rest) -> Hello:
    values = {"version": __version__, "incarnation": f"{n:032x}", "name": "w", "host": "h", "python": "3"}
    return Hello(**{**values, "platform": "p", "cpus": 1, **rest})


def beat(n: int, epoch: int = 1, **rest) -> Beat:
    values = {"share_version": 0, "state": "ready", "placed": (), "released": (), "live": 0, "hub_age_s": 0.0}
    return Beat(epoch=epoch, n=n, sent_s=0.0, cpu_s=0.0, **{**values, **rest})


def result(seq: int, number: int, epoch: int = 1) -> Results:
    record = made.session(session_id=session_name("r", number))
    return Results(epoch=epoch, seq=seq, session=made.result(record, number=number))


def final(seq: int, epoch: int = 1) -> Final:
    return Final(epoch=epoch, seq=seq, cpu_s=0.0, notes=(), events=())


def said(coordinator: Coordinator, kind):
    return [message for _, message in coordinator.sends.take() if isinstance(message, kind)]


def gathered(n: int = 1, **rest) -> Coordinator:
    coordinator = Coordinator(msgspec.structs.replace(PLAN, **rest), {})
    coordinator.tick(0.0)
    for each in range(n):
        coordinator.hear(b"%d" % each, hello(each), 0.0)
        coordinator.hear(b"%d" % each, beat(1, each + 1), 0.0)
    return coordinator


def turn(coordinator: Coordinator, until_s: float, from_s: float = 0.0) -> None:
    for step in range(int((until_s - from_s) / 0.25) + 1):
        coordinator.tick(from_s + 0.25 * step)


@pytest.mark.parametrize(("version", "side"), [("0.0.1", "worker"), ("999.0", "master")])
def test_a_refusal_names_the_side_to_upgrade(version, side):
    coordinator = Coordinator(PLAN, {})
    coordinator.hear(b"a", hello(version=version), 0.0)
    assert f"upgrade the {side}" in said(coordinator, Refuse)[0].reason


@pytest.mark.parametrize(("protocol", "side"), [(PROTOCOL - 1, "worker"), (PROTOCOL + 1, "master")])
def test_another_protocol_is_refused_by_the_side_to_upgrade(protocol, side):
    coordinator = Coordinator(PLAN, {})
    coordinator.wrong_protocol(b"a", protocol, "")
    assert f"upgrade the {side}" in said(coordinator, Refuse)[0].reason


def test_the_same_incarnation_is_the_same_worker_and_another_has_another_name():
    coordinator = Coordinator(PLAN, {})
    for n in (0, 0, 1):
        coordinator.hear(b"a", hello(n, name="x" * 200), 0.0)
    welcomes = said(coordinator, Welcome)
    assert [each.epoch for each in welcomes] == [1, 1, 2]
    assert len({each.worker for each in welcomes}) == 2
    assert all(len(each.worker) <= 200 for each in welcomes)


def test_a_worker_of_another_run_is_refused():
    coordinator = Coordinator(PLAN, {})
    coordinator.hear(b"a", beat(1, epoch=9), 0.0)
    assert "another run" in said(coordinator, Refuse)[0].reason


def test_what_came_while_the_disk_was_busy_is_not_acknowledged():
    coordinator = gathered()
    coordinator.start(0.0)
    coordinator.hear(b"0", result(1, 0), 1.0)
    coordinator.take_fresh()
    coordinator.hear(b"0", result(2, 1), 1.1)
    coordinator.sends.take()
    coordinator.stored()
    coordinator.hear(b"0", beat(2), 1.2)
    assert said(coordinator, Orders)[0].acked == 1


def test_repeats_and_gaps_are_dropped():
    coordinator = gathered()
    coordinator.start(0.0)
    for seq in (1, 1, 3, 2):
        coordinator.hear(b"0", result(seq, seq - 1), 1.0)
    assert [fresh.seq for fresh in coordinator.take_fresh()] == [1, 2]


def test_a_worker_may_go_once_its_final_is_stored():
    coordinator = gathered()
    coordinator.start(0.0)
    coordinator.hear(b"0", result(1, 0), 1.0)
    coordinator.hear(b"0", final(1), 1.0)
    coordinator.hear(b"0", beat(2, state="done"), 1.0)
    coordinator.take_fresh()
    coordinator.stored()
    coordinator.hear(b"0", beat(3, state="done"), 1.1)
    assert [orders.over for orders in said(coordinator, Orders)][-2:] == [False, True]


def test_a_silent_worker_is_lost_and_what_it_may_have_started_is_left_out():
    coordinator = gathered(2)
    coordinator.start(0.0)
    for step in range(28):
        coordinator.hear(b"0", beat(2 + step), 0.25 * step)
        coordinator.tick(0.25 * step)
    assert coordinator.peers[2].standing == "lost"
    assert set(coordinator.shares.maybe_started) == {1, 3}
    assert coordinator.shares.share(1) == ((0, 0), (1, 1), (2, 0), (3, 1))


def test_a_master_that_stood_still_blames_nobody():
    coordinator = gathered()
    coordinator.tick(0.1)
    coordinator.tick(60.0)
    assert coordinator.peers[1].standing == "here"
    turn(coordinator, 66.0, 60.0 + STALL_S / 2)
    assert coordinator.peers[1].standing == "left"


def test_a_worker_that_was_silent_before_the_run_takes_part_when_it_is_back():
    coordinator = gathered()
    turn(coordinator, 6.0)
    assert coordinator.ready == 0
    coordinator.hear(b"0", beat(2), 6.1)
    assert coordinator.ready == 1


def test_what_a_dead_worker_had_sent_does_not_bring_it_back():
    coordinator = gathered()
    coordinator.gone(1, 1.0, "killed")
    coordinator.hear(b"0", beat(2), 1.1)
    assert coordinator.peers[1].standing == "left"


def test_who_is_unable_before_the_start_fails_the_run_and_later_only_himself():
    before, after = gathered(), gathered()
    before.hear(b"0", Unable(epoch=1, reason="no key", exit_code=2), 0.1)
    assert before.failure == ("no key", 2)
    after.start(0.1)
    after.hear(b"0", Unable(epoch=1, reason="no key", exit_code=2), 0.2)
    assert after.failure is None
    assert "no key" in after.notes[0]


def test_the_run_time_ends_the_run_at_its_time():
    coordinator = gathered(run_time_s=2.0)
    coordinator.start(0.0)
    coordinator.tick(2.2)
    assert coordinator.phase == "run"
    coordinator.tick(2.5)
    assert (coordinator.phase, coordinator.phase_s) == ("drain", 2.3)


@pytest.mark.parametrize("end", ["drain", "cut"])
def test_a_run_that_was_ended_is_over_when_the_last_has_handed_in(end):
    coordinator = gathered()
    coordinator.start(0.0)
    getattr(coordinator, end)(1.0, "asked")
    coordinator.tick(1.0)
    assert not coordinator.over
    coordinator.hear(b"0", final(0), 1.1)
    coordinator.tick(1.1)
    assert (coordinator.over, coordinator.peers[1].standing) == (True, "done")


def test_abandoning_waits_for_nobody():
    coordinator = gathered()
    coordinator.start(0.0)
    coordinator.hear(b"0", beat(2, placed=((0, 1),), state="running"), 0.5)
    coordinator.abandon(1.0, "the disk is gone")
    assert coordinator.over
    assert coordinator.lost_sessions(1) == {0}


def test_what_was_granted_for_callers_that_went_elsewhere_is_granted_again():
    coordinator = Coordinator(PLAN, {}, budget=AudioBudget(40.0, 10.0))
    for n in range(2):
        coordinator.hear(b"%d" % n, hello(n), 0.0)
    coordinator.hear(b"0", beat(1, 1), 0.0)
    coordinator.start(0.0)  # the four that can be afforded are granted to the first, who holds all callers
    coordinator.hear(b"0", beat(2, 1, share_version=1), 0.1)
    coordinator.hear(b"1", beat(1, 2), 0.2)
    coordinator.hear(b"0", beat(3, 1, share_version=2, released=((2, 0), (3, 0))), 0.3)
    coordinator.sends.take()
    for n in (2, 3):
        coordinator.hear(b"1", beat(n, 2), 0.4)
    assert [orders.may_start for orders in said(coordinator, Orders)] == [1, 2]
