"""`voicebench score`: metrics from recordings, again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from voicebench.cli.help import Command
from voicebench.errors import UsageError

if TYPE_CHECKING:
    from voicebench.assertions import AssertionResult
    from voicebench.scenario.model import Scenario


@click.command("score", cls=Command)
@click.argument(
    "bundles", nargs=-1, required=True, metavar="BUNDLE...", type=click.Path(path_type=Path, readable=False)
)
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as JSON instead of tables.")
@click.option(
    "--scenario",
    "scenario_file",
    type=click.Path(path_type=Path, readable=False),
    help="Score with the VAD settings and the assertions of this scenario file instead of the recorded ones.",
)
def command(bundles: tuple[Path, ...], as_json: bool, scenario_file: Path | None) -> int:
    """Compute the metrics of recorded sessions again, with the same code that measured them live.

    \b
    Examples:
      voicebench score voicebench-results/*/bundles/*
      voicebench score call-17 --json | jq .summary.response_latency_ms
      voicebench score call-17 --scenario stricter.yaml

    BUNDLE is a folder with user.wav, agent.wav and session.json. Of one bundle every turn is shown; several are
    summarized together. The assertions of each scenario are judged on its own sessions, those of --scenario on all.

    Exit code: 0 all assertions hold, 1 one does not, 2 a bundle cannot be read, 4 unreliable turns decide a verdict.
    """
    from voicebench.bundle_files import read_bundle
    from voicebench.cli.output import emit_json, say
    from voicebench.cli.show import show_score
    from voicebench.score_document import add_up, add_up_by_scenario, score_document
    from voicebench.scoring import score

    other = _read_scenario(scenario_file) if scenario_file else None
    for path in bundles:
        _refuse_run(path)
    recordings = [read_bundle(path) for path in bundles]
    if other is not None:
        recordings = [
            replace(one, scenario=replace(one.scenario, vad_user=other.vad_user, vad_agent=other.vad_agent))
            for one in recordings
        ]
    sessions = [score(recording) for recording in recordings]
    if other is not None:
        scored = add_up(sessions, other.limits)
    else:
        scored = add_up_by_scenario(sessions, [recording.scenario.limits for recording in recordings])
    document = score_document(sessions, scored)
    if as_json:
        emit_json(document)
    else:
        show_score(document, sessions)
    if scored.exit_code:
        say(f"exit {scored.exit_code}: {_reason(scored.assertions)}")
    return scored.exit_code


def _refuse_run(path: Path) -> None:
    if "*" in path.name and not path.exists():
        raise UsageError(f"{path} matches no recording: `voicebench run --record all` keeps also those that went well")
    inner = path if path.name == "bundles" else path / "bundles"
    if inner.is_dir() and not (path / "session.json").exists():
        raise UsageError(f"{path} is not a recording but a folder of them: write {inner}/*")


def _reason(assertions: Sequence[AssertionResult]) -> str:
    """The first limit that decides: one that can't be told stands before one that fails."""
    decisive = sorted((each for each in assertions if not each.passed), key=lambda each: each.verdict != "cant_tell")[0]
    if decisive.verdict == "cant_tell":
        return f"{decisive.name}: can't tell, the verdict hangs on unreliable turns"
    actual = "nothing was measured" if decisive.actual is None else f"{decisive.actual:g}"
    return f"{decisive.name}: {actual}, the limit is {decisive.limit:g}"


def _read_scenario(path: Path) -> Scenario:
    from voicebench.scenario.parse import parse_scenario

    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"--scenario: {path} cannot be read: {error.strerror}") from None
    return parse_scenario(text, source=str(path))
