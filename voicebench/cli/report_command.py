"""What `voicebench report` does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from voicebench.bundle_files import write_file
from voicebench.cli.output import emit_json, json_bytes, say
from voicebench.cli.run_command import write_further
from voicebench.cli.settle import refuse_unwritable
from voicebench.cli.show import show_report
from voicebench.errors import TesterError, UsageError
from voicebench.master.ending import conclude
from voicebench.master.store import DATABASE, read_run
from voicebench.run_folder import RESULTS

REPORT = "report.json"


def report_command(run: Path, json_to: str | None, *, quiet: bool) -> int:
    """Make the report, write it, show it; returns the run's exit code."""
    if json_to not in (None, "-"):
        refuse_unwritable(Path(str(json_to)))
    folder = found(run)
    stored = read_run(folder)
    report, verdict = conclude(stored.head, stored.tail, stored.collector)
    targets = [] if json_to in (None, "-") else [Path(str(json_to))]
    if stored.state == "running":
        say(f"{folder}: the run is still going on; this is how it stands, and report.json is left alone")
    elif stored.state == "unfinished" and _measured(_written(folder / REPORT)) > _measured(report):
        say(f"{folder / REPORT}: has more sessions than {DATABASE}, which could not be written to the end: left alone")
    else:
        targets.insert(0, folder / REPORT)
    for path in targets:
        try:
            write_file(path, json_bytes(report))
        except OSError as error:
            raise TesterError(f"{path}: the report cannot be written: {error.strerror}") from None
    if folder / REPORT in targets:
        write_further(report, stored.collector.details(), folder)
    if json_to == "-":
        emit_json(report)
    elif not quiet:
        show_report(report, details=stored.collector.details(), directory=folder)
    if verdict.exit_code:
        say(f"exit {verdict.exit_code}: {verdict.reasons[0]}")
    return verdict.exit_code


def _written(path: Path) -> Mapping[str, Any]:
    """The report that is there; empty: there is none that can be read."""
    try:
        report = msgspec.json.decode(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return report if isinstance(report, dict) else {}


def _measured(report: Mapping[str, Any]) -> int:
    """Sessions that were heard of again."""
    accounting = report.get("accounting")
    counts = [accounting.get(state) for state in ("finished", "failed", "cut")] if isinstance(accounting, dict) else []
    return sum(count for count in counts if isinstance(count, int))


def found(run: Path) -> Path:
    """The folder of a run, given by itself or by its name among the results.

    Raises:
        UsageError: There is none.
    """
    for folder in (run, RESULTS / run):
        if folder.is_dir():
            return folder
    if run.exists():
        raise UsageError(f"{run}: is a file: give the folder of a run")
    raise UsageError(f"{run}: there is no such folder, and none of that name in {RESULTS} (`voicebench runs`)")
