"""Recordings from a seed, made to be hard to score: every edge of the specification has a place where it happens.

`random_case(seed)` gives one to four bundles that are scored together. Times are drawn so that the interesting
coincidences are frequent: speech exactly on an analysis frame, levels exactly on a threshold, gaps around
`min_silence_ms`, replies exactly at the user's onset, offset or timeout, packets at exactly -70 dBFS, transcripts on
the edge of a window. `sharpened` then moves time-outs and limits onto measured values, just below and just above them.
Nothing here knows how a score is worked out.
"""

from __future__ import annotations

import copy
import json
import math
import random
import wave
from array import array
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

RATES_HZ = (8000, 8000, 8000, 16000, 16000, 11025, 22050, 22050, 24000, 44100, 48000)
FRAMES_MS = (10, 10, 10, 20, 7.5, 15, 30)
# A float quotient of these is not whole, their decimal quotient is: 3 frames, not 4.
CROOKED_MS = ((1.4, 4.2), (2.2, 6.6))
LOUD = 3277
TEXT_PIECES = (
    "two", "Large", "pizzas,", "please.", "don't", "don\N{RIGHT SINGLE QUOTATION MARK}t", "¡Hola!", "naïve",
    "nai\N{COMBINING DIAERESIS}ve", "e\N{COMBINING ACUTE ACCENT}té", "東京へ行きます", "你好，世界。", "😀", "$5",
    "50%", "e-mail", "C++", "1½", "\N{LATIN SMALL LIGATURE FI}ne", "ＡＢＣ", "İstanbul", "STRASSE", "straße", "…", "—",
    "rock'n'roll", "'", "x²", "१२३", "हिन्दी", "ไทย", "a_b", "U.S.A.", "№5", "\N{NO-BREAK SPACE}nbsp",
    "\N{FULLWIDTH APOSTROPHE}tis", "\N{LEFT SINGLE QUOTATION MARK}quoted\N{RIGHT SINGLE QUOTATION MARK}", "`tick`",
    "👩\N{ZERO WIDTH JOINER}🚀", "a+b=c", "seven", "7", "«oui»", "(no)", "tab\tbed", "line\nbreak",
)  # fmt: skip

# What a transcriber may write for a word, and what is, or only looks, the same.
SOUNDS_LIKE = {
    "straße": ("STRASSE", "strasse"),
    "STRASSE": ("straße",),
    "naïve": ("nai\N{COMBINING DIAERESIS}ve", "naive", "NAÏVE"),
    "don't": ("don\N{RIGHT SINGLE QUOTATION MARK}t", "dont", "don\N{LEFT SINGLE QUOTATION MARK}t", "DON'T"),
    "\N{LATIN SMALL LIGATURE FI}ne": ("fine", "FINE"),
    "ＡＢＣ": ("abc", "a b c"),
    "1½": ("1 1/2", "11\N{FRACTION SLASH}2"),
    "x²": ("x2", "x^2"),
    "e-mail": ("e mail", "email"),
    "C++": ("c", "c++"),
    "$5": ("5", "5$"),
    "50%": ("50", "50 %"),
    "a+b=c": ("a b c", "A+B=C"),
    "😀": ("", "👩"),
    "हिन्दी": ("हनद", "हिन्दी।"),
    "U.S.A.": ("u s a", "usa"),
    "你好，世界。": ("你好 世界", "你好世界"),
    "№5": ("no5", "No.5"),
    "İstanbul": ("istanbul", "i\N{COMBINING DOT ABOVE}stanbul"),
}


@dataclass
class Bundle:
    """A recording before it is written: `session.json` as a document and both tracks as int16."""

    document: dict[str, Any]
    user: array[int]
    agent: array[int]

    def write(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.document, ensure_ascii=False)
        (directory / "session.json").write_text(text, encoding="utf-8")
        for name, track in (("user.wav", self.user), ("agent.wav", self.agent)):
            write_wav(directory / name, track, self.document["sample_rate"])
        return directory


