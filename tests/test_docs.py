"""Holds the documents to the code: every key, name, option and exit code is explained, every link leads somewhere."""

from __future__ import annotations

import ast
import re
import tomllib
import typing
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import voicebench.errors
from tests.support import cli_reference, compare_with_peer
from tests.support.made import a_head, a_worker, result
from voicebench import assertions, bundle
from voicebench.audio.level import energy_of
from voicebench.bundle_files import read_bundle
from voicebench.cli import COMMANDS, group
from voicebench.errors import FAILURE_REASONS, VoicebenchError
from voicebench.events import AgentTranscript
from voicebench.master.collector import Collector
from voicebench.master.ending import conclude
from voicebench.master.report import RunTail
from voicebench.master.verdict import Verdict
from voicebench.recording import Lateness
from voicebench.records import OUTCOME_STATES, Expectation, SessionRecord, Trigger, TurnRecord, TurnStatus
from voicebench.scenario.model import Scenario, VadSettings
from voicebench.score_document import add_up, score_document
from voicebench.scoring import score
from voicebench.vad import detect_segments

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GOLDEN = ROOT / "tests" / "golden"
SKIPPED = {".venv", ".git", "node_modules", "voicebench-results", "dist"}

# What is not ours to name: keys of these mappings are a user's words.
USERS_KEYS = {"plan", "by_worker", "by_scenario", "by_turn", "reasons", "scenario"}


@cache
def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@cache
def named_in(name: str) -> frozenset[str]:
    """What stands in code type in a document, as a whole and by its parts: `turns[].id` is also `turns` and `id`."""
    spans = re.findall(r"`([^`\n]+)`", text_of(name))
    parts = {part for span in spans for part in re.split(r"\[\]\.|\.|, ", span)}
    return frozenset(spans) | parts


def without_a_word(names: typing.Iterable[str], *documents: str) -> list[str]:
    known = frozenset().union(*(named_in(document) for document in documents))
    return sorted(set(names) - known)


def documents() -> list[Path]:
    return sorted(
        path
        for path in ROOT.rglob("*.md")
        if not any(part in SKIPPED or part.startswith(".") for part in path.relative_to(ROOT).parts)
    )


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


# ---------------------------------------------------------------- keys


def golden(name: str = "barge-in") -> SessionRecord:
    return score(read_bundle(GOLDEN / name))


