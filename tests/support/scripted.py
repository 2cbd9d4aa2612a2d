"""A session driven by hand: the test says when the agent speaks, tick by tick."""

from __future__ import annotations

import numpy as np

from voicebench.events import AgentAudio, AgentClear, AgentClosed, AgentTranscript
from voicebench.recording import Recording
from voicebench.records import SessionRecord
from voicebench.scenario.model import AudioSource, Scenario, StartRule, Turn, VadSettings
from voicebench.scoring import score
from voicebench.script import prepare
from voicebench.session import Session, Step

RATE_HZ = 8000
FRAME_MS = 20
LOUD = 3000


def loud(duration_ms: float) -> np.ndarray:
    """Constant level with exact edges."""
    return np.full(round(duration_ms * RATE_HZ / 1000), LOUD, dtype=np.int16)


def turn(turn_id: str, after: str = "previous_turn_end", *, delay_ms: float = 0.0, **rest) -> Turn:
    """A turn whose audio the test supplies."""
    start = StartRule(after, delay_ms, rest.pop("timeout_ms", 10000.0))
    return Turn(turn_id, AudioSource(synth="noise"), start, **rest)


def scenario(*turns: Turn, **rest) -> Scenario:
    defaults = {"sample_rate": RATE_HZ, "frame_ms": FRAME_MS, "tail_ms": 500.0, "vad_agent": VadSettings()}
    return Scenario("scripted", turns, **{**defaults, **rest})


class Scripted:
    """Steps a session to given times and speaks as the agent."""

    def __init__(self, script_scenario: Scenario, clip_ms: float | list[float] = 400.0) -> None:
        lengths = clip_ms if isinstance(clip_ms, list) else [clip_ms] * len(script_scenario.turns)
        self.session = Session(prepare(script_scenario, [loud(length) for length in lengths]))
        self.tick = 0
        self.steps: list[Step] = []

    @property
    def now_s(self) -> float:
        return self.tick * FRAME_MS / 1000

    def run_to(self, until_s: float) -> Scripted:
        """Take every tick before `until_s`."""
        while self.tick * FRAME_MS < round(until_s * 1000) and not self.session.ended:
            self.steps.append(self.session.step(self.tick))
            self.tick += 1
        return self

    def _pass(self, instant_s: float) -> None:
        """Take the ticks up to and including one due then: what happens now is heard at the next."""
        self.run_to(instant_s + FRAME_MS / 1000)

    def run_out(self) -> Scripted:
        """To the session's own end."""
        while not self.session.ended:
            self.run_to(self.now_s + 1)
        return self

    def speaks(self, from_s: float, for_s: float, packet_ms: float = 20.0) -> Scripted:
        """The agent speaks in packets, each delivered in the tick after it arrived."""
        n_packets = round(for_s * 1000 / packet_ms)
        for index in range(n_packets):
            arrives_s = from_s + index * packet_ms / 1000
            self._pass(arrives_s)
            self.session.hear(AgentAudio(loud(packet_ms), arrives_s))
        return self

    def streams(self, speech: tuple[float, float]) -> Scripted:
        """The agent sends a packet at every tick to the session's end: silence but where it speaks."""
        while not self.session.ended:
            self._pass(self.now_s)
            arrives_s = self.now_s - FRAME_MS / 1000
            self.session.hear(AgentAudio(loud(FRAME_MS) * (speech[0] <= arrives_s < speech[1]), arrives_s))
        return self

    def bursts(self, at_s: float, for_s: float) -> Scripted:
        """The agent sends a whole reply at once."""
        return self.hears(at_s, loud(for_s * 1000))

    def hears(self, at_s: float, *packets: np.ndarray) -> Scripted:
        """Packets of the agent, all at once."""
        self._pass(at_s)
        for samples in packets:
            self.session.hear(AgentAudio(samples, at_s))
        return self

    def clears(self, at_s: float) -> Scripted:
        self._pass(at_s)
        self.session.hear(AgentClear(at_s))
        return self

    def reports(self, at_s: float, text: str, *, role: str = "user", final: bool = True) -> Scripted:
        self._pass(at_s)
        self.session.hear(AgentTranscript(role, text, at_s, final))
        return self

    def closes(self, at_s: float, code: int | None) -> Scripted:
        self._pass(at_s)
        self.session.hear(AgentClosed(at_s, code))
        return self

    def starts_s(self) -> dict[str, float]:
        """When each turn's audio began to be sent, from what the machine told the shell to send."""
        turns = self.session.script.scenario.turns
        starts: dict[str, float] = {}
        for tick, step in enumerate(self.steps):
            if step.clip is not None:
                starts.setdefault(turns[step.clip].id, tick * FRAME_MS / 1000)
        return starts

    def recording(self) -> Recording:
        return self.session.recording("scripted", clock="virtual")

    def record(self) -> SessionRecord:
        return score(self.recording())
