"""A second scorer, written from the specification alone, to examine the first.

It reads bundle directories and says what `voicebench score BUNDLE... --json` has to print, and with which exit code.
It is slow and plain on purpose: loops over samples, integer nanoseconds for time, fractions for statistics, the
standard library only. It shares no code with the package and must never import from it: two programs that were
written apart and agree are worth more than one that agrees with itself.

Where the specification lets a reader choose, the choice is a field of `Reading`. Where a printed value is a matter of
taste (null or false for a flag that says nothing on this kind of turn), the value is a marker as in the golden files:
`{"$either": [...]}`, `{"$any": true}`, `{"$nonempty": true}`.
"""

from __future__ import annotations

import json
import math
import re
import struct
import unicodedata
import wave
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

NS_PER_S = 1_000_000_000
NS_PER_TICK = 100_000  # printed times have a resolution of 0.1 ms
FULL_SCALE = 32768
TIE = Decimal(1) - Decimal("1e-9")  # a level this close below a limit is on the limit
PACKET_FLOOR_DB = Decimal(-70)
ANY = {"$any": True}
NONEMPTY = {"$nonempty": True}
NO_FLAG = {"$either": [None, False]}
NO_TEXT = {"$either": [None, ""]}
VAD_DEFAULTS = {
    "threshold_db": Decimal(-45),
    "hysteresis_db": Decimal(6),
    "frame_ms": Decimal(10),
    "min_speech_ms": Decimal(50),
    "min_silence_ms": Decimal(250),
}
METRICS = ("response_latency_ms", "ttfa_ms", "barge_in_stop_ms")


@dataclass(frozen=True)
class Reading:
    """One way to read what the specification leaves open. The defaults are the readings we think best."""

    # A segment with at most a frame on either side of a window's edge: whose is it?
    tiny_segment_goes: str = "right"
    # Talk-over is counted in the user's speech as the turn has it (up to a frame longer than the window), or strictly
    # inside the window.
    talk_over_in: str = "speech"


READINGS = tuple(Reading(tiny, talk_over) for tiny in ("right", "left") for talk_over in ("speech", "window"))


@dataclass
class Turn:
    """What was found out about one turn; times in nanoseconds, before anything is rounded."""

    id: str
    expect: str
    played: bool
    shown: dict[str, Any]  # as it has to be printed
    latency: Rounded | None = None
    ttfa: Rounded | None = None
    stop: Rounded | None = None
    wer: Rounded | None = None
    edits: int = 0
    words: int = 0
    talk_over: bool = False
    missed: bool = False
    false_barge_in: bool = False
    spurious: bool = False
    passed: bool = False


@dataclass(frozen=True)
class Rounded:
    """A value after its one rounding. Fragile: it lay half-way, so the neighbour would be as right."""

    value: Fraction
    fragile: bool


@dataclass
class Session:
    scenario: dict[str, Any]
    shown: dict[str, Any]
    turns: list[Turn]
    overlap: Fraction
    talk_over: Fraction


@dataclass
class Summary:
    shown: dict[str, Any]
    values: dict[str, list[Rounded]] = field(default_factory=dict)
    named: dict[str, Rounded | None] = field(default_factory=dict)


# ---------------------------------------------------------------- reading


def read_json(path: Path) -> dict[str, Any]:
    """Numbers with a point stay decimal, so that 0.7 + 0.1 is 0.8."""
    return json.loads(path.read_bytes().decode("utf-8"), parse_float=Decimal)


def read_track(path: Path) -> tuple[int, tuple[int, ...]]:
    with wave.open(str(path), "rb") as file:
        assert file.getnchannels() == 1
        assert file.getsampwidth() == 2
        count = file.getnframes()
        return file.getframerate(), struct.unpack(f"<{count}h", file.readframes(count))


def ns(seconds: Any) -> int:
    """Seconds as typed, in whole nanoseconds."""
    return int((Decimal(seconds) * NS_PER_S).to_integral_value(ROUND_HALF_EVEN))


def ns_of_ms(milliseconds: Any) -> int:
    return int((Decimal(milliseconds) * 1_000_000).to_integral_value(ROUND_HALF_EVEN))


