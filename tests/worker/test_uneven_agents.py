"""One agent that misbehaves beside several that don't, in one worker: the others stay as punctual as a control group in a
worker of its own, and whatever the pace and the packets of an agent, its speech is found where it was heard."""

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import gevent
import pytest

from tests.support.control_group import TURNS, Calm, ControlGroup, calm_of, conversation
from tests.support.hostile_agents import hostile_agents
from tests.support.namespaces import ip, make_namespace
from tests.support.placing import RATE_HZ, Placing, ask, script, worst_ms
from tests.support.processes import mock_server
from tests.support.uneven_talk import heard
from tests.worker.test_pacer import burn
from voicebench.clock import monotonic_s
from voicebench.worker.call import Call
from voicebench.worker.engine import Placed

pytestmark = [pytest.mark.slow, pytest.mark.alone]

GOOD = ("-o", "endpoint_silence_ms=200", "-o", "response_delay_ms=300", "-o", "response_ms=600")
N_GOOD = 4
ATTEMPTS = 3
"""A pause of the machine may hit one of the two workers and not the other; an agent's doing comes back each time."""
FRAME_S = 0.02
TAIL_MS = 3000
"""Up to the second sentence: an agent that is silent between two has not finished."""
TALKERS = (
    "talk-10-ms", "talk-20-ms", "talk-100-ms", "talk-1000-ms", "talk-2-times", "talk-20-times",
    "talk-halves-carried-over", "talk-silence-sent", "talk-silence-left-out", "talk-silence-streamed",
)  # fmt: skip
OTHERS = {
    "never-reads": ("failed", "protocol"),
    "stops-reading": ("failed", "protocol"),
    "resets": ("failed", "dropped"),
    "vanishes": ("failed", "dropped"),
    "garbage": ("failed", "protocol"),
    "texts-3000": ("finished", None),
    "pings-100": ("finished", None),
    "fragments": ("finished", None),
}
"""What becomes of the session with it, so that no test passes beside an agent that behaved."""
NOT_READING = ("never-reads", "stops-reading")
FAST_HZ = 48_000
"""At this rate what an agent's system takes for it is full while the sessions beside it still go on."""
REPORTED_S = 1.0


@pytest.fixture(scope="module")
def good_agent() -> Iterator[str]:
    with mock_server(*GOOD) as url:
        yield url


@pytest.fixture(scope="module")
def bad() -> Iterator[str]:
    with hostile_agents() as process:
        yield f"ws://127.0.0.1:{process.port}"


@dataclass(frozen=True)
class Beside:
    """The session with an odd agent, and how the good ones beside it fared."""

    placed: Placed
    here: Calm
    control: Calm

    @property
    def calm(self) -> bool:
        return self.here.as_calm_as(self.control)


def beside(url: str, good_agent: str, rate_hz: int = RATE_HZ, *meanwhile: tuple[float, Callable[[], None]]) -> Beside:
    """One session with the agent at `url` beside good ones, and as many good ones in a worker of their own.

    Args:
        meanwhile: What is done so many seconds after the start.
    """
    control = ControlGroup(good_agent, N_GOOD)
    with Placing() as placing:
        of = script(ask(response_timeout_ms=2000), tail_ms=TAIL_MS, max_duration_ms=6000, sample_rate=rate_hz)
        outcome = placing.prepare([placing.way(url, of), *[placing.way(good_agent, conversation())] * N_GOOD])
        for after_s, act in meanwhile:
            gevent.spawn_later(after_s, act)
        control.start()
        outcome.engine.run()
    assert not outcome.errors
    placed, *good = sorted(outcome.placed, key=lambda each: each.number)
    found = Beside(placed, calm_of(good), control.calm())
    assert (found.control.finished, found.control.turns) == (N_GOOD, N_GOOD * TURNS), "the good agent is not good"
    return found


def undisturbed(attempt: Callable[[], Beside]) -> Placed:
    """The odd session of the first attempt whose good ones were as calm as the control group."""
    for number in range(ATTEMPTS):
        found = attempt()
        if found.calm:
            return found.placed
        print(f"attempt {number + 1}: beside it {found.here}, control {found.control}")
    pytest.fail(f"never as calm as the control group in {ATTEMPTS} attempts")


def assert_heard_as_sent(placed: Placed) -> None:
    """Every segment where the agent's log puts it, to a frame and to what came late by our own doing."""
    (said,) = placed.recording.transcripts
    truth = heard(said.text, placed.recording.extra["zero_monotonic_s"])
    found = placed.record.agent_segments
    slack_s = FRAME_S + max(worst_ms([placed])) / 1000
    assert len(found) == len(truth), (found, truth)
    for segment, true in zip(found, truth, strict=True):
        assert true.start_s[0] - slack_s <= segment.start_s <= true.start_s[1] + slack_s, (segment, true)
        assert true.end_s[0] - slack_s <= segment.end_s <= true.end_s[1] + slack_s, (segment, true)
    latency_s = truth[0].start_s[0] - placed.record.turns[0].user_offset_s
    assert placed.record.turns[0].response_latency_ms / 1000 == pytest.approx(latency_s, abs=slack_s)


