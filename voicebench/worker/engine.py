"""The load generator of one process: callers who place sessions back to back, each accounted for.

started = finished + failed + cut, always: a session counts as started before its line is opened, and every way out of
`_hold` is a session that has ended.

Which callers it has may change while it runs (`hold`): a caller that is taken away ends its session and starts no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import gevent
from gevent.event import Event
from gevent.hub import get_hub

from voicebench.clock import monotonic_s, realtime_s
from voicebench.errors import AgentError, VoicebenchError
from voicebench.load.closed import first_start_s, pause_s, scenario_index, session_name, session_number
from voicebench.recording import Recording
from voicebench.records import Outcome, SessionRecord
from voicebench.script import shortest_session_s
from voicebench.session import Session
from voicebench.worker.adapters.base import SessionInfo, describe
from voicebench.worker.desk import Desk, InlineDesk
from voicebench.worker.routes import Held, Hold, Route
from voicebench.worker.settling import Case, Settled, unscored_proceedings

REDIAL_S = 1.0
"""A caller whose call did not come about, or failed sooner than this, waits, so that a dead agent is not hammered."""
DIAL_EVERY_S = 0.002
"""Two calls are not set up closer than this: a hundred handshakes at once stall live sessions for 25 ms."""
PULSE_S = 0.25
STALL_S = 1.0
"""A process that did not run for this long (stopped, suspended, starved) blames no agent for a time-out."""
CUT_AT_END = Outcome("cut", None, "cut by the end of the run")
WORTH_SAYING_S = 1.0
"""A caller who waited longer for his session to be settled has placed fewer than the load asks for."""
GATE_LOOK_S = 0.25
"""How often a caller whose gate is shut looks again, should nobody tell it to (`look_again`)."""


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
    settled: Settled
    recording: Recording | None
    """None: another process made what was to be made of it."""
    sent_frames: int
    warmup: bool

    @property
    def record(self) -> SessionRecord:
        return self.settled.record


class Gate(Protocol):
    """Whether a caller may start one more session."""

    def is_open(self, caller: int, placed: int, started: int, now_s: float) -> bool:
        """
        Args:
            caller: Who asks.
            placed: How many of its sessions were started so far.
            started: How many this engine has started in all.
            now_s: Monotonic.
        """


class OpenGate:
    """An engine that asks nobody."""

    def is_open(self, caller: int, placed: int, started: int, now_s: float) -> bool:
        return True


class _Caller:
    """Someone who places sessions back to back, as long as he is held."""

    def __init__(self, number: int, placed: int) -> None:
        self.number = number
        self.placed = placed
        self.held = True
        self.at_gate = False
        self._nudged = Event()

    def wait(self, due_s: float) -> None:
        """Until then, or a nudge."""
        self._nudged.clear()
        self._nudged.wait(max(0.0, due_s - monotonic_s()))

    def nudge(self) -> None:
        self._nudged.set()


def _ignore(caller: int, placed: int) -> None:
    pass


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
        desk: Desk | None = None,
        gate: Gate | None = None,
        on_start: Callable[[int, int], None] = _ignore,
        on_release: Callable[[int, int], None] = _ignore,
    ) -> None:
        """
        Args:
            take: Is handed each session once it has been scored; what it raises ends the run.
            desk: Settles each session after its end; None: in this loop.
            gate: Is asked before each session.
            on_start: Hears of each session before its line is opened: caller, and how many it has started with it.
            on_release: Hears when a caller that was taken away has let go: caller, and how many it had started.
        """
        self._routes = routes
        self._weights = weights
        self.load = load
        self._run_id = run_id
        self._take = take
        self._desk = desk or InlineDesk([route.script for route in routes])
        self._gate = gate or OpenGate()
        self._on_start = on_start
        self._on_release = on_release
        self._callers: dict[int, _Caller] = {}
        self._through: set[int] = set()
        """Callers that are held and have stopped calling: nothing is left for them, or no more sessions start."""
        self._placed: dict[int, int] = {}
        """By caller: how many of its sessions were started, as far as it is known here."""
        self._stopping = Event()
        self._drained = Event()
        self._drained_s = 0.0
        self._idle = Event()
        self._idle.set()
        self._watches: list[gevent.Greenlet[Any]] = []
        self._holds: dict[int, Hold] = {}
        self._connecting: dict[int, gevent.Greenlet[Any]] = {}
        self._live: set[int] = set()
        self._kept_waiting_s = self._kept_waiting_longest_s = 0.0
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
    def all_notes(self) -> tuple[str, ...]:
        """Its own, and what there is to say of how sessions were settled."""
        waited: tuple[str, ...] = ()
        if self._kept_waiting_longest_s > WORTH_SAYING_S:
            how_long = f"{self._kept_waiting_s:.0f} s in all, {self._kept_waiting_longest_s:.1f} s at most"
            waited = (f"callers waited {how_long} for the scoring process: so much later their next sessions began",)
        return (*self.notes, *self._desk.notes, *waited)

    @property
    def settling(self) -> int:
        """Sessions that have ended and are not settled."""
        return self._desk.settling

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
        n_callers = self.load.callers if self.load.sessions is None else min(self.load.callers, self.load.sessions)
        self.begin(monotonic_s())
        self.hold(dict.fromkeys(range(n_callers), 0))
        self.join()

    def begin(self, start_s: float) -> None:
        """Run time 0 is at `start_s`, monotonic."""
        self.start_s = start_s
        self._pulse_s = monotonic_s()
        self._watches = [gevent.spawn(self._watch_the_clock), gevent.spawn(self._feel_the_pulse)]
        for watch in self._watches:
            watch.link_exception(self._watch_failed)

    def hold(self, share: Mapping[int, int]) -> None:
        """Have these callers from now on, and no others: each with how many of its sessions were started elsewhere.

        A caller that is not among them ends its session, if it has one, and is then released.
        """
        for number, caller in self._callers.items():
            caller.held = number in share
            caller.nudge()
        for number in self._through - share.keys():
            self._through.discard(number)
            self._on_release(number, self._placed.get(number, 0))
        for number, placed in share.items():
            if number not in self._callers:
                # A share may be older than what was started here since it was written.
                placed = self._placed[number] = max(placed, self._placed.get(number, 0))
                self._through.discard(number)
                self._callers[number] = caller = _Caller(number, placed)
                self._idle.clear()
                gevent.spawn(self._call_again_and_again, caller)

    def join(self) -> None:
        """Wait until every caller is done or let go.

        Raises:
            VoicebenchError: As `run`.
        """
        try:
            self._idle.wait()
        finally:
            gevent.killall(self._watches)
        if self._error is not None:
            raise self._error

    @property
    def failure(self) -> BaseException | None:
        """What broke the engine, so that it ended."""
        return self._error

    @property
    def idle(self) -> bool:
        """Nobody is calling, or about to."""
        return self._idle.is_set()

    def look_again(self) -> None:
        """The gate may have opened."""
        for caller in self._callers.values():
            if caller.at_gate:
                caller.nudge()

    def finish(self) -> None:
        """Start no new sessions; what is going on ends by itself, however long it takes."""
        self._stopping.set()
        for caller in self._callers.values():
            caller.nudge()

    def drain(self, since_s: float | None = None) -> None:
        """Start no new sessions; what is going on may end by itself, and is cut after the stop time-out.

        Args:
            since_s: From when that counts, monotonic; None: from now.
        """
        if not self._drained.is_set():
            self._drained_s = monotonic_s() if since_s is None else since_s
            self._drained.set()
        self.finish()

    def cut(self, outcome: Outcome = CUT_AT_END) -> None:
        """End everything that goes on, calls that are still being set up included."""
        self._cut = outcome
        self.drain()
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

    def _watch_failed(self, watch: gevent.Greenlet[Any]) -> None:
        if watch.exception is not None:
            self.fail(watch.exception)

    def _watch_the_clock(self) -> None:
        if self.load.run_time_s is not None:
            ends_s = self.start_s + self.load.run_time_s
            if not self._drained.wait(max(0.0, ends_s - monotonic_s())):
                self._mark("drain", "the run time is over")
                self.drain(ends_s)
        self._drained.wait()
        gevent.sleep(max(0.0, self._drained_s + self.load.stop_timeout_s - monotonic_s()))
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

    def _call_again_and_again(self, caller: _Caller) -> None:
        try:
            # One who takes over from another worker has had his start there.
            due_s = self.start_s
            if not caller.placed:
                due_s += first_start_s(caller.number, self.load.spawn_rate_per_s)
            while self._wait_for_turn(caller, due_s):
                number = session_number(caller.number, caller.placed, self.load.callers)
                caller.placed += 1
                self._placed[caller.number] = caller.placed
                self._on_start(caller.number, caller.placed)
                due_s = self._place(number)
        except BaseException as error:  # noqa: BLE001 - a caller that dies unheard would leave sessions uncounted
            self.fail(error)
        finally:
            del self._callers[caller.number]
            if caller.held:
                self._through.add(caller.number)
            else:
                self._on_release(caller.number, caller.placed)
            if not self._callers:
                self._idle.set()

    def _wait_for_turn(self, caller: _Caller, due_s: float) -> bool:
        """Wait until the caller may place his next session; False when there is none for him."""
        dial_s = full_since_s = None
        while caller.held and not self.draining and self._has_more(caller):
            now_s = monotonic_s()
            if full_since_s is not None and self._desk.has_room:
                self._kept_waiting(now_s - full_since_s)
                full_since_s = None
            if now_s < due_s:
                caller.wait(due_s)
            elif not self._gate.is_open(caller.number, caller.placed, self.counts["started"], now_s):
                caller.at_gate = True
                caller.wait(now_s + GATE_LOOK_S)
                caller.at_gate = False
            elif not self._desk.has_room:
                full_since_s = now_s if full_since_s is None else full_since_s
                caller.wait(now_s + GATE_LOOK_S)
            elif dial_s is None:
                due_s = dial_s = self._when_to_dial_s(now_s)
            else:
                return self._within_budget()
        if full_since_s is not None:
            self._kept_waiting(monotonic_s() - full_since_s)
        return False

    def _has_more(self, caller: _Caller) -> bool:
        sessions = self.load.sessions
        return sessions is None or session_number(caller.number, caller.placed, self.load.callers) < sessions

    def _when_to_dial_s(self, now_s: float) -> float:
        """The next free moment to set a call up, which is then taken."""
        if all(route.clock == "virtual" for route in self._routes):
            return now_s
        self._dialled_s = max(now_s, self._dialled_s + DIAL_EVERY_S)
        return self._dialled_s

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
        """Hold session `number`, have it settled and hand it over; returns when the caller's next is due, monotonic."""
        index = scenario_index(number, self._weights, self.load.seed)
        route = self._routes[index]
        started_s = self.elapsed_s
        info = self._info(number, route)
        self.counts["started"] += 1
        held = self._hold(number, route, info)
        ended_s = monotonic_s()
        case = self._case(index, route, info, held)
        duration_s = case.proceedings.duration_s(route.script)
        self._audio_s += duration_s
        self._longest_s = max(self._longest_s, duration_s)
        sent_frames = case.sent_frames
        answer = self._desk.hand_in(case, held.session)
        del held, case  # the sound of hundreds of sessions that end together is memory
        settled, recording = answer()
        state = settled.record.outcome.state
        self.counts[state] += 1
        warmup = started_s < self.load.warmup_s
        self._take(Placed(number, index, started_s, settled, recording, sent_frames, warmup))
        rest_s = pause_s(number, self.load.pause_s, self.load.seed)
        if route.clock == "virtual":
            return monotonic_s() + rest_s
        if state == "failed":
            rest_s = max(rest_s, REDIAL_S - duration_s)
        self._kept_waiting(monotonic_s() - ended_s - rest_s)
        return ended_s + rest_s

    def _kept_waiting(self, wait_s: float) -> None:
        """A caller could not go on since sessions were being settled."""
        if wait_s > 0.0:
            self._kept_waiting_s += wait_s
            self._kept_waiting_longest_s = max(self._kept_waiting_longest_s, wait_s)

    def _case(self, index: int, route: Route, info: SessionInfo, held: Held) -> Case:
        zero = {"zero_monotonic_s": round(held.zero_s, 6)}
        extra = {"number": info.number, "started_at": info.started_at, **zero}
        try:
            of = held.session.proceedings(info.session_id, clock=route.clock, lateness=held.lateness, extra=extra)
        except Exception as error:  # noqa: BLE001 - as in `_hold`
            of = unscored_proceedings(info.session_id, describe(error), clock=route.clock, extra=extra)
        return Case(index, held.session.ticks, of)

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

    def _opened(self, number: int, hold: Hold) -> None:
        self._connecting.pop(number, None)
        self._holds[number] = hold
        hold.session.keep_with(self._desk.keeper(session_name(self._run_id, number)))
        hold.ending = self._cut

    def _info(self, number: int, route: Route) -> SessionInfo:
        scenario = route.script.scenario
        return SessionInfo(
            session_id=session_name(self._run_id, number),
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
