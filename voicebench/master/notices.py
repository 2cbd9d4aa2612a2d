"""What is worth a line in the page's list of events: what the coordinator marks, and how limits and workers fare."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from voicebench.master.collector import Collector
from voicebench.master.coordinator import Coordinator, Peer, RunEvent
from voicebench.wire.liveness import DEFAULT
from voicebench.words import number, shortened

MAX_EVENTS = 500
_EVENT_KINDS = {
    **dict.fromkeys(("start", "join", "holds", "back", "calm"), "good"),
    **dict.fromkeys(("lost", "error", "unable", "broken", "overloaded", "blocked"), "bad"),
    **dict.fromkeys(("late", "warning"), "warn"),
}


class Notices:
    """The last events of one run. They count up from 1."""

    def __init__(self, coordinator: Coordinator, collector: Collector) -> None:
        self._coordinator = coordinator
        self._collector = collector
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self._new: list[dict[str, Any]] = []
        self._n_events = 0
        self._n_heard = 0
        """Events of the coordinator that are among them."""
        self._standing: dict[tuple[str, str | None], str] = {}
        """How each limit stood when it was last looked at."""
        self._late: set[int] = set()
        self._was_trusted = True

    @property
    def all(self) -> list[dict[str, Any]]:
        return list(self._events)

    def take_new(self) -> list[dict[str, Any]]:
        """Those since the last call."""
        new, self._new = self._new[-MAX_EVENTS:], []
        return new

    def look(self, now_s: float, assertions: Sequence[Mapping[str, Any]]) -> None:
        """Find what has changed since the last call."""
        heard = self._coordinator.events[self._n_heard :]
        self._n_heard += len(heard)
        for event in heard:
            self._event(event)
        for each in assertions:
            self._note_limit(now_s, each)
        for peer in self._coordinator.here:
            self._note_lateness(peer, now_s)
        trusted = not self._collector.generator_overloaded
        if trusted != self._was_trusted:
            self._was_trusted = trusted
            detail = f"{'1 % of the turns or less' if trusted else 'more than 1 % of the turns'} are unreliable"
            self._event(RunEvent(now_s, "back" if trusted else "overloaded", detail))

    def _note_limit(self, now_s: float, limit: Mapping[str, Any]) -> None:
        key, state = (limit["name"], limit["scenario"]), limit["state"]
        before = self._standing.get(key, "open")
        self._standing[key] = state
        if state == before or (before == "open" and state != "failing"):
            return
        name = f"{limit['name']} of {limit['scenario']}" if limit["scenario"] else limit["name"]
        values = f"{number(limit['actual'])}, the limit is {number(limit['limit'])}"
        word = {"failing": "broken", "passing": "holds"}.get(state, "can't tell")
        self._event(RunEvent(now_s, word, f"{name}: {values}"))

    def _note_lateness(self, peer: Peer, now_s: float) -> None:
        late = now_s - peer.heard_s > DEFAULT.late_s
        if late and peer.epoch not in self._late:
            self._late.add(peer.epoch)
            self._event(RunEvent(now_s, "late", f"{peer.name}: nothing heard for {DEFAULT.late_s:g} s"))
        elif not late and peer.epoch in self._late:
            self._late.discard(peer.epoch)
            self._event(RunEvent(now_s, "back", f"{peer.name} is heard again"))

    def _event(self, event: RunEvent) -> None:
        self._n_events += 1
        document = {
            "n": self._n_events,
            "t_s": round(self._coordinator.run_s(event.at_s), 3),
            "event": event.event,
            "detail": shortened(event.detail),
            "kind": _EVENT_KINDS.get(event.event, "info"),
        }
        self._events.append(document)
        self._new.append(document)
