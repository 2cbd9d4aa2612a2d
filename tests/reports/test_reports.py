"""Reports for people and pipelines: true, whole, and safe to open whatever agents and workers have said."""

from __future__ import annotations

import copy
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.made import a_head, a_worker, ignore, not_played, respond, result, session, stop
from tests.test_virtual import CONVERSATION, script_of
from voicebench import bundle
from voicebench.bundle_files import write_files
from voicebench.master.collector import Collector
from voicebench.master.ending import conclude
from voicebench.master.report import RunTail
from voicebench.records import Outcome
from voicebench.reports import writing
from voicebench.reports.html import render_html
from voicebench.reports.junit import render_junit
from voicebench.reports.kept import badness, kept_sessions
from voicebench.reports.markdown import MAX_BYTES, plain, render_markdown
from voicebench.reports.writing import append_summary, write_reports
from voicebench.virtual import run_virtual

FAILED = Outcome("failed", "dropped", "the agent closed the line: code 1011")
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>|`@all\n\n# x [a](http://evil.example) \N{RIGHT-TO-LEFT OVERRIDE}\0\x1b[31m"
VOID = frozenset(("meta", "br", "img", "link", "hr", "input"))


def a_report(
    *records: Any, limits: dict[str, float] | None = None, tail: dict[str, Any] | None = None, **head: Any
) -> Any:
    collector = Collector()
    for number, record in enumerate(records):
        name = f"run-{number:06d}"
        placed = session(
            *record.turns,
            outcome=record.outcome,
            scenario=record.scenario,
            session_id=name,
            duration_s=record.duration_s,
        )
        collector.take(result(placed, number=number, started_s=float(number)), worker="w")
    made_head = a_head(limits=limits or {}, **{"scenario_limits": {"made": {}}, **head})
    events = ((0.0, "start", "1 caller"), (9.0, "end", ""))
    made_tail = RunTail(
        **{
            "duration_s": 9.0,
            "workers": (a_worker(started=len(records)),),
            "notes": (),
            "events": events,
            **(tail or {}),
        }
    )
    return conclude(made_head, made_tail, collector)[0]


class Page(HTMLParser):
    """An HTML page that is taken apart, and has to be well-formed."""

    def __init__(self, content: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(content.decode())
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page_of(report: Any, kept: Any = ()) -> Page:
    return Page(render_html(report, {}, kept))


def assert_harmless(page: Page) -> None:
    assert not {"script", "img", "iframe", "object", "embed", "link", "form", "base"} & set(page.tags)
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        if name in ("href", "src", "xlink:href"):
            assert value.startswith("#"), (tag, value)


def full() -> Any:
    return a_report(
        session(respond(500.0), stop(), ignore(), not_played()),
        session(respond(None), stop(None), ignore(spurious=True)),
        session(respond(4000.0, reliable=False, error_ms=40.0), outcome=FAILED),
        limits={"p95_response_latency_ms": 1000.0, "max_missed_responses": 3, "max_wer": 0.1},
    )


def test_the_verdict_comes_first_and_every_number_is_the_reports():
    report = full()
    text = page_of(report).text
    assert text.index("✗ Can’t be trusted") < text.index("Numbers") < text.index("Assertions") < text.index("accounted")
    assert report["run"]["reasons"][0] in text
    assert "3 started = 2 finished + 1 failed + 0 cut + 0 lost" in text
    assert "p95_response_latency_ms" in text
    assert "≤ 1,000 ms" in text
    assert f"{report['summary']['response_latency_ms']['p95']:,.10g} ms" in text
    assert "nothing was measured" in text
    assert "the agent closed the line: code 1011" in text
    assert "missed" not in text or "Missed responses" in text


def test_what_was_never_measured_is_a_dash_and_never_0():
    report = a_report(session(respond(None)))
    text = page_of(report).text
    assert "ask 1 0 % 1 – – – – – – – 0" in text
    assert not re.search(r"\b0(\.0)? ms", text)


def test_a_pass_is_a_pass():
    report = a_report(session(respond(500.0)), limits={"p95_response_latency_ms": 1000.0})
    assert report["run"]["exit_code"] == 0
    assert "✓ Passed exit code 0 All assertions hold" in page_of(report).text
    assert render_markdown(report, {}).startswith("# Passed: run\n")
    assert ElementTree.fromstring(render_junit(report)).attrib["failures"] == "0"


@pytest.mark.parametrize(
    ("tail", "word"),
    [
        ({"signal_exit": 130}, "Interrupted"),
        ({"aborted": "no worker was left"}, "Incomplete"),
        ({"workers": (a_worker(started=3, state="lost", why="killed"),)}, "Incomplete"),
        ({"going_on": True}, "Incomplete"),
    ],
)
def test_a_run_that_did_not_end_well_says_so_first_everywhere(tail, word):
    report = a_report(session(respond(500.0)), tail=tail)
    text = page_of(report).text
    assert text.startswith(word)
    assert f"✗ {word}" in text[:250]
    assert "This run is incomplete" in text
    assert render_markdown(report, {}).startswith(f"# {word}")
    suite = ElementTree.fromstring(render_junit(report))
    assert int(suite.attrib["errors"]) == 1


def test_a_run_without_any_session_has_reports():
    report = a_report(tail={"signal_exit": 130})
    assert "no turn was judged" in page_of(report).text.lower()
    render_markdown(report, {})
    render_junit(report)


def test_insecure_is_said():
    assert "forged" in page_of(a_report(session(respond()), insecure=True)).text


def test_words_of_others_are_words():
    record = session(
        respond(500.0, turn_id=HOSTILE, transcript=HOSTILE),
        outcome=Outcome("failed", "dropped", HOSTILE),
        scenario=HOSTILE,
    )
    report = a_report(
        record, scenario_limits={HOSTILE: {"max_wer": 0.1}}, name=HOSTILE, plan={"plan": {HOSTILE: HOSTILE}, "scenarios": []},
        tail={"notes": (HOSTILE,), "workers": (a_worker("w", started=1, host=HOSTILE, why=HOSTILE),), "trouble": (HOSTILE,)},
    )  # fmt: skip
    page = Page(render_html(report, {"dropped": HOSTILE}, ()))
    assert_harmless(page)
    assert "<script>alert(1)</script>" in page.text  # as words
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in page.text
    text = render_markdown(report, {"dropped": HOSTILE})
    assert not re.search(r"(?<!\\)<", text)
    assert "http://evil" not in text
    assert "@all" not in text
    assert not re.search(r"(?<!\\)`", text)
    junit = ElementTree.fromstring(render_junit(report))
    assert "<script>" in junit.find("testsuite").attrib["name"]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_words_stay_in_their_cell(words):
    cell = plain(words)
    assert "\n" not in cell
    assert not re.search(r"(?<!\\)(\\\\)*[|<`]", cell)


