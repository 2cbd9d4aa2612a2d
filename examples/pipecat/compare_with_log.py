"""Set what voicebench measured beside what the agent wrote down itself.

    python compare_with_log.py RUN EVENTS [--within-ms 20]

RUN is the folder of a run with `--record all`, EVENTS the file of the agent's `--events`. Both must come from one
machine, since they share CLOCK_MONOTONIC: a bundle says where on that clock its session began. Times are shown in
seconds since the session's start, differences in ms, ours minus the log's.
"""

from __future__ import annotations

import argparse
import json
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

DEFAULT_MAX_STOP_MS = 1000.0
CLEAR_AFTER_S = 0.5
"""A clear later than this after the interruption belongs to another one."""
WIDTH = 10
ANSWER_COLUMNS = (
    *("user end", "vad_stop", "turn_stop", "answer", "bot_start", "packet", "onset"),
    *("latency", "pkt-bot", "on-bot"),
)
STOP_COLUMNS = (
    *("user start", "vad_start", "interrupt", "bot_stop", "clear", "end"),
    *("stop", "clr-int", "end-int"),
)


@dataclass(frozen=True)
class Log:
    """One call of the agent's log: event name to its times, ascending, seconds since session start."""

    times_s: dict[str, list[float]]

    def after(self, event: str, instant_s: float) -> float | None:
        """The first of these events strictly later."""
        times = self.times_s.get(event, [])
        at = bisect_right(times, instant_s)
        return times[at] if at < len(times) else None

    def before(self, event: str, instant_s: float | None) -> float | None:
        """The last of these events up to then."""
        times = self.times_s.get(event, [])
        at = 0 if instant_s is None else bisect_right(times, instant_s)
        return times[at - 1] if at else None


@dataclass(frozen=True)
class Answer:
    """A turn that was answered: ours and the log's."""

    turn: str
    user_offset_s: float
    vad_stop_s: float | None
    turn_stop_s: float | None
    answer_s: float | None
    bot_start_s: float | None
    packet_s: float | None
    """The first packet with sound: offset plus TTFA. None when the agent talked over the user."""
    onset_s: float
    latency_ms: float

    @property
    def packet_error_ms(self) -> float | None:
        return difference_ms(self.packet_s, self.bot_start_s)

    @property
    def onset_error_ms(self) -> float | None:
        return difference_ms(self.onset_s, self.bot_start_s)


@dataclass(frozen=True)
class Stop:
    """A turn over the agent's speech: did it stop, and when, by us and by the log."""

    turn: str
    user_onset_s: float
    vad_start_s: float | None
    interruption_s: float | None
    bot_stop_s: float | None
    clear_s: float | None
    end_s: float
    """Where the agent's segment ends."""
    stopped: bool
    """Within the turn's max_stop_ms, by us."""
    agrees: bool
    """The log has an interruption in that time if and only if we say that the agent stopped."""

    @property
    def clear_error_ms(self) -> float | None:
        return difference_ms(self.clear_s, self.interruption_s)

    @property
    def end_error_ms(self) -> float | None:
        return difference_ms(self.end_s, self.interruption_s) if self.stopped else None


@dataclass(frozen=True)
class Compared:
    """One session."""

    session_id: str
    answers: list[Answer]
    stops: list[Stop]
    bot_starts: int
    segments: int


def difference_ms(ours_s: float | None, theirs_s: float | None) -> float | None:
    """Ours minus theirs; None when either is missing.

    >>> difference_ms(1.25, 1.2), difference_ms(None, 1.0)
    (50.0, None)
    """
    return None if ours_s is None or theirs_s is None else round(1000.0 * (ours_s - theirs_s), 1)


