"""From a recording to its record: a pure function, the same for a live session and for a bundle read again."""

from __future__ import annotations

from dataclasses import dataclass

from voicebench.audio.level import Energies, frame_energies
from voicebench.distribution import round_ms
from voicebench.instants import ms_to_ns, ns_to_ms, ns_to_s, s_to_ns, samples_to_ns
from voicebench.judging import AgentHeard, Judgement, judge, judge_unheard
from voicebench.metrics import honesty, latency, outcome, transcript
from voicebench.metrics.transcript import WordErrors
from voicebench.recording import Account, PlayedTurn, Recording
from voicebench.records import Segment, SessionRecord, TurnRecord
from voicebench.scenario.model import Scenario, Turn
from voicebench.summary import RATE_DIGITS
from voicebench.turns import Speech, Window, speech_of, turn_windows
from voicebench.vad import FrameRule, frame_rule, segments_of

S_DIGITS = 4
"""Instants in records carry 0.1 ms."""


@dataclass(frozen=True, slots=True)
class _Heard:
    """What both tracks hold, and what else a turn is judged by."""

    account: Account
    user: Speech
    agent: AgentHeard
    duration_ns: int
    frame_ns: int
    said: tuple[tuple[int, str], ...]
    """Final user transcripts by time of arrival."""


def score(recording: Recording) -> SessionRecord:
    """Measure one recorded session.

    Args:
        recording: Tracks, windows, packets and transcripts of the session, and the scenario it ran.

    Returns:
        Its turns in script order and its totals, by the definitions of docs/metrics.md. Times are rounded here, once,
        to 0.1 ms; verdicts were taken on the exact ones.

    Raises:
        KeyError: A played turn is not in the scenario.

    Error: one analysis frame per boundary, plus each turn's `error_ms`.
    """
    user_rule, agent_rule = analysis_rules(recording.scenario)
    user = frame_energies(recording.user, user_rule.frame_samples)
    agent = frame_energies(recording.agent, agent_rule.frame_samples)
    return score_energies(recording, user, agent)


def score_energies(account: Account, user: Energies, agent: Energies) -> SessionRecord:
    """As `score`, of a session whose sound need not be there.

    Args:
        account: All that happened in it.
        user, agent: The energies of both tracks' whole analysis frames, each of shape (frames,).

    Returns:
        The record that `score` would give, to the last digit.
    """
    scenario = account.scenario
    user_rule, agent_rule = analysis_rules(scenario)
    user_segments, agent_segments = segments_of(user, user_rule), segments_of(agent, agent_rule)
    duration_ns = s_to_ns(account.duration_s)
    heard = _Heard(
        account=account,
        user=speech_of(user_segments),
        agent=AgentHeard(
            speech=speech_of(agent_segments),
            audible_ns=latency.audible_instants(account.packets.time_s, account.packets.level_db),
            heard_until_ns=s_to_ns(agent_rule.time_s(len(agent))),
            duration_ns=duration_ns,
        ),
        duration_ns=duration_ns,
        frame_ns=samples_to_ns(session_frame_samples(scenario.sample_rate, scenario.frame_ms), scenario.sample_rate),
        said=_final_user_transcripts(account),
    )
    windows = turn_windows(
        [s_to_ns(played.start_s) for played in account.turns],
        duration_ns,
        heard.user,
        samples_to_ns(user_rule.frame_samples, scenario.sample_rate),
    )
    turns = _score_turns(heard, windows)
    return SessionRecord(
        session_id=account.session_id,
        scenario=scenario.name,
        outcome=account.outcome,
        duration_s=round(account.duration_s, S_DIGITS),
        user_speech_ms=_ms(heard.user.total_ns),
        agent_speech_ms=_ms(heard.agent.speech.total_ns),
        overlap_ms=_ms(heard.user.overlap_with_ns(heard.agent.speech)),
        talk_over_ms=_ms(_talk_over_ns(heard, windows)),
        truncated=account.truncated and len(account.turns) < len(scenario.turns),
        user_segments=_rounded(user_segments),
        agent_segments=_rounded(agent_segments),
        turns=turns,
    )


def analysis_rules(scenario: Scenario) -> tuple[FrameRule, FrameRule]:
    """How both tracks are heard: the user's rule and the agent's."""
    return frame_rule(scenario.sample_rate, scenario.vad_user), frame_rule(scenario.sample_rate, scenario.vad_agent)


def session_frame_samples(sample_rate_hz: int, frame_ms: float) -> int:
    """The session's frame in whole samples, half to even; its period is this over the rate, not `frame_ms`.

    >>> session_frame_samples(11025, 20)
    220
    """
    return round(round(frame_ms * sample_rate_hz / 1000.0, 9))


def _final_user_transcripts(account: Account) -> tuple[tuple[int, str], ...]:
    told = [(s_to_ns(said.time_s), said.text) for said in account.transcripts if said.role == "user" and said.final]
    return tuple(sorted(told, key=lambda timed: timed[0]))  # stable: the order of arrival where times are equal


