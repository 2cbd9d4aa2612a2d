"""A worker's side of the protocol, as a machine: what was heard and when goes in, messages and notices come out.

    JOINING -> READY -> RUNNING -> DONE; LEAVING from anywhere before that, when it is asked to go.

It places no session by itself. It says which may be placed: `Gate` is what the loop that holds the sessions looks at.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite

from msgspec.structs import replace

from voicebench.errors import WireError
from voicebench.records import Outcome, SessionRecord
from voicebench.wire import codec
from voicebench.wire.liveness import DEFAULT, ClockOffset, Liveness
from voicebench.wire.messages import (
    MAX_FILE_BYTES,
    Beat,
    Block,
    Final,
    FromMaster,
    FromWorker,
    Gone,
    Health,
    Hello,
    Orders,
    Phase,
    Refuse,
    Results,
    RunPlan,
    SessionResult,
    Share,
    Unable,
    Welcome,
    WorkerState,
)

HELLO_EVERY_S = 0.5
RESEND_S = 2.0
"""Results and the like are said again when the master answers beats and has not acknowledged them for so long."""
PROMPT_S = 0.02
"""A session's start is told at once, but not oftener than this."""
UNSENT_AT_ONCE = 200
"""So many results go out ahead of their acknowledgement."""
CLOCK_BEATS = 8
"""Before a run starts the clocks are compared this often at least."""


# --- notices to the loop that holds the sessions -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Welcomed:
    epoch: int
    worker: str
    plan: RunPlan


@dataclass(frozen=True, slots=True)
class Refused:
    """The master does not want this worker, or knows it no more."""

    reason: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class Started:
    """Run time 0, on our monotonic clock."""

    t0_s: float


@dataclass(frozen=True, slots=True)
class Given:
    """The callers to hold from now on, each with how many of its sessions were started."""

    callers: dict[int, int]


@dataclass(frozen=True, slots=True)
class PhaseBegan:
    """The run's phase, and since when on our monotonic clock."""

    phase: Phase
    since_s: float


@dataclass(frozen=True, slots=True)
class AskedToLeave:
    why: str


@dataclass(frozen=True, slots=True)
class Over:
    """Everything is stored at the master."""


Notice = Welcomed | Refused | Started | Given | PhaseBegan | AskedToLeave | Over


@dataclass(slots=True)
class Gate:
    """What may be placed. Written by the thread that speaks with the master, read by the loop: plain values only."""

    lease_until_s: float = float("-inf")
    """On our monotonic clock. After that nothing may be placed until the master has answered again."""
    confirmed: dict[int, int] = field(default_factory=dict)
    """By caller that is held: how many of its started sessions the master knows of."""
    may_start: int | None = None
    """How many sessions may have been started in all."""
    is_shut: bool = False
    """For ever."""

    def is_open(self, caller: int, placed: int, started: int, now_s: float) -> bool:
        """Whether a caller that has started `placed` sessions, of `started` by this worker, may start one more."""
        return (
            not self.is_shut
            and now_s < self.lease_until_s
            and self.confirmed.get(caller, -1) >= placed
            and (self.may_start is None or started < self.may_start)
        )

    def shut(self) -> None:
        """Nothing may be placed any more."""
        self.is_shut = True


@dataclass(slots=True)
class Vitals:
    """How the loop fares: written by it, sent with every beat."""

    turned_s: float = 0.0
    """When it last turned, monotonic."""
    live: int = 0
    settling: int = 0
    """Sessions that have ended and are not handed in."""
    cpu_s: float = 0.0
    health: Health | None = None
    """This and the next are written by the thread that watches the loop and sends the beats."""
    blocked: Block | None = None


