"""`junit.xml`: each assertion a test, and each other ground of the verdict: no run that went wrong looks green."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

from voicebench.reports.digest import was_late
from voicebench.words import number, shortened

SUITE = "voicebench"
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
LONGEST_WORDS = 1000
Case = ElementTree.Element


def render_junit(report: Mapping[str, Any]) -> bytes:
    """The verdict as tests: what CI systems read.

    Args:
        report: docs/report.md.
    """
    run = report["run"]
    cases = [*(_assertion(run, each) for each in report["assertions"]), *_grounds(report)]
    if run["exit_code"] and not any(_went_wrong(case) for case in cases):
        cases.append(_case(run, "the verdict", broken=(run["verdict"], "; ".join(run["reasons"]))))
    totals = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": str(sum(case.find("error") is not None for case in cases)),
        "time": f"{run['duration_s']:.3f}",
    }
    root = ElementTree.Element("testsuites", {"name": SUITE, **totals})
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        {"name": _clean(run["name"]), **totals, "skipped": "0", "timestamp": run["started_at"][:19], "id": "0"},
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name in ("id", "verdict", "exit_code", "complete", "insecure", "seed"):
        ElementTree.SubElement(properties, "property", {"name": name, "value": _clean(str(run[name]))})
    suite.extend(cases)
    ElementTree.indent(root)
    content: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def _went_wrong(case: Case) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def _assertion(run: Mapping[str, Any], each: Mapping[str, Any]) -> Case:
    case = _case(run, each["name"], scenario=each["scenario"])
    if each["verdict"] == "pass":
        return case
    actual = "nothing was measured" if each["actual"] is None else f"actual {number(each['actual'])}"
    text = f"{each['name']}: {actual}, the limit is {number(each['limit'])}"
    if each["verdict"] == "cant_tell":
        text += f"; {number(each['actual_reliable'])} without unreliable turns, so nobody can tell"
    _add(case, "failure", each["verdict"], text)
    return case


def _grounds(report: Mapping[str, Any]) -> Iterator[Case]:
    """What can fail a run beside its assertions. Each is told by itself: only one of them gave the verdict its name."""
    run, account = report["run"], report["accounting"]
    verdict, told = run["verdict"], "; ".join(run["reasons"])
    whole = run["complete"] and verdict not in ("incomplete", "interrupted")
    trusted = verdict != "untrusted" and not was_late(report) and not account["reasons"].get("generator")
    ended = account["finished"] + account["failed"] + account["cut"] + account["lost"]
    every_failed = account["failed"] > 0 and account["failed"] == ended
    kind = "interrupted" if verdict == "interrupted" else "incomplete"
    yield _case(run, "the run is complete", broken=None if whole else (kind, told), took_s=run["duration_s"])
    yield _case(run, "the numbers can be trusted", broken=None if trusted else ("untrusted", told))
    yield _case(run, "the agent was reached", broken=("unreachable", told) if verdict == "unreachable" else None)
    case = _case(run, "not every session failed")
    if every_failed:
        _add(case, "failure", "fail", f"{account['failed']:,} of {ended:,} sessions failed")
    yield case


def _case(
    run: Mapping[str, Any],
    name: str,
    *,
    scenario: str | None = None,
    broken: tuple[str, str] | None = None,
    took_s: float = 0.0,
) -> Case:
    group = ".".join(_clean(part).replace(".", "_") for part in (run["name"], scenario) if part)
    attributes = {"classname": f"{SUITE}.{group}", "name": _clean(name), "time": f"{took_s:.3f}"}
    case = ElementTree.Element("testcase", attributes)
    if broken is not None:
        _add(case, "error", *broken)
    return case


def _add(case: Case, kind: str, type_of: str, text: str) -> None:
    words = _clean(shortened(text, LONGEST_WORDS))
    ElementTree.SubElement(case, kind, {"message": words, "type": type_of}).text = words


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
