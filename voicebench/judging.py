"""What a turn comes to: its latencies, and whether the agent did what was expected of it."""

from __future__ import annotations

from dataclasses import dataclass

from voicebench.distribution import round_ms
from voicebench.instants import ms_to_ns
from voicebench.metrics import interruption, latency
from voicebench.metrics.latency import InstantsNs
from voicebench.records import TurnStatus
from voicebench.scenario.model import Turn
from voicebench.turns import Speech


@dataclass(frozen=True, slots=True)
class AgentHeard:
    """The agent's side of a session, as a turn is judged by it."""

    speech: Speech
    audible_ns: InstantsNs
    """Arrivals of packets with sound."""
    heard_until_ns: int
    """End of the last whole analysis frame of its track."""
    duration_ns: int
    """When the session ended."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One turn's findings; times rounded to 0.1 ms, verdicts taken on the exact ones."""

    passed: bool
    status: TurnStatus = "measured"
    responded: bool | None = None
    response_latency_ms: float | None = None
    ttfa_ms: float | None = None
    talk_over: bool | None = None
    stopped: bool | None = None
    stop_ms: float | None = None
    false_barge_in: bool | None = None
    spurious_response: bool | None = None
    decided_ns: int | None = None
    """When it was settled: the reply's start, the agent's stop; None: when its time-out passed."""
    notes: tuple[str, ...] = ()


def judge(turn: Turn, onset_ns: int, offset_ns: int, agent: AgentHeard) -> Judgement:
    """Judge a turn whose user speech was heard.

    Args:
        turn: What was scripted.
        onset_ns, offset_ns: The user's speech in the turn's window, whole nanoseconds since session start.
        agent: The agent's side, on the same clock.
    """
    if turn.expect == "respond":
        return _respond(turn, onset_ns, offset_ns, agent)
    if turn.expect == "stop":
        return _stop(turn, onset_ns, offset_ns, agent)
    return _ignore(turn, onset_ns, offset_ns, agent)


def judge_unheard(turn: Turn, threshold_db: float) -> Judgement:
    """Judge a turn in which the user's detector heard nothing: a missed response, a failed stop, harmless noise."""
    what = "noise" if turn.expect == "ignore" else "speech"
    notes = (f"no user {what} detected: nothing in its audio reaches vad.user.threshold_db {threshold_db:g}",)
    if turn.expect == "ignore":
        return Judgement(True, false_barge_in=False, spurious_response=False, notes=notes)
    status: TurnStatus = "missed" if turn.expect == "respond" else "measured"
    return Judgement(False, status, responded=False, talk_over=False, notes=notes)


@dataclass(frozen=True, slots=True)
class _Reply:
    start_ns: int
    latency_ms: float
    ttfa_ms: float | None
    talk_over: bool


def _reply(turn: Turn, onset_ns: int, offset_ns: int, agent: AgentHeard) -> _Reply | None:
    timeout_ns = ms_to_ns(turn.response_timeout_ms)
    index = latency.find_reply(onset_ns, offset_ns, agent.speech, timeout_ns=timeout_ns)
    if index is None:
        return None
    start_ns = agent.speech.starts_ns[index]
    first_audio_ms = latency.ttfa_ms(offset_ns, index, agent.speech, agent.audible_ns)
    return _Reply(
        start_ns=start_ns,
        latency_ms=round_ms(latency.response_latency_ms(offset_ns, start_ns)),
        ttfa_ms=None if first_audio_ms is None else round_ms(first_audio_ms),
        talk_over=start_ns < offset_ns,
    )


def _respond(turn: Turn, onset_ns: int, offset_ns: int, agent: AgentHeard) -> Judgement:
    reply = _reply(turn, onset_ns, offset_ns, agent)
    if reply is None:
        note = f"missed: no agent speech within {turn.response_timeout_ms:g} ms of the user's offset"
        return Judgement(False, "missed", responded=False, talk_over=False, notes=(note,))
    notes = ("talk-over: the agent began before the user had finished",) if reply.talk_over else ()
    return Judgement(
        True,
        responded=True,
        response_latency_ms=reply.latency_ms,
        ttfa_ms=reply.ttfa_ms,
        talk_over=reply.talk_over,
        decided_ns=reply.start_ns,
        notes=notes,
    )


def _stop(turn: Turn, onset_ns: int, offset_ns: int, agent: AgentHeard) -> Judgement:
    reply = _reply(turn, onset_ns, offset_ns, agent)
    stopped, stop_ms, decided_ns, note = _stopping(turn, onset_ns, agent)
    return Judgement(
        passed=stopped is True,
        responded=reply is not None,
        response_latency_ms=None if reply is None else reply.latency_ms,
        ttfa_ms=None if reply is None else reply.ttfa_ms,
        talk_over=reply is not None and reply.talk_over,
        stopped=stopped,
        stop_ms=stop_ms,
        decided_ns=decided_ns,
        notes=() if note is None else (note,),
    )


def _stopping(turn: Turn, onset_ns: int, agent: AgentHeard) -> tuple[bool | None, float | None, int, str | None]:
    """Whether it stopped in time, after how long, when that was settled, and what to tell."""
    if agent.speech.at(onset_ns) is None:
        why = "no barge-in: the agent was silent when the user began; see the turn's start rule"
        return None, None, onset_ns, why
    stop_ms = interruption.stop_ms(onset_ns, agent.speech, heard_until_ns=agent.heard_until_ns)
    if stop_ms is None:
        return False, None, agent.duration_ns, "the agent had not stopped when the session ended"
    in_time = ms_to_ns(stop_ms) <= ms_to_ns(turn.max_stop_ms)
    late = f"stopped late: {round_ms(stop_ms):g} ms after the user's onset, max_stop_ms is {turn.max_stop_ms:g}"
    return in_time, round_ms(stop_ms), onset_ns + ms_to_ns(stop_ms), None if in_time else late


def _ignore(turn: Turn, onset_ns: int, offset_ns: int, agent: AgentHeard) -> Judgement:
    stop_ms = interruption.stop_ms(onset_ns, agent.speech, heard_until_ns=agent.heard_until_ns)
    derailed = interruption.is_false_barge_in(stop_ms, max_stop_ms=turn.max_stop_ms)
    timeout_ns = ms_to_ns(turn.response_timeout_ms)
    spurious = interruption.is_spurious_response(onset_ns, offset_ns, agent.speech, timeout_ns=timeout_ns)
    notes: tuple[str, ...] = ()
    if derailed and stop_ms is not None:
        notes = (
            f"false barge-in: the agent stopped {round_ms(stop_ms):g} ms after the noise began "
            "(a reply that ends by itself that close to it looks the same)",
        )
    if spurious:
        notes = ("spurious response: the agent was silent and answered the noise",)
    return Judgement(
        passed=not derailed and not spurious,
        false_barge_in=derailed,
        spurious_response=spurious,
        decided_ns=None if stop_ms is None else onset_ns + ms_to_ns(stop_ms),
        notes=notes,
    )
