"""The load generator of one process: callers who place sessions back to back, each accounted for.

started = finished + failed + cut, always: a session counts as started before its line is opened, and every way out of
`_place` hands a record over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import gevent
from gevent.event import Event

from voicebench.clock import monotonic_s, realtime_s
from voicebench.errors import AgentError, VoicebenchError
from voicebench.load.closed import first_start_s, pause_s, scenario_index, sessions_of_caller
from voicebench.recording import Recording
from voicebench.records import Outcome, SessionRecord
from voicebench.scoring import score
from voicebench.session import Session, shortest_session_s
from voicebench.worker.adapters.base import SessionInfo
from voicebench.worker.routes import Hold, Route

REDIAL_S = 1.0
"""A caller whose call did not come about waits this long, so that a dead agent is not hammered."""
CUT_AT_END = Outcome("cut", None, "cut by the end of the run")


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """The closed model of this process."""

    callers: int
    sessions: int | None
    spawn_rate_per_s: float | None = None
    run_time_s: float | None = None
    stop_timeout_s: float = 30.0
    pause_s: tuple[float, float] = (0.0, 0.0)
    warmup_s: float = 0.0
    max_audio_s: float | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Placed:
    """One session that was started, whatever became of it."""

    number: int
    index: int
    """Which scenario of the mix."""
    started_s: float
    """Seconds since the run's start."""
    record: SessionRecord
    recording: Recording
    sent_frames: int
    warmup: bool


class Engine:
    """Runs the load to its end. `drain` and `cut` may be called from any greenlet, at any time."""

    def __init__(
        self,
        routes: Sequence[Route],
        weights: Sequence[float],
        load: EngineLoad,
        *,
        run_id: str,
        take: Callable[[Placed], None],
    ) -> None:
        """`take` is handed each session once it has been scored; what it raises ends the run."""
        self._routes = routes
        self._weights = weights
        self.load = load
        self._run_id = run_id
        self._take = take
        self._stopping = Event()
        self._holds: dict[int, Hold] = {}
        self._live: dict[int, float] = {}
        self._audio_s = 0.0
        self._longest_s = 0.0
        self._cut: Outcome | None = None
        self._error: BaseException | None = None
        self.counts: Counter[str] = Counter()
        self.start_s = 0.0
        self.notes: list[str] = []

    @property
    def live(self) -> int:
        """Sessions going on, connecting ones included."""
        return len(self._live)

    @property
    def draining(self) -> bool:
        """No new sessions start."""
        return self._stopping.is_set()

    @property
    def elapsed_s(self) -> float:
        return monotonic_s() - self.start_s if self.start_s else 0.0

    def run(self) -> None:
        """Place all sessions and return when every one has ended.

        Raises:
            VoicebenchError: Something that voids the run, after all sessions were let go.
        """
        self.start_s = monotonic_s()
        callers = [gevent.spawn(self._call_again_and_again, caller) for caller in range(self.load.callers)]
        watch = gevent.spawn(self._watch_the_clock)
        try:
            gevent.joinall(callers)
        finally:
            watch.kill()
        if self._error is not None:
            raise self._error

    def drain(self) -> None:
        """Start no new sessions; what is going on may end by itself."""
        self._stopping.set()

    def cut(self, outcome: Outcome = CUT_AT_END) -> None:
        """End everything that goes on."""
        self._cut = outcome
        self._stopping.set()
        for hold in self._holds.values():
            hold.ending = outcome

    def fail(self, error: BaseException) -> None:
        """Something broke that no session survives: end the run and raise it from `run`."""
        self._error = self._error or error
        self.cut(Outcome("failed", "generator", f"the load generator failed: {error}"))

    def _watch_the_clock(self) -> None:
        if self.load.run_time_s is not None:
            self._stopping.wait(self.load.run_time_s)
            self.drain()
        self._stopping.wait()
        gevent.sleep(self.load.stop_timeout_s)
        if self._live:
            self.notes.append(f"{len(self._live)} sessions were cut {self.load.stop_timeout_s:g} s after the end")
        self.cut()

    def _call_again_and_again(self, caller: int) -> None:
        try:
            self._stopping.wait(first_start_s(caller, self.load.spawn_rate_per_s))
            for number in sessions_of_caller(caller, self.load.callers, self.load.sessions):
                if self.draining or not self._within_budget():
                    return
                connected = self._place(number)
                wait_s = pause_s(number, self.load.pause_s, self.load.seed)
                self._stopping.wait(wait_s if connected else max(wait_s, REDIAL_S))
        except BaseException as error:  # noqa: BLE001 - a caller that dies unheard would leave sessions uncounted
            self.fail(error)

    def _within_budget(self) -> bool:
        """Whether one more session, as long as the longest so far, stays within the audio minutes."""
        if self.load.max_audio_s is None:
            return True
        shortest_s = min(shortest_session_s(route.script) for route in self._routes)
        expected_s = max(self._longest_s, shortest_s)
        spoken_s = self._audio_s + (len(self._live) + 1) * expected_s
        if spoken_s <= self.load.max_audio_s:
            return True
        if not self.draining:
            self.notes.append(f"no more sessions: {self.load.max_audio_s / 60:g} audio minutes are used up")
        self.drain()
        return False

    def _place(self, number: int) -> bool:
        """Hold session `number`, score it and hand it over; False when its line never opened."""
        index = scenario_index(number, self._weights, self.load.seed)
        route = self._routes[index]
        started_s = self.elapsed_s
        info = self._info(number, route)
        self.counts["started"] += 1
        self._live[number] = monotonic_s()
        zero_s, lateness, connected = 0.0, None, True
        try:
            held = route.hold(info, lambda hold: self._opened(number, hold))
            session, zero_s, lateness = held.session, held.zero_s, held.lateness
        except AgentError as error:
            session, connected = _never_opened(route, Outcome("failed", error.reason, str(error))), False
        except VoicebenchError as error:
            session, connected = _never_opened(route, Outcome("failed", "generator", str(error))), False
        finally:
            self._holds.pop(number, None)
            self._live.pop(number, None)
        extra = {"number": number, "started_at": info.started_at, "zero_monotonic_s": round(zero_s, 6)}
        recording = session.recording(info.session_id, clock=route.clock, lateness=lateness, extra=extra)
        self._audio_s += recording.duration_s
        self._longest_s = max(self._longest_s, recording.duration_s)
        record = score(recording)
        self.counts[record.outcome.state] += 1
        warmup = started_s < self.load.warmup_s
        self._take(Placed(number, index, started_s, record, recording, session.ticks, warmup))
        return connected

    def _opened(self, number: int, hold: Hold) -> None:
        self._holds[number] = hold
        hold.ending = self._cut

    def _info(self, number: int, route: Route) -> SessionInfo:
        scenario = route.script.scenario
        return SessionInfo(
            session_id=f"{self._run_id}-{number:06d}",
            number=number,
            sample_rate_hz=scenario.sample_rate,
            frame_samples=route.script.frame_samples,
            scenario=scenario.name,
            started_at=datetime.fromtimestamp(realtime_s(), UTC).isoformat(timespec="milliseconds"),
        )


def _never_opened(route: Route, outcome: Outcome) -> Session:
    session = Session(route.script)
    session.end(outcome, 0)
    return session
