"""Hold our scores against those of the single-machine package voicebench 0.2.0 ("the peer"), turn by turn.

    .venv/bin/python tests/support/compare_with_peer.py PEER_PYTHON [--cases 300] [--first 0] [--live 40]

PEER_PYTHON is the interpreter of an environment that holds the peer and not this package. Three kinds of sessions are
scored by both: the golden recordings, random recordings (`random_bundles`), and sessions that `voicebench run` held
with the mock agent. Those last scenarios the peer also runs by itself, with its own mock agent ("held by each").

Every value that differs must have a reason from docs/differences.md whose condition holds in that very turn; one that
has none is printed, and the exit code is then 1. Exit 2: the comparison itself could not be made.

With `--as-peer` this file is the other side: it runs in the peer's environment, knows nothing of this package, and
prints what the peer makes of the bundles named on stdin.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
PEER_VERSION = "0.2.0"
EPS_S = 1e-6
MS_TOLERANCE = 0.11  # both round to 0.1 ms, once from a float and once from a whole nanosecond
S_TOLERANCE = 1.1e-4
RATE_TOLERANCE = 1.1e-4

# ---------------------------------------------------------------- the peer's side


def peer_main() -> None:
    """Reads lines of JSON {"bundle": DIR} or {"run": FILE}, prints one line of JSON each."""
    import yaml

    from voicebench import __version__

    if __version__ != PEER_VERSION:
        raise SystemExit(f"this environment holds voicebench {__version__}, not {PEER_VERSION}")
    for line in sys.stdin:
        job = json.loads(line)
        if "bundle" in job:
            record = peer_record(Path(job["bundle"]))
        else:
            record = peer_session(yaml.safe_load(Path(job["run"]).read_text(encoding="utf-8")))
        print(json.dumps(peer_scores(record)), flush=True)


def peer_scores(record: Any) -> dict[str, Any]:
    from voicebench.metrics import analyze, summarize

    metrics = analyze(record)
    return {"session": metrics.to_dict(), "summary": summarize([metrics])}


def peer_scenario(document: dict[str, Any]) -> Any:
    """The peer's scenario, made by its own parser from what it knows of the document."""
    from voicebench.scenario import parse_scenario

    known = {key: value for key, value in document.items() if key not in ("assert", "adapter")}
    known["adapter"] = {"type": "mock", "options": document.get("adapter", {}).get("options", {})}
    # Scoring needs no audio sources, and the recording may name files that are not there.
    known["turns"] = [{**turn, "audio": _peer_audio(turn["audio"])} for turn in document["turns"]]
    return parse_scenario(known)


def _peer_audio(audio: dict[str, Any]) -> dict[str, Any]:
    return audio if "synth" in audio else {"synth": "silence"}


def peer_record(directory: Path) -> Any:
    from voicebench.adapters.base import Transcript
    from voicebench.runner import Packet, SessionRecord, TurnWindow

    from voicebench.audio import read_wav

    document = json.loads((directory / "session.json").read_text(encoding="utf-8"))
    scenario = peer_scenario(document["scenario"])
    turns = {turn.id: turn for turn in scenario.turns}
    rate_hz = document["sample_rate"]
    return SessionRecord(
        scenario=scenario,
        adapter={},
        clock=document["clock"],
        user_track=read_wav(directory / "user.wav", rate_hz),
        agent_track=read_wav(directory / "agent.wav", rate_hz),
        windows=[
            TurnWindow(turns[played["id"]], played["start_s"], played["end_s"], played["trigger"])
            for played in document["turns"]
        ],
        # Its runner keeps only packets above this level, so a recording of its own would hold no others.
        packets=[
            Packet(packet["time_s"], packet["level_db"], packet["duration_s"])
            for packet in document["packets"]
            if packet["level_db"] > -70.0
        ],
        clears=[clear["time_s"] for clear in document["clears"]],
        transcripts=[
            Transcript(said["role"], said["text"], said["time_s"], said["final"]) for said in document["transcripts"]
        ],
        truncated=document["truncated"],
    )


def peer_session(document: dict[str, Any]) -> Any:
    import asyncio

    from voicebench.adapters import create_adapter
    from voicebench.runner import run

    scenario = peer_scenario(document)
    return asyncio.run(run(scenario, create_adapter("mock", scenario.adapter.options)))


