"""Reports of runs as bad as they come: hostile words, nothing measured, too much of everything, a disk that is full."""

from __future__ import annotations

import copy
import errno
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reports.test_reports import FAILED, a_report, assert_harmless, page_of, recorded
from tests.support.made import a_worker, ignore, respond, session, stop
from voicebench import bundle_files
from voicebench.cli import main
from voicebench.records import Outcome
from voicebench.reports import charts, digest, figures, incidents, writing
from voicebench.reports.charts import latency_chart
from voicebench.reports.foreign import shown
from voicebench.reports.html import render_html
from voicebench.reports.junit import render_junit
from voicebench.reports.kept import Kept, kept_sessions
from voicebench.reports.markdown import MAX_BYTES, plain, render_markdown
from voicebench.reports.svg import polyline, tag, ticks
from voicebench.reports.turn_tables import turn_tables
from voicebench.reports.writing import append_summary, write_reports

__all__ = ["recorded"]  # a fixture
RLO, ZWJ = "\N{RIGHT-TO-LEFT OVERRIDE}", "\N{ZERO WIDTH JOINER}"


def nulled(value: Any) -> Any:
    """The document with null wherever a number may be missing."""
    if isinstance(value, dict):
        return {key: None if key in MAY_BE_NULL else nulled(each) for key, each in value.items()}
    return [nulled(each) for each in value] if isinstance(value, list) else value


MAY_BE_NULL = frozenset(
    (
        "p50", "p90", "p95", "p99", "max", "min", "mean", "barge_in_success_rate", "mean_wer", "pooled_wer",
        "unreliable_turn_rate", "failed_session_rate", "actual", "actual_reliable", "why", "left_s", "started_s", "bundle",
        "reason", "detail", "start_s", "end_s", "user_onset_s", "user_offset_s", "responded", "response_latency_ms",
        "ttfa_ms", "talk_over", "stopped", "stop_ms", "false_barge_in", "spurious_response", "transcript", "wer", "error_ms",
    )
)  # fmt: skip
DISTRIBUTIONS = ("response_latency_ms", "ttfa_ms", "barge_in_stop_ms")


def of_nulls() -> Any:
    report = a_report(
        session(respond(500.0), stop(), ignore(), respond(None, turn_id="missed")),
        session(outcome=FAILED),
        limits={"p95_response_latency_ms": 1000.0},
    )
    bare = nulled(report)
    empty = {"count": 0, **dict.fromkeys(("min", "p50", "p90", "p95", "p99", "max", "mean"))}
    summaries = [bare["summary"], bare["summary_reliable"]]
    summaries += [turn for each in bare["by_scenario"].values() for turn in each["by_turn"].values()]
    for summary in summaries:
        summary.update(copy.deepcopy(dict.fromkeys(DISTRIBUTIONS, empty)))
    for name, column in report["timeline"].items():
        if name not in ("window_s", "t_s"):
            bare["timeline"][name] = [None] * len(column)
    return bare


def test_a_report_in_which_every_value_is_null_has_dashes(recorded):
    report = of_nulls()
    page = page_of(report)
    assert_harmless(page)
    assert "Response latency p95 ✗ ≤ 1,000 – n 0" in page.text or "Response latency p95 ✓ ≤ 1,000 – n 0" in page.text
    assert "None" not in page.text
    assert "None" not in render_markdown(report, {})
    ElementTree.fromstring(render_junit(report))
    folder, whole = recorded
    for each in kept_sessions(folder, whole):
        page_of(report, [Kept(nulled(each.session) | {"bundle": "b"}, each.recording)])


def test_a_report_without_a_timeline_has_no_charts():
    report = a_report(session(respond(500.0)))
    del report["timeline"]
    assert "Concurrent calls" not in page_of(report).text