def write_wav(path: Path, samples: array[int], rate_hz: int, channels: int = 1) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(samples.tobytes())


@dataclass
class Grid:
    """A track's detector as far as a script needs it: a frame in samples, how many of them open and close a segment."""

    frame: int
    speech: int
    silence: int
    on_threshold: int  # the amplitude whose level is exactly the threshold
    on_lower: int  # and the one exactly at the lower threshold


def random_case(seed: int) -> list[Bundle]:
    rng = random.Random(seed)
    scenario, grids = random_scenario(rng, f"case {seed}")
    count = rng.choice((1, 1, 1, 2, 3))
    bundles = [random_recording(rng, scenario, grids, f"session-{seed}-{index}") for index in range(count)]
    if rng.random() < 0.15:
        other, other_grids = random_scenario(rng, f"case {seed}, the other scenario")
        bundles.append(random_recording(rng, other, other_grids, f"session-{seed}-other"))
    return bundles


# ---------------------------------------------------------------- scenarios


def random_scenario(rng: random.Random, name: str) -> tuple[dict[str, Any], dict[str, Grid]]:
    rate_hz = rng.choice(RATES_HZ)
    user_vad, user_grid = random_vad(rng, rate_hz)
    agent_vad, agent_grid = random_vad(rng, rate_hz)
    if rng.random() < 0.5:  # the same grid, so that agent edges can fall exactly on user edges
        agent_vad["frame_ms"] = user_vad.get("frame_ms", 10)
        agent_grid.frame = user_grid.frame
    named = rng.random() < 0.8
    turns = [random_turn(rng, number, named) for number in range(1, rng.choice((1, 2, 3, 4, 5, 6)) + 1)]
    scenario: dict[str, Any] = {"name": name, "sample_rate": rate_hz, "adapter": {"type": "mock"}, "turns": turns}
    scenario["vad"] = {"user": user_vad, "agent": agent_vad}
    if rng.random() < 0.6:
        scenario["defaults"] = {
            "response_timeout_ms": rng.choice((200, 400, 700.5, 1500)),
            "max_stop_ms": rng.choice((150, 300, 555.5, 900)),
        }
    if rng.random() < 0.3:
        scenario["description"] = "made from a seed"
        scenario["tail_ms"] = 1000
    return scenario, {"user": user_grid, "agent": agent_grid}


