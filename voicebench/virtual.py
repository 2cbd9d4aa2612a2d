"""A session with the mock agent on the virtual clock: deterministic to the bit, as fast as the CPU."""

from __future__ import annotations

from functools import lru_cache

from voicebench.audio.level import energy_limit, energy_of
from voicebench.events import AgentAudio, AgentClear, AgentEvent, AgentTranscript
from voicebench.instants import ns_to_s
from voicebench.mock_agent import Clear, Heard, MockAgent, MockOutput, Say
from voicebench.scenario.adapter_options import MockOptions
from voicebench.script import Script
from voicebench.session import Keeper, Session

Activity = tuple[tuple[bool, ...], ...]


def run_virtual(
    script: Script, options: MockOptions, *, seed: int | None = None, keeper: Keeper | None = None
) -> Session:
    """Hold one session to its end.

    Args:
        script: What the user says.
        options: How the mock agent behaves.
        seed: Of the agent's jitter, the options' own when None.
        keeper: Takes the agent's sound as it grows; None: it stays with the session.

    Returns:
        The ended session. What the agent says while it hears frame *i* arrives at tick *i*'s own instant and is heard
        by the session at tick *i* + 1.
    """
    agent = MockAgent(options, sample_rate_hz=script.scenario.sample_rate, seed=seed)
    activity = _activity(script, options.threshold_db)
    session = Session(script)
    session.keep_with(keeper)
    tick = 0
    while not (step := session.step(tick)).ended:
        first = tick
        news = False
        while tick < step.wake and not news:
            active = step.clip is not None and _flag(activity[step.clip], step.at + tick - first)
            for output in agent.step(active=active, n_samples=script.frame_samples):
                event = event_of(output, ns_to_s(script.tick_ns(tick)))
                if event is not None and session.hear(event):
                    news = True
            tick += 1
    return session


def event_of(output: MockOutput, time_s: float) -> AgentEvent | None:
    """What a session hears of what the mock agent does; None when it hears nothing."""
    if isinstance(output, Say):
        return AgentAudio(output.samples, time_s)
    if isinstance(output, Clear):
        return AgentClear(time_s)
    if isinstance(output, Heard) and output.text is not None:
        return AgentTranscript("user", output.text, time_s)
    return None


def _flag(flags: tuple[bool, ...], index: int) -> bool:
    return index < len(flags) and flags[index]


@lru_cache(maxsize=64)
def _activity(script: Script, threshold_db: float) -> Activity:
    """Which frames of each clip the agent takes for speech: known beforehand, since the user's audio is."""
    limit = energy_limit(threshold_db, script.frame_samples)
    return tuple(
        tuple(energy_of(script.frame(clip, at)) >= limit for at in range(frames))
        for clip, frames in enumerate(script.clip_frames)
    )
