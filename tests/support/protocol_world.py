"""A master and its workers in virtual time, over a network that breaks: the machines are real, what drives them is not.

Everything is drawn from one seed. What really happened (which session was started by whom and when, what reached the
disk) is written down here by the world itself, beside what the machines believe.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support import made
from voicebench import __version__
from voicebench.load.budget import AudioBudget
from voicebench.load.closed import session_name
from voicebench.master.coordinator import Coordinator
from voicebench.wire import codec
from voicebench.wire.messages import Hello, Orders, RunPlan
from voicebench.worker import member as notices
from voicebench.worker.member import Member, Vitals

FOR_EVER = float("inf")
POLL_S = 0.2
GOODBYE_S = 2.0
STORM_S = 60.0
MASTER_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """What may go wrong in a world."""

    slowest_s: float = 0.3
    breaks: bool = True
    kills: bool = True
    freezes: bool = True
    leaves: bool = True
    master_stalls: bool = True
    storms: bool = False
    """Short sessions, many of them; workers come and go all the time, and lines break every second or so."""


@dataclass(slots=True)
class Log:
    """What really happened."""

    started: list[tuple[int, str, float]] = field(default_factory=list)
    """Number, worker, when."""
    stored: list[tuple[int, int]] = field(default_factory=list)
    """Number, epoch of who handed it in."""


class World:
    """The queue of what is to happen."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_s = 0.0
        self.log = Log()
        self.workers: list[SimWorker] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._n = 0

    def at(self, at_s: float, what: Callable[[], None]) -> None:
        self._n += 1
        heapq.heappush(self._queue, (max(at_s, self.now_s), self._n, what))

    def after(self, delay_s: float, what: Callable[[], None]) -> None:
        self.at(self.now_s + delay_s, what)

    def run(self, done: Callable[[], bool], until_s: float) -> bool:
        """Whether it was done in time."""
        while not done():
            if not self._queue or self._queue[0][0] > until_s:
                return False
            self.now_s, _, what = heapq.heappop(self._queue)
            what()
        return True


class Wire:
    """A worker's connection: order is kept, and the next one has another routing id.

    What is under way when it breaks is lost, or comes later, among what comes by the next. Now and then something comes
    twice, or (in a storm) not at all: a socket whose buffer is full drops what it is handed.
    """

    def __init__(self, world: World, trouble: Trouble, up: Callable[[bytes, bytes], None]) -> None:
        self._world = world
        self._slowest_s = trouble.slowest_s
        self._repeats_frac = 0.02 if trouble.breaks else 0.0
        self._swallowed_frac = 0.15 if trouble.storms else 0.0
        self._late: set[bytes] = set()
        """Connections that broke, of which what was under way comes late."""
        self._up = up
        self.down: Callable[[bytes], None] = lambda data: None
        self._n = 0
        self._open = True
        self._free_s = {"up": 0.0, "down": 0.0}
        self.routes: dict[bytes, Wire] = {}
        self.id = b""

    def connect(self, routes: dict[bytes, Wire], worker: str) -> None:
        self._n += 1
        self._open = True
        self.id = f"{worker}/{self._n}".encode()
        self.routes = routes
        routes[self.id] = self

    def break_off(self) -> None:
        self._open = False
        self.routes.pop(self.id, None)
        if self._world.random.random() < 0.3:
            self._late.add(self.id)

    def send_up(self, data: bytes) -> None:
        self._send("up", lambda sender: self._up(sender, data))

    def send_down(self, data: bytes) -> None:
        self._send("down", lambda _: self.down(data))

    def _send(self, way: str, arrive: Callable[[bytes], None]) -> None:
        if not self._open or self._world.random.random() < self._swallowed_frac:
            return
        mine, dice = self.id, self._world.random

        def get_through() -> None:
            if self._open and self.id == mine:
                arrive(mine)
            elif mine in self._late:
                self._world.after(dice.uniform(0.0, 4.0), lambda: arrive(mine))

        slow_s = self._world.random.choice((0.0005, 0.01, self._slowest_s))
        at_s = max(self._free_s[way], self._world.now_s + self._world.random.uniform(0.0, slow_s))
        self._free_s[way] = at_s
        self._world.at(at_s, get_through)
        if dice.random() < self._repeats_frac:
            self._world.at(at_s + dice.uniform(0.0, 4.0), get_through)


