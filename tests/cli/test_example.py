"""`voicebench example`, and that every example does what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from voicebench.cli import main
from voicebench.examples import EXAMPLES, example_text
from voicebench.load_files import apply_adapter, load_plan
from voicebench.scenario.adapter_options import mock_options
from voicebench.scenario.model import AdapterSpec
from voicebench.scenario.prepared import PreparedScenario
from voicebench.score_document import add_up
from voicebench.scoring import score
from voicebench.script import prepare
from voicebench.virtual import run_virtual


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_without_a_name_all_are_listed(capsys):
    assert main(["example"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(EXAMPLES)
    assert all(description in line for line, description in zip(lines, EXAMPLES.values(), strict=True))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_printed_or_written(name, capsys):
    assert main(["example", name]) == 0
    assert capsys.readouterr().out == example_text(name)
    assert main(["example", name, "-O", "x.yaml"]) == 0
    assert capsys.readouterr().out == ""
    assert Path("x.yaml").read_text() == example_text(name)


def test_a_file_is_overwritten_by_force_only(capsys):
    Path("x.yaml").write_text("mine")
    assert main(["example", "websocket", "-O", "x.yaml"]) == 2
    assert "x.yaml exists already: choose another name, or overwrite it with --force" in capsys.readouterr().err
    assert Path("x.yaml").read_text() == "mine"
    assert main(["example", "websocket", "-O", "x.yaml", "--force"]) == 0
    assert Path("x.yaml").read_text() == example_text("websocket")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["websockets"], "there is no example 'websockets'. Did you mean 'websocket'?"),
        (["zebra"], "There are mock-conversation, short-question, websocket, plan."),
        (["websocket", "-O", "no/where.yaml"], "no/where.yaml cannot be written"),
        (["-O", "x.yaml"], "-O needs the name of an example"),
    ],
)
def test_what_cannot_be_done_is_told(arguments, told, capsys):
    assert main(["example", *arguments]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_begins_with_the_editors_hint(name):
    kind = "plan" if name == "plan" else "scenario"
    first, *rest = example_text(name).splitlines()
    assert first == f"# yaml-language-server: $schema=voicebench-{kind}.schema.json"
    assert any(f"voicebench schema {kind} > voicebench-{kind}.schema.json" in line for line in rest)


def test_the_plan_says_how_to_make_the_files_it_reads():
    text = example_text("plan")
    for line in text.splitlines():
        if line.startswith("#   voicebench example "):
            assert main(line.removeprefix("#   voicebench ").split()) == 0
    Path("plan.yaml").write_text(text)
    assert len(load_plan("plan.yaml").scenarios) == 2


def calls_itself_good(prepared: PreparedScenario) -> None:
    """Hold one session with the mock agent and judge it by the scenario's own limits."""
    scenario = prepared.scenario
    session = run_virtual(prepare(scenario, prepared.clips), mock_options(scenario.adapter.options))
    scored = add_up([score(session.recording("x", clock="virtual"))], scenario.limits)
    assert scored.exit_code == 0, scored


@pytest.mark.parametrize("name", ["mock-conversation", "short-question"])
def test_an_example_against_the_mock_passes_its_own_assertions(name):
    main(["example", name, "-O", "x.yaml"])
    calls_itself_good(load_plan("x.yaml").scenarios[0])


def test_the_websocket_example_passes_with_the_mock_server_it_recommends():
    main(["example", "websocket", "-O", "x.yaml"])
    (line,) = [
        line for line in Path("x.yaml").read_text().splitlines() if line.startswith("#   voicebench mock-server")
    ]
    options = dict(word.split("=") for word in line.split() if "=" in word)
    prepared = load_plan("x.yaml").scenarios[0]
    calls_itself_good(replace(prepared, scenario=apply_adapter(prepared.scenario, AdapterSpec("mock", options), {})))
