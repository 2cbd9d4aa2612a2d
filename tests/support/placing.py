"""Sessions placed by the engine in this process, on agents of the test's choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from voicebench.audio import synth
from voicebench.scenario.adapter_options import websocket_options
from voicebench.scenario.model import AudioSource, Scenario, StartRule, Turn
from voicebench.script import Script, prepare
from voicebench.worker.adapters.base import SessionInfo
from voicebench.worker.adapters.websocket import WebSocketTransport
from voicebench.worker.call import Call, close_socket, make_ready
from voicebench.worker.engine import Engine, EngineLoad, Placed
from voicebench.worker.pacer import Pacer
from voicebench.worker.routes import Held, Route, SocketRoute

RATE_HZ = 16000
INFO = SessionInfo("s", 0, RATE_HZ, 320, "placed", "2026-01-01T00:00:00Z")


def ask(turn_id: str = "ask", *, after: str = "session_start", delay_ms: float = 100.0, ms: float = 500.0, **rest: Any):
    """A turn of synthetic speech."""
    source = AudioSource(synth="speech", duration_ms=ms)
    return Turn(turn_id, source, StartRule(after, delay_ms, rest.pop("timeout_ms", 2000.0)), **rest)


def script(*turns: Turn, **rest: Any) -> Script:
    """One question by default: over in two seconds, or in three when nobody answers."""
    turns = turns or (ask(response_timeout_ms=2000),)
    scenario = Scenario("placed", turns, **{"tail_ms": 300.0, "sample_rate": RATE_HZ, **rest})
    return prepare(scenario, [synth.render(turn.audio, scenario.sample_rate) for turn in turns])


@dataclass
class ByNumber:
    """Session n goes the n-th of these ways, whatever the engine's mix would say."""

    ways: Sequence[Route]
    clock: str = "real"

    @property
    def script(self) -> Script:
        return self.ways[0].script

    def hold(self, info: SessionInfo, opened: Callable[[Any], None]) -> Held:
        return self.ways[info.number % len(self.ways)].hold(info, opened)


@dataclass
class Outcome:
    """What became of a run."""

    engine: Engine
    placed: list[Placed] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    def of(self, way: int, ways: int) -> list[Placed]:
        return [placed for placed in self.placed if placed.number % ways == way]

    @property
    def reasons(self) -> list[str | None]:
        """By session number."""
        return [p.record.outcome.reason for p in sorted(self.placed, key=lambda placed: placed.number)]


class Placing:
    """A pacer and what it takes to place sessions with it; closed in the end."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.pacer = Pacer(self._failed)
        self.engine: Engine | None = None
        self._bare: list[Call] = []

    def __enter__(self) -> Placing:
        return self

    def __exit__(self, *_: object) -> None:
        self.pacer.close()
        for call in self._bare:
            close_socket(call.live.sock)

    def call(self, way: SocketRoute) -> Call:
        """A call on an open line, which no engine knows of and the pacer not yet."""
        call = Call(way.ready, way.transport.open(INFO))
        self._bare.append(call)
        return call

    def way(self, url: str, of: Script, **options: Any) -> SocketRoute:
        transport = WebSocketTransport(
            websocket_options({"url": url, "connect_timeout_s": 5, "handshake_timeout_s": 5, **options})
        )
        return SocketRoute(make_ready(of, transport.ready_frame), transport, self.pacer)

    def prepare(
        self, ways: Sequence[Any], load: EngineLoad | None = None, take: Callable[[Placed], None] | None = None
    ) -> Outcome:
        """An engine that places one session each way, at once, unless the load says otherwise."""
        load = load or EngineLoad(callers=len(ways), sessions=len(ways))
        placed: list[Placed] = []
        self.engine = Engine([ByNumber(ways)], [1.0], load, run_id="test", take=take or placed.append)
        return Outcome(self.engine, placed, self.errors)

    def run(self, ways: Sequence[Any], load: EngineLoad | None = None) -> Outcome:
        """The same, run to its end."""
        outcome = self.prepare(ways, load)
        outcome.engine.run()
        assert_accounted(outcome.engine)
        return outcome

    def _failed(self, error: BaseException) -> None:
        self.errors.append(error)
        if self.engine is not None:
            self.engine.fail(error)


def assert_accounted(engine: Engine) -> None:
    counts = engine.counts
    assert counts["started"] == counts["finished"] + counts["failed"] + counts["cut"], counts


def worst_ms(placed: Sequence[Placed]) -> tuple[float, float]:
    """The latest frame and the widest gap between two looks, over these sessions."""
    lateness = [each.recording.lateness for each in placed]
    return (
        max(float(np.max(late.send_ms, initial=0)) for late in lateness if late is not None),
        max(float(np.max(late.drain_gap_ms, initial=0)) for late in lateness if late is not None),
    )
