"""A run with workers, from the terminal's side: listen, start the workers of this machine or wait for those of others,
begin, watch, end, report.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import gevent
from gevent.socket import wait_read

from voicebench.children import Children, default_workers
from voicebench.cli.live import View, choose_view
from voicebench.cli.output import say
from voicebench.cli.run_command import Keep, Settled, make_directory, name_of_run, write_and_show
from voicebench.cli.settle import MasterFlags, RunFlags
from voicebench.cli.signals import Signals
from voicebench.clock import monotonic_s
from voicebench.errors import TesterError, VoicebenchError
from voicebench.load.budget import AudioBudget
from voicebench.master.coordinator import Coordinator
from voicebench.master.core import Core
from voicebench.master.link import MasterLink
from voicebench.master.picture import PageFacts
from voicebench.master.report import RunHead, run_head
from voicebench.master.store import Placing
from voicebench.page.source import NotNowError
from voicebench.run_folder import discard, run_id_of
from voicebench.scenario.shipping import pack
from voicebench.script import prepare, shortest_session_s
from voicebench.wire.messages import RunPlan

if TYPE_CHECKING:
    from voicebench.cli.page import RunPage
from voicebench.words import count, duration

LOOK_S = 0.05
CHILDREN_READY_S = 60.0
"""A worker process of this machine that has not come that far is not going to."""
ALWAYS_SAID = ("warning", "blocked", "calm")
"""How the load generator bears the load: whoever started the run has to know before it is over."""
WORTH_SAYING = ("join", "leave", "left", "lost", "unable", "error")
"""Events that whoever watches the master wants to hear of at once."""


def hold_with_children(settled: Settled, flags: RunFlags) -> int:
    """`run`: the workers are processes of this machine. Returns the exit code."""
    page = open_page(flags)

    def hold(settled: Settled, flags: RunFlags) -> int:
        n_workers = flags.workers or default_workers(settled.load.callers)
        children = Children()
        try:
            link = MasterLink(children.endpoint)
            children.start(n_workers)
            return _hold(settled, flags, link, _Awaited(n_workers, CHILDREN_READY_S), children=children, page=page)
        finally:
            children.close()

    return _hold_again_and_again(hold, settled, flags, page)


def hold_with_workers(settled: Settled, flags: RunFlags, own: MasterFlags, endpoint: str) -> int:
    """`master`: the workers come by themselves. Returns the exit code."""
    link = MasterLink(endpoint)
    try:
        page = open_page(flags)
    except BaseException:
        link.close()
        raise
    by_hand = "Enter" if page is None else "Enter, or Start on the page"
    what = by_hand if own.wait else count(own.expect_workers, "worker")
    say(f"listening at {link.address.removeprefix('tcp://')}, waiting for {what}")
    awaited = _Awaited(own.expect_workers, own.join_timeout, wait=own.wait)
    links = [link]

    def hold(settled: Settled, flags: RunFlags) -> int:
        own_link = links.pop() if links else MasterLink(link.address)
        return _hold(settled, flags, own_link, awaited, insecure=own.insecure, page=page)

    return _hold_again_and_again(hold, settled, flags, page)


def _hold_again_and_again(
    hold: Callable[[Settled, RunFlags], int], settled: Settled, flags: RunFlags, page: RunPage | None
) -> int:
    """One run, and with `--stay` as many as somebody asks for. Returns the exit code of the last."""
    first = flags.out
    try:
        while True:
            exit_code = hold(settled, flags)
            if page is None or not page.wants_again():
                return exit_code
            if first is not None:
                further = (first.parent / f"{run_id_of(first)}-{n}" for n in itertools.count(2))
                flags = replace(flags, out=next(out for out in further if not out.exists()))
            settled = replace(settled, run_id=name_of_run(flags, settled.loaded))
    finally:
        if page is not None:
            page.close()


def open_page(flags: RunFlags) -> RunPage | None:
    """The status page, unless nobody wants one. Raises as `RunPage`."""
    unwanted = os.environ.get("VOICEBENCH_HEADLESS", "0") not in ("", "0") and flags.page is None and not flags.stay
    if flags.headless or unwanted:
        return None
    from voicebench.cli.page import RunPage

    return RunPage(flags)


@dataclass(frozen=True, slots=True)
class _Awaited:
    """The workers that a run waits for."""

    n_workers: int
    timeout_s: float
    wait: bool = False
    """For Enter, however many there are."""


def _hold(
    settled: Settled,
    flags: RunFlags,
    link: MasterLink,
    awaited: _Awaited,
    *,
    children: Children | None = None,
    insecure: bool = False,
    page: RunPage | None = None,
) -> int:
    names, assets = pack(settled.scenarios)
    coordinator = Coordinator(
        _run_plan(settled, names, preflight=not flags.no_preflight, keep="none" if flags.no_write else settled.keep),
        assets,
        budget=_budget(settled),
        fetching=lambda epoch: core.fetching(epoch),
    )
    directory = make_directory(flags, settled.run_id, os.environ)
    core = Core(
        link, coordinator, _head(settled, insecure), _placing(settled), directory, lambda: held.signals.exit_code,
        settled.notes, None if page is None else _page_facts(settled, flags, link, awaited, page, children),
    )  # fmt: skip
    view = choose_view(lambda: core.snapshot, quiet=flags.quiet)
    held = Held(core, view, settled.load.stop_timeout_s, children, has_page=page is not None)
    core.start()
    if page is not None:
        page.show(core, held, directory)
    try:
        held.gather(awaited)
        view.start()
        held.watch()
    except CannotBeginError:
        discard(directory)
        raise
    finally:
        view.stop()
        held.close()
    if core.report is None or core.verdict is None:
        return _no_run(core, held, directory)
    try:
        return write_and_show(
            core.report, core.verdict, flags, directory=directory, details=core.collector.details(), trouble=core.error
        )
    finally:
        if page is not None:
            page.conclude()


def _page_facts(
    settled: Settled, flags: RunFlags, link: MasterLink, awaited: _Awaited, page: RunPage, children: Children | None
) -> PageFacts:
    address = link.address.removeprefix("tcp://")
    return PageFacts(
        scenarios=settled.scenarios,
        record=settled.keep,
        join=f"voicebench worker --master {address}" if children is None else None,
        waits=awaited.wait,
        stays=flags.stay,
        csrf=page.csrf,
    )


def _no_run(core: Core, held: Held, directory: Path | None) -> int:
    discard(directory)
    if core.error is not None:
        raise TesterError(f"the master failed: {core.error!r}") from core.error
    say("ended before the run began: nothing was measured")
    return held.signals.exit_code or TesterError.exit_code


def _run_plan(settled: Settled, names: tuple[str, ...], *, preflight: bool, keep: Keep) -> RunPlan:
    load = settled.load
    return RunPlan(
        run_id=settled.run_id,
        scenarios=names,
        weights=tuple(entry.weight for entry in settled.loaded.plan.scenarios),
        callers=load.callers,
        sessions=load.sessions,
        spawn_rate_per_s=load.spawn_rate_per_s,
        run_time_s=load.run_time_s,
        stop_timeout_s=load.stop_timeout_s,
        pause_s=load.pause_s,
        warmup_s=load.warmup_s,
        seed=load.seed,
        keep=keep,
        preflight=preflight,
    )


def _budget(settled: Settled) -> AudioBudget | None:
    if settled.load.max_audio_s is None:
        return None
    shortest_s = min(shortest_session_s(prepare(each.scenario, each.clips)) for each in settled.scenarios)
    return AudioBudget(settled.load.max_audio_s, shortest_s)


def _head(settled: Settled, insecure: bool) -> RunHead:
    plan, seed = settled.loaded.plan, settled.load.seed
    return run_head(settled.run_id, plan, settled.scenarios, seed=seed, clock="real", insecure=insecure)


def _placing(settled: Settled) -> Placing:
    weights = [entry.weight for entry in settled.loaded.plan.scenarios]
    names = [each.scenario.name for each in settled.scenarios]
    return Placing(tuple(zip(names, weights, strict=True)), settled.load.callers, settled.load.seed)


class CannotBeginError(VoicebenchError):
    """No session could be placed: the agent, an adapter, a worker. `exit_code` says whose fault it was."""

    def __init__(self, why: str, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(why)


class Held:
    """A run under way, seen from the terminal. The core's thread does the work; this one waits, shows and passes on."""

    def __init__(
        self,
        core: Core,
        view: View,
        stop_timeout_s: float,
        children: Children | None = None,
        *,
        has_page: bool = False,
    ) -> None:
        self._core = core
        self._view = view
        self._stop_timeout_s = stop_timeout_s
        self._children = children
        self._has_page = has_page
        self._awaited: _Awaited | None = None
        self._start_wanted = False
        self._shown = 0
        self._n_again = 0
        self.signals = Signals(self._first, self._again)

    # --- before ------------------------------------------------------------------------------------------------------

    def gather(self, awaited: _Awaited) -> None:
        """Wait for the workers and begin.

        Raises:
            CannotBeginError: A worker found that it can't be, or too few came in time.
        """
        self._awaited = awaited
        until_s = monotonic_s() + awaited.timeout_s
        enter = gevent.spawn(_enter_pressed) if awaited.wait else None
        while not self._core.done:
            ready = self._core.coordinator.ready
            if self._core.coordinator.failure is not None:
                self._give_up(*self._core.coordinator.failure)
            if ready and (ready >= awaited.n_workers if enter is None else self._may_start(enter)):
                self._core.tell(lambda coordinator, now_s: coordinator.start(now_s))
                return
            if enter is None and monotonic_s() > until_s:
                came = f"of {count(awaited.n_workers, 'worker')} {ready} came and could begin"
                self._give_up(f"{came} within {duration(awaited.timeout_s)}", TesterError.exit_code)
            self._look()
            gevent.sleep(LOOK_S)

    def _may_start(self, enter: gevent.Greenlet) -> bool:
        """By hand: with Enter or from the page. Where nothing can be typed, only the page is left."""
        typed = enter.ready() and (enter.value or not self._has_page)
        return self._start_wanted or bool(typed)

    def start_by_hand(self) -> None:
        """Begin, from the page.

        Raises:
            NotNowError: It would not.
        """
        if self._core.done or self._core.coordinator.phase != "gather":
            raise NotNowError("the run has begun already")
        if self._awaited is None or not self._awaited.wait:
            raise NotNowError("this run begins by itself once its workers are ready; with --wait it would wait for you")
        if not self._core.coordinator.ready:
            raise NotNowError("no worker is ready yet")
        self._start_wanted = True

    def stop_by_hand(self, how: str) -> None:
        """End from the page, as Ctrl-C does.

        Raises:
            NotNowError: There is nothing to end.
        """
        phase = self._core.coordinator.phase
        if self._core.done or phase == "cut":
            raise NotNowError("the run is ending already")
        if phase == "gather":
            raise NotNowError("the run has not begun")
        if how == "cut":
            self.signals.remember()
            self._core.tell(lambda coordinator, now_s: coordinator.cut(now_s, "stopped from the page"))
            self._view.note("stopped from the page: cutting all sessions")
        elif phase == "drain":
            raise NotNowError("the run is ending already: no new calls are started")
        else:
            self.signals.count("stopped from the page")

    def _give_up(self, why: str, exit_code: int) -> None:
        self._core.tell(lambda coordinator, now_s: coordinator.cut(now_s, why))
        self._wait_for_core()
        raise CannotBeginError(why, exit_code)

    # --- meanwhile ---------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Until all is over."""
        self._wait_for_core()
        self._look()

    def _wait_for_core(self) -> None:
        while not self._core.done:
            self._look()
            gevent.sleep(LOOK_S)

    def close(self) -> None:
        self.signals.close()

    def _look(self) -> None:
        """Pass on what has happened: to the terminal, and to the core what became of the children."""
        events = self._core.coordinator.events
        for event in events[self._shown :]:
            if event.event in ALWAYS_SAID or (event.event in WORTH_SAYING and self._children is None):
                self._view.note(f"{event.event}: {event.detail}")
        self._shown = len(events)
        for name, how in self._children.reap() if self._children is not None else ():
            self._core.tell(_reaped(name, how))

    def _first(self, name: str) -> None:
        self._core.tell(lambda coordinator, now_s: coordinator.drain(now_s, name))
        going_on = count(self._core.coordinator.shares.live, "session")
        up_to = duration(self._stop_timeout_s)
        self._view.note(f"{name}: letting {going_on} finish, up to {up_to}; again to cut")

    def _again(self, name: str) -> None:
        self._n_again += 1
        if self._n_again == 1:
            self._core.tell(lambda coordinator, now_s: coordinator.cut(now_s, name))
            self._view.note(f"{name}: cutting all sessions; once more to wait for no worker")
        else:
            self._core.tell(lambda coordinator, now_s: coordinator.abandon(now_s, f"{name} a third time"))


def _reaped(name: str, how: str) -> Callable[[Coordinator, float], None]:
    def tell(coordinator: Coordinator, now_s: float) -> None:
        for peer in coordinator.peers.values():
            if peer.name == name:
                coordinator.gone(peer.epoch, now_s, how)
                return
        coordinator.failure = coordinator.failure or (f"worker {name} {how}", TesterError.exit_code)

    return tell


def _enter_pressed() -> bool:
    """Wait for a line on standard input, or its end; whether it was a line."""
    with contextlib.suppress(OSError, ValueError):
        wait_read(sys.stdin.fileno())
        return bool(os.read(sys.stdin.fileno(), 4096))
    return False