# --- words of others ---


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        (f"a{RLO}b", "a\N{REPLACEMENT CHARACTER}b"),
        ("a\0\x1b[31m", "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}[31m"),
        ("a\r\nb\N{NO-BREAK SPACE}c\N{LINE SEPARATOR}d", "a  b c d"),
        (f"\N{WOMAN}{ZWJ}\N{PERSONAL COMPUTER}", f"\N{WOMAN}{ZWJ}\N{PERSONAL COMPUTER}"),
        ("\ud800", "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_words_are_shown_without_what_hides_or_turns_others(said, seen):
    assert shown(said) == seen


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80))
def test_no_words_break_a_page_a_picture_or_a_table(words):
    record = session(respond(500.0, turn_id=words or "x"), outcome=Outcome("failed", "dropped", words))
    report = a_report(record, name=words, plan={"plan": {"a": words}, "scenarios": []}, tail={"notes": (words,)})
    assert_harmless(page_of(report))
    rows = [line for line in render_markdown(report, {"dropped": words}).splitlines() if line.startswith("|")]
    widths = [len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows]
    assert all(width in (4, 5, 6, 8, 12, 13) for width in widths), rows
    ElementTree.fromstring(render_junit(report))
    ElementTree.fromstring(tag("text", words).encode("utf-8", "replace"))


@pytest.mark.parametrize(
    ("said", "never"),
    [
        ("[a](http://evil.example)", "](http"), ("see https://evil.example", "https://"), ("www.evil.example", "www.evil"),
        ("mail me@evil.example", "me@evil"), ("@octocat", "@octocat"), ("closes #12", "#12"), ("$\\alpha$", "$\\alpha$"),
        ("```\ncode", "```"), ("![x](data:a)", "!["), ("mailto:x@y.z", "mailto:x"),
    ],
)  # fmt: skip
def test_words_in_markdown_are_no_markup(said, never):
    text = plain(said)
    assert never not in text.replace("\\\\", "")
    assert "\n" not in text
    assert plain("&lt;b&gt;") == r"\&lt;b\&gt;"


def test_long_transcripts_are_cut(recorded):
    folder, report = recorded
    long = copy.deepcopy(report)
    for turn in long["sessions"][0]["turns"]:
        turn["transcript"] = f"<b>{'word ' * 200_000}"
    page = render_html(long, {}, kept_sessions(folder, long))
    assert len(page) < 200_000
    assert b"&lt;b&gt;word word" in page
    assert len(render_markdown(long, {})) < MAX_BYTES


# --- too much ---


def test_a_thousand_sessions_and_twelve_pictures_are_under_two_megabytes(recorded):
    folder, one = recorded
    report = a_report(*[session(respond(500.0 + n), stop(None), ignore(spurious=True)) for n in range(1000)])
    kept = [{**one["sessions"][0], "session_id": f"run-{n:06d}"} for n in range(40)]
    report["sessions"][:40] = kept
    page = render_html(report, {}, kept_sessions(folder, report))
    assert len(page) < 2_000_000
    assert page.count(b"Both tracks of run-") == 12
    text = page_of(report, kept_sessions(folder, report)).text
    assert "the worst 12 of 40 that were kept" in text


def test_three_hundred_turns_and_two_hundred_workers_are_listed(recorded):
    folder, one = recorded
    turns = [respond(500.0, turn_id=f"turn-{n}") for n in range(300)]
    workers = tuple(a_worker(f"w{n}" if n else "w", started=0 if n else 1) for n in range(200))
    report = a_report(session(*turns), tail={"workers": workers})
    many = [{**one["sessions"][0]["turns"][0], "id": f"turn-{n}", "start_s": n / 300} for n in range(300)]
    kept = [Kept({**each.session, "turns": many}, each.recording) for each in kept_sessions(folder, one)]
    page = page_of(report, kept)
    assert page.text.count(" turn-") > 300
    assert "w199 host" in page.text
    assert "and 240 more turns" in page.text
    assert len(render_html(report, {}, kept)) < 500_000
    assert "And 240 more." in render_markdown(report, {})


# --- what the numbers say ---


def test_values_without_unreliable_turns_stand_beside_those_that_differ():
    report = a_report(session(*[respond(500.0)] * 30, *[respond(9000.0, reliable=False)] * 3))
    first, barge_in, *_ = figures.tiles(report)
    assert first.reliable == "500 ms, p99 500 ms*"
    assert barge_in.reliable == ""
    assert "reliable turns only: 500 ms, p99 500 ms*" in page_of(report).text
    assert [row[0] for row in figures.distribution_rows(report)][:2] == [
        "Response latency", "Response latency, reliable turns"
    ]  # fmt: skip