# ---------------------------------------------------------------- speech


@dataclass(frozen=True)
class Speech:
    """A track's segments and its analysis grid, in nanoseconds."""

    segments: list[tuple[int, int]]
    frame_ns: int
    last_frame_end_ns: int


def detect(samples: tuple[int, ...], rate: int, settings: dict[str, Any]) -> Speech:
    """Find the speech of one track as the section "Speech detection" tells it, one frame after the other."""
    vad = {key: Decimal(settings.get(key, value)) for key, value in VAD_DEFAULTS.items()}
    size = round_half_even(Fraction(rate) * Fraction(vad["frame_ms"]) / 1000)
    speech_frames = max(1, math.ceil(Fraction(vad["min_speech_ms"]) / Fraction(vad["frame_ms"])))
    silence_frames = max(1, math.ceil(Fraction(vad["min_silence_ms"]) / Fraction(vad["frame_ms"])))
    upper = least_energy(vad["threshold_db"], size)
    lower = least_energy(vad["threshold_db"] - vad["hysteresis_db"], size)

    segments: list[tuple[int, int]] = []
    is_open = False
    run = 0  # unbroken frames at or above the threshold, while closed
    silence = 0  # unbroken frames below the lower threshold, while open
    first = last = 0
    count = len(samples) // size
    for index in range(count):
        energy = 0
        for sample in samples[index * size : (index + 1) * size]:
            energy += sample * sample
        if not is_open:
            run = run + 1 if energy >= upper else 0
            if run == speech_frames:
                is_open, silence = True, 0
                first, last = index - run + 1, index
        elif energy >= lower:
            silence, last = 0, index
        else:
            silence += 1
            if silence == silence_frames:
                segments.append((first, last))
                is_open, run = False, 0
    if is_open:
        segments.append((first, last))

    def edge_ns(frame: int) -> int:
        return round_half_even(Fraction(frame * size * NS_PER_S, rate))

    return Speech([(edge_ns(a), edge_ns(b + 1)) for a, b in segments], edge_ns(1), edge_ns(count))


def least_energy(level_db: Decimal, size: int) -> Decimal:
    """The sum of squares from which a frame of `size` samples is at or above the level."""
    with localcontext() as context:
        context.prec = 40
        return Decimal(10) ** (level_db / 10) * size * FULL_SCALE * FULL_SCALE * TIE


def round_half_even(value: Fraction) -> int:
    return round(value)


def total(segments: list[tuple[int, int]]) -> int:
    return sum(off - on for on, off in segments)


