"""The reports on disk, each whole or not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from voicebench.bundle_files import write_file
from voicebench.reports.html import render_html
from voicebench.reports.junit import render_junit
from voicebench.reports.kept import kept_sessions
from voicebench.reports.markdown import render_markdown

HTML, MARKDOWN, JUNIT = "report.html", "report.md", "junit.xml"
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
MAX_SUMMARY_BYTES = 1 << 20


def write_reports(folder: Path, report: Mapping[str, Any], details: Mapping[str, str]) -> list[str]:
    """Everything that is made from the report beside `report.json`, which comes first.

    One that can't be made keeps no other from being written.

    Returns:
        What went wrong, a sentence each.
    """
    makers: dict[str, Callable[[], bytes]] = {
        JUNIT: lambda: render_junit(report),
        MARKDOWN: lambda: _markdown(report, details),
        HTML: lambda: render_html(report, details, kept_sessions(folder, report)),
    }
    troubles = []
    for name, make in makers.items():
        try:
            write_file(folder / name, make())
        except Exception as error:  # noqa: BLE001 - the numbers are in report.json, and are worth more than this file
            troubles.append(f"{folder / name}: {_why(error)}; report.json has all numbers")
    return troubles


def append_summary(report: Mapping[str, Any], details: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """The report on the page of a GitHub job, where there is one. Returns what went wrong, as above."""
    path = environment.get(SUMMARY_VARIABLE)
    if not path:
        return []
    try:
        text = _markdown(report, details) + b"\n"
        with open(path, "ab") as summary:
            if os.fstat(summary.fileno()).st_size + len(text) > MAX_SUMMARY_BYTES:
                return [f"${SUMMARY_VARIABLE} ({path}): has no room for the report: GitHub takes 1 MiB a step"]
            summary.write(text)
    except Exception as error:  # noqa: BLE001 - as above
        return [f"${SUMMARY_VARIABLE} ({path}): {_why(error)}"]
    return []


def _markdown(report: Mapping[str, Any], details: Mapping[str, str]) -> bytes:
    return render_markdown(report, details).encode("utf-8", "replace")


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"cannot be written: {error.strerror or error}"
    return f"cannot be made: {error!r}"
