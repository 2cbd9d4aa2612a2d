"""The page's table of turns: a row for each turn of the plan, over the whole run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from voicebench.master.collector import Collector
from voicebench.master.report import RunHead
from voicebench.scenario.model import AudioSource, Turn
from voicebench.scenario.prepared import PreparedScenario
from voicebench.summary import Tally
from voicebench.words import shortened

MAX_TURNS = 200
_METRICS = {"respond": "response_latency_ms", "stop": "barge_in_stop_ms"}
_PERCENTILES = ("p50", "p90", "p95", "p99")


def turn_rows(scenarios: Sequence[PreparedScenario], head: RunHead, collector: Collector) -> dict[str, Any]:
    """The table, in the order of the plan."""
    over_time = collector.timeline.p95_over_time()
    turns = ((each.scenario.name, turn) for each in scenarios for turn in enumerate(each.scenario.turns, 1))
    rows = []
    for scenario, (position, turn) in islice(turns, MAX_TURNS):
        tally = collector.by_turn.get(scenario, {}).get(turn.id, Tally())
        limits = {**head.limits, **head.scenario_limits.get(scenario, {})}
        row = _row(turn, tally, limits)
        found = over_time.get((scenario, turn.id)) if row["times_ms"] is not None else None
        rows.append({"scenario": scenario, "position": position, **row, "p95_over_time": found})
    return {"rows": rows}


def _row(turn: Turn, tally: Tally, limits: Mapping[str, float]) -> dict[str, Any]:
    counts, times_ms = tally.counts, _times(turn, tally)
    limits_ms = {"respond": turn.response_timeout_ms, "stop": turn.max_stop_ms, "ignore": None}
    missed = {
        "respond": counts["missed_responses"],
        "stop": counts["barge_in_turns"] - tally.barge_in_stop_ms.count,
        "ignore": counts["false_barge_ins"] + counts["spurious_responses"],
    }
    return {
        "id": turn.id,
        "expect": turn.expect,
        "audio": shortened(_audio(turn.audio)),
        "text": shortened(turn.text) or None,
        "limit_ms": limits_ms[turn.expect],
        "played": counts["judged_turns"],
        "good": tally.response_latency_ms.count if turn.expect == "respond" else counts["turns_passed"],
        "missed": missed[turn.expect],
        "false_barge_ins": counts["false_barge_ins"],
        "spurious_responses": counts["spurious_responses"],
        "times_ms": times_ms,
        "ttfa_p95_ms": tally.ttfa_ms.as_dict()["p95"],
        "mean_wer": tally.mean_wer,
        "over": _over(turn, times_ms, limits),
    }


def _over(turn: Turn, times_ms: Mapping[str, Any] | None, limits: Mapping[str, float]) -> list[str]:
    """Which of a turn's percentiles are over what the plan allows to all of them together."""
    if times_ms is None:
        return []
    allowed = {name: limits.get(f"{name}_{_METRICS[turn.expect]}", float("inf")) for name in _PERCENTILES}
    return [name for name in _PERCENTILES if times_ms[name] is not None and times_ms[name] > allowed[name]]


def _times(turn: Turn, tally: Tally) -> dict[str, Any] | None:
    if turn.expect == "ignore":
        return None
    values = tally.response_latency_ms if turn.expect == "respond" else tally.barge_in_stop_ms
    shown = values.as_dict()
    return {key: shown[key] for key in ("count", *_PERCENTILES)}


def _audio(audio: AudioSource) -> str:
    if audio.synth is not None:
        return f"{audio.synth}, {audio.duration_ms:g} ms"
    return audio.file or audio.clip or ""