def test_what_others_said_at_length_is_cut():
    report = a_report(
        session(respond(500.0, turn_id="x" * 1_000_000), outcome=Outcome("failed", "dropped", "y" * 1_000_000))
    )
    assert len(render_html(report, {"dropped": "y" * 1_000_000}, ())) < 100_000
    assert len(render_markdown(report, {"dropped": "y" * 1_000_000}).encode()) < MAX_BYTES
    assert len(render_junit(report)) < 10_000


def test_many_sessions_turns_and_workers_stay_readable():
    turns = [respond(None, turn_id=f"turn-{n}") for n in range(300)]
    report = a_report(*[session(*turns, outcome=FAILED)] * 300, tail={"workers": tuple(
        a_worker(f"w{n}" if n else "w", started=300 if not n else 0) for n in range(1000)
    )})  # fmt: skip
    content = render_html(report, {}, ())
    assert len(content) < 2_000_000
    text = Page(content).text
    assert "50 of 300: report.json has all" in text
    assert "50 of 90,000: report.json has all" in text
    markdown = render_markdown(report, {})
    assert len(markdown.encode()) <= MAX_BYTES
    for title in ("Numbers", "Sessions", "Turns of made", "Sessions that failed", "Turns that did not pass", "Workers"):
        assert f"\n## {title}\n" in markdown  # none of them is cut off for the length of another
    assert markdown.rstrip().endswith("And 970 more.")


def test_charts_speak_and_have_gaps_where_nothing_was_measured():
    report = a_report(
        *[session(respond(500.0 + n, end_s=1.0)) for n in range(60)], limits={"p95_response_latency_ms": 2000.0}
    )
    page = page_of(report)
    assert "p95 limit 2,000" in page.text
    assert re.search(r"In ms: p50 between \d+", page.text)
    silent = copy.deepcopy(report)
    for name in ("p50_ms", "p90_ms", "p95_ms", "p99_ms"):
        silent["timeline"][name] = [None] * len(silent["timeline"]["t_s"])
    assert "Response latency percentiles of windows" not in page_of(silent).text
    assert "timeline" in report
    assert page_of({**report, "timeline": None}).text  # the virtual clock has none


# --- junit ---