class SimMaster:
    """Drives a coordinator as `master/core.py` does; its disk takes its time, and now and then it does not turn."""

    def __init__(self, world: World, coordinator: Coordinator, trouble: Trouble, *, store_while_hearing: bool) -> None:
        self.coordinator = coordinator
        self.routes: dict[bytes, Wire] = {}
        self.over_s: float | None = None
        self._world = world
        self._stalls = trouble.master_stalls
        self._store_while_hearing = store_while_hearing
        self._inbox: deque[tuple[bytes, bytes]] = deque()
        self._told: deque[Callable[[Coordinator, float], None]] = deque()
        self._storing = False
        self._n_stored: Counter[int] = Counter()
        self._busy_until_s = 0.0
        self._turn_s = FOR_EVER
        self._turn_at(0.0)

    def hear(self, sender: bytes, data: bytes) -> None:
        self._inbox.append((sender, data))
        self._turn_at(self._world.now_s)

    def tell(self, order: Callable[[Coordinator, float], None]) -> None:
        self._told.append(order)
        self._turn_at(self._world.now_s)

    def _turn_at(self, at_s: float) -> None:
        at_s = max(at_s, self._busy_until_s)
        if at_s < self._turn_s:
            self._turn_s = at_s
            self._world.at(at_s, lambda: self._turn(at_s))

    def _turn(self, planned_s: float) -> None:
        if planned_s != self._turn_s:
            return  # an earlier one was wanted
        self._turn_s = FOR_EVER
        now_s, coordinator = self._world.now_s, self.coordinator
        if self.over_s is not None and now_s > self.over_s + GOODBYE_S:
            return  # it is gone
        if self._stalls and self._world.random.random() < 0.002:
            self._busy_until_s = now_s + self._world.random.uniform(0.3, 8.0)
            self._turn_at(self._busy_until_s)
            return
        while self._inbox:
            sender, data = self._inbox.popleft()
            coordinator.hear(sender, codec.decode_from_worker(data), now_s)
        if self.over_s is None:
            self._work(now_s)
        self._send()
        self._turn_at(now_s + POLL_S)

    def _work(self, now_s: float) -> None:
        coordinator = self.coordinator
        while self._told:
            self._told.popleft()(coordinator, now_s)
        coordinator.tick(now_s)
        self._check_the_books()
        if not self._storing:
            self._store()
        if coordinator.over:
            self.over_s = now_s

    def _check_the_books(self) -> None:
        """What holds at all times: whatever was started is going on (or lost), or was taken in."""
        coordinator, shares = self.coordinator, self.coordinator.shares
        n_taken_in = sum(peer.have for peer in coordinator.peers.values())
        if shares.started.total() != n_taken_in + shares.live:
            raise AssertionError(f"{shares.started.total()} started, {n_taken_in} taken in, {shares.live} going on")
        came_back = any(peer.standing == "lost" and peer.final is not None for peer in coordinator.peers.values())
        if coordinator.plan.sessions is not None and shares.exhausted and not came_back:
            n_accounted = shares.started.total() + len(shares.maybe_started)
            if n_accounted != coordinator.plan.sessions:
                raise AssertionError(f"{n_accounted} of {coordinator.plan.sessions} sessions are accounted for")

    def _store(self) -> None:
        fresh = self.coordinator.take_fresh()
        if not fresh:
            return
        takes_s = self._world.random.choice((0.0, 0.01, 0.5))
        self._storing = True

        def on_disk() -> None:
            self._world.log.stored += [(each.session.number, each.epoch) for each in fresh]
            self._n_stored.update(each.epoch for each in fresh)
            self.coordinator.stored()
            self._storing = False

        if not self._store_while_hearing:
            self._busy_until_s = max(self._busy_until_s, self._world.now_s + takes_s)
        self._world.after(takes_s, on_disk)

    def _send(self) -> None:
        for receiver, message in self.coordinator.sends.take():
            if isinstance(message, Orders) and message.acked > self._n_stored[message.epoch]:
                raise AssertionError(f"acknowledged before it was stored: {message}")
            wire = self.routes.get(receiver)
            if wire is not None:
                wire.send_down(codec.encode(message))


