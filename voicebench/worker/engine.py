"""The load generator of one process: callers who place sessions back to back, each accounted for.

started = finished + failed + cut, always: a session counts as started before its line is opened, and every way out of
`_hold` is a session that has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import gevent
from gevent.event import Event
from gevent.hub import get_hub
from gevent.lock import BoundedSemaphore

from voicebench.clock import monotonic_s, realtime_s
from voicebench.errors import AgentError, VoicebenchError
from voicebench.load.closed import first_start_s, pause_s, scenario_index, sessions_of_caller
from voicebench.recording import Recording
from voicebench.records import Outcome, SessionRecord
from voicebench.scoring import score
from voicebench.session import Session, shortest_session_s
from voicebench.worker.adapters.base import SessionInfo, describe
from voicebench.worker.routes import Held, Hold, Route

REDIAL_S = 1.0
"""A caller whose call did not come about, or failed sooner than this, waits, so that a dead agent is not hammered."""
DIAL_EVERY_S = 0.002
"""Two calls are not set up closer than this: a hundred handshakes at once stall live sessions for 25 ms."""
BREATH_S = 0.001
"""Sessions that end together are scored one after the other, and live ones have their turn in between."""
PULSE_S = 0.25
STALL_S = 1.0
"""A process that did not run for this long (stopped, suspended, starved) blames no agent for a time-out."""
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
        self._connecting: dict[int, gevent.Greenlet[Any]] = {}
        self._live: set[int] = set()
        self._desk = BoundedSemaphore(1)
        self._dialled_s = 0.0
        self._pulse_s = self._stalled_s = 0.0
        self._audio_s = 0.0
        self._longest_s = 0.0
        self._cut: Outcome | None = None
        self._error: BaseException | None = None
        self.counts: Counter[str] = Counter()
        self.start_s = 0.0
        self.notes: list[str] = []
        self.events: list[dict[str, Any]] = []
        """Changes of state that the engine made by itself: when (`t_s` since the run's start), what, why."""

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
        self.start_s = self._pulse_s = monotonic_s()
        n_callers = self.load.callers if self.load.sessions is None else min(self.load.callers, self.load.sessions)
        callers = [gevent.spawn(self._call_again_and_again, caller) for caller in range(n_callers)]
        watches = [gevent.spawn(self._watch_the_clock), gevent.spawn(self._feel_the_pulse)]
        try:
            gevent.joinall(callers)
        finally:
            gevent.killall(watches)
        if self._error is not None:
            raise self._error

    def drain(self) -> None:
        """Start no new sessions; what is going on may end by itself."""
        self._stopping.set()

    def cut(self, outcome: Outcome = CUT_AT_END) -> None:
        """End everything that goes on, calls that are still being set up included."""
        self._cut = outcome
        self._stopping.set()
        for hold in self._holds.values():
            hold.ending = outcome
        for number in self._connecting:
            get_hub().loop.run_callback(self._give_up, number)

    def _give_up(self, number: int) -> None:
        """In the hub: the caller is waiting for its line, or the number is not there any more."""
        caller = self._connecting.pop(number, None)
        if caller is not None:
            caller.throw(_GivenUp())

    def fail(self, error: BaseException) -> None:
        """Something broke that no session survives: end the run and raise it from `run`."""
        self._error = self._error or error
        self.cut(Outcome("failed", "generator", f"the load generator failed: {error}"))

    def _watch_the_clock(self) -> None:
        if self.load.run_time_s is not None:
            if not self._stopping.wait(self.load.run_time_s):
                self._mark("drain", "the run time is over")
            self.drain()
        self._stopping.wait()
        gevent.sleep(self.load.stop_timeout_s)
        if self._live:
            self.notes.append(f"{len(self._live)} sessions were cut {self.load.stop_timeout_s:g} s after the end")
            self._mark("cut", "the stop time-out is over")
        self.cut()

    def _mark(self, event: str, why: str) -> None:
        self.events.append({"t_s": round(self.elapsed_s, 3), "event": event, "detail": why})

    def _feel_the_pulse(self) -> None:
        while True:
            gevent.sleep(PULSE_S)
            if self._has_stalled():
                self._stalled_s = monotonic_s()
            self._pulse_s = monotonic_s()

    def _has_stalled(self) -> bool:
        return monotonic_s() - self._pulse_s > PULSE_S + STALL_S

    def _call_again_and_again(self, caller: int) -> None:
        try:
            self._stopping.wait(first_start_s(caller, self.load.spawn_rate_per_s))
            for number in sessions_of_caller(caller, self.load.callers, self.load.sessions):
                self._stopping.wait(self._until_dialling_s())
                if self.draining or not self._within_budget():
                    return
                self._stopping.wait(self._place(number))
        except BaseException as error:  # noqa: BLE001 - a caller that dies unheard would leave sessions uncounted
            self.fail(error)

    def _until_dialling_s(self) -> float:
        if all(route.clock == "virtual" for route in self._routes):
            return 0.0
        now_s = monotonic_s()
        self._dialled_s = max(now_s, self._dialled_s + DIAL_EVERY_S)
        return self._dialled_s - now_s

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

    def _place(self, number: int) -> float:
        """Hold session `number`, score it and hand it over; returns how long the caller then pauses, seconds."""
        index = scenario_index(number, self._weights, self.load.seed)
        route = self._routes[index]
        started_s = self.elapsed_s
        info = self._info(number, route)
        self.counts["started"] += 1
        held = self._hold(number, route, info)
        self._audio_s += held.session.ticks * route.script.frame_s
        with self._desk:
            recording, record = self._scored(route, info, held)
        self._longest_s = max(self._longest_s, recording.duration_s)
        self.counts[record.outcome.state] += 1
        warmup = started_s < self.load.warmup_s
        self._take(Placed(number, index, started_s, record, recording, held.session.ticks, warmup))
        rest_s = pause_s(number, self.load.pause_s, self.load.seed)
        if record.outcome.state == "failed" and route.clock == "real":
            rest_s = max(rest_s, REDIAL_S - recording.duration_s)
        return rest_s

    def _hold(self, number: int, route: Route, info: SessionInfo) -> Held:
        """Never raises, so that whatever becomes of a session, it is accounted for."""
        began_s = monotonic_s()
        self._live.add(number)
        self._connecting[number] = gevent.getcurrent()
        try:
            return route.hold(info, lambda hold: self._opened(number, hold))
        except AgentError as error:
            return _never_opened(route, self._blame(error, began_s))
        except VoicebenchError as error:
            return _never_opened(route, Outcome("failed", "generator", str(error)))
        except _GivenUp:
            return _never_opened(route, self._cut or CUT_AT_END)
        except Exception as error:  # noqa: BLE001 - one session's trouble must not take the others down
            why = f"an error of the load generator: {describe(error)}"
            return _never_opened(route, Outcome("failed", "generator", why))
        finally:
            self._connecting.pop(number, None)
            self._holds.pop(number, None)
            self._live.discard(number)

    def _blame(self, error: AgentError, began_s: float) -> Outcome:
        if error.reason in ("timeout", "dropped") and (self._stalled_s >= began_s or self._has_stalled()):
            why = f"this load generator stood still for more than {STALL_S:g} s while the call was set up"
            return Outcome("failed", "generator", f"{why} ({error})")
        return Outcome("failed", error.reason, str(error))

    def _scored(self, route: Route, info: SessionInfo, held: Held) -> tuple[Recording, SessionRecord]:
        zero = {"zero_monotonic_s": round(held.zero_s, 6)}
        extra = {"number": info.number, "started_at": info.started_at, **zero}
        try:
            recording = held.session.recording(info.session_id, clock=route.clock, lateness=held.lateness, extra=extra)
            breath_s = BREATH_S if route.clock == "real" else 0.0
            gevent.sleep(breath_s)
            record = score(recording)
            gevent.sleep(breath_s)
            return recording, record
        except Exception as error:  # noqa: BLE001 - as in `_hold`
            why = f"the session could not be scored: {describe(error)}"
            empty = _never_opened(route, Outcome("failed", "generator", why)).session
            recording = empty.recording(info.session_id, clock=route.clock, extra=extra)
            return recording, score(recording)

    def _opened(self, number: int, hold: Hold) -> None:
        self._connecting.pop(number, None)
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


class _GivenUp(BaseException):
    """Thrown into a caller whose line is being opened when the run is cut."""


def _never_opened(route: Route, outcome: Outcome) -> Held:
    session = Session(route.script)
    session.end(outcome, 0)
    return Held(session, 0.0, None)
