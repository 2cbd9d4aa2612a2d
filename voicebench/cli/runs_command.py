"""What `voicebench runs` does. Quick for hundreds of runs: of each database it reads a few rows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from voicebench.cli.grid import Column, print_grid
from voicebench.cli.output import console, emit_json
from voicebench.cli.report_command import REPORT
from voicebench.errors import UsageError
from voicebench.master.store import DATABASE, glance
from voicebench.run_folder import RESULTS
from voicebench.words import NOTHING, duration, ms


@dataclass(frozen=True, slots=True)
class Listed:
    """One run as it is listed."""

    run: str
    started_at: str | None = None
    duration_s: float | None = None
    started: int | None = None
    state: str = "ended"
    verdict: str | None = None
    exit_code: int | None = None
    complete: bool | None = None
    p95_response_latency_ms: float | None = None
    trouble: str | None = None
    """Why it can't be read."""


def runs_command(folder: Path | None, *, as_json: bool) -> int:
    """List them; returns the exit code."""
    folder = folder or RESULTS
    if not folder.is_dir():
        raise UsageError(f"{folder}: {'is no folder' if folder.exists() else 'there is no such folder'}")
    runs = [listed for each in folder.iterdir() if each.is_dir() and (listed := _listed(each)) is not None]
    runs.sort(key=lambda run: run.started_at or "", reverse=True)
    if as_json:
        emit_json({"runs": [asdict(run) for run in runs]})
    elif runs:
        _print(runs)
    else:
        console().print(f"no runs in {folder}", markup=False)
    return 0


def _listed(folder: Path) -> Listed | None:
    """A run; None for a folder that holds none."""
    if (folder / DATABASE).exists():
        try:
            seen = glance(folder)
        except UsageError as error:
            return Listed(folder.name, state="broken", trouble=str(error))
        return Listed(
            run=folder.name,
            started_at=seen.started_at,
            duration_s=seen.duration_s,
            started=seen.started,
            state=seen.state,
            verdict=seen.verdict,
            exit_code=seen.exit_code,
            complete=seen.complete,
            p95_response_latency_ms=seen.p95_response_latency_ms,
        )
    if (folder / REPORT).is_file():
        return _of_report(folder)
    return None


def _of_report(folder: Path) -> Listed:
    """A run of which only the report is left."""
    try:
        report: Any = json.loads((folder / REPORT).read_bytes())
        run, summary = report["run"], report["summary"]
        return Listed(
            run=folder.name,
            started_at=run["started_at"],
            duration_s=run["duration_s"],
            started=report["accounting"]["started"],
            verdict=run["verdict"],
            exit_code=run.get("exit_code"),
            complete=run["complete"],
            p95_response_latency_ms=summary["response_latency_ms"]["p95"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Listed(folder.name, state="broken", trouble=f"{folder / REPORT}: is no report of a run: {error!r}")


def _print(runs: list[Listed]) -> None:
    columns = [
        Column("", "run", left=True),
        Column("", "started", rank=3, left=True),
        Column("", "length", rank=4),
        Column("", "sessions", rank=2),
        Column("", "p95", rank=1),
        Column("", "verdict", left=True),
    ]
    out = console()
    print_grid(out, columns, [_row(run) for run in runs])
    for run in runs:
        if run.trouble:
            out.print(f"{run.run}: {run.trouble}", markup=False)


def _row(run: Listed) -> list[str]:
    verdict = run.state if run.verdict is None else run.verdict.replace("_", " ")
    if run.complete is False and run.verdict not in (None, "incomplete", "interrupted"):
        verdict += ", incomplete"
    if run.exit_code:
        verdict += f" (exit {run.exit_code})"
    return [
        run.run,
        NOTHING if run.started_at is None else run.started_at[:16].replace("T", " "),
        NOTHING if run.duration_s is None else duration(run.duration_s),
        NOTHING if run.started is None else f"{run.started:,}",
        ms(run.p95_response_latency_ms),
        verdict,
    ]