def common(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    """How long a moment of both lists lasts, all pairs tried."""
    found = 0
    for on_a, off_a in one:
        for on_b, off_b in other:
            found += max(0, min(off_a, off_b) - max(on_a, on_b))
    return found


# ---------------------------------------------------------------- windows


def owner(on: int, off: int, edge: int, frame: int, reading: Reading) -> str:
    """Whose is a segment that crosses an edge between two windows: left's, right's or (cut at the edge) both's?"""
    little_left = edge - on <= frame
    little_right = off - edge <= frame
    if little_left and little_right:
        return reading.tiny_segment_goes
    if little_left:
        return "right"
    if little_right:
        return "left"
    return "both"


def speech_in_window(speech: Speech, start: int, end: int, reading: Reading) -> list[tuple[int, int]]:
    found = []
    for on, off in speech.segments:
        if off <= start or on >= end:
            continue
        lo, hi = on, off
        if on < start:
            who = owner(on, off, start, speech.frame_ns, reading)
            if who == "left":
                continue
            if who == "both":
                lo = start
        if off > end:
            who = owner(on, off, end, speech.frame_ns, reading)
            if who == "right":
                continue
            if who == "both":
                hi = end
        found.append((lo, hi))
    return found


# ---------------------------------------------------------------- words


def words_of(text: str) -> list[str]:
    kept = ""
    for char in unicodedata.normalize("NFKC", text):
        if char == "\N{RIGHT SINGLE QUOTATION MARK}":
            char = "'"
        if char != "'" and unicodedata.category(char).startswith("P"):
            char = " "
        kept += char
    return kept.lower().split()


def edits_between(reference: list[str], heard: list[str]) -> tuple[int, int, int]:
    """Substitutions, deletions and insertions of one cheapest way from the reference to what was heard."""
    table = [[(0, 0, 0)] * (len(heard) + 1) for _ in range(len(reference) + 1)]
    for i in range(len(reference) + 1):
        for j in range(len(heard) + 1):
            ways = []
            if i and j:
                s, d, n = table[i - 1][j - 1]
                ways.append((s + (reference[i - 1] != heard[j - 1]), d, n))
            if i:
                s, d, n = table[i - 1][j]
                ways.append((s, d + 1, n))
            if j:
                s, d, n = table[i][j - 1]
                ways.append((s, d, n + 1))
            if ways:
                table[i][j] = min(ways, key=sum)
    return table[-1][-1]


# ---------------------------------------------------------------- rounding


def in_ms(duration_ns: int) -> Rounded:
    """To 0.1 ms; half-way cases may fall on either side."""
    ticks = round_half_even(Fraction(duration_ns, NS_PER_TICK))
    off_half = abs(duration_ns % NS_PER_TICK - NS_PER_TICK // 2)
    return Rounded(Fraction(ticks, 10), off_half <= 2)


def in_s(instant_ns: int) -> float:
    return round(instant_ns / NS_PER_S, 4)


def to_four_digits(value: Fraction) -> Rounded:
    scaled = value * 10_000
    return Rounded(Fraction(round_half_even(scaled), 10_000), scaled % 1 == Fraction(1, 2))


def shown(value: Rounded | None) -> float | None:
    return None if value is None else float(value.value)


# ---------------------------------------------------------------- one session


def score_session(directory: Path, reading: Reading) -> Session:
    doc = read_json(directory / "session.json")
    scenario = doc["scenario"]
    rate, user_samples = read_track(directory / "user.wav")
    agent_rate, agent_samples = read_track(directory / "agent.wav")
    assert rate == agent_rate == doc["sample_rate"]
    vad = scenario.get("vad") or {}
    user = detect(user_samples, rate, vad.get("user") or {})
    agent = detect(agent_samples, rate, vad.get("agent") or {})
    end = ns(doc["duration_s"])

    played = {turn["id"]: turn for turn in doc["turns"]}
    starts = sorted(ns(turn["start_s"]) for turn in doc["turns"])
    turns: list[Turn] = []
    talk_over = 0
    for number, script in enumerate(scenario["turns"], start=1):
        turn_id = script.get("id", f"turn-{number}")
        if turn_id not in played:
            turns.append(not_played(turn_id, script))
            continue
        start = ns(played[turn_id]["start_s"])
        later = [other for other in starts if other > start]
        window = (start, min(later) if later else end)
        speech = speech_in_window(user, window[0], window[1], reading)
        turn = score_turn(
            script | {"id": turn_id},
            scenario.get("defaults") or {},
            played[turn_id],
            window,
            not later,
            speech,
            agent,
            doc,
        )
        turns.append(turn)
        if turn.expect == "respond":
            if reading.talk_over_in == "window":
                inside = [(max(on, window[0]), min(off, window[1])) for on, off in user.segments]
                inside = [(on, off) for on, off in inside if on < off]
            else:
                inside = speech
            talk_over += common(inside, agent.segments)

    overlap_ms = in_ms(common(user.segments, agent.segments)).value
    talk_over_ms = in_ms(talk_over).value
    return Session(
        scenario=scenario,
        shown={
            "session_id": doc["session_id"],
            "duration_s": in_s(end),
            "user_speech_ms": shown(in_ms(total(user.segments))),
            "agent_speech_ms": shown(in_ms(total(agent.segments))),
            "overlap_ms": float(overlap_ms),
            "talk_over_ms": float(talk_over_ms),
            "truncated": doc["truncated"],
            "user_segments": [[in_s(on), in_s(off)] for on, off in user.segments],
            "agent_segments": [[in_s(on), in_s(off)] for on, off in agent.segments],
            "turns": [turn.shown for turn in turns],
        },
        turns=turns,
        overlap=overlap_ms,
        talk_over=talk_over_ms,
    )


def not_played(turn_id: str, script: dict[str, Any]) -> Turn:
    line: dict[str, Any] = {
        "id": turn_id,
        "expect": script.get("expect", "respond"),
        "trigger": "not_played",
        "passed": False,
        "notes": ANY,
        "transcript": NO_TEXT,
    }
    for key in (
        "start_s",
        "end_s",
        "user_onset_s",
        "user_offset_s",
        "response_latency_ms",
        "ttfa_ms",
        "stop_ms",
        "wer",
    ):
        line[key] = None
    for key in ("responded", "talk_over", "stopped", "false_barge_in", "spurious_response"):
        line[key] = NO_FLAG
    for key in ("wer_substitutions", "wer_deletions", "wer_insertions"):
        line[key] = None
    line["wer_words"] = ANY
    return Turn(turn_id, line["expect"], False, line)


def score_turn(
    script: dict[str, Any],
    defaults: dict[str, Any],
    played: dict[str, Any],
    window: tuple[int, int],
    is_last: bool,
    speech: list[tuple[int, int]],
    agent: Speech,
    doc: dict[str, Any],
) -> Turn:
    expect = script.get("expect", "respond")
    timeout = ns_of_ms(script.get("response_timeout_ms", defaults.get("response_timeout_ms", 5000)))
    max_stop = ns_of_ms(script.get("max_stop_ms", defaults.get("max_stop_ms", 1000)))
    onset = speech[0][0] if speech else None
    offset = speech[-1][1] if speech else None

    turn = Turn(script["id"], expect, True, {})
    needs_note = played["trigger"] == "timeout" or onset is None
    reply = first_reply(agent, onset, offset, timeout)
    interrupted = playing_at(agent, onset)
    stop_ns = None
    if interrupted is not None and interrupted[1] < agent.last_frame_end_ns:
        stop_ns = interrupted[1] - onset
    stopped_in_time = stop_ns is not None and stop_ns <= max_stop

    responded: Any = ANY
    stopped: Any = ANY
    false_barge_in: Any = NO_FLAG
    spurious: Any = NO_FLAG
    stop_shown: Any = None
    if expect in ("respond", "stop") and reply is not None:
        turn.latency = in_ms(reply[0] - offset)
        turn.talk_over = reply[0] < offset
        if not turn.talk_over:
            arrival = first_packet(agent, reply, offset, doc["packets"])
            turn.ttfa = None if arrival is None else in_ms(arrival - offset)
    if expect == "respond":
        responded = turn.passed = reply is not None
        turn.missed = not turn.passed
    elif expect == "stop":
        responded = True if reply is not None else NO_FLAG
        turn.passed = stopped_in_time
        turn.stop = None if stop_ns is None else in_ms(stop_ns)
        stop_shown = shown(turn.stop)
        stopped = stopped_in_time
        if stop_ns is None:
            stopped = NO_FLAG
        elif not stopped_in_time:
            stopped = {"$either": [True, False]}  # it did stop, but not in time
        needs_note = needs_note or interrupted is None
    else:
        turn.false_barge_in = stopped_in_time
        turn.spurious = interrupted is None and reply is not None
        turn.passed = not turn.false_barge_in and not turn.spurious
        false_barge_in = True if turn.false_barge_in else NO_FLAG
        spurious = True if turn.spurious else NO_FLAG
        stop_shown = None if stop_ns is None else {"$either": [None, shown(in_ms(stop_ns))]}

    turn.shown = {
        "id": turn.id,
        "expect": expect,
        "trigger": played["trigger"],
        "start_s": in_s(ns(played["start_s"])),
        "end_s": in_s(ns(played["end_s"])),
        "user_onset_s": None if onset is None else in_s(onset),
        "user_offset_s": None if offset is None else in_s(offset),
        "responded": responded,
        "response_latency_ms": shown(turn.latency),
        "ttfa_ms": shown(turn.ttfa),
        "talk_over": True if turn.talk_over else NO_FLAG,
        "stopped": stopped,
        "stop_ms": stop_shown,
        "false_barge_in": false_barge_in,
        "spurious_response": spurious,
        "passed": turn.passed,
        "notes": NONEMPTY if needs_note else ANY,
    }
    turn.shown.update(score_words(turn, script.get("text"), window, is_last, doc["transcripts"]))
    return turn


def first_reply(agent: Speech, onset: int | None, offset: int | None, timeout: int) -> tuple[int, int] | None:
    """The first agent segment that starts after the user's onset and no later than the timeout after the offset."""
    if onset is None or offset is None:
        return None
    for segment in agent.segments:
        if segment[0] > onset and segment[0] <= offset + timeout:
            return segment
    return None


def playing_at(agent: Speech, instant: int | None) -> tuple[int, int] | None:
    """Started exactly then: was playing. Ended exactly then: was not."""
    if instant is None:
        return None
    for segment in agent.segments:
        if segment[0] <= instant and segment[1] > instant:
            return segment
    return None


def first_packet(agent: Speech, reply: tuple[int, int], offset: int, packets: list[dict[str, Any]]) -> int | None:
    floor = offset
    for segment in agent.segments:
        if segment[0] < reply[0]:
            floor = max(floor, segment[1])
    arrivals = []
    for packet in packets:
        time = ns(packet["time_s"])
        if Decimal(packet["level_db"]) > PACKET_FLOOR_DB and time >= floor and time <= reply[1]:
            arrivals.append(time)
    return min(arrivals) if arrivals else None


def score_words(
    turn: Turn, text: str | None, window: tuple[int, int], is_last: bool, transcripts: list[dict[str, Any]]
) -> dict[str, Any]:
    heard = []
    for entry in transcripts:
        time = ns(entry["time_s"])
        inside = time >= window[0] and (time < window[1] or (is_last and time == window[1]))
        if entry["role"] == "user" and entry["final"] and inside:
            heard.append(entry["text"])
    joined = " ".join(heard)
    nothing = {"wer": None, "wer_substitutions": None, "wer_deletions": None, "wer_insertions": None, "wer_words": ANY}
    if not heard:
        return nothing | {"transcript": NO_TEXT}
    line = {"transcript": {"$words": joined}}
    if text is None:
        line["transcript"] = {"$either": [None, "", {"$words": joined}]}
        return line | nothing
    reference, hypothesis = words_of(text), words_of(joined)
    substitutions, deletions, insertions = edits_between(reference, hypothesis)
    turn.edits = substitutions + deletions + insertions
    turn.words = len(reference)
    if reference:
        turn.wer = to_four_digits(Fraction(turn.edits, turn.words))
    else:
        turn.wer = to_four_digits(Fraction(1 if hypothesis else 0))
    line["wer"] = shown(turn.wer)
    line["wer_words"] = turn.words
    # The cheapest way is not unique (a substitution and a deletion may trade places with others of the same sum):
    # the comparer holds them to their sum and to the difference in length.
    line["wer_substitutions"] = {"$edits": [turn.edits, len(reference) - len(hypothesis)]}
    line["wer_deletions"] = ANY
    line["wer_insertions"] = ANY
    return line


# ---------------------------------------------------------------- many sessions


def percentile(values: list[Fraction], percent: Fraction) -> Fraction | None:
    """Linear interpolation between closest ranks."""
    if not values:
        return None
    ranked = sorted(values)
    place = (len(ranked) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (ranked[above] - ranked[below]) * (place - below)


def mean(values: list[Fraction]) -> Fraction | None:
    return sum(values, Fraction(0)) / len(values) if values else None


def statistic(name: str, values: list[Fraction]) -> Fraction | None:
    if name == "mean":
        return mean(values)
    if name == "max":
        return max(values, default=None)
    return percentile(values, Fraction(name.removeprefix("p")))


def summarize(sessions: list[Session]) -> Summary:
    every = [turn for session in sessions for turn in session.turns]
    turns = [turn for turn in every if turn.played]
    respond = [turn for turn in turns if turn.expect == "respond"]
    stop = [turn for turn in turns if turn.expect == "stop"]
    noise = [turn for turn in turns if turn.expect == "ignore"]
    values = {
        "response_latency_ms": [turn.latency for turn in respond if turn.latency is not None],
        "ttfa_ms": [turn.ttfa for turn in respond if turn.ttfa is not None],
        "barge_in_stop_ms": [turn.stop for turn in stop if turn.stop is not None],
    }
    counts = {
        "false_barge_ins": sum(turn.false_barge_in for turn in noise),
        "spurious_responses": sum(turn.spurious for turn in noise),
        "missed_responses": sum(turn.missed for turn in respond),
        "talk_overs": sum(turn.talk_over for turn in respond),
    }
    success = Fraction(sum(turn.passed for turn in stop), len(stop)) if stop else None
    success_rounded = None if success is None else to_four_digits(success)
    wers = [turn.wer for turn in turns if turn.wer is not None]
    mean_wer = mean([wer.value for wer in wers])
    edits = sum(turn.edits for turn in turns)
    words = sum(turn.words for turn in turns)
    if not wers:
        pooled: Any = None
    elif words:
        pooled = float(Fraction(edits, words))
    else:
        pooled = {"$either": [None, 1.0 if edits else 0.0]}  # texts without a single word: nothing to divide by

    distributions: dict[str, Any] = {}
    for metric, found in values.items():
        plain = [value.value for value in found]
        line: dict[str, Any] = {"count": len(plain)}
        for key in ("min", "p50", "p90", "p95", "p99", "max", "mean"):
            value = min(plain, default=None) if key == "min" else statistic(key, plain)
            line[key] = None if value is None else float(value)
        distributions[metric] = line
    named: dict[str, Rounded | None] = {f"max_{key}": Rounded(Fraction(count), False) for key, count in counts.items()}
    named["min_barge_in_success_rate"] = success_rounded
    named["max_wer"] = None if mean_wer is None else Rounded(mean_wer, any(wer.fragile for wer in wers))
    # Nothing in these bundles says that a session failed or that we were late.
    named["max_failed_session_rate"] = Rounded(Fraction(0), False)
    named["max_unreliable_turn_rate"] = Rounded(Fraction(0), False) if turns else None
    return Summary(
        shown={
            "sessions": len(sessions),
            "turns": len(every),
            "turns_passed": sum(turn.passed for turn in every),
            **distributions,
            **counts,
            "barge_in_turns": len(stop),
            "barge_in_success_rate": shown(success_rounded),
            "noise_turns": len(noise),
            "mean_wer": None if mean_wer is None else float(mean_wer),
            "pooled_wer": pooled,
            "overlap_ms": float(sum((session.overlap for session in sessions), Fraction(0))),
            "talk_over_ms": float(sum((session.talk_over for session in sessions), Fraction(0))),
        },
        values=values,
        named=named,
    )


def actual_of(name: str, summary: Summary) -> Rounded | None:
    """The value an assertion speaks of; None when there is none."""
    if name in summary.named:
        return summary.named[name]
    match = re.fullmatch(r"(mean|max|p\d\d(?:\.\d)?)_(response_latency_ms|ttfa_ms|barge_in_stop_ms)", name)
    assert match, name
    found = summary.values[match[2]]
    value = statistic(match[1], [each.value for each in found])
    return None if value is None else Rounded(value, any(each.fragile for each in found))


def judge(name: str, limit: Any, summary: Summary) -> dict[str, Any]:
    actual = actual_of(name, summary)
    line = {"name": name, "limit": float(limit), "actual": shown(actual), "passed": False}
    if actual is None:
        return line
    bound = Fraction(limit)
    line["passed"] = actual.value >= bound if name.startswith("min_") else actual.value <= bound
    step = Fraction(1, 10) if name.endswith("_ms") else Fraction(1, 10_000)
    if actual.fragile and abs(actual.value - bound) <= step:
        line["passed"] = {"$either": [True, False]}
    return line


def score(paths: list[Path], reading: Reading = READINGS[0]) -> tuple[dict[str, Any], Any]:
    """What the command has to print for these bundles, and its exit code (a marker where both would be right)."""
    sessions = [score_session(Path(path), reading) for path in paths]
    assertions = []
    groups: list[list[Session]] = []
    for session in sessions:  # a scenario's limits speak of its own sessions
        for group in groups:
            if group[0].scenario == session.scenario:
                group.append(session)
                break
        else:
            groups.append([session])
    for group in groups:
        summary = summarize(group)
        for name, limit in (group[0].scenario.get("assert") or {}).items():
            assertions.append(judge(name, limit, summary))
    verdicts = [line["passed"] for line in assertions]
    if False in verdicts:
        exit_code: Any = 1
    elif all(verdict is True for verdict in verdicts):
        exit_code = 0
    else:
        exit_code = {"$either": [0, 1]}
    output = {
        "sessions": [session.shown for session in sessions],
        "summary": summarize(sessions).shown,
        "assertions": assertions,
    }
    return output, exit_code


# ---------------------------------------------------------------- comparing


def tolerance(key: str) -> float:
    """Times agree within 0.11 ms, rates within 0.0006; counts and limits exactly."""
    if key.endswith(("_ms", "/ms")):
        return 0.11
    if key.endswith(("_s", "/s")):
        return 0.00011
    if "wer" in key or "rate" in key:
        return 0.0006
    return 1e-9


def differences(expected: Any, found: Any, key: str = "", path: str = "$") -> list[str]:
    """All places where what was found is not what was expected, a line each; empty when they agree.

    Keys that the expected value doesn't have are not looked at. `key` is the name whose unit applies.
    """
    if isinstance(expected, dict):
        if "$any" in expected:
            return []
        if "$nonempty" in expected:
            return [] if found else [f"{path}: must not be empty, found {found!r}"]
        if "$either" in expected:
            if any(not differences(choice, found, key, path) for choice in expected["$either"]):
                return []
            return [f"{path}: expected one of {expected['$either']}, found {found!r}"]
        if "$words" in expected:
            if isinstance(found, str) and found.split() == expected["$words"].split():
                return []
            return [f"{path}: expected {expected['$words']!r}, found {found!r}"]
        if not isinstance(found, dict):
            return [f"{path}: expected an object, found {found!r}"]
        lines = []
        for name, value in expected.items():
            if isinstance(value, dict) and "$edits" in value:
                lines += edit_differences(value["$edits"], found, path)
            elif name not in found:
                lines.append(f"{path}.{name}: missing")
            else:
                # a distribution's min, p50, ... have the unit of the distribution; its count has none
                unit = name if not key.endswith(("_ms", "_s")) else ("" if name == "count" else key)
                if key == "assertion" and name == "actual":
                    unit = str(expected["name"])
                lines += differences(value, found[name], unit, f"{path}.{name}")
        return lines
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            return [f"{path}: expected {expected}, found {found!r}"]
        unit = {"user_segments": "/s", "agent_segments": "/s", "assertions": "assertion"}.get(key, key)
        return [
            line
            for index, (one, other) in enumerate(zip(expected, found, strict=True))
            for line in differences(one, other, unit, f"{path}[{index}]")
        ]
    if isinstance(expected, bool) or expected is None or isinstance(expected, str):
        same = type(found) is type(expected) and found == expected
    else:
        same = (
            isinstance(found, int | float)
            and not isinstance(found, bool)
            and abs(float(found) - float(expected)) <= tolerance(key) + 1e-9
        )
    return [] if same else [f"{path}: expected {expected!r}, found {found!r}"]


def edit_differences(wanted: list[int], found: dict[str, Any], path: str) -> list[str]:
    edits, length_difference = wanted
    kinds = [found.get(f"wer_{kind}") for kind in ("substitutions", "deletions", "insertions")]
    good = (
        all(type(kind) is int and kind >= 0 for kind in kinds)
        and sum(kinds) == edits
        and kinds[1] - kinds[2] == length_difference
    )
    if good:
        return []
    return [f"{path}: {edits} edits, deletions - insertions = {length_difference}, found {kinds}"]