def test_each_assertion_is_a_test_and_each_ground_of_the_verdict_another():
    report = full()
    cases = {case.attrib["name"]: case for case in ElementTree.fromstring(render_junit(report)).iter("testcase")}
    assert cases["p95_response_latency_ms"].find("failure").attrib["type"] in ("fail", "cant_tell")
    assert cases["max_missed_responses"].find("failure") is None
    assert "nothing was measured" in cases["max_wer"].find("failure").text
    assert cases["the numbers can be trusted"].find("error") is not None
    assert cases["the run is complete"].find("error") is None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([session(respond(500.0)), session(respond(None)), session(outcome=FAILED)]), max_size=4),
    st.sampled_from([{}, {"signal_exit": 143}, {"aborted": "x"}, {"trouble": ("x",)}, {"not_placed": 2}]),
    st.sampled_from([{}, {"max_missed_responses": 0}, {"p95_response_latency_ms": 100.0}]),
)
def test_no_run_that_went_wrong_is_green(records, tail, limits):
    report = a_report(*records, limits=limits, tail=tail)
    suite = ElementTree.fromstring(render_junit(report))
    bad = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    assert (bad > 0) == (report["run"]["exit_code"] != 0)
    found = sum(1 for case in suite.iter("testcase") for each in case if each.tag in ("failure", "error"))
    assert found == bad
    assert int(suite.attrib["tests"]) == len(list(suite.iter("testcase")))


# --- recordings ---


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> tuple[Path, Any]:
    """A run's folder with one recording, and its report."""
    from voicebench.scoring import score

    script, options = script_of(CONVERSATION)
    recording = run_virtual(script, options).recording("run-000000", clock="virtual")
    folder = tmp_path_factory.mktemp("run")
    write_files(folder / "bundles" / "run-000000", bundle.encode(recording, recording.scenario.document))
    record = score(recording)
    report = a_report(record, scenario_limits={record.scenario: {}})
    from voicebench.score_document import session_document

    report["sessions"] = [
        {**session_document(record), "worker": "w", "started_s": 0.0, "warmup": False, "bundle": "bundles/run-000000"}
    ]
    return folder, report


def test_a_recorded_session_is_drawn_with_what_happened(recorded):
    folder, report = recorded
    page = Page(render_html(report, {}, kept_sessions(folder, report)))
    assert_harmless(page)
    assert "Both tracks of run-000000" in page.text
    for turn in report["sessions"][0]["turns"]:
        if turn["response_latency_ms"] is not None and turn["expect"] == "respond":
            assert f"{turn['id']}: answered after {turn['response_latency_ms']:,.0f} ms." in page.text
    waves = [value for tag, name, value in page.attributes if tag == "path" and name == "d" and value.count("V") > 50]
    assert len(waves) == 2


def test_a_recording_that_can_not_be_read_is_said(recorded, tmp_path):
    _, report = recorded
    page = Page(render_html(report, {}, kept_sessions(tmp_path, report)))
    assert "Its recording can’t be read" in page.text


def test_the_worst_come_first():
    good, slow, missed, failed = (
        {"turns": [{"passed": passed, "status": status, "response_latency_ms": ms}], "outcome": {"state": state}}
        for passed, status, ms, state in (
            (True, "measured", 400.0, "finished"), (True, "measured", 4000.0, "finished"),
            (False, "missed", None, "finished"), (True, "measured", 300.0, "failed"),
        )
    )  # fmt: skip
    assert sorted([good, slow, missed, failed], key=badness) == [failed, missed, slow, good]


# --- on disk ---


def test_all_are_written_and_the_same_again(recorded):
    folder, report = recorded
    assert write_reports(folder, report, {}) == []
    first = {name: (folder / name).read_bytes() for name in (writing.HTML, writing.MARKDOWN, writing.JUNIT)}
    assert write_reports(folder, json.loads(json.dumps(report)), {}) == []
    assert first == {name: (folder / name).read_bytes() for name in first}
    assert len(first[writing.HTML]) < 200_000


def test_one_that_can_not_be_made_keeps_no_other_from_being_written(tmp_path, monkeypatch):
    def broken(*_args: Any) -> bytes:
        raise RuntimeError("no template")

    monkeypatch.setattr(writing, "render_markdown", broken)
    (trouble,) = write_reports(tmp_path, full(), {})
    assert "report.md: cannot be made: RuntimeError('no template')" in trouble
    assert sorted(path.name for path in tmp_path.iterdir()) == ["junit.xml", "report.html"]


def test_a_folder_that_takes_nothing_is_told_for_each_file(tmp_path):
    (tmp_path / "file").write_text("x")
    troubles = write_reports(tmp_path / "file", full(), {})
    assert len(troubles) == 3


def test_a_job_summary_is_appended_to_and_not_overfilled(tmp_path):
    report, path = full(), tmp_path / "summary.md"
    assert append_summary(report, {}, {}) == []
    path.write_text("before\n")
    for _ in range(2):
        assert append_summary(report, {}, {writing.SUMMARY_VARIABLE: str(path)}) == []
    text = path.read_text()
    assert text.startswith("before\n# Can’t be trusted")
    assert text.count("# Can’t be trusted") == 2
    path.write_bytes(b"x" * (writing.MAX_SUMMARY_BYTES - 10))
    (trouble,) = append_summary(report, {}, {writing.SUMMARY_VARIABLE: str(path)})
    assert "1 MiB" in trouble
    (trouble,) = append_summary(report, {}, {writing.SUMMARY_VARIABLE: str(tmp_path)})
    assert "Is a directory" in trouble
