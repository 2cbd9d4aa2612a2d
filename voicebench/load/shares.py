"""Which worker places which sessions: the callers of the closed model, spread evenly over the workers there are.

A worker holds callers, and a caller's sessions follow from arithmetic (`closed.py`): a share says which callers,
and how many sessions of each were started before. A caller has one holder at a time: it is taken from one worker by a
share without it, and goes to the next once the first has said that it holds it no more. So only sessions that have not
started ever move, and none is placed twice. A worker that is lost says nothing any more: each of its callers may have
started one session that nobody heard of (workers start none before the master knows of all earlier ones, see
`wire/messages.Orders`), and that number is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

Worker = int


class Shares:
    """The callers and their holders. A machine: what it is told comes in calls, what it wants is read."""

    def __init__(self, callers: int, sessions: int | None) -> None:
        """
        Args:
            callers: How many there are.
            sessions: Of all callers together; None: without end.
        """
        self._callers = callers
        self._sessions = sessions
        self._placed = [0] * callers
        self._unfinished = {caller for caller in range(callers) if self._left(caller)}
        self._takers: list[Worker] = []
        self._target: dict[int, Worker] = {}
        self._holder: dict[int, Worker] = {}
        self._since: dict[int, int] = {}
        """By caller: the version of its holder's share that gave it, or took it away."""
        self._given: dict[Worker, set[int]] = {}
        self._startable: dict[Worker, set[int]] = {}
        """Of the callers that a worker holds those that are not through."""
        self._version: dict[Worker, int] = {}
        self._echoed: dict[Worker, int] = {}
        self._heeded: dict[Worker, int] = {}
        """What was echoed by the beat before: its loop has heard of that too."""
        self._asked_back: set[Worker] = set()
        """Those that have yet to hear that they were given what shall be taken from them again."""
        self._open: dict[Worker, set[int]] = {}
        self._begun = False
        self.started: Counter[Worker] = Counter()
        """Sessions known to have been started, by worker."""
        self.maybe_started: dict[int, Worker] = {}
        """Session numbers that a lost worker may have started; they are placed by nobody else."""

    # --- what it is told ---------------------------------------------------------------------------------------------

    def join(self, worker: Worker) -> None:
        """A worker takes part from now on."""
        if worker not in self._takers:
            self._takers.append(worker)
            for state in (self._given, self._startable, self._open):
                state.setdefault(worker, set())
            for versions in (self._version, self._echoed, self._heeded):
                versions.setdefault(worker, 0)
            self._settle()

    def begin(self) -> None:
        """Hand the shares out: worker *k* of *n* gets callers *k*, *k + n*, ... Later changes move as few as can be."""
        self._begun = True
        self._settle()

    def leave(self, worker: Worker) -> None:
        """A worker starts nothing more; what it holds goes to the others as it lets go."""
        if worker in self._takers:
            self._takers.remove(worker)
        self._settle()

    def lose(self, worker: Worker) -> None:
        """A worker is gone, and can't start anything any more: its lease is over."""
        for caller in [caller for caller, holder in self._holder.items() if holder == worker]:
            if self._may_have_started(worker, caller):
                self.maybe_started[self._number(caller)] = worker
                self._grow(caller)
            self._free(caller)
        self._given.get(worker, set()).clear()
        self.leave(worker)

    def heard(
        self,
        worker: Worker,
        version: int,
        placed: Iterable[tuple[int, int]],
        released: Iterable[tuple[int, int]],
    ) -> None:
        """A beat: the share the worker goes by, how far its callers are, and which it has let go."""
        if worker not in self._version:
            return
        self._heeded[worker] = self._echoed[worker]
        self._echoed[worker] = max(self._echoed[worker], version)
        for caller, count in placed:
            self._started_upto(worker, caller, count)
        let_go = []
        for caller, count in released:
            self._started_upto(worker, caller, count)
            if self._leaving(worker, caller) and version >= self._since[caller]:
                self._free(caller)
                let_go.append(caller)
        if worker in self._asked_back and self._echoed[worker] > self._heeded[worker]:
            self._take_from(worker)
        if let_go:
            self._give(let_go)

    def result(self, worker: Worker, number: int) -> bool:
        """A session's result came: it has started and is over. False: this worker can't have started it, or its result
        has come before."""
        caller, nth = number % self._callers, number // self._callers
        if number == self._number(caller):
            self._started_upto(worker, caller, nth + 1)
        if self.maybe_started.get(number) == worker:
            del self.maybe_started[number]
            self.started[worker] += 1
            return True
        going_on = self._open.get(worker, set())
        known = number in going_on
        going_on.discard(number)
        return known

    def retire(self, worker: Worker) -> None:
        """A worker has handed in everything and holds nothing: what it may have started beyond that, it did not."""
        for number in [number for number, holder in self.maybe_started.items() if holder == worker]:
            del self.maybe_started[number]
        for caller in [caller for caller, holder in self._holder.items() if holder == worker]:
            self._free(caller)
        self._given.get(worker, set()).clear()
        self.leave(worker)

    # --- what it wants -----------------------------------------------------------------------------------------------

    def version(self, worker: Worker) -> int:
        """Of the share the worker should hold; 0 before it was ever given one."""
        return self._version.get(worker, 0)

    def share(self, worker: Worker) -> tuple[tuple[int, int], ...]:
        """The callers it should hold, ascending, each with how many of its sessions were started."""
        return tuple((caller, self._placed[caller]) for caller in sorted(self._given.get(worker, ())))

    def n_startable(self, worker: Worker) -> int:
        """Callers that it holds, or may hold still, and that have sessions left: each may be about to start one."""
        return len(self._startable.get(worker, ()))

    def open(self, worker: Worker) -> frozenset[int]:
        """Numbers of the sessions that it started and of which no result has come: going on, or lost."""
        return frozenset(self._open.get(worker, ()))

    @property
    def live(self) -> int:
        """Sessions started of which no result has come, of all workers."""
        return sum(map(len, self._open.values()))

    @property
    def exhausted(self) -> bool:
        """Every session of the plan has been started."""
        return not self._unfinished

    @property
    def not_placed(self) -> int | None:
        """Sessions of the plan that nobody is known to have started; None when there is no end."""
        return None if self._sessions is None else self._sessions - self.started.total()

    # --- how ---------------------------------------------------------------------------------------------------------

    def _number(self, caller: int) -> int:
        return caller + self._placed[caller] * self._callers

    def _left(self, caller: int) -> bool:
        return self._sessions is None or self._number(caller) < self._sessions

    def _leaving(self, worker: Worker, caller: int) -> bool:
        return self._holder.get(caller) == worker and caller not in self._given[worker]

    def _may_have_started(self, worker: Worker, caller: int) -> bool:
        # Not by the first beat that says so: its loop may just have been about to start one.
        told_to_stop = self._leaving(worker, caller) and self._heeded[worker] >= self._since[caller]
        return self._left(caller) and not told_to_stop

    def _started_upto(self, worker: Worker, caller: int, count: int) -> None:
        if self._holder.get(caller) != worker:
            return  # of a time when it held it: nothing new can be in it
        # One at most: it starts none before all earlier ones are known here.
        if self._placed[caller] < count and self._left(caller):
            self._open[worker].add(self._number(caller))
            self.started[worker] += 1
            self._grow(caller)

    def _grow(self, caller: int) -> None:
        self._placed[caller] += 1
        if not self._left(caller):
            self._unfinished.discard(caller)
            if caller in self._holder:
                self._startable[self._holder[caller]].discard(caller)

    def _free(self, caller: int) -> None:
        self._startable[self._holder.pop(caller)].discard(caller)
        self._since.pop(caller, None)

    def _settle(self) -> None:
        """The workers are others: decide anew who should hold what, and take and give accordingly."""
        if not self._begun:
            return
        self._aim()
        for worker in self._given:
            self._take_from(worker)
        self._give(self._unfinished)

    def _take_from(self, worker: Worker) -> None:
        """What others should have."""
        given = self._given[worker]
        unwanted = {caller for caller in given & self._unfinished if self._target.get(caller) != worker}
        # Who never heard that he was given a caller would never say that he has let it go.
        taken = {caller for caller in unwanted if self._since[caller] <= self._echoed[worker]}
        if taken == unwanted:
            self._asked_back.discard(worker)
        else:
            self._asked_back.add(worker)
        if taken:
            given -= taken
            self._version[worker] += 1
            self._since.update(dict.fromkeys(taken, self._version[worker]))

    def _give(self, callers: Iterable[int]) -> None:
        """Those that nobody else holds go where they should be."""
        gifts: dict[Worker, list[int]] = {}
        for caller in callers:
            aim = self._target.get(caller)
            if aim is None or caller not in self._unfinished or caller in self._given[aim]:
                continue
            if self._holder.get(caller, aim) == aim:
                gifts.setdefault(aim, []).append(caller)
        for worker, given in gifts.items():
            self._version[worker] += 1
            self._holder.update(dict.fromkeys(given, worker))
            self._since.update(dict.fromkeys(given, self._version[worker]))
            self._startable[worker].update(given)
            self._given[worker].update(given)

    def _aim(self) -> None:
        by_worker: dict[Worker, list[int]] = {worker: [] for worker in self._takers}
        homeless: list[int] = []
        for caller in sorted(self._unfinished):
            by_worker.get(self._target.get(caller, -1), homeless).append(caller)
        if not self._takers:
            self._target = {}
            return
        if len(homeless) == len(self._unfinished):
            self._target = {caller: self._takers[caller % len(self._takers)] for caller in homeless}
            return
        want = _even_counts(by_worker, len(self._unfinished))
        for worker, callers in by_worker.items():
            surplus = len(callers) - want[worker]
            if surplus > 0:
                # Those that have not begun move at once, the others when their session is over.
                callers.sort(key=lambda caller: (self._placed[caller] == 0, caller))
                homeless += callers[-surplus:]
                del callers[-surplus:]
        self._target = {caller: worker for worker, callers in by_worker.items() for caller in callers}
        rooms = {worker: want[worker] - len(callers) for worker, callers in by_worker.items()}
        rooms = {worker: room for worker, room in rooms.items() if room > 0}
        self._target.update(zip(sorted(homeless), _in_turns(rooms), strict=True))


def _even_counts(by_worker: dict[Worker, list[int]], total: int) -> dict[Worker, int]:
    """How many callers each should have: as even as can be, the odd ones where most are already."""
    each, odd = divmod(total, len(by_worker))
    fullest = sorted(by_worker, key=lambda worker: -len(by_worker[worker]))
    return {worker: each + (rank < odd) for rank, worker in enumerate(fullest)}


def _in_turns(rooms: dict[Worker, int]) -> Iterator[Worker]:
    """Each worker as often as it has rooms, one after the other."""
    while rooms:
        yield from rooms
        rooms = {worker: left - 1 for worker, left in rooms.items() if left > 1}
