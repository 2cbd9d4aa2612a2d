"""`voicebench score`: metrics from recordings, again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from voicebench.errors import UsageError

if TYPE_CHECKING:
    from voicebench.scenario.model import Scenario


@click.command("score")
@click.argument("bundles", nargs=-1, required=True, metavar="BUNDLE...", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as JSON instead of tables.")
@click.option(
    "--scenario",
    "scenario_file",
    type=click.Path(path_type=Path),
    help="Score with the VAD settings and the assertions of this scenario file instead of the recorded ones.",
)
def command(bundles: tuple[Path, ...], as_json: bool, scenario_file: Path | None) -> int:
    """Compute the metrics of recorded sessions again, with the same code that measured them live.

    BUNDLE is a folder with user.wav, agent.wav and session.json. Several bundles are summarized together; the
    assertions of each scenario are judged on its own sessions, those of --scenario on all.

    \b
    Examples:
      voicebench score voicebench-results/*/bundles/*
      voicebench score call-17 --json | jq .summary.response_latency_ms
      voicebench score call-17 --scenario stricter.yaml

    Exit code: 0 all assertions hold, 1 one does not, 2 a bundle cannot be read, 4 unreliable turns decide a verdict.
    """
    from voicebench.bundle_files import read_bundle
    from voicebench.cli.output import emit_json, print_score
    from voicebench.score_document import add_up, add_up_by_scenario, score_document
    from voicebench.scoring import score

    other = _read_scenario(scenario_file) if scenario_file else None
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
    if as_json:
        emit_json(score_document(sessions, scored))
    else:
        print_score(sessions, scored)
    return scored.exit_code


def _read_scenario(path: Path) -> Scenario:
    from voicebench.scenario.parse import parse_scenario

    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_scenario(text, source=str(path))
