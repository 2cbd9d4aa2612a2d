"""bench_scoring.py: what it costs to score recorded sessions of 16 kHz, turns of 6 s, agent packets of 20 ms.

Load: one process, one session at a time. Budgets, in CPU milliseconds of one core of a shared 2-core machine, the best
of several repeats:

- a 60 s session read from disk, both tracks, document and WAV files included: 60 ms, a thousandth of real time;
- the same session from arrays that are in memory: 2 ms;
- a 60 s session of 8 turns without transcripts from the energies that were kept while it went on: 0.2 ms, so that a worker
  may score beside its live sessions;
- 120 s of it for at most 2.5 times what 60 s cost: scoring is linear in length (the ratio should be about 2).

    python tests/bench/bench_scoring.py
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import timeit
import wave
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voicebench import bundle, scoring
from voicebench.audio.level import Energies, frame_energies
from voicebench.recording import Recording

RATE_HZ = 16000
TURN_S = 6.0
LOUD = 3277  # -20 dBFS as noise of one amplitude


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        one, two = (write_session(Path(folder) / name, seconds) for name, seconds in (("one", 60), ("two", 120)))
        recording_one, recording_two = read(one), read(two)
        typical = replace(read(write_session(Path(folder) / "typical", 60, turn_s=7.5)), transcripts=())
        energies = energies_of(typical)
        from_disk_ms = cpu_ms(lambda: scoring.score(read(one)), number=2)
        from_arrays_ms = cpu_ms(lambda: scoring.score(recording_one), number=20)
        twice_ms = cpu_ms(lambda: scoring.score(recording_two), number=20)
        from_energies_ms = cpu_ms(lambda: scoring.score_energies(typical, *energies), number=50)
    verdicts = [
        report("scoring_60s_session_from_disk_cpu_ms", from_disk_ms, 60.0),
        report("scoring_60s_session_from_arrays_cpu_ms", from_arrays_ms, 2.0),
        report("scoring_60s_session_from_energies_cpu_ms", from_energies_ms, 0.2),
        report("scoring_120s_to_60s_ratio", twice_ms / from_arrays_ms, 2.5),
    ]
    return 0 if all(verdicts) else 1


def cpu_ms(work: Callable[[], Any], number: int, repeat: int = 9) -> float:
    """CPU time of one call, the least of several repeats: whatever else the machine does can only add."""
    return 1000.0 * min(timeit.repeat(work, number=number, repeat=repeat, timer=time.process_time)) / number


def report(name: str, value: float, budget: float) -> bool:
    fits = value <= budget
    print(f"{name}={value:.3f} budget={budget:.1f} {'ok' if fits else 'OVER'}")
    return fits


def read(directory: Path) -> Recording:
    return bundle.decode({path.name: path.read_bytes() for path in directory.iterdir()}, source=directory.name)


def energies_of(recording: Recording) -> tuple[Energies, Energies]:
    user, agent = scoring.analysis_rules(recording.scenario)
    return frame_energies(recording.user, user.frame_samples), frame_energies(recording.agent, agent.frame_samples)


def write_session(directory: Path, seconds: int, turn_s: float = TURN_S) -> Path:
    """The user speaks for 2 s of every turn, the agent answers after 600 ms for 2.5 s."""
    directory.mkdir()
    turns = int(seconds / turn_s)
    user = noise_at([(index * turn_s + 0.5, 2.0) for index in range(turns)], seconds)
    agent = noise_at([(index * turn_s + 3.1, 2.5) for index in range(turns)], seconds)
    packets = [
        {"time_s": round(index * turn_s + 3.1 + 0.02 * number, 3), "level_db": -20.0, "duration_s": 0.02}
        for index in range(turns)
        for number in range(125)
    ]
    ids = [f"turn-{index + 1}" for index in range(turns)]
    document = {
        "format": "voicebench-recording/1",
        "session_id": f"bench-{seconds}",
        "scenario": {
            "name": "bench",
            "sample_rate": RATE_HZ,
            "turns": [{"id": each, "audio": {"synth": "noise"}, "text": "one two three four"} for each in ids],
        },
        "sample_rate": RATE_HZ,
        "duration_s": float(seconds),
        "truncated": False,
        "clock": "virtual",
        "turns": [
            {"id": each, "trigger": "anchor", "start_s": index * turn_s + 0.5, "end_s": index * turn_s + 2.5}
            for index, each in enumerate(ids)
        ],
        "packets": packets,
        "clears": [],
        "transcripts": [
            {"role": "user", "text": "one two tree four", "time_s": index * turn_s + 2.8, "final": True}
            for index in range(turns)
        ],
    }
    (directory / "session.json").write_text(json.dumps(document), encoding="utf-8")
    for name, track in (("user.wav", user), ("agent.wav", agent)):
        with wave.open(str(directory / name), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE_HZ)
            file.writeframes(track.tobytes())
    return directory


def noise_at(bursts_s: list[tuple[float, float]], seconds: int) -> npt.NDArray[np.int16]:
    rng = np.random.default_rng(7)
    track = np.zeros(seconds * RATE_HZ, dtype=np.int16)
    for start_s, length_s in bursts_s:
        start, stop = round(start_s * RATE_HZ), round((start_s + length_s) * RATE_HZ)
        track[start:stop] = rng.choice(np.array([-LOUD, LOUD], dtype=np.int16), stop - start)
    return track


if __name__ == "__main__":
    sys.exit(main())
