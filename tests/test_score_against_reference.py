"""`voicebench score` against a second scorer that was written from the specification alone.

`tests/support/reference_scorer.py` is slow and plain and shares no code with the package. Here both score the golden
recordings, recordings made from a seed (`VOICEBENCH_RANDOM_CASES=2000 pytest ...` for more of them), and the package
alone is given recordings that are broken in every way we could think of.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import struct
import subprocess
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.random_bundles import Bundle, random_case, sharpened, write_wav
from tests.support.reference_scorer import READINGS, differences, score

GOLDEN = sorted(path.parent for path in (Path(__file__).parent / "golden").glob("*/expected.json"))
RANDOM_CASES = int(os.environ.get("VOICEBENCH_RANDOM_CASES", "60"))


def run_score(*arguments: str | Path, encoding: str = "utf-8") -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `voicebench score ARGUMENTS --json`, in this process."""
    from voicebench.cli import main

    # Not StringIO: these have a buffer and an encoding, as a terminal has
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=each) for each in (encoding, "utf-8"))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: Any = main(["score", *map(str, arguments), "--json"])
        except SystemExit as end:
            code = end.code
    return int(code or 0), printed(out), printed(err)


def printed(stream: io.TextIOWrapper) -> str:
    stream.flush()
    content: bytes = stream.buffer.getvalue()  # type: ignore[attr-defined]
    return content.decode(stream.encoding)