def test_percentiles_of_few_values_are_marked_and_no_others():
    (tile, *_) = figures.tiles(a_report(session(*[respond(500.0)] * 20)))
    assert (tile.value, tile.further[-1]) == ("500 ms", ("p99", "500 ms*"))
    (tile, *_) = figures.tiles(a_report(session(*[respond(500.0)] * 19)))
    assert tile.value == "500 ms*"
    assert "of few values: a p95 wants 20, a p99 100" in page_of(a_report(session(respond(500.0)))).text


def test_turns_stand_under_what_was_expected_of_them():
    report = a_report(
        session(respond(500.0), stop(None), ignore(false_barge_in=True)), session(respond(None)),
        limits={"p50_response_latency_ms": 400.0},
    )  # fmt: skip
    (table,) = turn_tables(report)
    rows = {row.id: row for row in table.rows}
    assert [group[0] for group in table.groups] == ["respond", "stop", "ignore"]
    assert (rows["ask"].missed, rows["barge-in"].missed, rows["cough"].missed) == ("1", "1", "1 stopped")
    assert rows["ask"].over == {0}
    assert rows["cough"].times == ("–",) * 5
    assert "▲ over a limit of the plan" in page_of(report).text


def test_a_turn_that_was_never_judged_is_where_the_plan_has_it():
    report = a_report(session(stop(None, status="unfinished", stopped=None, passed=False)))
    report["run"]["plan"] = {
        "plan": {},
        "scenarios": [{"name": "made", "turns": [{"id": "barge-in", "expect": "stop"}]}],
    }
    (table,) = turn_tables(report)
    assert [(group, rows[0].rate) for group, _, rows in table.groups] == [("stop", "–")]
    report["run"]["plan"] = {"plan": {}, "scenarios": [{"name": "made", "turns": "hostile"}, 7]}
    assert turn_tables(report)[0].groups[0][0] == "respond"


def test_an_answer_before_the_end_of_the_question_is_a_talk_over():
    turn = {"status": "measured", "expect": "respond", "response_latency_ms": -120.4}
    assert incidents.what_came(turn) == "began 120 ms too early"


def test_a_sum_that_does_not_hold_is_said():
    account = {"started": 5, "finished": 1, "failed": 1, "cut": 1, "lost": 1, "maybe_started": 0, "warmup": 0}
    assert digest.account_notes(account) == ["The sum does not hold: 1 session not accounted for."]


# --- charts ---


@given(st.floats(0, 1e9), st.integers(1, 8))
def test_ticks_are_whole_ascend_evenly_and_reach_the_top(most, about):
    found = ticks(most, about)
    assert found[0] == 0
    assert found[-1] >= most
    assert len({later - earlier for earlier, later in pairwise(found)}) == 1
    assert len(found) <= 2 + about


@given(st.lists(st.none() | st.tuples(st.floats(0, 900), st.floats(0, 300)), max_size=30))
def test_a_line_has_a_gap_where_there_is_no_value(points):
    path = polyline(points)
    stretches = "".join("." if point is None else "x" for point in points).split(".")
    assert path.count("M") == sum(1 for each in stretches if each)


def a_timeline(**columns: list[float | None]) -> dict[str, Any]:
    n = len(next(iter(columns.values())))
    names = ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "live", "starts_per_s", *(name for name, _, _ in charts.WRONG))
    return {
        "window_s": 5.0,
        "t_s": [5.0 * place for place in range(n)],
        **{name: [None] * n for name in names},
        **columns,
    }


def test_an_agent_that_talks_over_is_drawn_below_zero():
    drawn = latency_chart(a_timeline(p50_ms=[-400.0, 100.0]), {})
    assert ">-400</text>" in drawn
    heights = [float(y) for y in re.findall(r"[ML]\d[\d.]* ([\d.]+)", drawn)]
    assert all(0 <= y <= 300 for y in heights)


def test_a_limit_above_all_values_is_inside_the_chart():
    drawn = latency_chart(a_timeline(p50_ms=[100.0]), {"p50_response_latency_ms": 5000.0, "max_wer": 0.1})
    assert "p50 limit 5,000" in drawn
    assert all(float(y) >= 0 for y in re.findall(r'y1="([\d.-]+)"', drawn))
    assert latency_chart(a_timeline(p50_ms=[None]), {"p50_response_latency_ms": 5000.0}) is None


# --- junit ---

