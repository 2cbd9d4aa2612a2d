"""`run --dry-run`: how much would be placed."""

from __future__ import annotations

from collections.abc import Sequence

from voicebench.cli.output import console
from voicebench.scenario.prepared import PreparedScenario
from voicebench.script import prepare, shortest_session_s
from voicebench.words import count, duration
from voicebench.worker.engine import EngineLoad


def print_dry_run(
    load: EngineLoad, scenarios: Sequence[PreparedScenario], *, virtual: bool, notes: Sequence[str]
) -> None:
    """Bounds of sessions and minutes, as far as they can be known without calling anybody."""
    out = console()
    out.print(f"{count(load.callers, 'caller')}, {'virtual' if virtual else 'real'} clock", markup=False)
    lengths = [session_bounds_s(prepared) for prepared in scenarios]
    for prepared, (shortest_s, longest_s) in zip(scenarios, lengths, strict=True):
        out.print(
            f"{prepared.scenario.name}: {count(len(prepared.clips), 'turn')}, a session takes {shortest_s:.1f} s to "
            f"{longest_s:.1f} s, agent {prepared.scenario.adapter.type}",
            markup=False,
        )
    shortest_s, longest_s = min(low for low, _ in lengths), max(high for _, high in lengths)
    fewest, most = sessions_bounds(load, shortest_s, longest_s)
    sessions = count(most, "session") if fewest == most else f"{fewest:,} to {most:,} sessions"
    least_s, most_s = fewest * shortest_s, most * longest_s
    if load.max_audio_s is not None:
        most_s = min(most_s, load.max_audio_s)
        least_s = min(least_s, most_s)
    out.print(f"would place {sessions}, {_minutes(least_s)} to {_minutes(most_s)} of conversation", markup=False)
    for note in notes:
        out.print(f"note: {note}", markup=False)


def session_bounds_s(prepared: PreparedScenario) -> tuple[float, float]:
    """How long one session takes at least and at most, seconds."""
    longest_s = prepared.scenario.max_duration_ms / 1000.0
    return min(shortest_session_s(prepare(prepared.scenario, prepared.clips)), longest_s), longest_s


def sessions_bounds(load: EngineLoad, shortest_s: float, longest_s: float) -> tuple[int, int]:
    """How many sessions take place at least and at most."""
    budget = None if load.max_audio_s is None else int(load.max_audio_s / shortest_s)
    if load.run_time_s is None:
        assert load.sessions is not None
        fewest = most = load.sessions
    else:
        # Each caller has at least begun one, and at most begun one more than fit.
        fewest = load.callers if load.spawn_rate_per_s is None else 1
        most = load.callers * (int(load.run_time_s / shortest_s) + 1)
        if load.sessions is not None:
            fewest, most = min(fewest, load.sessions), min(most, load.sessions)
    if budget is None:
        return fewest, most
    most = min(most, budget)
    return min(fewest, most, max(1, int((load.max_audio_s or 0.0) / longest_s))), most


def _minutes(seconds: float) -> str:
    return duration(seconds) if seconds < 60 else f"{seconds / 60:,.0f} min"