@dataclass(slots=True)
class SimCaller:
    """One caller in a worker's loop."""

    number: int
    placed: int
    held: bool = True
    in_session: bool = False
    due_s: float = 0.0


class SimWorker:
    """A member with its two threads: the link, which speaks, and the loop, which holds sessions. Either may stand still."""

    def __init__(
        self, world: World, name: str, master: SimMaster, trouble: Trouble, session_s: Callable[[], float]
    ) -> None:
        self.name = name
        self.dead = False
        self.refused = False
        self.exited = False
        self._world = world
        self._master = master
        self._trouble = trouble
        self._session_s = session_s
        self._offset_s = world.random.choice((0.0, world.random.uniform(-1e6, 1e6)))
        self._loop_lag_s = world.random.choice((0.0, 0.02, 0.3))
        world.workers.append(self)
        hello = Hello(
            version=__version__,
            incarnation=f"{world.random.getrandbits(128):032x}",
            name=world.random.choice((name, "twin")),
            host="h",
            python="3",
            platform="p",
            cpus=1,
        )
        self._vitals = Vitals()
        self.member = Member(hello, self._vitals)
        self._wire = Wire(world, trouble, master.hear)
        self._wire.down = self._arrived
        self._wire.connect(master.routes, name)
        self._inbox: deque[bytes] = deque()
        self._told: deque[Callable[[Member], None]] = deque()
        self._link_frozen_s = self._loop_frozen_s = 0.0
        self._link_due_s = FOR_EVER
        self.plan: RunPlan | None = None
        self.started = 0
        self._callers: dict[int, SimCaller] = {}
        self._placed: dict[int, int] = {}
        self._share: dict[int, int] = {}
        self._t0_s: float | None = None
        self._is_ready = self._stopping = self._ending = self._final_told = self._cut = False
        self._link_at(world.now_s)
        self._loop()

    @property
    def clock_s(self) -> float:
        return self._world.now_s + self._offset_s

    def may_place(self, caller: int) -> bool:
        """Whether a session of this caller, if it had one to place, might start here now."""
        gate = self.member.gate
        speaks = not (self.dead or self.exited or gate.is_shut)
        return speaks and self.clock_s < gate.lease_until_s and caller in gate.confirmed

    # --- the link ----------------------------------------------------------------------------------------------------

    def _arrived(self, data: bytes) -> None:
        self._inbox.append(data)
        self._link_at(self._world.now_s)

    def _tell(self, what: Callable[[Member], None]) -> None:
        self._told.append(what)
        self._link_at(self._world.now_s + self._world.random.choice((0.0, 0.002)))

    def _link_at(self, at_s: float) -> None:
        at_s = max(at_s, self._link_frozen_s)
        if at_s < self._link_due_s:
            self._link_due_s = at_s
            self._world.at(at_s, lambda: self._link(at_s))

    def _link(self, planned_s: float) -> None:
        if planned_s != self._link_due_s:
            return
        self._link_due_s = FOR_EVER
        if self.dead or self.exited:
            return
        if self._world.now_s < self._link_frozen_s:
            self._link_at(self._link_frozen_s)
            return
        while self._inbox:
            self.member.hear(codec.decode_from_master(self._inbox.popleft()), self.clock_s)
        while self._told:
            self._told.popleft()(self.member)
        for message in self.member.sends(self.clock_s):
            self._wire.send_up(codec.encode(message))
        due_s = self.member.due_s(self.clock_s) - self._offset_s
        self._link_at(max(due_s, self._world.now_s + 0.001))

    # --- what befalls it ---------------------------------------------------------------------------------------------

    def kill(self) -> None:
        self.dead = True
        if self._world.random.random() < 0.5:
            self._wire.break_off()  # else what it had sent still arrives

    def freeze(self, for_s: float) -> None:
        until_s = self._world.now_s + for_s
        which = self._world.random.choice(("both", "both", "link", "loop"))
        if which != "loop":
            self._link_frozen_s = until_s
        if which != "link":
            self._loop_frozen_s = until_s

    def break_line(self, for_s: float) -> None:
        self._wire.break_off()
        self._world.after(for_s, lambda: None if self.dead else self._wire.connect(self._master.routes, self.name))

    def leave(self) -> None:
        """Asked by whoever started it."""
        if self.plan is not None and not self.dead:
            self._end_soon()
            self._stopping = True

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _in_loop(self, at_s: float, what: Callable[[], None]) -> None:
        def now() -> None:
            if self.dead or self.exited:
                return
            if self._world.now_s < self._loop_frozen_s:
                self._in_loop(self._loop_frozen_s, what)
            else:
                what()

        self._world.at(at_s, now)

    def _loop(self) -> None:
        self._in_loop(self._world.now_s + 0.1 + self._world.random.uniform(0.0, self._loop_lag_s), self._turn)

    def _turn(self) -> None:
        self._vitals.turned_s = self.clock_s
        while self.member.notices and not self.exited:
            self._heed(self.member.notices.popleft())
        for caller in list(self._callers.values()):
            self._look(caller)
        self._watch_the_master()
        if self._ending and not self._final_told and self.plan is not None and not self._callers:
            self._final_told = True
            self._tell(lambda member: member.final(1.0))
        self._loop()

    def _heed(self, notice: notices.Notice) -> None:
        if isinstance(notice, notices.Welcomed):
            self.plan = notice.plan
            getting_ready_s = 0.0 if self._trouble.storms else self._world.random.choice((0.0, 0.5, 3.0))
            self._in_loop(self._world.now_s + getting_ready_s, self._ready)
        elif isinstance(notice, notices.Refused):
            self.refused = self.exited = True
        elif isinstance(notice, notices.Started):
            self._t0_s = notice.t0_s - self._offset_s
            self._hold()
        elif isinstance(notice, notices.Given):
            former, self._share = self._share, notice.callers
            if self._is_ready and self._t0_s is not None:
                self._hold()
            for caller, placed in former.items():
                if caller not in self._share and not (self._is_ready and self._t0_s is not None):
                    self._tell(lambda member, caller=caller, placed=placed: member.released(caller, placed))
        elif isinstance(notice, notices.PhaseBegan):
            self._ending = self._ending or notice.phase != "run"
            self._stopping = self._stopping or notice.phase != "run"
            self._cut = self._cut or notice.phase == "cut"
            if notice.phase == "drain" and self.plan is not None:
                cut_s = notice.since_s - self._offset_s + self.plan.stop_timeout_s
                self._in_loop(cut_s, self._cut_all)
        elif isinstance(notice, notices.AskedToLeave):
            self.leave()
        else:
            mine = {number for number, name, _ in self._world.log.started if name == self.name}
            if not mine <= {number for number, _ in self._world.log.stored}:
                raise AssertionError(f"{self.name} was told that it may go before everything was stored")
            self.exited = True

    def _cut_all(self) -> None:
        self._cut = True

    def _ready(self) -> None:
        self._is_ready = True
        self._tell(lambda member: member.ready())
        self._hold()

    def _hold(self) -> None:
        if not self._is_ready or self._t0_s is None:
            return
        for caller in self._callers.values():
            caller.held = caller.number in self._share
        for number, placed in self._share.items():
            if number not in self._callers:
                placed = max(placed, self._placed.get(number, 0))
                self._callers[number] = SimCaller(number, placed, due_s=self._t0_s)

    def _look(self, caller: SimCaller) -> None:
        if caller.in_session:
            return
        plan, now_s = self.plan, self._world.now_s
        assert plan is not None
        number = caller.number + caller.placed * plan.callers
        over_run_time = plan.run_time_s is not None and now_s >= (self._t0_s or 0.0) + plan.run_time_s
        has_more = plan.sessions is None or number < plan.sessions
        if not caller.held or self._stopping or over_run_time or not has_more:
            del self._callers[caller.number]
            if not caller.held:
                self._tell(lambda member: member.released(caller.number, caller.placed))
        elif now_s >= caller.due_s and self.member.gate.is_open(
            caller.number, caller.placed, self.started, self.clock_s
        ):
            self._place(caller, number)

    def _place(self, caller: SimCaller, number: int) -> None:
        rivals = [each.name for each in self._world.workers if each is not self and each.may_place(caller.number)]
        if rivals:
            raise AssertionError(f"{self.name} and {rivals} hold caller {caller.number}")
        caller.placed += 1
        self._placed[caller.number] = placed = caller.placed
        # The link's thread may do its work between the look at the gate and the word that a session starts.
        told_s = self._world.random.choice((0.0, 0.0, 0.005))
        self._world.after(told_s, lambda: self._tell(lambda member: member.started(caller.number, placed)))
        self.started += 1
        self._world.log.started.append((number, self.name, self._world.now_s))
        caller.in_session = True
        began_s, length_s = self._world.now_s, max(told_s, self._session_s())

        def look() -> None:
            if self._cut or self._world.now_s >= began_s + length_s:
                self._end(caller, number, min(length_s, self._world.now_s - began_s))
            else:
                self._in_loop(min(began_s + length_s, self._world.now_s + 0.5), look)

        self._in_loop(min(began_s + length_s, began_s + 0.5), look)

    def _end(self, caller: SimCaller, number: int, took_s: float) -> None:
        result = made.result(made.session(session_id=session_name("r", number), duration_s=took_s), number=number)
        self._tell(lambda member: member.result(result))
        caller.in_session = False
        pause_s = self._world.random.choice((0.0, 0.1))
        caller.due_s = self._world.now_s + pause_s
        self._in_loop(caller.due_s, lambda: self._look(caller) if self._callers.get(caller.number) is caller else None)

    def _end_soon(self) -> None:
        self._ending = True
        self._tell(lambda member: member.leave())

    def _watch_the_master(self) -> None:
        heard_s = self.member.heard_s
        if self.plan is None or heard_s is None:
            return
        silent_s = self.clock_s - heard_s
        if silent_s > self.member.lost_s and not self._ending:
            self._end_soon()
            self._stopping = True
        if self._final_told and silent_s > MASTER_WAIT_S:
            self.exited = True


