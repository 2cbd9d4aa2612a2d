"""From turns to a run's numbers. A `Tally` holds integers only, so tallies of workers merge exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from voicebench.distribution import TICKS_PER_MS, Distribution, to_ticks, without_noise
from voicebench.records import SessionRecord, TurnRecord

RATE_DIGITS = 4
_RATE_SCALE = 10**RATE_DIGITS


class Tally:
    """Sums over turns and sessions, and the three distributions.

    Turns that never played or were still open when their session ended count in `turns` alone, and never as passed.
    Latency and time to first audio come from respond turns, the stop time from stop turns.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.response_latency_ms = Distribution()
        self.ttfa_ms = Distribution()
        self.barge_in_stop_ms = Distribution()

    @classmethod
    def of(cls, sessions: Iterable[SessionRecord], *, reliable_only: bool = False) -> Tally:
        """The tally of these sessions; `reliable_only` leaves unreliable turns out."""
        tally = cls()
        for session in sessions:
            tally.add_session(session, reliable_only=reliable_only)
        return tally

    def add_session(self, session: SessionRecord, *, reliable_only: bool = False) -> None:
        """Take one session in: its outcome, its totals and its turns."""
        self.counts["sessions"] += 1
        self.counts[session.outcome.state] += 1
        self.counts["overlap_ticks"] += to_ticks(session.overlap_ms)
        self.counts["talk_over_ticks"] += to_ticks(session.talk_over_ms)
        for turn in session.turns:
            if turn.reliable or not reliable_only:
                self.add_turn(turn)

    def add_turn(self, turn: TurnRecord) -> None:
        """Take one turn in."""
        self.counts["turns"] += 1
        self.counts["turns_passed"] += turn.passed
        if turn.status in ("not_played", "unfinished"):
            self.counts[turn.status] += 1
            return
        self.counts["judged_turns"] += 1
        self.counts["unreliable_turns"] += not turn.reliable
        _BY_EXPECTATION[turn.expect](self, turn)
        if turn.wer is not None:
            self.counts["wer_turns"] += 1
            self.counts["wer_sum"] += round(turn.wer * _RATE_SCALE)
            self.counts["wer_words"] += turn.wer_words or 0
            edits = (turn.wer_substitutions, turn.wer_deletions, turn.wer_insertions)
            self.counts["wer_errors"] += sum(edit or 0 for edit in edits)

    def _add_respond(self, turn: TurnRecord) -> None:
        self.counts["missed_responses"] += turn.status == "missed"
        self.counts["talk_overs"] += bool(turn.talk_over)
        if turn.response_latency_ms is not None:
            self.response_latency_ms.add(turn.response_latency_ms)
        if turn.ttfa_ms is not None:
            self.ttfa_ms.add(turn.ttfa_ms)

    def _add_stop(self, turn: TurnRecord) -> None:
        self.counts["barge_in_turns"] += 1
        self.counts["barge_in_successes"] += turn.passed
        if turn.stop_ms is not None:
            self.barge_in_stop_ms.add(turn.stop_ms)

    def _add_ignore(self, turn: TurnRecord) -> None:
        self.counts["noise_turns"] += 1
        self.counts["false_barge_ins"] += bool(turn.false_barge_in)
        self.counts["spurious_responses"] += bool(turn.spurious_response)

    def update(self, other: Tally) -> None:
        """Take another tally in: addition, so that the order never matters."""
        self.counts.update(other.counts)
        self.response_latency_ms.update(other.response_latency_ms)
        self.ttfa_ms.update(other.ttfa_ms)
        self.barge_in_stop_ms.update(other.barge_in_stop_ms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tally) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]

    @property
    def barge_in_success_rate(self) -> float | None:
        return self._rate("barge_in_successes", self.counts["barge_in_turns"])

    @property
    def mean_wer(self) -> float | None:
        """The mean of the turns' word error rates, which were rounded when they were scored and are not again."""
        turns = self.counts["wer_turns"]
        return without_noise(self.counts["wer_sum"] / (_RATE_SCALE * turns)) if turns else None

    @property
    def pooled_wer(self) -> float | None:
        """All edits over all reference words: long turns weigh more than short ones."""
        return self._rate("wer_errors", self.counts["wer_words"])

    @property
    def failed_session_rate(self) -> float | None:
        """Failed of all that ended by themselves or were lost; sessions cut by the end of the run are in neither."""
        return self._rate("failed", sum(self.counts[state] for state in ("finished", "failed", "lost")))

    @property
    def unreliable_turn_rate(self) -> float | None:
        return self._rate("unreliable_turns", self.counts["judged_turns"])

    def _rate(self, name: str, of: int) -> float | None:
        return round(self.counts[name] / of, RATE_DIGITS) if of else None

    def as_dict(self) -> dict[str, Any]:
        """The `summary` object of `score --json` and of reports; what doesn't exist is None."""
        counts = self.counts
        return {
            "sessions": counts["sessions"],
            "turns": counts["turns"],
            "turns_passed": counts["turns_passed"],
            "response_latency_ms": self.response_latency_ms.as_dict(),
            "ttfa_ms": self.ttfa_ms.as_dict(),
            "barge_in_stop_ms": self.barge_in_stop_ms.as_dict(),
            "missed_responses": counts["missed_responses"],
            "talk_overs": counts["talk_overs"],
            "barge_in_turns": counts["barge_in_turns"],
            "barge_in_success_rate": self.barge_in_success_rate,
            "noise_turns": counts["noise_turns"],
            "false_barge_ins": counts["false_barge_ins"],
            "spurious_responses": counts["spurious_responses"],
            "mean_wer": self.mean_wer,
            "pooled_wer": self.pooled_wer,
            "overlap_ms": counts["overlap_ticks"] / TICKS_PER_MS,
            "talk_over_ms": counts["talk_over_ticks"] / TICKS_PER_MS,
            "not_played_turns": counts["not_played"],
            "unfinished_turns": counts["unfinished"],
            "unreliable_turns": counts["unreliable_turns"],
            "unreliable_turn_rate": self.unreliable_turn_rate,
            "failed_session_rate": self.failed_session_rate,
        }


_BY_EXPECTATION = {"respond": Tally._add_respond, "stop": Tally._add_stop, "ignore": Tally._add_ignore}