def settled(value: Any) -> Any:
    """A printed document that the reference would accept: every marker replaced by one of its values."""
    if isinstance(value, list):
        return [settled(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "$either" in value:
        return settled(value["$either"][0])
    if "$words" in value:
        return value["$words"]
    if "$any" in value:
        return None
    if "$nonempty" in value:
        return ["a note"]
    return {key: settled(each) for key, each in value.items()}


# ---------------------------------------------------------------- golden recordings


@pytest.mark.parametrize("directory", GOLDEN, ids=lambda path: path.name)
def test_the_reference_agrees_with_the_golden_values(directory: Path) -> None:
    expected = json.loads((directory / "expected.json").read_text(encoding="utf-8"))
    output, exit_code = score([directory])
    assert differences(expected["output"], settled(output)) == []
    assert exit_code == expected["exit_code"]


@pytest.mark.parametrize("directory", GOLDEN, ids=lambda path: path.name)
def test_the_command_agrees_with_the_golden_values(directory: Path) -> None:
    expected = json.loads((directory / "expected.json").read_text(encoding="utf-8"))
    exit_code, out, _ = run_score(directory)
    assert differences(expected["output"], json.loads(out)) == []
    assert exit_code == expected["exit_code"]


def test_the_golden_recordings_are_all_there() -> None:
    assert len(GOLDEN) == 6


# ---------------------------------------------------------------- recordings from a seed


def written(bundles: list[Bundle], directory: Path) -> list[Path]:
    return [bundle.write(directory / str(index)) for index, bundle in enumerate(bundles)]


def sharp_case(seed: int, directory: Path) -> list[Path]:
    """The recordings of a seed, their limits moved onto what the reference measures in a first pass."""
    bundles = random_case(seed)
    output, _ = score(written(bundles, directory))
    plain = settled(output)
    sharpened(seed, bundles, plain["sessions"], plain["summary"])
    return written(bundles, directory)


def disagreement(paths: list[Path], exit_code: int, output: dict[str, Any]) -> list[str]:
    """Where the output differs from every reading of the specification; those from the reading it is closest to."""
    fewest: list[str] | None = None
    for reading in READINGS:
        expected, expected_code = score(paths, reading)
        lines = differences(expected, output)
        if differences(expected_code, exit_code):
            lines.append(f"exit code: expected {expected_code}, found {exit_code}")
        if not lines:
            return []
        if fewest is None or len(lines) < len(fewest):
            fewest = lines
    return fewest or []


@pytest.mark.parametrize("seed", range(RANDOM_CASES))
def test_the_command_agrees_with_the_reference(seed: int, tmp_path: Path) -> None:
    paths = sharp_case(seed, tmp_path)
    exit_code, out, err = run_score(*paths)
    assert exit_code in (0, 1), err
    assert disagreement(paths, exit_code, json.loads(out)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1003))
def test_the_installed_command_agrees_with_the_reference(seed: int, tmp_path: Path) -> None:
    paths = sharp_case(seed, tmp_path)
    command = [sys.executable, "-m", "voicebench", "score", *map(str, paths), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert disagreement(paths, done.returncode, json.loads(done.stdout)) == []


def test_scenarios_with_the_same_limits_are_judged_apart(tmp_path: Path) -> None:
    """A scenario's limits speak of its own sessions, also where another scenario happens to have the same ones."""
    paths = []
    for number, (name, latency_ms) in enumerate((("simple-reply", 650), ("quiet-lead-in", 500))):
        directory = good_copy(tmp_path / str(number), name)
        edited(lambda document: document["scenario"].update({"assert": {"p50_response_latency_ms": 600}}))(directory)
        paths.append((directory, latency_ms))
    exit_code, out, _ = run_score(*(path for path, _ in paths))
    assert [line["actual"] for line in json.loads(out)["assertions"]] == [650.0, 500.0]
    assert exit_code == 1


def test_one_scenario_is_judged_once_over_all_its_sessions(tmp_path: Path) -> None:
    paths = [good_copy(tmp_path / str(number), "transcript") for number in range(3)]
    _, out, _ = run_score(*paths)
    assert [line["name"] for line in json.loads(out)["assertions"]] == ["max_wer"]


def test_no_limit_is_lost_where_two_scenarios_have_the_same_name(tmp_path: Path) -> None:
    """The scenario was edited between two recordings: the stricter limit fails, whichever comes first."""
    strict, lax = (good_copy(tmp_path / name, "transcript") for name in ("strict", "lax"))
    edited(lambda document: document["scenario"].update({"assert": {"max_wer": 0.9}}))(lax)
    for paths in ((strict, lax), (lax, strict)):
        exit_code, out, _ = run_score(*paths)
        assert sorted(line["limit"] for line in json.loads(out)["assertions"]) == [0.2, 0.9]
        assert exit_code == 1


@pytest.mark.parametrize("directory", GOLDEN, ids=lambda path: path.name)
def test_another_scenario_brings_its_detector_and_its_limits(directory: Path, tmp_path: Path) -> None:
    recording = good_copy(tmp_path / "recording", directory.name)

    def change(document: dict[str, Any]) -> None:
        document["scenario"]["vad"] = {"agent": {"frame_ms": 20, "threshold_db": -60}, "user": {"frame_ms": 7.5}}
        document["scenario"]["assert"] = {"p50_response_latency_ms": 500, "max_talk_overs": 0}

    changed = good_copy(tmp_path / "changed", directory.name)
    edited(change)(changed)
    document = json.loads((changed / "session.json").read_text(encoding="utf-8"))
    scenario = tmp_path / "other.yaml"
    scenario.write_text(json.dumps(document["scenario"]), encoding="utf-8")  # JSON is YAML as well
    exit_code, out, err = run_score(recording, "--scenario", scenario)
    assert exit_code in (0, 1), err
    assert disagreement([changed], exit_code, json.loads(out)) == []


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_was_heard_is_printed_whatever_the_terminal_can_show(encoding: str, tmp_path: Path) -> None:
    directory = good_copy(tmp_path / "good")
    heard = {"role": "user", "text": "caf\u00e9 \u6771\u4eac", "time_s": 2.0, "final": True}
    edited(lambda document: document.update(transcripts=[heard]))(directory)
    exit_code, out, err = run_score(directory, encoding=encoding)
    assert exit_code == 0, err
    assert json.loads(out)["summary"]["turns"] == 1


def test_the_comparer_sees_a_wrong_value(tmp_path: Path) -> None:
    """A comparer that is blind would let everything pass."""
    output, _ = score([GOLDEN[0]])
    wrong = settled(output)
    wrong["sessions"][0]["turns"][0]["response_latency_ms"] += 0.2
    wrong["summary"]["turns_passed"] += 1
    assert len(differences(output, wrong)) == 2


# ---------------------------------------------------------------- broken recordings


def edited(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], str]:
    """A breaker that changes the document of `session.json`."""

    def break_it(directory: Path) -> str:
        path = directory / "session.json"
        document = json.loads(path.read_text(encoding="utf-8"))
        replacement = change(document)
        path.write_text(json.dumps(document if replacement is None else replacement), encoding="utf-8")
        return "session.json"

    return break_it


def replaced(old: str, new: str, encoding: str = "utf-8") -> Callable[[Path], str]:
    """A breaker that changes the text of `session.json`, for what no JSON writer would write."""

    def break_it(directory: Path) -> str:
        path = directory / "session.json"
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_bytes(text.replace(old, new, 1).encode(encoding))
        return "session.json"

    return break_it


def overwritten(name: str, content: bytes) -> Callable[[Path], str]:
    def break_it(directory: Path) -> str:
        (directory / name).write_bytes(content)
        return name

    return break_it


def missing(name: str) -> Callable[[Path], str]:
    def break_it(directory: Path) -> str:
        (directory / name).unlink()
        return name.removesuffix(".wav")  # the message may offer FLAC as well

    return break_it


def a_directory(name: str) -> Callable[[Path], str]:
    def break_it(directory: Path) -> str:
        (directory / name).unlink()
        (directory / name).mkdir()
        return name

    return break_it


def linked_to_itself(name: str) -> Callable[[Path], str]:
    def break_it(directory: Path) -> str:
        (directory / name).unlink()
        (directory / name).symlink_to(directory / name)
        return name

    return break_it


def a_pipe(name: str) -> Callable[[Path], str]:
    """Nobody writes into it: who opens it to read waits for ever."""

    def break_it(directory: Path) -> str:
        (directory / name).unlink()
        os.mkfifo(directory / name)
        return name

    return break_it


def cut_short(name: str, keep: int) -> Callable[[Path], str]:
    def break_it(directory: Path) -> str:
        path = directory / name
        path.write_bytes(path.read_bytes()[:keep])
        return name

    return break_it


def other_track(rate_hz: int, channels: int) -> Callable[[Path], str]:
    def break_it(directory: Path) -> str:
        write_wav(directory / "agent.wav", array("h", bytes(2 * 26880 * channels)), rate_hz, channels)
        return "agent.wav"

    return break_it


def wav_bytes(format_code: int, bits: int, data: bytes, rate_hz: int = 8000) -> bytes:
    width = bits // 8
    chunk = struct.pack("<4sIHHIIHH", b"fmt ", 16, format_code, 1, rate_hz, rate_hz * width, width, bits)
    body = b"WAVE" + chunk + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def set_time(key: str, value: Any, where: str = "turns") -> Callable[[Path], str]:
    return edited(lambda document: document[where][0].update({key: value}))


def without(key: str, where: str | None = None) -> Callable[[Path], str]:
    return edited(lambda document: (document[where][0] if where else document).pop(key) and None)


RATE = '"sample_rate": 8000,\n "duration'
DEEP = "[" * 200_000 + "]" * 200_000
BREAKERS: dict[str, Callable[[Path], str]] = {
    "user.wav is missing": missing("user.wav"),
    "agent.wav is missing": missing("agent.wav"),
    "session.json is missing": missing("session.json"),
    "user.wav is text": overwritten("user.wav", b"this is not a sound\n" * 20),
    "agent.wav is empty": overwritten("agent.wav", b""),
    "user.wav is a bare RIFF header": overwritten("user.wav", b"RIFF\x04\x00\x00\x00WAVE"),
    "agent.wav has another rate": other_track(16000, 1),
    "agent.wav is stereo": other_track(8000, 2),
    "user.wav is float32": overwritten("user.wav", wav_bytes(3, 32, bytes(4 * 26880))),
    "user.wav has 8 bits": overwritten("user.wav", wav_bytes(1, 8, b"\x80" * 26880)),
    "user.wav has 24 bits": overwritten("user.wav", wav_bytes(1, 24, bytes(3 * 26880))),
    "user.wav is mu-law": overwritten("user.wav", wav_bytes(7, 8, b"\xff" * 26880)),
    "user.wav is cut in its data": cut_short("user.wav", 20_001),
    "agent.wav is cut in its header": cut_short("agent.wav", 30),
    "session.json is empty": overwritten("session.json", b""),
    "session.json is not JSON": overwritten("session.json", b"format: voicebench-recording/1\n"),
    "session.json is cut short": cut_short("session.json", 700),
    "session.json is a list": overwritten("session.json", b"[1, 2, 3]"),
    "session.json is a number": overwritten("session.json", b"17"),
    "session.json is null": overwritten("session.json", b"null"),
    "session.json is not UTF-8": replaced('"simple-reply"', '"r\xe9ponse"', "latin-1"),
    "session.json is deeply nested": overwritten("session.json", DEEP.encode()),
    "session.json nests deeply inside": replaced('"clears": []', f'"clears": {DEEP}'),
    "session.json is a directory": a_directory("session.json"),
    "user.wav is a directory": a_directory("user.wav"),
    "user.wav is a pipe": a_pipe("user.wav"),
    "session.json is a pipe": a_pipe("session.json"),
    "session.json links to itself": linked_to_itself("session.json"),
    "agent.wav links to itself": linked_to_itself("agent.wav"),
    "NaN as a time": replaced('"start_s": 0.4', '"start_s": NaN'),
    "Infinity as a duration": replaced('"duration_s": 3.36', '"duration_s": Infinity'),
    "-Infinity as a level": replaced('"level_db": -19.9995', '"level_db": -Infinity'),
    "a time of 1e400": replaced('"start_s": 0.4', '"start_s": 1e400'),
    "a rate of 1e400": replaced(RATE, RATE.replace("8000", "1e400")),
    "a rate with 5,000 digits": replaced(RATE, RATE.replace("8000", "9" * 5000)),
    "a negative start": set_time("start_s", -0.4),
    "an end before its start": set_time("end_s", 0.1),
    "a negative packet time": set_time("time_s", -1.0, "packets"),
    "a turn without a start": without("start_s", "turns"),
    "a turn without an end": without("end_s", "turns"),
    "a turn without an id": without("id", "turns"),
    "a packet without a time": without("time_s", "packets"),
    "a packet without a level": without("level_db", "packets"),
    "a time as text": set_time("start_s", "0.4"),
    "a time as a boolean": set_time("start_s", True),
    "a time as null": set_time("start_s", None),
    "a packet's time as text": set_time("time_s", "2.25", "packets"),
    "a level as a boolean": set_time("level_db", False, "packets"),
    "a duration as text": edited(lambda document: document.update(duration_s="3.36")),
    "a rate as a boolean": edited(lambda document: document.update(sample_rate=True)),
    "truncated as text": edited(lambda document: document.update(truncated="no")),
    "turns as an object": edited(lambda document: document.update(turns={"hello": 1})),
    "packets of numbers": edited(lambda document: document.update(packets=[1, 2, 3])),
    "an unknown trigger": set_time("trigger", "because"),
    "an unknown format": edited(lambda document: document.update(format="voicebench-recording/2")),
    "no format": without("format"),
    "no scenario": without("scenario"),
    "no sample rate": without("sample_rate"),
    "no duration": without("duration_s"),
    "no turns": without("turns"),
    "a scenario of text": edited(lambda document: document.update(scenario="simple")),
    "a turn the scenario doesn't have": set_time("id", "goodbye"),
    "a turn id of several lines": set_time("id", "bye\nerror: all is well\x1b[2K"),
    "a turn played twice": edited(lambda document: document["turns"].append(dict(document["turns"][0]))),
    "an unknown scenario key": edited(lambda document: document["scenario"].update(adaptor={})),
    "an unknown turn key": edited(lambda document: document["scenario"]["turns"][0].update(expects="respond")),
    "an unknown vad key": edited(lambda document: document["scenario"].update(vad={"user": {"threshold": -40}})),
    "an unknown expectation": edited(lambda document: document["scenario"]["turns"][0].update(expect="stopp")),
    "an unknown assertion": edited(lambda document: document["scenario"].update({"assert": {"max_latency": 1}})),
    "a negative frame": edited(lambda document: document["scenario"].update(vad={"user": {"frame_ms": -10}})),
    "a frame of nothing": edited(lambda document: document["scenario"].update(vad={"agent": {"frame_ms": 0}})),
    "a negative hysteresis": edited(lambda document: document["scenario"].update(vad={"agent": {"hysteresis_db": -1}})),
    "a scenario without turns": edited(lambda document: document["scenario"].update(turns=[])),
    "a transcript's text as a number": edited(
        lambda document: document.update(transcripts=[{"role": "user", "text": 5, "time_s": 1.0, "final": True}])
    ),
    "a transcript at a negative time": edited(
        lambda document: document.update(transcripts=[{"role": "user", "text": "a", "time_s": -1.0, "final": True}])
    ),
}


def good_copy(directory: Path, name: str = "simple-reply") -> Path:
    directory.mkdir(parents=True)
    for file in ("session.json", "user.wav", "agent.wav"):
        shutil.copyfile(Path(__file__).parent / "golden" / name / file, directory / file)
    return directory


def assert_refused(result: tuple[int, str, str], named: str) -> None:
    """Exit 2, nothing on stdout, one sentence on stderr that names the culprit."""
    exit_code, out, err = result
    assert exit_code == 2, (exit_code, err)
    assert out == ""
    assert "Traceback" not in err
    assert named in err
    assert len(err.strip().splitlines()) == 1, err
    assert err.strip().isprintable(), err


@pytest.mark.parametrize("name", BREAKERS)
def test_a_broken_recording_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    broken = good_copy(tmp_path / "broken")
    culprit = BREAKERS[name](broken)
    result = run_score(broken)
    assert_refused(result, culprit)
    assert str(broken) in result[2]


@pytest.mark.parametrize("name", [*BREAKERS][::6])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_broken_recording_among_good_ones_leaves_stdout_empty(name: str, place: int, tmp_path: Path) -> None:
    paths = [good_copy(tmp_path / "good-1"), good_copy(tmp_path / "good-2", "cough")]
    broken = good_copy(tmp_path / "broken")
    culprit = BREAKERS[name](broken)
    paths.insert(place, broken)
    assert_refused(run_score(*paths), culprit)


def test_a_file_is_no_recording(tmp_path: Path) -> None:
    path = tmp_path / "call.txt"
    path.write_text("hello", encoding="utf-8")
    assert_refused(run_score(path), "call.txt")
    assert_refused(run_score(good_copy(tmp_path / "good"), path), "call.txt")


def test_a_path_that_is_not_there_is_no_recording(tmp_path: Path) -> None:
    assert_refused(run_score(tmp_path / "nowhere"), "nowhere")


def test_a_directory_that_links_to_itself_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert_refused(run_score(tmp_path / "loop"), "loop")


def test_an_empty_directory_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert_refused(run_score(tmp_path / "empty"), "empty")


def test_the_copy_that_the_breakers_start_from_is_good(tmp_path: Path) -> None:
    exit_code, _, err = run_score(good_copy(tmp_path / "good"))
    assert exit_code == 0, err


def test_further_keys_and_a_session_id_like_a_path_do_no_harm(tmp_path: Path) -> None:
    directory = good_copy(tmp_path / "deep" / "good")
    edited(lambda document: document.update(session_id="../../escaped", worker={"cores": 2}))(directory)
    exit_code, out, err = run_score(directory)
    assert exit_code == 0, err
    assert json.loads(out)["sessions"][0]["session_id"] == "../../escaped"
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(
        ["deep", "good", "session.json", "user.wav", "agent.wav"]
    )