# ---------------------------------------------------------------- our side

Reason = str
EDGES = "the user's speech is taken from the turn's whole window and cut at its edges"
LIMIT = "a reply counts until its time-out, also when the next turn has begun"
TTFA = "first audio counts up to the reply's end"
NEVER_STOPPED = "an agent heard up to the last analysis frame has not stopped"
UNHEARD = "a turn whose user speech was not detected is still judged"
LAST_INSTANT = "a transcript at the session's very end belongs to the last turn"
WORDS = "what counts as a word"
NOT_PLAYED = "turns that never played or were broken off are in no count but `turns`"
FRAMES = "durations count in nominal analysis frames"
TIES = "a level exactly on a threshold reaches it"
TALK_OVER = "talk-over is counted in the turn's part of the user's speech"
NULLS = "what does not apply to a turn is null"
ONE_FRAME = "the session ends with the last frame that was due, not one later"
TAIL = "the session waits for the last turn's answer or its time-out"
TRUNCATED = "a session is truncated only when a turn did not play"
DECIMAL = "time is compared in decimals, without float noise"
FOLLOWS = "follows from another difference in the same turn"


@dataclass
class Findings:
    """What was compared, and what came out."""

    sessions: Counter[str] = field(default_factory=Counter)
    turns: Counter[str] = field(default_factory=Counter)
    same_turns: Counter[str] = field(default_factory=Counter)
    values: Counter[str] = field(default_factory=Counter)
    numbers: Counter[tuple[str, str]] = field(default_factory=Counter)
    same_numbers: Counter[tuple[str, str]] = field(default_factory=Counter)
    reasons: Counter[tuple[str, Reason]] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)


@dataclass
class Session:
    """One session as both see it."""

    kind: str
    name: str
    document: dict[str, Any]  # session.json
    ours: dict[str, Any]
    theirs: dict[str, Any]
    on_threshold: bool

    @property
    def ended_sooner_there(self) -> bool:
        """Whether the peer, holding it by itself, hung up while the last turn could still be answered."""
        ours, theirs = self.ours["session"], self.theirs["session"]
        longer_s = ours["duration_s"] - theirs["duration_s"]
        return self.kind == "held by each" and longer_s > 0 and ours["turns"][-1]["start_s"] is not None

    def detector(self, track: str, key: str, default: float) -> float:
        return self.document["scenario"].get("vad", {}).get(track, {}).get(key, default)

    @property
    def crooked(self) -> bool:
        """Whether an analysis frame is no whole number of samples, so that its real length is not its nominal one."""
        rate_hz = self.document["sample_rate"]
        frames = [self.detector(track, "frame_ms", 10.0) * rate_hz / 1000.0 for track in ("user", "agent")]
        return any(abs(frame - round(frame)) > 1e-6 for frame in frames)


def compare_session(session: Session, found: Findings) -> None:
    ours, theirs = session.ours["session"], session.theirs["session"]
    kind = session.kind
    found.sessions[kind] += 1
    if session.ended_sooner_there:
        note(found, session, "duration_s", ours["duration_s"], theirs["duration_s"], TAIL)
    elif not same_segments(ours, theirs):
        for side in ("user_segments", "agent_segments"):
            if ours[side] != theirs[side]:
                note(found, session, side, ours[side], theirs[side], segments_reason(session, side))
        return  # what is measured on other speech cannot agree
    unequal = 0
    for index, turn in enumerate(ours["turns"]):
        differing = list(compare_turn(session, index, turn, theirs["turns"][index], found))
        found.turns[kind] += 1
        found.same_turns[kind] += not differing
        unequal += bool(differing)
    if not session.ended_sooner_there:
        compare_totals(session, found)
        if not unequal:
            compare_summary(session, found)