def keys_of(value: Any) -> Iterator[str]:
    """All keys inside a document but those that users choose."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            if key in USERS_KEYS and isinstance(inner, dict):
                yield from (below for each in inner.values() for below in keys_of(each)) if key != "plan" else ()
            else:
                yield from keys_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner)


def test_every_turn_key_is_explained() -> None:
    assert without_a_word((field.name for field in fields(TurnRecord)), "bundle.md") == []


def test_every_key_that_score_prints_is_explained() -> None:
    sessions = [golden()]
    printed = score_document(sessions, add_up(sessions, {"max_talk_overs": 0}))
    assert without_a_word(keys_of(printed), "bundle.md", "metrics.md") == []


def test_every_summary_key_is_defined() -> None:
    summary = add_up([golden()], {}).tally.as_dict()
    assert without_a_word(keys_of(summary), "metrics.md") == []


def test_every_turn_measure_is_defined() -> None:
    measures = [field.name for field in fields(TurnRecord) if field.name.endswith(("_ms", "_s")) or "wer" in field.name]
    judgements = ("responded", "talk_over", "stopped", "false_barge_in", "spurious_response", "transcript", "passed")
    assert without_a_word({*measures, *judgements} - {"start_s", "end_s"}, "metrics.md") == []


def test_every_key_of_a_bundle_is_explained() -> None:
    recording = replace(
        read_bundle(GOLDEN / "barge-in"),
        transcripts=(AgentTranscript("user", "stop", 1.0),),
        clears_s=(1.0,),
        lateness=Lateness(np.zeros(1), np.zeros(1)),
        extra=dict.fromkeys(further_bundle_keys(), 0),
    )
    document = bundle._parse_json(bundle.encode(recording, {})["session.json"], "here")
    assert without_a_word(keys_of(document), "bundle.md") == []


def further_bundle_keys() -> list[str]:
    """Those that the engine adds to a recording, read from its source."""
    tree = ast.parse((ROOT / "voicebench" / "worker" / "engine.py").read_text(encoding="utf-8"))
    assigned = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "extra" and isinstance(node.value, ast.Dict)
    ]
    assert len(assigned) == 1
    return [str(ast.literal_eval(key)) for key in assigned[0].keys if key is not None]


def report() -> dict[str, Any]:
    collector = Collector()
    collector.take(result(golden(), lateness={1: 1}), worker="w")
    head = a_head(limits={"max_talk_overs": 0}, scenario_limits={golden().scenario: {}})
    document, _ = conclude(head, RunTail(1.0, (a_worker(started=1),), (), ((0.0, "start", ""),)), collector)
    return document


def test_every_key_of_a_report_is_explained() -> None:
    document = report()
    assert document["schema"] in named_in("report.md")
    assert without_a_word(keys_of(document), "report.md", "bundle.md", "metrics.md") == []
    own = {key: value for key, value in document.items() if key not in ("summary", "summary_reliable", "sessions")}
    outer = {*own, *document["run"], *document["accounting"], *document["workers"][0], *document["sessions"][0]}
    assert without_a_word(outer - golden_session_keys(), "report.md") == []


def golden_session_keys() -> set[str]:
    return set(score_document([golden()], add_up([golden()], {}))["sessions"][0])


@pytest.mark.parametrize(
    ("values", "document"),
    [
        (typing.get_args(Expectation), "metrics.md"),
        (typing.get_args(TurnStatus), "metrics.md"),
        (OUTCOME_STATES, "metrics.md"),
        (FAILURE_REASONS, "metrics.md"),
        (typing.get_args(Trigger), "bundle.md"),
        (typing.get_args(assertions.Verdict), "metrics.md"),
        (typing.get_args(Verdict), "report.md"),
    ],
    ids=["expectation", "status", "outcome", "reason", "trigger", "assertion verdict", "run verdict"],
)
def test_every_word_of_a_fixed_list_is_explained(values: tuple[str, ...], document: str) -> None:
    spaced = {part for span in named_in(document) for part in span.split("` `")}
    assert sorted(set(values) - spaced) == []


def test_every_kind_of_event_is_explained() -> None:
    package = ROOT / "voicebench"
    marking = ("master/coordinator.py", "worker/engine.py", "cli/virtual_command.py", "master/core.py")
    source = "\n".join((package / name).read_text(encoding="utf-8") for name in marking)
    kinds = set(re.findall(r'_mark\((?:[^"()]*, )?"(\w+)"', source)) | set(re.findall(r'_s, "(\w+)", ""', source))
    assert kinds >= {"start", "end", "drain", "cut", "join", "leave", "left", "lost", "unable", "error"}
    assert without_a_word(kinds, "report.md") == []


def test_every_assertion_is_explained() -> None:
    assert without_a_word(assertions._NAMED, "scenario.md") == []
    assert without_a_word(assertions.DISTRIBUTIONS, "scenario.md") == []
    assert without_a_word(("mean", "max", "p95"), "scenario.md") == []


def test_no_assertion_is_explained_that_does_not_exist() -> None:
    section = text_of("scenario.md").partition("## Assertions")[2].partition("\n## ")[0]
    names = re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)
    assert names
    assert [name for name in names if assertions.explain_unknown(name)] == []


# ---------------------------------------------------------------- the command line


def options() -> Iterator[tuple[str, str]]:
    context = click.Context(group, **group.context_settings)
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                yield from ((name, flag) for flag in (*parameter.opts, *parameter.secondary_opts))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_section(name: str) -> None:
    assert f"\n## `voicebench {name}`\n" in text_of("cli.md")


@pytest.mark.parametrize(("command", "flag"), list(options()))
def test_every_option_is_in_its_commands_section(command: str, flag: str) -> None:
    section = text_of("cli.md").partition(f"\n## `voicebench {command}`\n")[2].partition("\n## ")[0]
    assert f"`{flag}`" in section


def exit_codes_of_errors() -> set[int]:
    classes = [each for each in vars(voicebench.errors).values() if isinstance(each, type)]
    return {each.exit_code for each in classes if issubclass(each, VoicebenchError)}


def test_every_exit_code_is_explained() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", text_of("cli.md"), flags=re.MULTILINE)}
    assert exit_codes_of_errors() <= told
    assert told >= {0, 1, 2, 3, 4, 130, 143}


def test_every_environment_variable_is_explained() -> None:
    read = {
        name
        for path in (ROOT / "voicebench").rglob("*.py")
        for name in re.findall(r"\bVOICEBENCH_[A-Z_]+\b", path.read_text(encoding="utf-8"))
    }
    assert read
    assert without_a_word(read, "cli.md") == []
    ours = {name for name in cli_reference.VARIABLES if name.startswith("VOICEBENCH_")}
    assert ours - read == set()


def test_the_reference_of_commands_is_up_to_date() -> None:
    """After a change of options or help texts: `python -m tests.support.cli_reference`."""
    assert cli_reference.document() == text_of("cli.md"), "docs/cli.md: run python -m tests.support.cli_reference"


# ---------------------------------------------------------------- what is written is so


def test_the_drawing_of_the_detector_is_what_it_does() -> None:
    drawing = re.search(r"```\n([.#o]+)\n( *\^[ ^]*)\n((?: *\|?.*'- .*\n)+)```", text_of("metrics.md"))
    assert drawing is not None
    drawn, _, labels = drawing.groups()
    places = {line.partition("'- ")[2].split(":")[0].split(" ")[0]: line.index("'- ") for line in labels.splitlines()}
    loudness = {"#": 1000, "o": 130, ".": 10}  # -30, -48 and -70 dBFS
    track = np.concatenate([np.full(80, loudness[sign], dtype=np.int16) for sign in drawn])
    assert energy_of(track) > 0
    (segment,) = detect_segments(track, 8000, VadSettings(min_silence_ms=40.0))
    assert round(segment.start_s * 100) == places["onset"]
    assert round(segment.end_s * 100) == places["offset"]
    assert places["closed"] == places["offset"] + 3


def worked_example() -> list[tuple[str, str, float]]:
    section = text_of("metrics.md").partition("## A worked example")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`?\w+`?) \| `(\w+)` \| .+ \| (-?[\d.]+) \|$", section, flags=re.MULTILINE)
    return [(where.strip("`"), key, float(value)) for where, key, value in rows]


@pytest.mark.parametrize(("where", "key", "value"), worked_example())
def test_the_worked_example_is_what_score_prints(where: str, key: str, value: float) -> None:
    record = golden()
    if where == "summary":
        assert add_up([record], {}).tally.as_dict()[key] == value
    elif where == "session":
        assert getattr(record, key) == value
    else:
        assert getattr(next(turn for turn in record.turns if turn.id == where), key) == value


def test_the_worked_example_has_not_been_lost() -> None:
    assert len(worked_example()) >= 10


def test_the_defaults_of_the_detector_are_the_codes() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| (-?\d+) \|", text_of("metrics.md"), flags=re.MULTILINE))
    assert {key: float(value) for key, value in told.items()} == {
        field.name: getattr(VadSettings(), field.name) for field in fields(VadSettings)
    }


def test_every_reason_for_a_difference_from_the_peer_stands_in_the_document() -> None:
    """The script's words are short for people who read its output; each has a few words of its own in the document."""
    told = {
        compare_with_peer.EDGES: "what was detected in the turn's window",
        compare_with_peer.LIMIT: "also when the next turn has begun",
        compare_with_peer.TTFA: "first audio counts up to the reply's end",
        compare_with_peer.NEVER_STOPPED: "the last whole analysis frame has not stopped",
        compare_with_peer.UNHEARD: "speech was not detected is still judged",
        compare_with_peer.LAST_INSTANT: "transcript at the session's very end",
        compare_with_peer.WORDS: "**Words.**",
        compare_with_peer.NOT_PLAYED: "turns that did not play are in `turns` alone",
        compare_with_peer.FRAMES: "nominal analysis frames",
        compare_with_peer.TIES: "a level exactly on a threshold reaches it",
        compare_with_peer.TALK_OVER: "talk-over counts each turn's part",
        compare_with_peer.NULLS: "what does not apply to a turn is null",
        compare_with_peer.ONE_FRAME: "it ends with the last frame that was due",
        compare_with_peer.TAIL: "also waits until the last turn is answered",
        compare_with_peer.TRUNCATED: "`truncated` only if a turn did not play",
        compare_with_peer.DECIMAL: "time is compared in decimals",
    }
    reasons = {
        value
        for name, value in vars(compare_with_peer).items()
        if name.isupper() and isinstance(value, str) and name not in ("PEER_VERSION", "FOLLOWS")
    }
    assert reasons == set(told)
    assert [words for words in told.values() if words not in text_of("differences.md")] == []