class Simulation:
    """One run in one world."""

    def __init__(
        self, seed: int, trouble: Trouble, *, ends: bool = True, budget: tuple[float, float] | None = None
    ) -> None:
        """
        Args:
            ends: Whether run time, drain and cut may end the run early.
            budget: Seconds in all, and what every session takes.
        """
        self.world = world = World(seed)
        dice = world.random
        callers = dice.choice((1, 2, 3, 5, 8, 13))
        bounded = budget is None or dice.random() < 0.5
        early = dice.choice(("", "", "run_time", "drain", "cut")) if ends else ""
        if early and dice.random() < 0.3:
            bounded = False
        self.plan = RunPlan(
            run_id="r",
            scenarios=("0" * 64,),
            weights=(1.0,),
            callers=callers,
            sessions=dice.randint(1, 6 * callers) + (50 * callers if trouble.storms else 0) if bounded else None,
            spawn_rate_per_s=None,
            run_time_s=dice.uniform(0.5, 12.0) if early == "run_time" else None,
            stop_timeout_s=dice.choice((0.0, 2.0)),
            pause_s=(0.0, 0.0),
            warmup_s=0.0,
            seed=0,
            keep="none",
            preflight=False,
        )
        self.coordinator = Coordinator(
            self.plan, {}, budget=AudioBudget(*budget) if budget is not None else None
        )  # fmt: skip
        self.master = SimMaster(world, self.coordinator, trouble, store_while_hearing=dice.random() < 0.5)
        longest_s = dice.choice((0.01, 0.3) if trouble.storms else (0.01, 1.0, 3.0))
        self._session_s = (lambda: budget[1]) if budget is not None else (lambda: dice.uniform(0.0, longest_s))
        self._trouble = trouble
        self.workers = world.workers
        n_workers, last_s = (16, 30.0) if trouble.storms else (dice.choice((1, 2, 3, 4, 8)), 10.0)
        self._n_first = 1 if trouble.storms else dice.randint(1, n_workers)
        for nth in range(n_workers):
            joins_s = last_s * dice.random()
            if trouble.storms:  # several at once: who was just given callers must give some of them away again
                joins_s = 5.0 * (joins_s // 5.0) + dice.uniform(0.0, 0.3)
            world.at(0.0 if nth < self._n_first else joins_s, lambda nth=nth: self._join(nth))
        self._look_for_start()
        if early in ("drain", "cut"):
            end = (lambda c, s: c.drain(s, "asked")) if early == "drain" else (lambda c, s: c.cut(s, "asked"))
            world.at(dice.uniform(0.1, 12.0), lambda: self.master.tell(end))

    def run(self, until_s: float) -> bool:
        """Whether it ended in time."""
        return self.world.run(lambda: self.coordinator.over, until_s)

    def say_goodbye(self) -> None:
        """Let the workers hear that it is over."""
        self.world.run(lambda: False, self.world.now_s + GOODBYE_S)

    def _look_for_start(self) -> None:
        if self.coordinator.phase == "gather":
            if self.coordinator.ready >= self._n_first or (self.coordinator.ready and self.world.now_s > 20.0):
                self.master.tell(lambda coordinator, now_s: coordinator.start(now_s))
            elif self.world.now_s > 30.0:
                self.master.tell(lambda coordinator, now_s: coordinator.cut(now_s, "nobody came"))
            self.world.after(0.3, self._look_for_start)

    def _join(self, nth: int) -> None:
        worker = SimWorker(self.world, f"w{nth}", self.master, self._trouble, self._session_s)
        dice, trouble = self.world.random, self._trouble
        if trouble.storms:
            self._harass(worker)
        for allowed, chance, what in (
            (trouble.breaks, 0.7, lambda: worker.break_line(dice.choice((0.05, 1.0, 5.0, 8.0)))),
            (trouble.breaks, 0.3, lambda: worker.break_line(0.1)),
            (trouble.kills, 0.2, lambda: self._kill(worker)),
            (
                trouble.freezes,
                0.3,
                lambda: worker.freeze(dice.choice((1.0, 4.0, dice.uniform(4.5, 6.5), dice.uniform(1.0, 30.0)))),
            ),
            (trouble.leaves, 0.5 if trouble.storms else 0.25, worker.leave),
        ):
            if allowed and dice.random() < chance:
                self.world.after(dice.uniform(0.0, 12.0), what)

    def _harass(self, worker: SimWorker) -> None:
        dice = self.world.random
        for_s = dice.choice((0.02, 0.02, 0.02, 0.3, 0.3, 5.0))
        dice.choice((worker.break_line, worker.break_line, worker.freeze))(for_s)
        if not worker.dead and not worker.exited and self.world.now_s < STORM_S:
            self.world.after(dice.expovariate(0.7), lambda: self._harass(worker))

    def _kill(self, worker: SimWorker) -> None:
        worker.kill()
        epoch = worker.member.epoch
        if epoch is not None and self.world.random.random() < 0.5:  # a child of the master's, whose end it sees
            reaped_s = self.world.random.choice((0.0, 0.2))
            gone = lambda coordinator, now_s: coordinator.gone(epoch, now_s, "killed")  # noqa: E731
            self.world.after(reaped_s, lambda: self.master.tell(gone))
