"""`junit.xml`: each assertion a test, and each other ground of the verdict: no run that went wrong looks green."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from voicebench.words import number, shortened

SUITE = "voicebench"
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_GROUNDS = {
    "unreachable": "the agent was reached",
    "incomplete": "the run is complete",
    "untrusted": "the numbers can be trusted",
    "interrupted": "the run was not interrupted",
}
LONGEST_WORDS = 1000


def render_junit(report: Mapping[str, Any]) -> bytes:
    """The verdict as tests: what CI systems read.

    Args:
        report: docs/report.md.
    """
    run = report["run"]
    cases = [*(_assertion(run, each) for each in report["assertions"]), *_grounds(report)]
    failures = sum(case.find("failure") is not None for case in cases)
    errors = sum(case.find("error") is not None for case in cases)
    totals = {
        "tests": str(len(cases)),
        "failures": str(failures),
        "errors": str(errors),
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
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _assertion(run: Mapping[str, Any], each: Mapping[str, Any]) -> ElementTree.Element:
    case = _case(run, each["name"], each["scenario"])
    if each["verdict"] == "pass":
        return case
    actual = "nothing was measured" if each["actual"] is None else f"actual {number(each['actual'])}"
    text = f"{each['name']}: {actual}, the limit is {number(each['limit'])}"
    if each["verdict"] == "cant_tell":
        text += f"; {number(each['actual_reliable'])} without unreliable turns, so nobody can tell"
    _failure(case, text, each["verdict"])
    return case


def _grounds(report: Mapping[str, Any]) -> list[ElementTree.Element]:
    """What can fail a run beside its assertions."""
    run = report["run"]
    cases = []
    for verdict, name in _GROUNDS.items():
        case = _case(run, name, None)
        if run["verdict"] == verdict:
            _failure(case, "; ".join(run["reasons"]), verdict, kind="error")
        cases.append(case)
    case = _case(run, "at least one session succeeded", None)
    if run["verdict"] == "fail" and all(each["passed"] for each in report["assertions"]):
        _failure(case, "; ".join(run["reasons"]), "fail")
    return [*cases, case]


def _case(run: Mapping[str, Any], name: str, scenario: str | None) -> ElementTree.Element:
    group = ".".join(_clean(part).replace(".", "_") for part in (run["name"], scenario) if part)
    return ElementTree.Element("testcase", {"classname": f"{SUITE}.{group}", "name": _clean(name), "time": "0"})


def _failure(case: ElementTree.Element, text: str, kind_of: str, *, kind: str = "failure") -> None:
    words = _clean(shortened(text, LONGEST_WORDS))
    ElementTree.SubElement(case, kind, {"message": words, "type": kind_of}).text = words


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
