"""The comparison with the peer can fail: a number that is changed by a little is found, and has no reason."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import compare_with_peer as compare

GOLDEN = sorted(path.parent for path in (Path(__file__).parent / "golden").glob("*/expected.json"))
PEER_PYTHON = os.environ.get("VOICEBENCH_PEER_PYTHON")


def as_the_peer_prints(scored: dict) -> dict:
    """Our own score under the peer's names: what a peer that agrees in everything would answer."""
    theirs = copy.deepcopy(scored)
    for turn in theirs["session"]["turns"]:
        turn["stop_latency_ms"] = turn["stop_ms"]
    return theirs


def compared(directory: Path, theirs: dict) -> compare.Findings:
    found = compare.Findings()
    document = json.loads((directory / "session.json").read_text(encoding="utf-8"))
    ours = compare.score_here(directory)
    compare.compare_session(
        compare.Session("golden", directory.name, document, ours, theirs, on_threshold=False), found
    )
    return found


@pytest.mark.parametrize("directory", GOLDEN, ids=lambda path: path.name)
def test_equal_scores_have_nothing_to_explain(directory: Path) -> None:
    found = compared(directory, as_the_peer_prints(compare.score_here(directory)))
    assert found.unexplained == []
    assert not found.reasons


@pytest.mark.parametrize("directory", GOLDEN, ids=lambda path: path.name)
@pytest.mark.parametrize("key", ["response_latency_ms", "ttfa_ms", "stop_latency_ms", "wer", "user_offset_s"])
def test_a_number_that_is_off_has_no_reason(directory: Path, key: str) -> None:
    theirs = as_the_peer_prints(compare.score_here(directory))
    measured = [turn for turn in theirs["session"]["turns"] if turn[key] is not None]
    for turn in measured:
        turn[key] += 0.2
    own_key = {there: here for here, there in compare.THEIR_NAMES.items()}.get(key, key)
    told = [line for line in compared(directory, theirs).unexplained if f".{own_key}:" in line]
    assert len(told) == len(measured)


@pytest.mark.parametrize("key", ["overlap_ms", "agent_speech_ms", "duration_s"])
def test_a_total_that_is_off_has_no_reason(key: str) -> None:
    theirs = as_the_peer_prints(compare.score_here(GOLDEN[0]))
    theirs["session"][key] += 20.0
    assert len(compared(GOLDEN[0], theirs).unexplained) == 1


def test_a_summary_that_is_off_has_no_reason() -> None:
    theirs = as_the_peer_prints(compare.score_here(GOLDEN[0]))
    theirs["summary"]["response_latency_ms"]["p90"] += 0.2
    theirs["summary"]["turns_passed"] += 1
    assert len(compared(GOLDEN[0], theirs).unexplained) == 2


@pytest.mark.slow
@pytest.mark.skipif(PEER_PYTHON is None, reason="VOICEBENCH_PEER_PYTHON names no interpreter with the peer")
def test_every_difference_from_the_peer_has_its_reason() -> None:
    script = Path(compare.__file__)
    command = [sys.executable, str(script), str(PEER_PYTHON), "--cases", "40", "--live", "8"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