def requirements() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    lines += [line for extra in project["project"].get("optional-dependencies", {}).values() for line in extra]
    return {re.split(r"[^\w.-]", line)[0] for line in lines}


def test_every_dependency_has_its_reason_and_no_other() -> None:
    section = text_of("decisions.md").partition("## Dependencies")[2].partition("\n## ")[0]
    explained = set(re.findall(r"^#{3,4} ([\w.-]+)$", section, flags=re.MULTILINE))
    assert explained == requirements()


def test_every_module_of_the_package_has_its_place_in_the_architecture() -> None:
    text = text_of("architecture.md")
    top = [path.name if path.is_file() else f"{path.name}/" for path in (ROOT / "voicebench").iterdir()]
    modules = [name for name in top if name.endswith((".py", "/")) and not name.startswith(("__init__", "__pycache__"))]
    assert [name for name in modules if name not in text] == []
    master = [f"master/{path.name}" for path in (ROOT / "voicebench" / "master").glob("[a-z]*.py")]
    assert [name for name in master if name not in text] == []


def test_every_scenario_key_of_the_detector_and_the_turns_is_explained() -> None:
    assert without_a_word((field.name for field in fields(VadSettings)), "scenario.md") == []
    ours = {"turns", "vad_user", "vad_agent", "adapter", "limits", "document"}
    assert without_a_word({field.name for field in fields(Scenario)} - ours, "scenario.md") == []


