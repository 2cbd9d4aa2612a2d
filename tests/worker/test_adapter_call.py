"""A session through an adapter of the user's own, good or bad: adapters are other people's code."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import gevent
import gevent.event
import numpy as np
import pytest

from tests.support.placing import INFO, ask, script
from voicebench import bundle
from voicebench.clock import monotonic_s
from voicebench.errors import AdapterError, AgentError
from voicebench.records import Outcome
from voicebench.scoring import score
from voicebench.worker import adapter_call
from voicebench.worker.adapter_call import AdapterCall
from voicebench.worker.adapters.base import Audio, Clear, HangUp, Transcript
from voicebench.worker.routes import AdapterRoute

pytestmark = [pytest.mark.slow, pytest.mark.alone]

LOUD = np.full(320, 4000, np.int16)
SHORT = script(ask(ms=300, response_timeout_ms=500), tail_ms=200)


class Agent:
    """Says what `says` gives for each call of `receive`; each of the four methods can be replaced."""

    def __init__(self, *said: Any, **methods: Callable[..., Any]) -> None:
        self.heard: list[np.ndarray] = []
        self.closed = 0
        self._said = list(said)
        for name, method in methods.items():
            setattr(self, name, method)

    def connect(self, timeout_s: float) -> None:
        pass

    def send(self, samples: np.ndarray) -> None:
        self.heard.append(samples)

    def receive(self, timeout_s: float) -> Any:
        gevent.sleep(0.02)
        return self._said.pop(0) if self._said else None

    def close(self) -> None:
        self.closed += 1


def hold(agent: Agent, *, cut_after_s: float | None = None, limit_s: float = 20) -> AdapterCall:
    call = AdapterCall(SHORT, agent, connect_timeout_s=0.3)
    if cut_after_s is not None:
        gevent.spawn_later(cut_after_s, setattr, call, "ending", Outcome("cut"))
    with gevent.Timeout(limit_s):
        call.run(lambda opened: None)
    assert call.session.outcome is not None
    assert len(call.lateness().send_ms) == call.session.ticks
    return call


def outcome(agent: Agent, **more: Any) -> Outcome:
    return hold(agent, **more).session.outcome


def test_the_agent_gets_every_frame_and_its_answer_is_scored():
    agent = Agent(*[None] * 25, *[Audio(LOUD)] * 20)
    call = hold(agent)
    recording = call.session.recording("x", clock="real", lateness=call.lateness())
    assert call.session.outcome.state == "finished"
    assert np.array_equal(np.concatenate(agent.heard), recording.user)
    assert score(recording).turns[0].responded
    assert agent.closed == 1


def test_no_answer_is_no_audio():
    assert outcome(Agent()).reason == "no_audio"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (AgentError("limited", "no more"), "limited"),
        (TimeoutError("nobody"), "timeout"),
        (ConnectionRefusedError("no"), "refused"),
        (ValueError("what"), "refused"),
    ],
)
def test_a_connect_that_fails_has_its_reason_and_the_adapter_is_closed(error, reason):
    agent = Agent(connect=lambda timeout_s: (_ for _ in ()).throw(error))
    with pytest.raises(AgentError) as raised:
        hold(agent)
    assert raised.value.reason == reason
    assert agent.closed == 1


def test_a_connect_that_never_returns_is_a_timeout():
    began_s = monotonic_s()
    with pytest.raises(AgentError, match=r"did not connect in time.*0\.3 s") as raised:
        hold(Agent(connect=lambda timeout_s: gevent.sleep(60)))
    assert raised.value.reason == "timeout"
    assert monotonic_s() - began_s < 5


def test_a_hang_up_is_heard_once_and_nothing_is_asked_after_it():
    def receive(timeout_s: float) -> Any:
        if receive.asked:
            raise ConnectionError("asked again")
        receive.asked = True
        gevent.sleep(0.1)
        return HangUp(1000, "bye")

    receive.asked = False
    found = outcome(Agent(receive=receive))
    assert (found.reason, "1000" in found.detail) == ("agent_hangup", True)


def test_a_send_that_fails_because_the_agent_has_hung_up_is_a_hang_up():
    hung_up = gevent.event.Event()

    def send(samples: np.ndarray) -> None:
        hung_up.set()
        raise ConnectionError("closed")

    def receive(timeout_s: float) -> Any:
        hung_up.wait()
        gevent.sleep(0.02)
        return HangUp(1001)

    assert outcome(Agent(send=send, receive=receive)).reason == "agent_hangup"


@pytest.mark.parametrize("method", ["send", "receive"])
@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        (AgentError("dropped", "the room was closed \ud800"), "dropped", "the room was closed \ufffd"),
        (ValueError("oops \ud800"), "dropped", "failed: ValueError: oops \ufffd"),
    ],
)
def test_a_method_that_raises_ends_the_session_in_words_that_can_be_stored(method, error, reason, words):
    found = outcome(Agent(**{method: lambda _: (_ for _ in ()).throw(error)}))
    assert found.reason == reason
    assert words in found.detail


def test_a_send_that_blocks_is_an_agent_that_does_not_read():
    found = outcome(Agent(send=lambda samples: gevent.sleep(60)))
    assert found.reason == "protocol"
    assert "does not read" in found.detail


def test_a_close_that_hangs_or_raises_does_not_hold_the_run_up(monkeypatch):
    monkeypatch.setattr(adapter_call, "CLOSE_S", 0.1)
    assert "close() failed: TimeoutError" in outcome(Agent(*[Audio(LOUD)] * 9, close=lambda: gevent.sleep(60))).detail
    assert "close() failed: ZeroDivisionError" in outcome(Agent(*[Audio(LOUD)] * 9, close=lambda: 1 / 0)).detail


@pytest.mark.parametrize("returned", [None, Audio(LOUD), Clear()])
def test_an_adapter_that_never_waits_does_not_stop_everything_else(returned):
    """`receive` returns at once, always: without a pause of ours no other greenlet would ever run again."""
    others = []
    other = gevent.spawn(lambda: [others.append(gevent.sleep(0.01)) for _ in range(10)])
    hold(Agent(receive=lambda timeout_s: returned), cut_after_s=0.5)
    other.kill()
    assert len(others) == 10


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("hello", "returned a str"),
        (Audio(np.zeros(320, np.float32)), "not float32"),
        (Audio(np.zeros((320, 2), np.int16)), r"shape (samples,)"),
        (Audio([1, 2, 3]), "not list"),
        (Transcript("user", None), "a text"),
        (Transcript("bot", "hello"), "'bot'"),
        (HangUp("1000"), "'1000'"),
    ],
)
def test_what_is_no_event_of_an_adapter_ends_the_session_and_says_what_was_wrong(said, words):
    found = outcome(Agent(said))
    assert found.reason == "dropped"
    assert words in found.detail


def test_hostile_text_is_cleaned_before_anything_has_to_carry_it():
    call = hold(Agent(Audio(LOUD), Transcript("user", "a\ud800\0b"), Transcript("agent", "c" * 20_000)))
    recording = call.session.recording("x", clock="real")
    document = json.loads(bundle.encode(recording, {})[bundle.SESSION_FILE])
    assert [said["text"] for said in document["transcripts"]] == ["a\ufffd\ufffdb", "c" * 10_000]


def test_a_cut_ends_it_at_the_next_frame():
    call = hold(Agent(), cut_after_s=0.3)
    assert call.session.outcome == Outcome("cut")
    assert 12 <= call.session.ticks <= 25


def test_a_loop_that_stood_still_for_more_than_a_second_is_our_own_failure():
    def receive(timeout_s: float) -> None:
        until_s = monotonic_s() + 1.3
        while monotonic_s() < until_s:
            pass

    began_s = monotonic_s()
    assert outcome(Agent(receive=receive)).reason == "generator"
    assert monotonic_s() - began_s < 60  # two of its turns, and not until the session's time is over


def test_a_loop_that_stood_still_between_two_frames_shows_in_the_error_though_no_frame_was_late():
    """The answer lay there meanwhile, and the adapter's greenlet could not know since when."""
    blocked = []

    def send(samples: np.ndarray) -> None:
        blocked.append(True)
        if len(blocked) == 20:
            until_s = monotonic_s() + 0.018
            while monotonic_s() < until_s:
                pass

    late = hold(Agent(*[None] * 25, *[Audio(LOUD)] * 20, send=send)).lateness()
    assert late.drain_gap_ms[19:22].max() >= 17
    assert np.median(late.drain_gap_ms) < 10


def test_a_route_knocks_by_connecting_and_closing():
    agent = Agent()
    AdapterRoute(SHORT, lambda info: agent, 0.3).knock(INFO)
    assert (agent.closed, agent.heard) == (1, [])
    with pytest.raises(AgentError):
        AdapterRoute(SHORT, lambda info: Agent(connect=lambda timeout_s: 1 / 0), 0.3).knock(INFO)


def test_a_route_says_when_the_line_is_open_and_not_before():
    order = []
    agent = Agent(connect=lambda timeout_s: order.append("connected"))
    AdapterRoute(SHORT, lambda info: agent, 0.3).hold(INFO, lambda call: order.append("opened"))
    assert order == ["connected", "opened"]


def test_an_adapter_that_cannot_be_made_is_told_as_such():
    def make(info: Any) -> Agent:
        raise AdapterError("these options don't fit")

    with pytest.raises(AdapterError, match="don't fit"):
        AdapterRoute(SHORT, make, 0.3).hold(INFO, lambda call: None)
