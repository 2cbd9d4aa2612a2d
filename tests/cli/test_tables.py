"""Tables as people read them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from voicebench.bundle_files import read_bundle
from voicebench.cli import main
from voicebench.cli.grid import Column, print_grid
from voicebench.cli.show import show_score
from voicebench.cli.tables import WORKERS_SHOWN, print_assertions, print_numbers, print_workers
from voicebench.records import Outcome, TurnRecord
from voicebench.score_document import add_up, score_document
from voicebench.scoring import score
from voicebench.summary import Tally

GOLDEN = Path(__file__).parents[1] / "golden"
THREE = (Column("", "turn", left=True), Column("response", "p95"), Column("response", "max", 1), Column("", "WER", 2))


def printed(draw, *arguments, width: int = 100) -> list[str]:
    stream = io.StringIO()
    draw(Console(file=stream, width=width, soft_wrap=True, highlight=False), *arguments)
    return stream.getvalue().splitlines()


def summary_of(*turns: TurnRecord) -> dict:
    tally = Tally()
    for turn in turns:
        tally.add_turn(turn)
    return tally.as_dict()


def respond(latency_ms: float | None, **further) -> TurnRecord:
    status = "missed" if latency_ms is None else "measured"
    return TurnRecord("a", "respond", "anchor", status, response_latency_ms=latency_ms, **further)


def test_digits_stand_below_digits_whether_marked_or_not():
    rows = [["a", "100 ms*", "1,100 ms", "0"], ["b", "1,000 ms", "90 ms", "0.5"]]
    assert printed(print_grid, THREE, rows) == [
        "       response",
        " turn       p95        max  WER",
        " a       100 ms*  1,100 ms    0",
        " b     1,000 ms      90 ms  0.5",
    ]


def test_a_column_without_any_value_is_left_out_and_the_first_ones_never():
    assert printed(print_grid, THREE, [["a", "–", "–", "–"]]) == [
        "       response",
        " turn       p95",
        " a            –",
    ]


def test_the_least_important_columns_go_first_when_it_gets_narrow():
    rows = [["a", "100 ms", "110 ms", "0.25"]]
    names = [printed(print_grid, THREE, rows, width=width)[1].split() for width in (40, 29, 20)]
    assert names == [["turn", "p95", "max", "WER"], ["turn", "p95", "max"], ["turn", "p95"]]


def test_long_names_are_cut_before_columns_go():
    line = printed(print_grid, THREE, [["n" * 80, "100 ms", "110 ms", "0.25"]], width=60)[-1]
    assert line.endswith("n…    100 ms  110 ms  0.25")
    assert len(line) == 60


def test_a_heading_among_rows_is_not_cut():
    lines = printed(print_grid, THREE, [["a scenario of many words"], ["a", "100 ms", "110 ms", "0"]], width=30)
    assert lines[2] == " a scenario of many words"


@given(
    st.lists(
        st.tuples(st.text(max_size=90), *[st.sampled_from(["–", "9 ms*", "1,000 ms"])] * 3), min_size=1, max_size=5
    ),
    st.integers(24, 200),
)
def test_no_row_is_wider_than_the_terminal_and_no_mark_up_is_read(rows: list[Sequence[str]], width: int):
    rows = [(name.translate(dict.fromkeys(range(32))).replace("\x7f", ""), *cells) for name, *cells in rows]
    stream = io.StringIO()
    print_grid(Console(file=stream, width=width, soft_wrap=True, highlight=False), THREE, rows)
    lines = stream.getvalue().split("\n")[:-1]
    assert len(lines) == 2 + len(rows)
    assert all(cell_len(line) <= width for line in lines)


def test_what_there_was_none_of_has_no_line():
    lines = printed(print_numbers, summary_of(*[respond(500.0, passed=True)] * 100))
    assert [line.strip() for line in lines if line] == [
        "n     p50     p95     p99     max",
        "response latency  100  500 ms  500 ms  500 ms  500 ms",
        "turns passed      100 of 100",
        "missed responses  0 of 100",
        "talk-overs        0",
        "unreliable turns  0 of 100",
    ]


@pytest.mark.parametrize(("n", "marks"), [(1, 2), (19, 2), (20, 1), (99, 1), (100, 0)])
def test_percentiles_of_few_values_are_marked_and_explained(n, marks):
    lines = printed(print_numbers, summary_of(*[respond(500.0)] * n))
    row = next(line for line in lines if "response latency" in line)
    assert row.count("*") == marks
    assert any("* of few values: a p95 wants 20, a p99 100" in line for line in lines) == (marks > 0)


def test_missed_turns_alone_have_no_distribution_and_are_counted():
    text = "\n".join(printed(print_numbers, summary_of(respond(None))))
    assert "missed responses  1 of 1" in text
    assert "ms" not in text


def test_no_turn_at_all_is_said_in_words():
    assert printed(print_numbers, summary_of()) == [" no turn was played"]


def result(name: str, verdict: str, actual: float | None, **further) -> dict:
    return {"name": name, "limit": 900.0, "actual": actual, "verdict": verdict, "scenario": None,
            "actual_reliable": None, **further}  # fmt: skip


def test_assertions_show_what_they_were_held_against():
    lines = printed(
        print_assertions,
        [
            result("p95_ttfa_ms", "pass", 812.4),
            result("max_talk_overs", "fail", 901.0),
            result("min_barge_in_success_rate", "fail", None, scenario="[booking]"),
            result("p99_ttfa_ms", "cant_tell", 950.0, actual_reliable=880.0, scenario="[booking]"),
        ],
    )
    assert lines == [
        "",
        " ✓ pass        p95_ttfa_ms                limit <= 900 ms, actual 812.4 ms",
        " ✗ FAIL        max_talk_overs             limit <= 900, actual 901",
        " [booking]",
        " ✗ FAIL        min_barge_in_success_rate  limit >= 900, not measured",
        " ! can't tell  p99_ttfa_ms                limit <= 900 ms, actual 950 ms, without unreliable turns 880 ms",
    ]


def worker(name: str, state: str = "done", p99: float | None = 1.0, why: str | None = None) -> dict:
    late = {"count": 0 if p99 is None else 9, "p50": p99, "p99": p99, "max": p99}
    return {"id": name, "state": state, "why": why, "cpu_s": 2.0, "frame_lateness_ms": late}


def account(started: int, *, failed: int = 0, lost: int = 0) -> dict:
    return {"started": started, "failed": failed, "lost": lost}


def test_workers_that_did_not_stay_come_first_and_say_why():
    workers = [worker("a"), worker("late", p99=12.34), worker("dies", "lost", None, "silent for 5 s")]
    accounts = {"a": account(1200), "late": account(3, failed=1), "dies": account(7, lost=7)}
    assert printed(print_workers, workers, accounts) == [
        "",
        "         sessions                frames late",
        " worker   started  failed  lost          p99      max    CPU  state",
        " dies           7       –     7            –        –  2.0 s  lost",
        " late           3       1     –      12.3 ms  12.3 ms  2.0 s  done",
        " a          1,200       –     –       1.0 ms   1.0 ms  2.0 s  done",
        "   dies lost: silent for 5 s",
    ]


def test_of_very_many_workers_only_the_first_are_shown():
    names = [f"w{n}" for n in range(100)]
    lines = printed(print_workers, [worker(name) for name in names], {name: account(1) for name in names})
    assert len(lines) == 3 + WORKERS_SHOWN + 1
    assert lines[-1] == f"   and {100 - WORKERS_SHOWN} more: the report has them all"


def shown(capsys, *names: str, limits: dict[str, float] | None = None, **changes) -> str:
    sessions = [replace(score(read_bundle(GOLDEN / name)), **changes) for name in names]
    show_score(score_document(sessions, add_up(sessions, limits or {})), sessions)
    return capsys.readouterr().out


def test_one_recording_is_shown_turn_by_turn_with_its_notes(capsys):
    out = shown(capsys, "talk-over")
    assert "expect" in out.splitlines()[1]
    assert "talk-overs" in out


def test_several_recordings_are_shown_by_turn(capsys):
    out = shown(capsys, "barge-in", "cough")
    assert out.startswith("2 sessions: 2 finished, 0 failed\n")
    assert "expect" not in out
    assert {"barge-in", "cough"} <= set(out.split())


def test_a_session_that_failed_says_why(capsys):
    out = shown(capsys, "cough", outcome=Outcome("failed", "dropped", "the line went dead"))
    assert " session failed (dropped): the line went dead" in out


def test_score_says_last_why_it_fails(capsys, tmp_path):
    strict = tmp_path / "strict.yaml"
    strict.write_text("name: strict\nturns: [{audio: {synth: speech}}]\nassert: {max_talk_overs: 0, max_ttfa_ms: 1}\n")
    assert main(["score", str(GOLDEN / "simple-reply"), "--scenario", str(strict)]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("exit 1: max_ttfa_ms: ")
