"""Life of a worker: join, fetch what is to be said, make ready, hold the callers it is given, hand everything in, go.

Runs in the gevent loop that holds the sessions. With the master speaks the thread of `link.py`; what it hears arrives
here as notices of the `Member`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gevent
import gevent.monkey
from gevent.event import Event
from gevent.hub import get_hub

from voicebench.clock import cpu_s, monotonic_s
from voicebench.errors import TesterError, VoicebenchError
from voicebench.script import prepare
from voicebench.wire.messages import Hello, RunPlan
from voicebench.worker.adapters.base import describe
from voicebench.worker.building import Routes, get_ready
from voicebench.worker.engine import Engine, EngineLoad, Placed
from voicebench.worker.health import HealthReader
from voicebench.worker.lag import LagMeter
from voicebench.worker.link import Link
from voicebench.worker.member import (
    AskedToLeave,
    Given,
    Member,
    Notice,
    Over,
    PhaseBegan,
    Refused,
    Started,
    Vitals,
    Welcomed,
)
from voicebench.worker.sibling_desk import SiblingDesk
from voicebench.worker.supply import Supply, result_of
from voicebench.worker.watchdog import Watchdog

PULSE_S = 0.1
MASTER_WAIT_S = 30.0
"""A worker whose sessions are over and whose master is silent waits so long for it to come back."""
SAY_AGAIN_S = 10.0
EXIT_LOST_MASTER = 4


class Node:
    """One worker, from its first hello to its exit code."""

    def __init__(
        self,
        address: str,
        hello: Hello,
        environment: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        """
        Args:
            address: Of the master, as ZeroMQ has it.
            environment: What `${VAR}` in an agent's options stands for.
            say: Takes sentences for whoever started this worker.
        """
        self._address = address
        self._environment = environment
        self._say = say
        self._vitals = Vitals(turned_s=monotonic_s())
        self.member = Member(hello, self._vitals)
        self.supply = Supply()
        self._news = Event()
        self._lags = LagMeter()
        native_id, thread = gevent.monkey.get_original("_thread", ["get_native_id", "get_ident"])
        reader = HealthReader(native_id(), self._lags)
        self._watchdog = Watchdog(self, thread(), self._vitals, reader, self._lags)
        self._link = Link(address, self.member, self.supply, self._news.set, self._watchdog)
        self._plan: RunPlan | None = None
        self._name = hello.name
        self._lost_s = 0.0
        self._routes: Routes | None = None
        self._engine: Engine | None = None
        self._desk: SiblingDesk | None = None
        self._share: dict[int, int] = {}
        self._t0_s: float | None = None
        self._phase: PhaseBegan | None = None
        self._ending = False
        self._final_told = False
        self._master_lost = False
        self._exit_code: int | None = None
        self._exit_code_when_over = 0
        self._cpu_before_s: float | None = None
        """What making ready took is not what holding sessions takes."""

    # --- from outside ------------------------------------------------------------------------------------------------

    def leave(self, why: str) -> None:
        """Start no more sessions, let those that go on end, hand everything in, go."""
        if self._plan is None:
            self._exit_code = 0
            return
        up_to = f"up to {self._plan.stop_timeout_s:g} s"
        self._say(f"{why}: starting no more sessions, letting {self.calls} finish, {up_to}; again to cut them")
        self._end_soon()
        if self._engine is not None:
            self._engine.drain()

    def _end_soon(self) -> None:
        self._ending = True
        self._link.tell(lambda member: member.leave())

    def cut(self, why: str) -> None:
        """End all sessions now, hand everything in, go."""
        self._say(f"{why}: cutting {self.calls} sessions")
        if self._engine is not None:
            self._engine.cut()

    # --- watched from another thread ---------------------------------------------------------------------------------

    @property
    def calls(self) -> int:
        """Sessions going on."""
        return self._engine.live if self._engine is not None else 0

    @property
    def paced_s(self) -> float | None:
        """When the pacer last looked at its live calls, monotonic; None: it has none."""
        return self._routes.paced_s if self._routes is not None else None

    # --- its life ----------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Take part in one run, and return the exit code.

        Raises:
            TesterError: The thread that speaks with the master died.
        """
        pulse = gevent.spawn(self._pulse)
        pulse.link_exception(lambda failed: self._broken(failed.exception))
        hub, self._report_to_hub = get_hub(), get_hub().handle_error
        hub.handle_error = self._failed_in_hub
        self._link.start()
        began_s = said_s = monotonic_s()
        try:
            while self._exit_code is None:
                self._news.wait(PULSE_S)
                self._news.clear()
                if self._link.error is not None:
                    raise TesterError(f"the link to the master broke: {self._link.error}")
                while self.member.notices:
                    self._heed(self.member.notices.popleft())
                if self._engine is not None:
                    self._engine.look_again()
                if self._plan is None and monotonic_s() - said_s > SAY_AGAIN_S:
                    said_s = monotonic_s()
                    where = self._address.removeprefix("tcp://")
                    self._say(f"no master at {where} for {said_s - began_s:.0f} s; still trying")
                self._watch_the_master()
                self._finish_if_idle()
            return self._exit_code
        finally:
            pulse.kill()
            del hub.handle_error
            self._link.close()
            self._watchdog.close()
            if self._routes is not None:
                self._routes.close()
            if self._desk is not None:
                self._desk.close()
            self.supply.close()

    def _pulse(self) -> None:
        while True:
            self._vitals.turned_s = monotonic_s()
            self._vitals.live = self.calls
            self._vitals.settling = self._engine.settling if self._engine is not None else 0
            self._vitals.cpu_s = self._used_cpu_s()
            gevent.sleep(PULSE_S)

    def _failed_in_hub(self, context: Any, kind: Any, value: Any, trace: Any) -> None:
        """What the hub calls (watchers, callbacks) has no greenlet of its own to fail in: the hub would print the error
        and go on, without whatever was to be done. Must not raise."""
        self._report_to_hub(context, kind, value, trace)
        if isinstance(context, gevent.Greenlet) or context is None or issubclass(kind, get_hub().NOT_ERROR):
            return  # who spawned a greenlet looks after it; without a context the hub itself ends the program
        if isinstance(context, tuple):
            return  # what failed in a thread of the pool is told to the greenlet that waits for it, too
        self._broken(value if isinstance(value, BaseException) else kind(value))

    def _used_cpu_s(self) -> float:
        return 0.0 if self._cpu_before_s is None else cpu_s() - self._cpu_before_s

    def _heed(self, notice: Notice) -> None:
        if isinstance(notice, Welcomed):
            self._plan, self._name = notice.plan, notice.worker
            self._say(f"joined the run {notice.plan.run_id} as {notice.worker}")
            self.supply.begin(notice.plan)
            gevent.spawn(self._make_ready, notice.plan)
        elif isinstance(notice, Refused):
            self._say(f"refused by the master: {notice.reason}")
            self._exit_code = notice.exit_code
            if self._engine is not None:
                self._engine.cut()
        elif isinstance(notice, Started):
            self._t0_s = notice.t0_s
            self._begin()
        elif isinstance(notice, Given):
            former, self._share = self._share, notice.callers
            if self._engine is not None and self._t0_s is not None:
                self._engine.hold(self._share)
            else:
                self._let_go({caller: placed for caller, placed in former.items() if caller not in self._share})
        elif isinstance(notice, PhaseBegan):
            self._phase = notice
            self._ending = self._ending or notice.phase != "run"
            self._obey_phase()
        elif isinstance(notice, AskedToLeave):
            if not self._exit_code_when_over:
                self.leave(notice.why)
        elif isinstance(notice, Over):
            self._exit_code = self._exit_code_when_over

    def _let_go(self, callers: Mapping[int, int]) -> None:
        """Taken away before the engine ever had them."""

        def tell(member: Member) -> None:
            for caller, placed in callers.items():
                member.released(caller, placed)

        self._link.tell(tell)

    def _make_ready(self, plan: RunPlan) -> None:
        try:
            prepared = self.supply.wait()
            scripts = [prepare(each.scenario, each.clips) for each in prepared]
            self._routes = Routes(
                scripts, self._environment, virtual=False, on_pacer_error=self._broken, lags=self._lags
            )
            get_ready(scripts[0])
            if plan.preflight:
                self._routes.knock(plan.run_id)
            self._desk = self.supply.desk(prepared, scripts)
            self._desk.start()
            self._engine = Engine(
                self._routes.routes,
                plan.weights,
                _load_of(plan),
                run_id=plan.run_id,
                take=self._take,
                desk=self._desk,
                gate=self.member.gate,
                on_start=lambda caller, placed: self._link.tell(lambda member: member.started(caller, placed)),
                on_release=lambda caller, placed: self._link.tell(lambda member: member.released(caller, placed)),
            )
        except VoicebenchError as error:
            self._cannot(str(error), error.exit_code)
        except Exception as error:  # noqa: BLE001 - the master must hear of whatever it was
            self._cannot(f"an error of this worker: {describe(error)}", TesterError.exit_code)
        else:
            self._link.tell(lambda member: member.ready())
            self._begin()

    def _cannot(self, why: str, exit_code: int) -> None:
        self._say(f"error: {why}")
        self._exit_code_when_over = exit_code
        self._link.tell(lambda member: member.unable(why, exit_code))

    def _begin(self) -> None:
        """Once both are there: what is needed, and the time it begins."""
        if self._engine is None or self._t0_s is None or self._engine.start_s:
            return
        self._cpu_before_s = cpu_s()
        self._engine.begin(self._t0_s)
        self._engine.hold(self._share)
        self._obey_phase()

    def _obey_phase(self) -> None:
        if self._engine is None or self._phase is None:
            return
        if self._phase.phase == "finish":
            self._engine.finish()
        elif self._phase.phase == "drain":
            self._engine.drain(self._phase.since_s)
        elif self._phase.phase == "cut":
            self._engine.cut()

    def _broken(self, error: BaseException) -> None:
        """Something that all sessions need has failed."""
        if self._engine is not None:
            self._engine.fail(error)
        elif not self._exit_code_when_over:
            self._cannot(f"an error of this worker: {describe(error)}", TesterError.exit_code)

    # --- handing in --------------------------------------------------------------------------------------------------

    def _take(self, placed: Placed) -> None:
        result = result_of(placed, self.supply.keep(placed))
        self._link.tell(lambda member: member.result(result))

    def _finish_if_idle(self) -> None:
        """All sessions are over, and there will be no more."""
        engine = self._engine
        if engine is not None and engine.failure is not None and not self._ending:
            self._say(f"error: the load generator failed: {engine.failure}")
            self._end_soon()
        if not self._ending or self._final_told or self._plan is None or (engine is not None and not engine.idle):
            return
        self._final_told = True
        notes = (*([self.supply.note] if self.supply.note else []), *(engine.all_notes if engine is not None else ()))
        notes += tuple(f"this machine does not tell {what}" for what in self._watchdog.unknown)
        trouble = self.supply.trouble
        events = tuple((e["t_s"], e["event"], e["detail"]) for e in (engine.events if engine is not None else ()))
        events = tuple(each for each in events if each[1] != "drain")  # that the run time is over, the master knows
        failure = engine.failure if engine is not None else None
        error = "" if failure is None else f"the load generator failed: {describe(failure)}"
        used_s = self._used_cpu_s()
        self._watchdog.read_soon()
        self._link.tell(lambda member: member.final(used_s, notes, events, trouble=trouble, error=error))

    def _watch_the_master(self) -> None:
        heard_s = self.member.heard_s
        if self._plan is None or heard_s is None or self._exit_code is not None:
            return
        silent_s = monotonic_s() - heard_s
        if silent_s > self.member.lost_s and not self._master_lost:
            self._master_lost = True
            if self._exit_code_when_over:  # it had nothing to hand in
                self._exit_code = self._exit_code_when_over
                return
            self._say(
                f"no word from the master for {silent_s:.0f} s: starting no more sessions, letting {self.calls} end"
            )
            self._end_soon()
            if self._engine is not None:
                self._engine.finish()
        if self._final_told and silent_s > MASTER_WAIT_S:
            n_unacked = len(self.member.unacked)
            self._say(f"the master did not come back; results of {n_unacked} sessions could not be handed in")
            self._exit_code = EXIT_LOST_MASTER


def _load_of(plan: RunPlan) -> EngineLoad:
    return EngineLoad(
        callers=plan.callers,
        sessions=plan.sessions,
        spawn_rate_per_s=plan.spawn_rate_per_s,
        run_time_s=plan.run_time_s,
        stop_timeout_s=plan.stop_timeout_s,
        pause_s=plan.pause_s,
        warmup_s=plan.warmup_s,
        seed=plan.seed,
    )
