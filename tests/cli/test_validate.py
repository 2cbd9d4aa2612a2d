"""`voicebench validate`."""

from __future__ import annotations

import json

import pytest

from voicebench.cli import main

GOOD = "name: good\nturns: [{audio: {synth: speech}}, {audio: {clip: cough}, expect: ignore}]\n"
BAD = "name: bad\nturns: [{audio: {synth: speach}}]\ntail_ms: x\n"
ODD = "name: odd\nturns: [{audio: {synth: speech}}]\nassert: {max_wer: 1}\n"


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in (("good", GOOD), ("bad", BAD), ("odd", ODD)):
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "plan.yaml").write_text("name: mix\nscenarios: [{file: good.yaml}, {file: odd.yaml}]\n")


def test_files_that_fit_are_one_line_each(capsys):
    assert main(["validate", "good.yaml"]) == 0
    assert capsys.readouterr().out == "ok   good: 2 turns, adapter mock\n"


def test_a_plan_says_how_many_scenarios_it_mixes(capsys):
    assert main(["validate", "plan.yaml"]) == 0
    assert capsys.readouterr().out.startswith("ok   mix: 2 scenarios, 3 turns, adapter mock\nodd.yaml:3:10: warning: ")


def test_all_files_are_checked_and_one_bad_file_decides(capsys):
    assert main(["validate", "bad.yaml", "good.yaml", "nowhere.yaml"]) == 2
    assert capsys.readouterr().out.splitlines() == [
        "bad.yaml:2:25: turns[0].audio.synth: 'speach' is not one of speech, tone, noise, silence. "
        "Did you mean 'speech'?",
        "bad.yaml:3:10: tail_ms: 'x' is not a number from 0 to 86400000",
        "ok   good: 2 turns, adapter mock",
        "nowhere.yaml: does not exist",
    ]


def test_warnings_do_not_change_the_exit_code(capsys):
    assert main(["validate", "odd.yaml"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok   odd: 1 turn, adapter mock",
        "odd.yaml:3:10: warning: assert.max_wer: can only fail: no turn has a text, so there will be no value",
    ]


def test_machines_get_one_document(capsys):
    assert main(["validate", "odd.yaml", "bad.yaml", "--json"]) == 2
    odd, bad = json.loads(capsys.readouterr().out)["files"]
    assert (odd["ok"], odd["kind"], odd["name"]) == (True, "scenario", "odd")
    assert odd["scenarios"] == [{"file": "odd.yaml", "name": "odd", "turns": 1, "adapter": "mock"}]
    assert [each["severity"] for each in odd["problems"]] == ["warning"]
    assert bad["ok"] is False
    assert bad["problems"][1] == {
        "file": "bad.yaml", "line": 3, "column": 10, "path": "tail_ms",
        "message": "'x' is not a number from 0 to 86400000", "severity": "error",
    }  # fmt: skip


def test_without_a_file_there_is_nothing_to_do(capsys):
    assert main(["validate"]) == 2
    assert "FILE" in capsys.readouterr().err