def same_segments(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    return all(
        len(ours[side]) == len(theirs[side])
        and all(
            abs(a - b) < S_TOLERANCE
            for one, other in zip(ours[side], theirs[side], strict=True)
            for a, b in zip(one, other, strict=True)
        )
        for side in ("user_segments", "agent_segments")
    )


def segments_reason(session: Session, side: str) -> Reason | None:
    ours, theirs = session.ours["session"], session.theirs["session"]
    if session.on_threshold:
        return TIES
    if session.crooked:
        return FRAMES
    cut = [[start, min(end, ours["duration_s"])] for start, end in theirs[side]]
    return ONE_FRAME if duration_reason(session) == ONE_FRAME and cut == ours[side] else None


TURN_KEYS = {
    "trigger": None,
    "start_s": S_TOLERANCE,
    "end_s": S_TOLERANCE,
    "user_onset_s": S_TOLERANCE,
    "user_offset_s": S_TOLERANCE,
    "responded": None,
    "response_latency_ms": MS_TOLERANCE,
    "ttfa_ms": MS_TOLERANCE,
    "talk_over": None,
    "stopped": None,
    "stop_ms": MS_TOLERANCE,
    "false_barge_in": None,
    "spurious_response": None,
    "transcript": None,
    "wer": RATE_TOLERANCE,
    "passed": None,
}
MEASURED = ("response_latency_ms", "ttfa_ms", "stop_ms", "wer")
THEIR_NAMES = {"stop_ms": "stop_latency_ms"}
NOT_FOR = {  # what says nothing on such a turn is null here, and may be false or left over there
    "respond": ("stopped", "stop_ms", "false_barge_in", "spurious_response"),
    "stop": ("false_barge_in", "spurious_response"),
    "ignore": ("responded", "response_latency_ms", "ttfa_ms", "talk_over", "stopped", "stop_ms"),
}


def compare_turn(
    session: Session, index: int, ours: dict[str, Any], theirs: dict[str, Any], found: Findings
) -> Iterator[str]:
    """Yields the keys that differ for another reason than null against false."""
    reasons: dict[str, Reason | None] = {}
    for key, tolerance in TURN_KEYS.items():
        mine, other = ours[key], theirs[THEIR_NAMES.get(key, key)]
        found.values[session.kind] += 1
        equal = same(mine, other, tolerance)
        if key in MEASURED and mine is not None and other is not None:
            found.numbers[(session.kind, key)] += 1
            found.same_numbers[(session.kind, key)] += equal
        if equal:
            continue
        reasons[key] = reason_for(session, index, key, ours, theirs)
        if reasons[key] is None and follows(key, reasons):
            reasons[key] = FOLLOWS
        note(found, session, f"{ours['id']}.{key}", mine, other, reasons[key])
        if reasons[key] != NULLS:
            yield key


def follows(key: str, reasons: dict[str, Reason | None]) -> bool:
    """Whether a value rests on one that differs for a reason: all on the user's edges, verdicts on what they judge."""
    told = {key for key, reason in reasons.items() if reason not in (None, NULLS)}
    if told & {"user_onset_s", "user_offset_s"}:
        return True
    return key in ("passed", "stopped", "talk_over", "response_latency_ms", "ttfa_ms") and bool(told - {"trigger"})


def reason_for(session: Session, index: int, key: str, ours: dict[str, Any], theirs: dict[str, Any]) -> Reason | None:
    """The difference of docs/differences.md whose condition holds here."""
    if ours["status"] in ("not_played", "unfinished"):
        return NOT_PLAYED
    mine, other = ours[key], theirs[THEIR_NAMES.get(key, key)]
    if mine is None and (key in NOT_FOR[ours["expect"]] or (other is False and key == "talk_over")):
        return NULLS
    record = session.ours["session"]
    played = [turn for turn in record["turns"] if turn["start_s"] is not None]
    next_start_s = next((turn["start_s"] for turn in record["turns"][index + 1 :] if turn["start_s"] is not None), None)
    last = played[-1]["id"] == ours["id"]
    if key in ("user_onset_s", "user_offset_s"):
        return EDGES if edge_there(record["user_segments"], ours, key, other) else None
    unheard = ours["user_onset_s"] is None or theirs["user_onset_s"] is None
    if last and session.ended_sooner_there and not unheard:
        return TAIL
    if key == "wer" and ours["transcript"] == theirs["transcript"]:
        text = session.document["scenario"]["turns"][index].get("text", "")
        return WORDS if words_in_dispute(text) or words_in_dispute(ours["transcript"]) else None
    if key in ("transcript", "wer"):
        if unheard:
            return UNHEARD
        at_end = [said["time_s"] for said in session.document["transcripts"]]
        return LAST_INSTANT if last and any(at_s >= session.document["duration_s"] for at_s in at_end) else None
    if unheard:
        return UNHEARD
    return reason_in_speech(session, key, ours, other, next_start_s)


def reason_in_speech(
    session: Session, key: str, ours: dict[str, Any], other: Any, next_start_s: float | None
) -> Reason | None:
    agent = session.ours["session"]["agent_segments"]
    onset_s = ours["user_onset_s"]
    if key in ("talk_over", "ttfa_ms") and ours["response_latency_ms"] == 0.0:
        return DECIMAL  # there it is -0.0000000001 for some, which takes the first audio away as well
    reply = next((segment for segment in agent if segment[0] > onset_s + EPS_S), None)
    # There, such a reply does not exist.
    gone = other is None or other is False
    late = gone and next_start_s is not None and reply is not None and reply[0] > next_start_s - S_TOLERANCE
    if key in ("responded", "response_latency_ms", "spurious_response") and late:
        return LIMIT
    if key == "ttfa_ms" and reply is not None:
        return LIMIT if late else ttfa_reason(session, ours, reply, next_start_s)
    playing = next((segment for segment in agent if segment[0] <= onset_s + EPS_S < segment[1]), None)
    if key in ("stopped", "stop_ms", "false_barge_in") and playing is not None:
        return NEVER_STOPPED if playing[1] >= heard_until_s(session) - S_TOLERANCE else None
    return None


def ttfa_reason(
    session: Session, ours: dict[str, Any], reply: list[float], next_start_s: float | None
) -> Reason | None:
    """The first packet with sound decides; the two differ in the time up to which it counts."""
    agent, offset_s = session.ours["session"]["agent_segments"], ours["user_offset_s"]
    earliest_s = max([offset_s, *(end for _, end in agent if end <= reply[0])])
    audible = [packet["time_s"] for packet in session.document["packets"] if packet["level_db"] > -70.0]
    first_s = min((at_s for at_s in audible if at_s >= earliest_s - S_TOLERANCE), default=None)
    if first_s is None:
        return None
    timeout_ms = scripted(session, ours["id"], "response_timeout_ms", 5000.0)
    limit_s = min(next_start_s or 1e9, offset_s + timeout_ms / 1000.0)
    # Segments are printed with 4 digits: on a limit, either may have been meant.
    close = min(abs(first_s - reply[1]), abs(first_s - limit_s)) < S_TOLERANCE
    return TTFA if close or (first_s <= reply[1]) != (first_s <= limit_s) else None


def scripted(session: Session, turn_id: str, key: str, default: float) -> float:
    scenario = session.document["scenario"]
    for number, turn in enumerate(scenario["turns"], start=1):
        if turn.get("id", f"turn-{number}") == turn_id:
            return float(turn.get(key, scenario.get("defaults", {}).get(key, default)))
    raise KeyError(turn_id)


def heard_until_s(session: Session) -> float:
    rate_hz = session.document["sample_rate"]
    frame = max(1, round(session.detector("agent", "frame_ms", 10.0) * rate_hz / 1000.0))
    samples = round(session.theirs["session"]["duration_s"] * rate_hz)
    return samples // frame * frame / rate_hz


def heard_there(segments: list[list[float]], turn: dict[str, Any]) -> Iterator[list[list[float]]]:
    """The user's speech that the peer takes for a turn's: whole segments that sound while its audio plays.

    Yields the possible readings: printed with 4 digits, a segment that touches the audio may or may not overlap it.
    """
    for slack_s in (-S_TOLERANCE, S_TOLERANCE):
        for other_s in (-S_TOLERANCE, S_TOLERANCE):
            yield [
                [start, end]
                for start, end in segments
                if end > turn["start_s"] + slack_s and start < turn["end_s"] + other_s
            ]


def edge_there(segments: list[list[float]], turn: dict[str, Any], key: str, value: float | None) -> bool:
    """Whether the peer's onset or offset is what its own reading of the same segments gives."""
    for own in heard_there(segments, turn):
        expected = None if not own else own[0][0] if key == "user_onset_s" else own[-1][1]
        if same(value, expected, S_TOLERANCE):
            return True
    return False


def talk_over_there_ms(record: dict[str, Any]) -> tuple[float, float]:
    """The smallest and largest talk-over by the peer's reading: of whole segments, in respond turns."""
    low = high = 0.0
    for turn in record["turns"]:
        if turn["expect"] == "respond" and turn["start_s"] is not None:
            sums = [overlap_ms(own, record["agent_segments"]) for own in heard_there(record["user_segments"], turn)]
            low, high = low + min(sums), high + max(sums)
    return low, high


def overlap_ms(some: list[list[float]], others: list[list[float]]) -> float:
    return sum(1000.0 * max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in some for b in others)


def words_in_dispute(text: str) -> bool:
    """Whether a text holds what one keeps and the other drops: symbols, marks, underscores, apostrophes at edges."""
    plain = unicodedata.normalize("NFKC", text).lower()
    if any(char in "_\N{RIGHT SINGLE QUOTATION MARK}" for char in plain):
        return True
    if any(unicodedata.category(char)[0] in "SMC" for char in plain.replace("\n", " ").replace("\t", " ")):
        return True
    return any(word.startswith("'") or word.endswith("'") for word in apart(plain))


def apart(text: str) -> list[str]:
    return "".join(char if char == "'" or char.isalnum() else " " for char in text).split()


def compare_totals(session: Session, found: Findings) -> None:
    ours, theirs = session.ours["session"], session.theirs["session"]
    for key in ("user_speech_ms", "agent_speech_ms", "overlap_ms", "truncated"):
        found.values[session.kind] += 1
        if not same(ours[key], theirs[key], MS_TOLERANCE):
            all_played = all(turn["start_s"] is not None for turn in ours["turns"])
            reason = TRUNCATED if key == "truncated" and theirs[key] and all_played else None
            note(found, session, key, ours[key], theirs[key], reason)
    found.values[session.kind] += 2
    if not same(ours["duration_s"], theirs["duration_s"], S_TOLERANCE):
        note(found, session, "duration_s", ours["duration_s"], theirs["duration_s"], duration_reason(session))
    if not same(ours["talk_over_ms"], theirs["talk_over_ms"], MS_TOLERANCE):
        low, high = talk_over_there_ms(ours)
        as_there = low - 1.0 <= theirs["talk_over_ms"] <= high + 1.0
        note(
            found,
            session,
            "talk_over_ms",
            ours["talk_over_ms"],
            theirs["talk_over_ms"],
            TALK_OVER if as_there else None,
        )


def duration_reason(session: Session) -> Reason | None:
    if session.kind != "held by each":
        return None
    ours, scenario = session.ours["session"], session.document["scenario"]
    frame_s = scenario.get("frame_ms", 20.0) / 1000.0
    frames_longer = round((session.theirs["session"]["duration_s"] - ours["duration_s"]) / frame_s, 2)
    tail_over_s = ours["turns"][-1]["end_s"] and ours["turns"][-1]["end_s"] + scenario.get("tail_ms", 3000.0) / 1000.0
    if frames_longer == 2.0 and tail_over_s is not None and abs(tail_over_s - ours["duration_s"]) < S_TOLERANCE:
        return DECIMAL  # the tail was over at this very tick; in floats it is a hair later
    return ONE_FRAME if frames_longer == 1.0 else None


SUMMARY_COUNTS = (
    "sessions", "turns", "turns_passed", "missed_responses", "talk_overs", "barge_in_turns", "noise_turns",
    "false_barge_ins", "spurious_responses",
)  # fmt: skip


def compare_summary(session: Session, found: Findings) -> None:
    """Sessions whose turns all agree must be summed up alike, but for the peer's rounding of statistics to 0.1 ms."""
    ours, theirs = session.ours["summary"], session.theirs["summary"]
    pairs = [(key, ours[key], theirs[key], None) for key in SUMMARY_COUNTS]
    pairs += [(key, ours[key], theirs[key], RATE_TOLERANCE) for key in ("barge_in_success_rate", "mean_wer")]
    for metric in ("response_latency_ms", "ttfa_ms", "barge_in_stop_ms"):
        for stat in ("count", "min", "p50", "p90", "max", "mean"):
            pairs.append((f"{metric}.{stat}", ours[metric][stat], theirs[metric][stat], MS_TOLERANCE))
    for key, mine, other, tolerance in pairs:
        found.values[session.kind] += 1
        if not same(mine, other, tolerance):
            note(found, session, f"summary.{key}", mine, other, None)


def same(mine: Any, other: Any, tolerance: float | None) -> bool:
    if tolerance is None or mine is None or other is None or isinstance(mine, bool):
        return bool(mine == other)
    return abs(mine - other) <= tolerance


def note(found: Findings, session: Session, where: str, mine: Any, other: Any, reason: Reason | None) -> None:
    if reason is None:
        found.unexplained.append(f"{session.name}: {where}: here {mine!r}, there {other!r}")
    else:
        found.reasons[(session.kind, reason)] += 1


# ---------------------------------------------------------------- making and scoring sessions


def score_here(directory: Path) -> dict[str, Any]:
    from voicebench.bundle_files import read_bundle
    from voicebench.score_document import add_up, score_document
    from voicebench.scoring import score

    record = score(read_bundle(directory))
    document = json.loads(json.dumps(score_document([record], add_up([record], {}))))
    return {"session": document["sessions"][0], "summary": document["summary"]}


def level_lies_on_a_threshold(directory: Path) -> bool:
    """Whether any analysis frame is within a hair of a limit, where float and integer arithmetic may part."""
    import numpy as np

    from voicebench.audio.level import frame_energies
    from voicebench.bundle_files import read_bundle
    from voicebench.vad import frame_rule

    recording = read_bundle(directory)
    scenario = recording.scenario
    for track, settings in ((recording.user, scenario.vad_user), (recording.agent, scenario.vad_agent)):
        rule = frame_rule(scenario.sample_rate, settings)
        energies = frame_energies(track, rule.frame_samples)
        for limit in (rule.open_energy, rule.hold_energy):
            if np.any(np.abs(energies - limit) <= 1e-6 * limit):
                return True
    return False


def random_recordings(folder: Path, first: int, cases: int) -> Iterator[Path]:
    sys.path.insert(0, str(TESTS.parent))
    from tests.support.random_bundles import random_case

    for seed in range(first, first + cases):
        for number, bundle in enumerate(random_case(seed)):
            yield bundle.write(folder / f"random-{seed}-{number}")


def live_scenario(seed: int) -> dict[str, Any]:
    """A conversation with the mock agent that both can hold; what it draws are the ways such a call can go."""
    rng = random.Random(seed)

    def turn(number: int) -> dict[str, Any]:
        kind = rng.choice(("respond", "respond", "stop", "ignore")) if number else "respond"
        after = {"respond": ("agent_speech_end", "previous_turn_end", "agent_speech_start")}.get(
            kind, ("agent_speech_start",)
        )
        sound = {"synth": "noise", "duration_ms": 180, "level_db": -25} if kind == "ignore" else {
            "synth": "speech", "duration_ms": rng.choice((600, 900, 1300, 1800)), "seed": number,
        }  # fmt: skip
        start = {"after": rng.choice(after) if number else "session_start", "delay_ms": rng.choice((0, 300, 500, 800))}
        text = {} if kind == "ignore" else {"text": f"this is sentence number {number}, isn't it?"}
        return {"id": f"t{number}", "audio": sound, "expect": kind, "start": {**start, "timeout_ms": 4000}, **text}

    return {
        "name": f"live {seed}",
        "sample_rate": rng.choice((8000, 16000, 24000, 48000)),
        "frame_ms": rng.choice((10, 20, 20, 40)),
        "tail_ms": rng.choice((0, 500, 3000)),
        "max_duration_ms": rng.choice((6000, 60000, 60000)),
        "defaults": {"response_timeout_ms": rng.choice((600, 2000, 5000)), "max_stop_ms": rng.choice((200, 800))},
        "adapter": {
            "type": "mock",
            "options": {
                "endpoint_silence_ms": rng.choice((200, 300)),
                "response_delay_ms": rng.choice((100, 400, 1500)),
                "jitter_ms": rng.choice((0, 137, 600)),
                "response_ms": rng.choice((700, 1500, 2500)),
                "greeting_ms": rng.choice((0, 0, 900)),
                "interruptible": rng.random() < 0.8,
                "barge_in_min_ms": rng.choice((100, 250)),
                "transcripts": [f"this is sentence number {number}" for number in range(rng.randint(0, 4))],
                "seed": seed,
            },
        },
        "turns": [turn(number) for number in range(rng.randint(1, 5))],
    }


def held_here(folder: Path, seed: int) -> tuple[Path, Path]:
    """A scenario file and the bundle of the session that `voicebench run` held with it."""
    import yaml

    file = folder / f"live-{seed}.yaml"
    file.write_text(yaml.safe_dump(live_scenario(seed)), encoding="utf-8")
    out = folder / f"live-{seed}"
    command = [sys.executable, "-m", "voicebench", "run", str(file), "--record", "all", "--out", str(out), "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    bundles = sorted((out / "bundles").glob("*")) if out.exists() else []
    if len(bundles) != 1:
        raise SystemExit(f"voicebench run held no session of {file}: {done.stderr}")
    return file, bundles[0]


class Peer:
    """The other side as a process: one line in, one line out."""

    def __init__(self, python: str) -> None:
        command = [python, "-I", str(Path(__file__).resolve()), "--as-peer"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **job: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            print(f"the peer failed on {job}; is its environment right?", file=sys.stderr)
            raise SystemExit(2)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def seen_by_both(kind: str, bundle: Path, theirs: dict[str, Any]) -> Session:
    document = json.loads((bundle / "session.json").read_text(encoding="utf-8"))
    on_threshold = level_lies_on_a_threshold(bundle)
    return Session(kind, bundle.name, document, score_here(bundle), theirs, on_threshold)


def compare_all(peer: Peer, folder: Path, first: int, cases: int, live: int) -> Findings:
    found = Findings()
    for path in sorted((TESTS / "golden").glob("*/expected.json")):
        compare_session(seen_by_both("golden", path.parent, peer.ask(bundle=str(path.parent))), found)
    for bundle in random_recordings(folder, first, cases):
        compare_session(seen_by_both("random", bundle, peer.ask(bundle=str(bundle))), found)
    for seed in range(first, first + live):
        file, bundle = held_here(folder, seed)
        compare_session(seen_by_both("held here", bundle, peer.ask(bundle=str(bundle))), found)
        compare_session(seen_by_both("held by each", bundle, peer.ask(run=str(file))), found)
    return found


def report(found: Findings) -> None:
    print(f"{'':14}{'sessions':>10}{'turns':>8}{'equal':>8}{'values':>9}")
    for kind in found.sessions:
        numbers = (found.sessions[kind], found.turns[kind], found.same_turns[kind], found.values[kind])
        print(f"{kind:14}{numbers[0]:10}{numbers[1]:8}{numbers[2]:8}{numbers[3]:9}")
    print("\nnumbers that both report, and how many of them are equal:")
    for (kind, key), count in found.numbers.items():
        print(f"{kind:14}{key:22}{count:6}{found.same_numbers[(kind, key)]:6}")
    print("\nvalues that differ, by reason:")
    for kind in found.sessions:
        for (of, reason), count in found.reasons.most_common():
            if of == kind:
                print(f"{kind:14}{count:6}  {reason}")
    print(f"\nunexplained: {len(found.unexplained)}")
    for line in found.unexplained[:50]:
        print(f"  {line}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer_python", metavar="PEER_PYTHON", help="interpreter of the peer's environment")
    parser.add_argument("--cases", type=int, default=300, help="random cases, of one to four recordings each")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--live", type=int, default=40, help="scenarios that both hold with their mock agents")
    options = parser.parse_args()
    peer = Peer(options.peer_python)
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = compare_all(peer, Path(folder), options.first, options.cases, options.live)
    finally:
        peer.close()
    report(found)
    return 1 if found.unexplained else 0


if __name__ == "__main__":
    if "--as-peer" in sys.argv[1:]:
        peer_main()
    else:
        sys.exit(main())