def random_vad(rng: random.Random, rate_hz: int) -> tuple[dict[str, Any], Grid]:
    """A detector's block, any of its keys left to the default, and levels that lie exactly on its thresholds."""
    frame_ms: float = rng.choice(FRAMES_MS)
    vad: dict[str, Any] = {"frame_ms": frame_ms}
    silence_ms: float = rng.choice((0, 1, 30, 60, 75, 100, 120, 250))
    if frame_ms == 10 and rng.random() < 0.3:
        frame_ms, vad["min_speech_ms"] = rng.choice(CROOKED_MS)
        vad["frame_ms"] = frame_ms
        silence_ms = vad["min_speech_ms"]
    elif rng.random() < 0.7:
        vad["min_speech_ms"] = rng.choice((0, 1, 15, 30, 45, 50, 60, 61))
    if rng.random() < 0.2:
        silence_ms = 250
    else:
        vad["min_silence_ms"] = silence_ms
    on_threshold, on_lower = 184, 92  # about -45 dBFS and 6 dB below it
    if rng.random() < 0.7:
        on_threshold = rng.choice((2, 50, 184, 300, 1000, 2000))
        vad["threshold_db"] = level_db(on_threshold)
        on_lower = rng.choice((on_threshold, max(1, on_threshold // 2), max(1, on_threshold * 3 // 4)))
        vad["hysteresis_db"] = vad["threshold_db"] - level_db(on_lower) if on_lower < on_threshold else 0
    if vad["frame_ms"] == 10 and rng.random() < 0.5:
        del vad["frame_ms"]
    frame = round(Fraction(rate_hz) * Fraction(str(frame_ms)) / 1000)
    return vad, Grid(
        frame=frame,
        speech=whole_frames(vad.get("min_speech_ms", 50), frame_ms),
        silence=whole_frames(silence_ms, frame_ms),
        on_threshold=on_threshold,
        on_lower=on_lower,
    )


def whole_frames(duration_ms: float, frame_ms: float) -> int:
    return max(1, math.ceil(Fraction(str(duration_ms)) / Fraction(str(frame_ms))))


def level_db(amplitude: int) -> float:
    return 20 * math.log10(amplitude / 32768)


def random_turn(rng: random.Random, number: int, named: bool) -> dict[str, Any]:
    turn: dict[str, Any] = {"audio": {"synth": rng.choice(("speech", "noise", "tone")), "duration_ms": 600}}
    if rng.random() < 0.1:
        turn["audio"] = {"file": "not-there-when-scored.wav"}
    if named:
        turn["id"] = rng.choice(("ask", "cough", "wait", "ça va", "on")) + f"-{number}"
    expect = rng.choice(("respond", "respond", "stop", "ignore"))
    if expect != "respond" or rng.random() < 0.5:
        turn["expect"] = expect
    after = "session_start" if number == 1 else rng.choice(("previous_turn_end", "agent_speech_end"))
    turn["start"] = {"after": after}
    if rng.random() < 0.3:
        turn["response_timeout_ms"] = rng.choice((100, 300, 750, 2000))
    if rng.random() < 0.3:
        turn["max_stop_ms"] = rng.choice((100, 250, 600))
    if rng.random() < 0.6:
        turn["text"] = random_text(rng)
    return turn


def random_text(rng: random.Random) -> str:
    if rng.random() < 0.12:
        return rng.choice(("", "?!", " ... ", "—", "\u3000"))
    return " ".join(rng.choice(TEXT_PIECES) for _ in range(rng.randint(1, 7)))


def misheard(rng: random.Random, text: str) -> str:
    """The text as a poor transcriber would send it."""
    words = []
    for word in text.split():
        what = rng.random()
        if word in SOUNDS_LIKE and rng.random() < 0.4:
            words.append(rng.choice(SOUNDS_LIKE[word]))
            continue
        if what < 0.1:
            continue
        if what < 0.2:
            word = rng.choice(TEXT_PIECES)
        elif what < 0.3:
            word = word.upper()
        elif what < 0.4:
            word = word.strip(",.…!¡?()") + rng.choice((",", "", "."))
        words.append(word)
        if rng.random() < 0.1:
            words.append(rng.choice(TEXT_PIECES))
    return " ".join(words)


# ---------------------------------------------------------------- recordings


@dataclass
class Burst:
    """Sound in a track, in samples; of one amplitude, so that every frame's level is known."""

    start: int
    stop: int
    amplitude: int
    kind: str


@dataclass
class Played:
    """A turn that played: its bounds as typed into the document, and where its sound lies, in samples."""

    start_s: float
    end_s: float
    onset: int
    offset: int


def random_recording(rng: random.Random, scenario: dict[str, Any], grids: dict[str, Grid], session_id: str) -> Bundle:
    rate_hz = scenario["sample_rate"]
    plays = len(scenario["turns"])
    truncated = rng.random() < 0.15
    if truncated:
        plays = rng.randrange(plays)
    user, turns = user_script(rng, rate_hz, grids["user"], plays)
    agent = agent_script(rng, rate_hz, grids["agent"], turns, scenario)
    length = track_length(rng, rate_hz, grids["agent"], user, agent)
    length = max(length, math.ceil(turns[-1].start_s * rate_hz) + 1 if turns else 0)
    duration_s = round(length / rate_hz, 6)
    ids = [turn.get("id", f"turn-{number}") for number, turn in enumerate(scenario["turns"], start=1)]
    document = {
        "format": "voicebench-recording/1",
        "session_id": session_id,
        "scenario": copy.deepcopy(scenario),
        "sample_rate": rate_hz,
        "duration_s": duration_s,
        "truncated": truncated,
        "clock": rng.choice(("virtual", "real")),
        "turns": [
            {
                "id": turn_id,
                "trigger": "timeout" if rng.random() < 0.15 else "anchor",
                "start_s": turn.start_s,
                "end_s": min(turn.end_s, duration_s),
            }
            for turn_id, turn in zip(ids, turns, strict=False)
        ],
        "packets": random_packets(rng, rate_hz, agent, turns, duration_s),
        "clears": [{"time_s": round(rng.uniform(0, duration_s), 4)}] if rng.random() < 0.2 else [],
        "transcripts": random_transcripts(rng, scenario, turns, duration_s),
    }
    return Bundle(document, rendered(rng, user, length), rendered(rng, agent, length))


def user_script(rng: random.Random, rate_hz: int, grid: Grid, plays: int) -> tuple[list[Burst], list[Played]]:
    frame = grid.frame
    cursor = frame * rng.randint(1, max(2, rate_hz // 4 // frame))
    bursts: list[Burst] = []
    turns: list[Played] = []
    last_start_s = 0.0
    for _ in range(plays):
        audio = frame * rng.randint(max(3, rate_hz // 12 // frame), max(4, rate_hz * 2 // 3 // frame))
        own = turn_bursts(rng, grid, cursor, audio)
        bursts += own
        # The typed start may lie beside the sound, by less and by more than a frame, and by exactly one.
        shift = rng.choice((0, 0, 0, 0.5, -0.5, 1, -1, 1.5, -1.5, 2)) * frame
        digits = rng.choice((4, 4, 4, 5, 6))
        start_s = round(max(0.0, (cursor + shift) / rate_hz), digits)
        if start_s <= last_start_s:
            start_s = round(last_start_s + 0.01, 6)
        last_start_s = start_s
        end_s = max(start_s, round((cursor + audio) / rate_hz, digits))
        onset, offset = (own[0].start, own[-1].stop) if own else (cursor, cursor + audio)
        turns.append(Played(start_s, end_s, onset, offset))
        gap = rng.choice((0, 0, grid.silence - 1, grid.silence, grid.silence + 1, rate_hz // frame))
        cursor += audio + frame * (gap if rng.random() < 0.7 else rng.randint(0, rate_hz // frame))
    return bursts, turns


def turn_bursts(rng: random.Random, grid: Grid, start: int, length: int) -> list[Burst]:
    frame = grid.frame
    stop = start + length
    shape = rng.random()
    if shape < 0.08:
        return []
    if shape < 0.14:  # not loud enough to open a segment
        return [Burst(start, stop, max(0, grid.on_threshold - 1), random_kind(rng))]
    if shape < 0.24:  # begins when whatever went before is over, also if that reached into this turn
        start += frame * (grid.silence + rng.randint(1, 3))
        stop = max(stop, start + frame * (grid.speech + 2))
    elif shape < 0.4:
        start += frame * rng.randint(0, 3)
        stop -= frame * rng.randint(0, 3)
    elif shape < 0.55:
        start += rng.randint(0, frame)
        stop -= rng.randint(0, frame)
    if stop <= start:
        start, stop = start - length // 2, start + length
    burst = Burst(start, stop, random_amplitude(rng, grid), random_kind(rng))
    frames = (stop - start) // frame
    if rng.random() < 0.3 and frames > grid.silence + 4:  # a pause that just splits the segment, or just doesn't
        pause = max(1, grid.silence + rng.choice((-1, 0, 1)))
        middle = start + frame * rng.randint(1, max(1, frames - pause - 1))
        after = min(stop, middle + frame * pause)
        first = Burst(start, middle, burst.amplitude, burst.kind)
        filling = Burst(middle, after, rng.choice((0, grid.on_lower, max(0, grid.on_lower - 1))), "square")
        return [first, filling, Burst(after, stop, burst.amplitude, burst.kind)]
    return [burst]


def random_amplitude(rng: random.Random, grid: Grid) -> int:
    loud = max(LOUD, grid.on_threshold)
    return rng.choice((loud, loud, loud, grid.on_threshold, grid.on_threshold + 1, 32767))


def random_kind(rng: random.Random) -> str:
    return rng.choice(("noise", "noise", "square", "dc", "tone"))


def agent_script(
    rng: random.Random, rate_hz: int, grid: Grid, turns: list[Played], scenario: dict[str, Any]
) -> list[Burst]:
    frame = grid.frame
    bursts = []
    for turn, script in zip(turns, scenario["turns"], strict=False):
        timeout_ms = script.get("response_timeout_ms", scenario.get("defaults", {}).get("response_timeout_ms", 5000))
        timeout = min(round(timeout_ms * rate_hz / 1000), rate_hz * 2)
        length = frame * rng.randint(2, max(3, rate_hz // frame))
        if rng.random() < 0.25:  # just long enough to be speech, or just not
            length = frame * max(1, grid.speech + rng.choice((-1, 0, 1)))
        playing = (turn.onset, turn.onset - length // 2, turn.onset - length // 3)
        start = rng.choice(
            playing
            if script.get("expect") in ("stop", "ignore") and rng.random() < 0.5
            else (
                turn.onset,
                turn.offset,
                turn.offset,
                turn.offset + timeout,
                turn.offset + timeout + frame,
                turn.onset + frame,
                turn.onset - length,  # ends exactly at the onset
                turn.onset - length,
                turn.onset - length // 2,
                turn.onset - length // 2,
                turn.offset - frame * rng.randint(1, 20),
                turn.offset + frame * rng.randint(1, 60),
                turn.offset + rng.randint(1, rate_hz // 2),
            )
        )
        if rng.random() < 0.12:
            continue
        start = max(0, start)
        if rng.random() < 0.3:
            start = start // frame * frame
        amplitude, kind = random_amplitude(rng, grid), random_kind(rng)
        bursts.append(Burst(start, start + length, amplitude, kind))
        if rng.random() < 0.3:  # once more, after a gap around min_silence_ms
            again = start + length + frame * max(0, grid.silence + rng.choice((-1, 0, 1, 5)))
            bursts.append(Burst(again, again + frame * rng.randint(1, 40), amplitude, kind))
        if rng.random() < 0.2:  # a quiet lead-in or comfort noise, below the threshold
            quiet = max(0, min(grid.on_lower, grid.on_threshold - 1) - rng.choice((0, 1)))
            bursts.insert(0, Burst(max(0, start - frame * 9), start, quiet, "square"))
    return bursts


def track_length(rng: random.Random, rate_hz: int, agent_grid: Grid, user: list[Burst], agent: list[Burst]) -> int:
    """Where the session ends: far behind the last sound, within the agent's silence, with its last frame, inside it."""
    user_end = max((burst.stop for burst in user), default=0)
    agent_end = max((burst.stop for burst in agent), default=0)
    frame = agent_grid.frame
    last = max(user_end, agent_end, rate_hz // 2)
    where = rng.random()
    if where < 0.3:
        length = max(user_end, agent_end - frame * rng.randint(0, 3), rate_hz // 2)
    elif where < 0.5:
        length = last + frame * max(0, agent_grid.silence + rng.choice((-2, -1, 0, 1)))
    elif where < 0.6:
        length = last + rng.randint(0, 2 * frame)
    else:
        length = last + rng.randint(0, rate_hz)
    if rng.random() < 0.5:  # to a whole centisecond, so that the duration is a short decimal
        step = Fraction(rate_hz, 100)
        length = math.ceil(math.ceil(length / step) * step)
    return length


def rendered(rng: random.Random, bursts: list[Burst], length: int) -> array[int]:
    """Paint the bursts; a later one covers an earlier one."""
    track = array("h", bytes(2 * length))
    for burst in bursts:
        start, stop = max(0, burst.start), min(length, burst.stop)
        if stop > start:
            track[start:stop] = sound(rng, burst, stop - start)
    return track


def sound(rng: random.Random, burst: Burst, count: int) -> array[int]:
    amplitude = burst.amplitude
    if burst.kind == "dc":
        return array("h", [-amplitude]) * count
    if burst.kind == "square":
        return (array("h", [amplitude, -amplitude]) * (count // 2 + 1))[:count]
    if burst.kind == "tone":  # not of one level, for good measure
        return array("h", (round(amplitude * math.sin(0.1 * index)) for index in range(count)))
    bits = rng.getrandbits(count)
    return array("h", (amplitude if bits >> index & 1 else -amplitude for index in range(count)))


def random_packets(
    rng: random.Random, rate_hz: int, agent: list[Burst], turns: list[Played], duration_s: float
) -> list[dict[str, Any]]:
    packets = []
    for burst in agent:
        time_s = burst.start / rate_hz
        if rng.random() < 0.2:
            time_s -= 0.04
        if rng.random() < 0.15:  # nothing but a packet at the very end of what was heard, or just behind it
            packets.append((burst.stop / rate_hz + rng.choice((0, 0, 0.0001)), -20.0))
            continue
        step_s = rng.choice((0.02, 0.02, 0.0))  # 0: everything at once, faster than real time
        for index in range(min(30, (burst.stop - burst.start) * 50 // rate_hz + 1)):
            level = rng.choice((-20.0, -20.0, -70, -70.0001, -69.9999, -120))
            packets.append((time_s + index * step_s, level))
    for turn in turns:
        if rng.random() < 0.5:
            at = rng.choice((turn.offset, turn.onset, turn.offset + rate_hz // 50))
            packets += [(at / rate_hz, level) for level in (-70, rng.choice((-70.0, -69.9999)))]
    lines = []
    for time_s, level in packets:
        rounded_s = round(time_s, 4)
        if 0 <= rounded_s <= duration_s:
            lines.append({"time_s": rounded_s, "level_db": level, "duration_s": 0.02})
    return sorted(lines, key=lambda line: line["time_s"])


def random_transcripts(
    rng: random.Random, scenario: dict[str, Any], turns: list[Played], duration_s: float
) -> list[dict[str, Any]]:
    lines = []
    for turn, script in zip(turns, scenario["turns"], strict=False):
        for _ in range(rng.choice((0, 1, 1, 1, 2))):
            time_s = rng.choice((turn.start_s, turn.end_s, duration_s, round(rng.uniform(0, duration_s), 4)))
            text = misheard(rng, script.get("text", "hello there"))
            if rng.random() < 0.1:
                text = rng.choice(("", "?", random_text(rng)))
            lines.append(
                {
                    "role": "agent" if rng.random() < 0.15 else "user",
                    "text": text,
                    "time_s": time_s,
                    "final": rng.random() < 0.85,
                }
            )
    return sorted(lines, key=lambda line: line["time_s"])


# ---------------------------------------------------------------- limits on the measured values


def sharpened(seed: int, bundles: list[Bundle], sessions: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    """Move time-outs, stop limits and assertions of these bundles onto values measured in a first pass.

    Args:
        sessions, summary: As `score --json` prints them; changes nothing there.
    """
    rng = random.Random(-seed - 1)
    first = bundles[0].document["scenario"]
    for bundle, session in zip(bundles, sessions, strict=True):
        if bundle.document["scenario"] == first and rng.random() < 0.7:
            sharpen_turns(rng, first, session)
            break
    limits = random_limits(rng, summary)
    original = copy.deepcopy(bundles[0].document["scenario"])
    for bundle in bundles:
        same = bundle.document["scenario"]["name"] == original["name"]
        if same:
            bundle.document["scenario"] = copy.deepcopy(first)
        if same or rng.random() < 0.7:
            bundle.document["scenario"]["assert"] = limits


def sharpen_turns(rng: random.Random, scenario: dict[str, Any], session: dict[str, Any]) -> None:
    for script, turn in zip(scenario["turns"], session["turns"], strict=True):
        if turn["user_offset_s"] is None:
            continue
        waits = [tenth_ms(on - turn["user_offset_s"]) for on, _ in session["agent_segments"]]
        stops = [tenth_ms(off - turn["user_onset_s"]) for _, off in session["agent_segments"]]
        script.update(
            {
                key: max(0.1, tenth_ms(rng.choice(found) / 1000 + rng.choice((0, 0, 0.0001, -0.0001))))
                for key, found in (
                    ("response_timeout_ms", [wait for wait in waits if wait > 0]),
                    ("max_stop_ms", [stop for stop in stops if stop > 0]),
                )
                if found and rng.random() < 0.6
            }
        )


def tenth_ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def random_limits(rng: random.Random, summary: dict[str, Any]) -> dict[str, Any]:
    """Assertions of every kind; most limits are met exactly or missed by a hair.

    Every other time all of them hold and none is on a value that doesn't exist, so that exit code 0 is met too.
    """
    kind = rng.random() < 0.5
    moves = (0, 0, 1) if kind else (0, 0, 0, 1, -1)
    limits: dict[str, Any] = {}
    for metric in ("response_latency_ms", "ttfa_ms", "barge_in_stop_ms"):
        for stat in rng.sample(("mean", "max", "p50", "p90", "p95", "p99", "p99.9", "p33.3", "p12.5", "p05"), 3):
            known = summary[metric].get(stat, summary[metric]["max"])
            if known is not None:
                limits[f"{stat}_{metric}"] = nearby(known, 0.1, rng.choice(moves))
            elif not kind and rng.random() < 0.2:
                limits[f"{stat}_{metric}"] = rng.choice((100, 500, 5000))
    for name, key in (
        ("max_false_barge_ins", "false_barge_ins"),
        ("max_spurious_responses", "spurious_responses"),
        ("max_missed_responses", "missed_responses"),
        ("max_talk_overs", "talk_overs"),
    ):
        if rng.random() < 0.6:
            limits[name] = max(0, summary[key] + rng.choice(moves))
    rate, wer = summary["barge_in_success_rate"], summary["mean_wer"]
    if rate is not None and rng.random() < 0.7:
        limits["min_barge_in_success_rate"] = min(1.0, nearby(rate, 0.0001, -rng.choice(moves)))
    elif rate is None and not kind and rng.random() < 0.2:
        limits["min_barge_in_success_rate"] = 0
    if wer is not None and rng.random() < 0.7:
        limits["max_wer"] = nearby(wer, 0.0001, rng.choice(moves))
    elif wer is None and not kind and rng.random() < 0.2:
        limits["max_wer"] = 1.5
    for name in ("max_failed_session_rate", "max_unreliable_turn_rate"):
        if rng.random() < 0.3:
            limits[name] = rng.choice((0, 0.01))
    chosen = list(limits.items())
    rng.shuffle(chosen)
    return dict(chosen)


def nearby(value: float, step: float, steps: int) -> float:
    """The value itself as a short decimal (rounded up when it has no end), or so many steps above it."""
    exact = Decimal(str(round(value, 9)))
    short = exact if -exact.as_tuple().exponent <= 6 else exact.quantize(Decimal("0.000001"), rounding="ROUND_CEILING")
    moved = short + Decimal(str(step)) * steps
    return float(max(moved, Decimal(0)) if step < 0.01 else moved)