class Member:
    """One worker in one run. Nothing here waits, and no clock is read but the one handed in."""

    def __init__(self, hello: Hello, vitals: Vitals, liveness: Liveness = DEFAULT) -> None:
        self.gate = Gate()
        self.notices: deque[Notice] = deque()
        self.offset = ClockOffset()
        self.epoch: int | None = None
        self.heard_s: float | None = None
        """When the master last answered."""
        self.over = False
        self._hello = hello
        self._vitals = vitals
        self._liveness = liveness
        self._hello_due_s = self._beat_due_s = float("-inf")
        self._beat_sent_s = float("-inf")
        self._newest = 0, float("-inf")
        """Term and time, by the master's clock, of the newest orders."""
        self._state: WorkerState = "joining"
        self._n = 0
        self._echoed_n = 0
        self._beats: deque[Beat] = deque(maxlen=256)
        self._share_version = 0
        self._placed: dict[int, int] = {}
        self._untold: dict[int, int] = {}
        """By caller: what it has placed, as long as the master has not said that it knows."""
        self._released: dict[int, tuple[int, int]] = {}
        """By caller that was let go: what it had placed, and the version of the share that had taken it."""
        self._phase: Phase = "gather"
        self._t0_told = False
        self._asked_to_leave = False
        self._outbox: deque[Results] = deque()
        self._seq = self._sent_seq = self._acked = 0
        self._progress_s = float("-inf")
        self._unable: Unable | None = None
        self._final: Final | None = None
        self._final_due_s = float("-inf")
        self._said_goodbye = False

    # --- what the loop tells -----------------------------------------------------------------------------------------

    def ready(self) -> None:
        """Everything it needs is here, and the agent answers."""
        if self._state == "joining":
            self._state = "running" if self._t0_told else "ready"
        self._beat_soon()

    def unable(self, reason: str, exit_code: int) -> None:
        """It can't take part."""
        assert self.epoch is not None
        self._unable = Unable(epoch=self.epoch, reason=_text(reason), exit_code=exit_code)
        self._beat_soon()

    def started(self, caller: int, placed: int) -> None:
        """A caller has started a session, its `placed`-th counting from 1."""
        self._released.pop(caller, None)  # that was of an earlier time, when it was held before
        self._placed[caller] = self._untold[caller] = max(placed, self._placed.get(caller, 0))
        self._beat_soon()

    def released(self, caller: int, placed: int) -> None:
        """A caller that a share took away is held no more."""
        if caller in self.gate.confirmed:
            return  # another share has given it back meanwhile
        self._placed.pop(caller, None)
        self._untold.pop(caller, None)
        self._released[caller] = placed, self._share_version
        self._beat_soon()

    def result(self, session: SessionResult) -> None:
        """A session is over. One that can't be sent goes as a stub that says why, so that none is lost."""
        assert self.epoch is not None
        self._seq += 1
        message = Results(epoch=self.epoch, seq=self._seq, session=session)
        try:
            codec.decode_from_worker(codec.encode(message))
        except WireError as error:
            message = Results(epoch=self.epoch, seq=self._seq, session=stub_of(session, str(error)))
        self._outbox.append(message)

    def leave(self) -> None:
        """Start nothing more, and go when all is over."""
        self.gate.shut()
        if self._state != "done":
            self._state = "leaving"
        self._beat_soon()

    def final(
        self,
        cpu_s: float,
        notes: tuple[str, ...] = (),
        events: tuple[tuple[float, str, str], ...] = (),
        *,
        trouble: str = "",
        error: str = "",
    ) -> None:
        """All sessions are over and their results handed in.

        Args:
            trouble: What could not be kept.
            error: What broke the load generator.
        """
        assert self.epoch is not None
        self.gate.shut()
        self._state = "done"
        final = Final(
            epoch=self.epoch,
            seq=self._seq,
            cpu_s=cpu_s,
            notes=tuple(_text(note) for note in notes[:1000]),
            events=tuple((t_s, _text(event)[:200], _text(detail)) for t_s, event, detail in events[:1000]),
            trouble=_text(trouble),
            error=_text(error),
        )
        try:
            codec.decode_from_worker(codec.encode(final))
        except WireError as wrong:  # without a final the run would not end
            why = f"this worker's notes and events can't be sent: {_text(str(wrong))}"
            final = replace(final, notes=(why,), events=(), cpu_s=cpu_s if isfinite(cpu_s) else 0.0)
        self._final = final
        self._beat_due_s = float("-inf")  # what the last second was like goes out before the last word

    # --- what is heard -----------------------------------------------------------------------------------------------

    def hear(self, message: FromMaster, now_s: float) -> None:
        """Take one message of the master in."""
        if isinstance(message, Welcome):
            self._welcomed(message, now_s)
        elif isinstance(message, Refuse):
            self._refused(message)
        elif isinstance(message, Orders) and message.epoch == self.epoch:
            if (message.term, message.sent_s) >= self._newest:  # else it is from a connection that is gone
                self._newest = message.term, message.sent_s
                self._ordered(message, now_s)
        elif isinstance(message, Share) and message.epoch == self.epoch and message.term >= self._newest[0]:
            self._given(message)

    def _welcomed(self, message: Welcome, now_s: float) -> None:
        if self.epoch is not None:
            return  # the answer to a hello that we repeated
        self.epoch = message.epoch
        self._liveness = dataclasses.replace(
            self._liveness, beat_s=message.beat_s, lease_s=message.lease_s, lost_s=message.lost_s,
            late_s=(message.beat_s + message.lease_s) / 2,
        )  # fmt: skip
        self._newest = message.term, float("-inf")
        self.heard_s = self._progress_s = now_s
        self.notices.append(Welcomed(message.epoch, message.worker, message.plan))

    def _refused(self, message: Refuse) -> None:
        self.gate.shut()
        self.over = True
        self.notices.append(Refused(message.reason, message.exit_code))

    def _ordered(self, orders: Orders, now_s: float) -> None:
        self.heard_s = now_s
        self.gate.may_start = orders.may_start
        if orders.leave:
            # At once, not when the loop has heard: what this worker held may be another's already.
            self.gate.shut()
        self._acknowledged(orders, now_s)
        if orders.echo_n > self._echoed_n:
            self._echoed(orders, now_s)
        ahead_s = self.offset.ahead_s
        if ahead_s is None:
            return  # without a common clock no order with a time in it means anything yet
        if orders.t0_s is not None and not self._t0_told:
            self._t0_told = True
            if self._state == "ready":
                self._state = "running"
            self.notices.append(Started(orders.t0_s - ahead_s))
        if orders.phase != self._phase:
            self._phase = orders.phase
            since_s = orders.sent_s if orders.phase_s is None else orders.phase_s
            self.notices.append(PhaseBegan(orders.phase, since_s - ahead_s))
        if orders.leave and not self._asked_to_leave:
            self._asked_to_leave = True
            self.notices.append(AskedToLeave("the master asked this worker to leave"))
        if orders.over and not self.over and (self._unable is not None or self._delivered):
            self.over = True
            self.notices.append(Over())

    @property
    def _delivered(self) -> bool:
        return self._final is not None and self._acked >= self._final.seq

    def _acknowledged(self, orders: Orders, now_s: float) -> None:
        if self._acked < orders.acked <= self._seq:
            self._acked = orders.acked
            self._progress_s = now_s
        while self._outbox and self._outbox[0].seq <= self._acked:
            self._outbox.popleft()
        if not self._outbox:
            self._progress_s = now_s

    def _echoed(self, orders: Orders, now_s: float) -> None:
        self._echoed_n = orders.echo_n
        while self._beats and self._beats[0].n <= orders.echo_n:
            beat = self._beats.popleft()
            if beat.n == orders.echo_n:
                self.offset.add(sent_s=beat.sent_s, received_s=orders.received_s, answered_s=orders.sent_s, got_s=now_s)
                self.gate.lease_until_s = max(self.gate.lease_until_s, beat.sent_s + self._liveness.lease_s)
                for caller, placed in beat.placed:
                    self._known(caller, placed)
                for caller, _ in beat.released:
                    if self._released.get(caller, (0, beat.share_version + 1))[1] <= beat.share_version:
                        del self._released[caller]

    def _known(self, caller: int, placed: int) -> None:
        """The master knows of so many of a caller's sessions."""
        if self._untold.get(caller, placed + 1) <= placed:
            del self._untold[caller]
        if caller in self.gate.confirmed:
            self.gate.confirmed[caller] = max(placed, self.gate.confirmed[caller])

    def _given(self, share: Share) -> None:
        if share.share_version <= self._share_version:
            return
        self._share_version = share.share_version
        held = dict(share.callers)
        # Closed before a beat names this share: who hears that knows that what was taken starts nothing more here.
        for caller in [caller for caller in self.gate.confirmed if caller not in held]:
            del self.gate.confirmed[caller]
        for caller, placed in held.items():
            # The master may not have heard yet how far it was when it was let go.
            released, _ = self._released.pop(caller, (0, 0))
            self._placed[caller] = reached = max(placed, released, self._placed.get(caller, 0))
            self.gate.confirmed.setdefault(caller, placed)
            self._known(caller, placed)
            if reached > self.gate.confirmed[caller]:
                self._untold[caller] = reached
        self.notices.append(Given({caller: self._placed[caller] for caller, _ in share.callers}))
        self._beat_soon()

    # --- what it says ------------------------------------------------------------------------------------------------

    def sends(self, now_s: float) -> list[FromWorker]:
        """What is to be sent now, in order."""
        if self.over:
            return self._goodbye()
        if self.epoch is None:
            return self._hellos(now_s)
        # Results before the beat: whoever hears that a session is over should have it.
        return [*self._results(now_s), *self._beats_due(now_s), *self._last_words(now_s)]

    def due_s(self, now_s: float) -> float:
        """When `sends` should be asked next."""
        if self.over:
            return now_s + 1.0
        if self.epoch is None:
            return self._hello_due_s
        if self._sent_seq < self._seq and self._sent_seq - self._acked < UNSENT_AT_ONCE:
            return now_s
        return self._beat_due_s

    def _goodbye(self) -> list[FromWorker]:
        if self._said_goodbye or self.epoch is None:
            return []
        self._said_goodbye = True
        return [Gone(epoch=self.epoch)]

    def _hellos(self, now_s: float) -> list[FromWorker]:
        if now_s < self._hello_due_s:
            return []
        self._hello_due_s = now_s + HELLO_EVERY_S
        return [self._hello]

    def _results(self, now_s: float) -> list[FromWorker]:
        if self._outbox and self._sent_seq > self._acked and now_s - self._progress_s > RESEND_S:
            self._sent_seq = self._acked
            self._progress_s = now_s
        first, last = max(self._sent_seq, self._acked), min(self._seq, self._acked + UNSENT_AT_ONCE)
        self._sent_seq = max(first, last)
        return list(islice(self._outbox, first - self._acked, last - self._acked)) if last > first else []

    def _beats_due(self, now_s: float) -> list[FromWorker]:
        if now_s < self._beat_due_s:
            return []
        assert self.epoch is not None
        self._n += 1
        # Until the clocks are known well enough beats are quick; later every `beat_s`.
        pause_s = PROMPT_S if self._n < CLOCK_BEATS and self._echoed_n else self._liveness.beat_s
        self._beat_sent_s, self._beat_due_s = now_s, now_s + pause_s
        beat = Beat(
            epoch=self.epoch,
            n=self._n,
            sent_s=now_s,
            share_version=self._share_version,
            state=self._state,
            placed=tuple(self._untold.items()),
            released=tuple((caller, count) for caller, (count, _) in self._released.items()),
            live=self._vitals.live,
            settling=self._vitals.settling,
            hub_age_s=max(0.0, now_s - self._vitals.turned_s),
            cpu_s=self._vitals.cpu_s,
            health=self._vitals.health,
            blocked=self._vitals.blocked,
        )
        self._beats.append(beat)
        return [beat]

    def _beat_soon(self) -> None:
        self._beat_due_s = min(self._beat_due_s, self._beat_sent_s + PROMPT_S)

    def _last_words(self, now_s: float) -> list[FromWorker]:
        word: FromWorker | None = self._unable
        if self._final is not None and self._sent_seq >= self._final.seq:
            word = self._final
        if word is None or now_s < self._final_due_s:
            return []
        self._final_due_s = now_s + HELLO_EVERY_S
        return [word]

    @property
    def lost_s(self) -> float:
        """A master that is silent for longer is gone."""
        return self._liveness.lost_s

    @property
    def unacked(self) -> tuple[SessionResult, ...]:
        """Results that the master has not acknowledged."""
        return tuple(each.session for each in self._outbox)


def _text(text: str) -> str:
    """As it can be sent: names of files may hold what is no text."""
    return text[:4000].encode(errors="replace").decode()


def stub_of(session: SessionResult, why: str) -> SessionResult:
    """What goes in place of a result that can't be sent: the session is accounted for, and says why it has no more."""
    whole = session.record
    record = SessionRecord(
        session_id=_text(whole.session_id),
        scenario=_text(whole.scenario),
        outcome=Outcome("failed", "generator", f"its record can't be sent: {_text(why)}"),
        duration_s=whole.duration_s if 0 <= whole.duration_s <= codec.MAX_NUMBER else 0.0,
        user_speech_ms=0.0,
        agent_speech_ms=0.0,
        overlap_ms=0.0,
        talk_over_ms=0.0,
        truncated=True,
        user_segments=(),
        agent_segments=(),
        turns=(),
    )
    files = session.files or {}
    return replace(
        session,
        record=record,
        lateness={},
        started_s=session.started_s if abs(session.started_s) <= codec.MAX_NUMBER else 0.0,
        files=session.files if all(0 < size <= MAX_FILE_BYTES for size in files.values()) else None,
    )