SCHEMA = {
    "testsuites": {"name", "tests", "failures", "errors", "time", "disabled"},
    "testsuite": {"name", "tests", "failures", "errors", "time", "disabled", "skipped", "timestamp", "hostname", "id", "package"},
    "properties": set(), "property": {"name", "value"},
    "testcase": {"name", "assertions", "time", "classname", "status"},
    "failure": {"message", "type"}, "error": {"message", "type"},
}  # fmt: skip
"""What Jenkins' schema has, as far as it is used here."""


def test_junit_has_nothing_that_ci_systems_do_not_read():
    report = a_report(session(respond(None)), session(outcome=FAILED), limits={"max_missed_responses": 0, "max_wer": 1})
    for element in ElementTree.fromstring(render_junit(report)).iter():
        assert set(element.attrib) <= SCHEMA[element.tag], element.tag
        for name in ("tests", "failures", "errors", "skipped"):
            assert element.attrib.get(name, "0").isdecimal()
        assert float(element.attrib.get("time", 0)) >= 0


def test_junit_tells_each_ground_by_itself():
    report = a_report(
        session(*[respond(500.0, reliable=False)] * 3), session(outcome=FAILED),
        tail={"aborted": "the disk was full", "workers": (a_worker(started=3),)}, limits={"p95_response_latency_ms": 1.0},
    )  # fmt: skip
    cases = {case.attrib["name"]: case for case in ElementTree.fromstring(render_junit(report)).iter("testcase")}
    bad = {name for name, case in cases.items() if len(case)}
    assert bad == {"p95_response_latency_ms", "the run is complete", "the numbers can be trusted"}
    assert cases["the run is complete"].find("error").attrib["type"] == "incomplete"
    assert "the disk was full" in cases["the run is complete"].find("error").text
    assert float(cases["the run is complete"].attrib["time"]) == report["run"]["duration_s"]


def test_junit_names_the_scenario_and_has_no_character_that_xml_forbids():
    report = a_report(
        session(respond(None)), scenario_limits={"made": {"max_missed_responses": 0}, "b\0\ufffe.x": {"max_wer": 0.1}}
    )
    groups = {case.attrib["classname"] for case in ElementTree.fromstring(render_junit(report)).iter("testcase")}
    assert groups == {"voicebench.run", "voicebench.run.made", "voicebench.run.b\ufffd\ufffd_x"}


# --- a disk that is full, a bug of ours ---


def test_a_full_disk_is_told_for_each_file_and_nothing_is_left_behind(tmp_path, monkeypatch):
    def full(*_args: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(bundle_files.Path, "write_bytes", full)
    troubles = write_reports(tmp_path, a_report(session(respond())), {})
    assert [trouble.partition(": ")[2] for trouble in troubles] == [
        "cannot be written: No space left on device; report.json has all numbers"
    ] * 3
    assert list(tmp_path.iterdir()) == []


def test_a_summary_that_can_not_be_made_raises_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "render_markdown", lambda *_: {}["no template"])
    path = str(tmp_path / "summary.md")
    (trouble,) = append_summary(a_report(session(respond())), {}, {writing.SUMMARY_VARIABLE: path})
    assert "cannot be made: KeyError('no template')" in trouble


def test_where_the_json_can_not_go_the_others_are_written_all_the_same(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text("name: a\nturns: [{id: ask, audio: {synth: speech, duration_ms: 400}}]\n")
    write = bundle_files.write_file

    def refusing(path: Path, content: bytes) -> None:
        if path.name == "elsewhere.json":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    monkeypatch.setattr("voicebench.cli.run_command.write_file", refusing)
    assert main(["run", "a.yaml", "-q", "--out", "out", "--json", "elsewhere.json"]) == 4
    shown_ = capsys.readouterr()
    assert json.loads(shown_.out)["run"]["verdict"] == "pass"
    assert "elsewhere.json: the report cannot be written: No space left on device" in shown_.err
    assert {"report.json", "report.html", "report.md", "junit.xml"} <= {path.name for path in Path("out").iterdir()}


def test_a_reports_text_does_not_depend_on_where_the_run_lies(recorded, tmp_path):
    _, report = recorded
    pages = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        assert write_reports(tmp_path / name, report, {}) == []
        pages.append((tmp_path / name / writing.HTML).read_bytes())
    assert pages[0] == pages[1]
    assert b"bundles/run-000000: does not exist" in pages[0]