# ---------------------------------------------------------------- links


def slug(heading: str) -> str:
    """How forges name a heading: lower case, punctuation gone, spaces as hyphens."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


@cache
def anchors(path: Path) -> frozenset[str]:
    return frozenset(slug(heading) for heading in headings(path))


@cache
def headings(path: Path) -> tuple[str, ...]:
    text = without_code_blocks(path.read_text(encoding="utf-8"))
    return tuple(re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE))


def without_code_blocks(text: str) -> str:
    return re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)


def broken_links(path: Path) -> list[str]:
    text = re.sub(r"`[^`\n]*`", "", without_code_blocks(path.read_text(encoding="utf-8")))
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        to = (path.parent / file).resolve() if file else path
        if not to.exists():
            found.append(f"{target}: no such file")
        elif anchor and to.suffix == ".md" and anchor not in anchors(to):
            found.append(f"{target}: no such heading")
    return found


@pytest.mark.parametrize("path", documents(), ids=named)
def test_every_link_leads_somewhere(path: Path) -> None:
    assert broken_links(path) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n[a](page.md#a-page) [b](#nowhere) [c](gone.md) ![d](gone.svg)\n", encoding="utf-8")
    assert broken_links(page) == ["#nowhere: no such heading", "gone.md: no such file", "gone.svg: no such file"]


def references() -> list[tuple[str, str, str]]:
    """What docstrings and help texts send readers to: `docs/x.md`, maybe with a heading."""
    found = set()
    for path in (ROOT / "voicebench").rglob("*.py"):
        for file, heading in re.findall(r'docs/([\w-]+\.md)(?:, "([^"]+)")?', path.read_text(encoding="utf-8")):
            found.add((named(path), file, heading))
    return sorted(found)


@pytest.mark.parametrize(("source", "file", "heading"), references())
def test_what_the_code_refers_to_is_there(source: str, file: str, heading: str) -> None:
    assert (DOCS / file).exists()
    if heading:
        assert heading in headings(DOCS / file)


RENAMED = {"Speech detection": "Detecting speech"}


def test_definitions_that_docstrings_name_have_their_section() -> None:
    named_definitions = {
        heading
        for path in (ROOT / "voicebench").rglob("*.py")
        for heading in re.findall(r'specification,\s+"([^"]+)"', path.read_text(encoding="utf-8"))
    }
    wanted = {RENAMED.get(heading, heading) for heading in named_definitions}
    assert sorted(wanted - set(headings(DOCS / "metrics.md"))) == []


# ---------------------------------------------------------------- what no document says

NEVER_SAID = {
    "a path of somebody's machine": r"(?<![\w.}])/(?:home|Users|root|work|tmp|mnt|opt|srv|var)/",
    "a registry's host": r"\b(?:pypi\.|pythonhosted\.|npmjs\.|registry\.\w|ghcr\.io|docker\.io|quay\.io|anaconda\.org)",
    "an installation by a name that is not ours": r"pip install ['\"]?voicebench",
}


def said(text: str) -> list[str]:
    return [what for what, pattern in NEVER_SAID.items() if re.search(pattern, text, flags=re.IGNORECASE)]


@pytest.mark.parametrize("path", documents(), ids=named)
def test_no_document_speaks_of_a_machine_or_a_registry(path: Path) -> None:
    assert said(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text", ["see /home/ann/calls", "from registry.example/simple", "`pip install voicebench`", "(/srv/x)"]
)
def test_what_no_document_may_say_would_be_found(text: str) -> None:
    assert len(said(text)) == 1
