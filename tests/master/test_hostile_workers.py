"""Whoever reaches the port may say anything: what can't be is not taken in, and what is shown can be shown."""

import pytest

from tests.support.made import respond, result, session
from voicebench import __version__
from voicebench.load.closed import session_name
from voicebench.master.coordinator import Coordinator, shown
from voicebench.wire.messages import Beat, Final, Hello, Refuse, Results, RunPlan, Unable, Welcome

PEER = b"peer"


def plan(**rest) -> RunPlan:
    values = {
        "run_id": "run", "scenarios": ("0" * 64,), "weights": (1.0,), "callers": 2, "sessions": 4,
        "spawn_rate_per_s": None, "run_time_s": None, "stop_timeout_s": 1.0, "pause_s": (0.0, 0.0), "warmup_s": 0.0,
        "seed": 0, "keep": "none", "preflight": False,
    }  # fmt: skip
    return RunPlan(**{**values, **rest})


def hello(name: str = "w", incarnation: str = "a" * 32) -> Hello:
    return Hello(
        version=__version__, incarnation=incarnation, name=name, host=name, python="3", platform="Linux", cpus=1
    )


def beat(n: int, state: str = "ready", **rest) -> Beat:
    values = {"share_version": 0, "placed": (), "released": (), "live": 0, "hub_age_s": 0.0, "cpu_s": 0.0}
    return Beat(epoch=1, n=n, sent_s=0.0, state=state, **{**values, **rest})


def running(name: str = "w") -> Coordinator:
    made = Coordinator(plan(), {})
    made.hear(PEER, hello(name), 0.0)
    made.hear(PEER, beat(1), 0.1)
    made.start(0.2)
    made.sends.take()
    return made


def handed_in(number: int, name: str | None = None, **rest) -> Results:
    record = session(respond(), session_id=session_name("run", number) if name is None else name)
    return Results(epoch=1, seq=1, session=result(record, number=number, **rest))


@pytest.mark.parametrize(
    "forged",
    [
        handed_in(0, "run-000001"),
        handed_in(0, "other-000000"),
        handed_in(4),  # the plan has 0 to 3
        handed_in(0, index=1),  # and one scenario
    ],
)
def test_a_result_that_is_none_of_the_run_is_not_taken_in_and_its_worker_expelled(forged):
    made = running()
    made.hear(PEER, forged, 1.0)
    assert made.take_fresh() == []
    assert made.peers[1].standing == "lost"
    made.hear(PEER, handed_in(0), 1.1)
    assert made.take_fresh() == []
    (_, answer) = made.sends.take()[-1]
    assert isinstance(answer, Refuse)
    assert "none of this run" in answer.reason


def test_a_result_of_the_run_is_taken_in():
    made = running()
    made.hear(PEER, handed_in(1), 1.0)
    assert [fresh.session.number for fresh in made.take_fresh()] == [1]


def test_words_of_a_worker_reach_no_terminal_as_control_codes():
    made = running("\x1b[2Jw\n\ud800"[:6])
    assert made.peers[1].name.isprintable()
    made.hear(PEER, Final(epoch=1, seq=0, cpu_s=0.0, notes=("\x1b]0;x\x07",), events=((0.0, "a\n", "\x9b"),)), 1.0)
    final = made.peers[1].final
    assert final is not None
    assert all(text.isprintable() for text in (*final.notes, *final.events[0][1:]))
    other = Coordinator(plan(), {})
    other.hear(PEER, hello(), 0.0)
    other.hear(PEER, Unable(epoch=1, reason="\x1b[31mred", exit_code=3), 0.1)
    assert other.failure == ("\N{REPLACEMENT CHARACTER}[31mred", 3)
    assert shown("") == "?"
    assert shown("a.yaml: one\nb.yaml: two\n") == "a.yaml: one; b.yaml: two"


def test_names_that_look_the_same_are_told_apart():
    made = Coordinator(plan(), {})
    made.hear(b"1", hello("w\x01"), 0.0)
    made.hear(b"2", hello("w\x02", "b" * 32), 0.0)
    assert len({peer.name for peer in made.peers.values()}) == 2
    assert sum(isinstance(message, Welcome) for _, message in made.sends.take()) == 2