@pytest.mark.parametrize("name", TALKERS)
def test_whatever_its_pace_and_packets_an_agent_is_heard_as_it_spoke_and_disturbs_nobody(bad, good_agent, name):
    placed = undisturbed(lambda: beside(f"{bad}/{name}", good_agent))
    assert placed.record.outcome.state == "finished", placed.record.outcome
    assert_heard_as_sent(placed)


@pytest.mark.parametrize("name", OTHERS)
def test_an_agent_that_breaks_its_own_session_or_chatters_disturbs_nobody(bad, good_agent, name):
    rate_hz = FAST_HZ if name in NOT_READING else RATE_HZ
    outcome = undisturbed(lambda: beside(f"{bad}/{name}", good_agent, rate_hz)).record.outcome
    assert (outcome.state, outcome.reason) == OTHERS[name], outcome


def test_a_session_that_holds_the_loop_is_seen_in_those_beside_it(bad, good_agent, monkeypatch):
    """What the tests above rest on: were an agent's packets slow to read, they would fail."""
    look = Call.look

    def slow_look(call: Call, *arguments: float) -> None:
        look(call, *arguments)
        if call.session.script.scenario.turns[-1].id == "ask":
            burn(0.015)

    monkeypatch.setattr(Call, "look", slow_look)
    assert not any(beside(f"{bad}/talk-20-ms", good_agent).calm for _ in range(ATTEMPTS))


def found_within_s(placed: Placed) -> float:
    """The kernel is asked every tenth frame, and a system takes what it takes in steps; and our own lateness."""
    return 0.3 + max(worst_ms([placed])) / 1000


@pytest.mark.parametrize("name", NOT_READING)
def test_an_agent_that_does_not_read_is_reported_a_second_after_its_system_is_full(bad, name):
    of = script(ask(response_timeout_ms=500), ask("later", after="previous_turn_end", delay_ms=30_000))
    with Placing() as placing:
        (placed,) = placing.run([placing.way(f"{bad}/{name}", of)]).placed
    assert placed.record.outcome.reason == "protocol"
    assert "does not read" in placed.record.outcome.detail
    (told,) = placed.recording.transcripts
    stopped_s, full_s, held_bytes = json.loads(told.text)
    ended_s = placed.recording.extra["zero_monotonic_s"] + placed.record.duration_s
    print(
        f"full {full_s - stopped_s:.2f} s after it stopped, with {held_bytes} bytes; found {ended_s - full_s:.2f} s later"
    )
    assert ended_s - full_s == pytest.approx(REPORTED_S, abs=found_within_s(placed))


# ---------------------------------------------------------------- a host that is gone


HERE, THERE = "10.213.78.1", "10.213.78.2"


@pytest.fixture
def far_host() -> Iterator[str]:
    """A namespace with a cable from here to it."""
    name, here, there = (f"vb{os.getpid()}{end}" for end in ("f", "h", "t"))
    make_namespace(name)
    try:
        ip("link", "add", here, "type", "veth", "peer", "name", there)
        ip("link", "set", there, "netns", name)
        ip("addr", "add", f"{HERE}/24", "dev", here)
        ip("link", "set", here, "up")
        ip("-n", name, "addr", "add", f"{THERE}/24", "dev", there)
        ip("-n", name, "link", "set", there, "up")
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("netns", "delete", name)  # the cable goes with it


def test_an_agent_whose_host_is_gone_without_a_word_is_reported_a_second_later(far_host, good_agent):
    """No FIN, no reset: all there is to see is that nothing is acknowledged any more."""
    gone_s: list[float] = []

    def attempt() -> Beside:
        ip("-n", far_host, "addr", "replace", f"{THERE}/24", "dev", f"vb{os.getpid()}t")
        command = f"read -r now; exec ip -n {far_host} addr del {THERE}/24 dev vb{os.getpid()}t"
        plug = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE)  # to start it meanwhile would disturb

        def pull_it() -> None:
            gone_s.append(monotonic_s())
            os.write(plug.stdin.fileno(), b"\n")

        with plug, hostile_agents(THERE, through=("ip", "netns", "exec", far_host)) as far:
            return beside(f"ws://{THERE}:{far.port}/talk-20-ms", good_agent, RATE_HZ, (1.5, pull_it))

    placed = undisturbed(attempt)
    assert placed.record.outcome.reason == "protocol"
    assert "does not read" in placed.record.outcome.detail
    ended_s = placed.recording.extra["zero_monotonic_s"] + placed.record.duration_s
    print(f"found {ended_s - gone_s[-1]:.2f} s after the plug was pulled")
    assert ended_s - gone_s[-1] == pytest.approx(REPORTED_S, abs=found_within_s(placed))