def read_events(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The log's lines by call. A last line without its end is left out: the agent may still be writing it."""
    calls: dict[str, list[dict[str, Any]]] = {}
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            calls.setdefault(row["call"], []).append({**row, "t": float(row["t"]), "event": str(row["event"])})
        except (ValueError, KeyError, TypeError):
            if number == len(lines) and not line.endswith("\n"):
                continue
            sys.exit(f"{path}:{number}: not a line of the agent's --events log: {line.strip()[:80]}")
    return calls


def log_of(rows: Sequence[dict[str, Any]], zero_s: float) -> Log:
    """One call's events on the session's clock. `interruption` counts only while the agent spoke."""
    times: dict[str, list[float]] = {}
    for row in sorted(rows, key=lambda row: row["t"]):
        if row["event"] != "interruption" or row.get("speaking"):
            times.setdefault(row["event"], []).append(row["t"] - zero_s)
    return Log(times)


def compare(scored: dict[str, Any], bundle: dict[str, Any], log: Log) -> Compared:
    """One session: `scored` is its entry in report.json, `bundle` its session.json."""
    turns = [turn for turn in scored["turns"] if turn["user_onset_s"] is not None]
    answers = [answer_of(turn, log) for turn in turns if turn["response_latency_ms"] is not None]
    stops = [stop for turn in turns if (stop := stop_of(turn, scored, bundle, log)) is not None]
    n_starts = len([time_s for time_s in log.times_s.get("bot_start", []) if time_s <= scored["duration_s"]])
    return Compared(scored["session_id"], answers, stops, n_starts, len(scored["agent_segments"]))


def answer_of(turn: dict[str, Any], log: Log) -> Answer:
    """By the rule of the metric: the first start after the user's onset. Our own onset is not used to find it."""
    offset_s = turn["user_offset_s"]
    bot_start_s = log.after("bot_start", turn["user_onset_s"])
    answer_s = log.before("answer", bot_start_s)
    turn_stop_s = log.before("turn_stop", answer_s)
    ttfa_ms = turn["ttfa_ms"]
    return Answer(
        turn=turn["id"],
        user_offset_s=offset_s,
        vad_stop_s=log.before("vad_stop", turn_stop_s),
        turn_stop_s=turn_stop_s,
        answer_s=answer_s,
        bot_start_s=bot_start_s,
        packet_s=None if ttfa_ms is None else offset_s + ttfa_ms / 1000.0,
        onset_s=offset_s + turn["response_latency_ms"] / 1000.0,
        latency_ms=turn["response_latency_ms"],
    )


def stop_of(turn: dict[str, Any], scored: dict[str, Any], bundle: dict[str, Any], log: Log) -> Stop | None:
    """None for a turn that did not fall on the agent's speech, or that was to be answered."""
    onset_s = turn["user_onset_s"]
    ends_s = [end_s for start_s, end_s in scored["agent_segments"] if start_s <= onset_s < end_s]
    if turn["expect"] == "respond" or not ends_s:
        return None
    limit_s = onset_s + max_stop_ms(bundle["scenario"], turn["id"]) / 1000.0
    interruption_s = log.after("interruption", onset_s)
    stopped = bool(turn["stopped"] or turn["false_barge_in"])
    agrees = stopped == (interruption_s is not None and interruption_s <= limit_s)
    if interruption_s is not None and interruption_s > turn_end_s(turn, scored):
        interruption_s = None  # of a later turn
    return Stop(
        turn=turn["id"],
        user_onset_s=onset_s,
        vad_start_s=None if interruption_s is None else log.before("vad_start", interruption_s),
        interruption_s=interruption_s,
        bot_stop_s=log.after("bot_stop", onset_s),
        clear_s=clear_after(bundle["clears"], interruption_s),
        end_s=ends_s[0],
        stopped=stopped,
        agrees=agrees,
    )


def max_stop_ms(scenario: dict[str, Any], turn_id: str) -> float:
    """The turn's limit, as the scenario in the bundle says it."""
    written = scenario.get("defaults", {})
    for index, turn in enumerate(scenario["turns"], 1):
        if str(turn.get("id", f"turn-{index}")) == turn_id:
            written = {**written, **turn}
    return float(written.get("max_stop_ms", DEFAULT_MAX_STOP_MS))


def turn_end_s(turn: dict[str, Any], scored: dict[str, Any]) -> float:
    """Where the turn's window ends: at the next turn's start."""
    later = [other["start_s"] for other in scored["turns"] if (other["start_s"] or 0.0) > turn["start_s"]]
    return float(min(later, default=scored["duration_s"]))


def clear_after(clears: Sequence[dict[str, float]], interruption_s: float | None) -> float | None:
    """When the clear of an interruption arrived."""
    if interruption_s is None:
        return None
    times_s = [clear["time_s"] for clear in clears]
    at = bisect_left(times_s, interruption_s)
    return times_s[at] if at < len(times_s) and times_s[at] <= interruption_s + CLEAR_AFTER_S else None


def read_run(folder: Path, calls: dict[str, list[dict[str, Any]]]) -> Iterator[Compared]:
    """All recorded sessions of a run."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    recorded = [scored for scored in report["sessions"] if scored["bundle"] is not None]
    if not recorded:
        sys.exit(f"{folder}: no session was recorded; run again with --record all")
    for scored in recorded:
        bundle = json.loads((folder / scored["bundle"] / "session.json").read_text(encoding="utf-8"))
        rows = calls.get(scored["session_id"])
        if rows is None:
            sys.exit(
                f"{scored['session_id']}: not in the agent's log; the url needs ?call={{session_id}}, and the log must"
                " be the one of this agent"
            )
        yield compare(scored, bundle, log_of(rows, bundle["zero_monotonic_s"]))


def cell(value_s: float | None) -> str:
    """An instant to 1 ms, or a dash."""
    return ("–" if value_s is None else f"{value_s:.3f}").rjust(WIDTH)


def session_lines(compared: Compared) -> Iterator[str]:
    """One session as text."""
    yield f"\n{compared.session_id}"
    yield heading("answered", ANSWER_COLUMNS)
    for answer in compared.answers:
        log_s = (answer.user_offset_s, answer.vad_stop_s, answer.turn_stop_s, answer.answer_s, answer.bot_start_s)
        times = [*map(cell, log_s), cell(answer.packet_s), cell(answer.onset_s)]
        differences = map(ms_cell, (answer.latency_ms, answer.packet_error_ms, answer.onset_error_ms))
        yield f"  {answer.turn:<16}{''.join([*times, *differences])}"
    if compared.stops:
        yield heading("talked over", STOP_COLUMNS)
    for stop in compared.stops:
        log_s = (stop.user_onset_s, stop.vad_start_s, stop.interruption_s, stop.bot_stop_s, stop.clear_s)
        times = [*map(cell, log_s), cell(stop.end_s)]
        stop_ms = difference_ms(stop.end_s, stop.user_onset_s) if stop.stopped else None
        differences = map(ms_cell, (stop_ms, stop.clear_error_ms, stop.end_error_ms))
        yield f"  {stop.turn:<16}{''.join([*times, *differences])}{'' if stop.agrees else '  DISAGREE'}"


def heading(first: str, names: Sequence[str]) -> str:
    """The first line of a table."""
    return f"  {first:<16}{''.join(name.rjust(WIDTH) for name in names)}"


def ms_cell(value_ms: float | None) -> str:
    """A duration to 0.1 ms, or a dash."""
    return ("–" if value_ms is None else f"{value_ms:.1f}").rjust(WIDTH)


def summary_line(name: str, values_ms: Sequence[float]) -> str:
    """Percentiles by linear interpolation over all values, signed."""
    if not values_ms:
        return f"{name}: no values"
    p50, p99 = np.percentile(values_ms, [50, 99])
    few = "" if len(values_ms) >= 100 else " (few values)"
    spread = f"min {min(values_ms):+.1f}  p50 {p50:+.1f}  p99 {p99:+.1f}{few}  max {max(values_ms):+.1f} ms"
    return f"{name:<40} n {len(values_ms):<4} {spread}"


def summarise(sessions: Sequence[Compared], within_ms: float | None) -> tuple[list[str], bool]:
    """The run's differences as lines, and whether all is well."""
    answers = [answer for session in sessions for answer in session.answers]
    stops = [stop for session in sessions for stop in session.stops]
    wire = {
        "first packet - bot_start": [each.packet_error_ms for each in answers],
        "clear - interruption": [each.clear_error_ms for each in stops],
    }
    heard = {
        "agent onset - bot_start": [each.onset_error_ms for each in answers],
        "end of segment - interruption": [each.end_error_ms for each in stops],
    }
    found = {name: [ms for ms in column if ms is not None] for name, column in {**wire, **heard}.items()}
    lines = [summary_line(name, column) for name, column in found.items()]
    unmatched = [each.turn for each in answers if each.bot_start_s is None]
    unheard = [each.session_id for each in sessions if each.bot_starts > each.segments]
    disagree = [each.turn for each in stops if not each.agrees]
    lines += [
        f"answers that the log does not know: {len(unmatched)}",
        f"sessions with answers in the log that were not heard: {len(unheard)} {' '.join(unheard)}".rstrip(),
        f"turns where log and we differ on whether the agent stopped: {len(disagree)}",
    ]
    far = [ms for name in wire for ms in found[name] if within_ms is not None and abs(ms) > within_ms]
    if within_ms is not None:
        lines.append(f"packets and clears further than {within_ms:g} ms from the log: {len(far)}")
    return lines, not (unmatched or unheard or disagree or far)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when log and run agree, 1 when they do not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("events", type=Path, help="the agent's --events file")
    parser.add_argument("--within-ms", type=float, help="exit 1 if a packet or clear is further from the log")
    parser.add_argument("--summary", action="store_true", help="leave the turns out")
    given = parser.parse_args(arguments)
    sessions = list(read_run(given.run, read_events(given.events)))
    lines = [] if given.summary else [line for session in sessions for line in session_lines(session)]
    summary, agree = summarise(sessions, given.within_ms)
    sys.stdout.write("\n".join([*lines, "", *summary, ""]))
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