def _rounded(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    return tuple(Segment(round(part.start_s, S_DIGITS), round(part.end_s, S_DIGITS)) for part in segments)


def _talk_over_ns(heard: _Heard, windows: list[Window]) -> int:
    expects = {turn.id: turn.expect for turn in heard.account.scenario.turns}
    return sum(
        heard.agent.speech.overlap_ns(start_ns, end_ns)
        for played, window in zip(heard.account.turns, windows, strict=True)
        if expects[played.id] == "respond"
        for start_ns, end_ns in window.pieces_ns
    )


def _score_turns(heard: _Heard, windows: list[Window]) -> tuple[TurnRecord, ...]:
    scripted = {turn.id: turn for turn in heard.account.scenario.turns}
    played = {
        played.id: _score_turn(heard, scripted[played.id], played, window)
        for played, window in zip(heard.account.turns, windows, strict=True)
    }
    if heard.duration_ns == 0 and not played:
        return ()  # never sent a frame: it has no turns to speak of
    return tuple(played.get(turn_id) or _not_played(heard.account, turn) for turn_id, turn in scripted.items())


def _not_played(account: Account, turn: Turn) -> TurnRecord:
    why = "the session reached max_duration_ms first" if account.truncated else "the session ended first"
    return TurnRecord(turn.id, turn.expect, "not_played", "not_played", notes=(f"never played: {why}",))


def _score_turn(heard: _Heard, turn: Turn, played: PlayedTurn, window: Window) -> TurnRecord:
    onset_ns, offset_ns = window.onset_ns, window.offset_ns
    if onset_ns is None or offset_ns is None:
        found = judge_unheard(turn, heard.account.scenario.vad_user.threshold_db)
    else:
        found = judge(turn, onset_ns, offset_ns, heard.agent)
    if _is_unfinished(heard, turn, played, window):
        found = _unfinished(heard.account)
    said, errors = _transcribed(heard, turn, window)
    error_ms = _error_ms(heard, turn, played, window, found.decided_ns)
    return TurnRecord(
        id=turn.id,
        expect=turn.expect,
        trigger=played.trigger,
        status=found.status,
        start_s=_rounded_s(played.start_s),
        end_s=_rounded_s(played.end_s),
        user_onset_s=None if onset_ns is None else _rounded_s(ns_to_s(onset_ns)),
        user_offset_s=None if offset_ns is None else _rounded_s(ns_to_s(offset_ns)),
        responded=found.responded,
        response_latency_ms=found.response_latency_ms,
        ttfa_ms=found.ttfa_ms,
        talk_over=found.talk_over,
        stopped=found.stopped,
        stop_ms=found.stop_ms,
        false_barge_in=found.false_barge_in,
        spurious_response=found.spurious_response,
        transcript=said,
        wer=None if errors is None else round(errors.rate, RATE_DIGITS),
        wer_substitutions=None if errors is None else errors.substitutions,
        wer_deletions=None if errors is None else errors.deletions,
        wer_insertions=None if errors is None else errors.insertions,
        wer_words=None if errors is None else errors.words,
        passed=found.passed,
        error_ms=error_ms,
        reliable=error_ms is None or error_ms <= honesty.RELIABLE_MS,
        notes=(*_notes_on_start(turn, played), *found.notes, *_notes_on_text(turn, said)),
    )


def _is_unfinished(heard: _Heard, turn: Turn, played: PlayedTurn, window: Window) -> bool:
    if not outcome.broke_off(heard.account.outcome):
        return False
    agent = heard.agent
    return outcome.is_open(turn, window, s_to_ns(played.end_s), agent.speech, heard.duration_ns, agent.heard_until_ns)


def _unfinished(account: Account) -> Judgement:
    ended = account.outcome.reason or account.outcome.state
    note = f"unfinished: the session ended ({ended}) while the turn was open"
    return Judgement(False, "unfinished", decided_ns=s_to_ns(account.duration_s), notes=(note,))


def _notes_on_start(turn: Turn, played: PlayedTurn) -> tuple[str, ...]:
    if played.trigger == "anchor":
        return ()
    return (f"started on timeout_ms {turn.start.timeout_ms:g}: {turn.start.after} had not come",)


def _notes_on_text(turn: Turn, said: str | None) -> tuple[str, ...]:
    if turn.text is None or said is not None:
        return ()
    return ("no word error rate: the agent reported no final user transcript in the turn's window",)


def _transcribed(heard: _Heard, turn: Turn, window: Window) -> tuple[str | None, WordErrors | None]:
    texts = [text for time_ns, text in heard.said if window.contains(time_ns)] if heard.said else []
    if not texts:
        return None, None
    joined = " ".join(texts)
    return joined, None if turn.text is None else transcript.word_errors(turn.text, joined)


def _error_ms(heard: _Heard, turn: Turn, played: PlayedTurn, window: Window, decided_ns: int | None) -> float | None:
    lateness = heard.account.lateness
    if lateness is None:
        return None
    onset_ns = s_to_ns(played.start_s) if window.onset_ns is None else window.onset_ns
    offset_ns = s_to_ns(played.end_s) if window.offset_ns is None else window.offset_ns
    if decided_ns is None:
        decided_ns = min(offset_ns + ms_to_ns(turn.response_timeout_ms), heard.duration_ns)
    return honesty.turn_error_ms(lateness, heard.frame_ns, onset_ns, offset_ns, decided_ns)


def _ms(duration_ns: int) -> float:
    return round_ms(ns_to_ms(duration_ns))


def _rounded_s(instant_s: float) -> float:
    return round(instant_s, S_DIGITS) + 0.0  # + 0.0: a file may say -0.0
