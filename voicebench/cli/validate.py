"""`voicebench validate`: are these files fit to run?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from voicebench.cli.help import Command

if TYPE_CHECKING:
    from voicebench.errors import Problem
    from voicebench.load_files import LoadedPlan


@click.command("validate", cls=Command)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of lines.")
def command(files: tuple[str, ...], as_json: bool) -> int:
    """Check scenario and plan files and the audio they name, and report all mistakes at once. `-` is standard input.

    \b
    Examples:
      voicebench validate my.yaml
      voicebench validate scenarios/*.yaml plan.yaml
      voicebench validate my.yaml --json | jq '.files[].problems'

    Exit code: 0 all files are fit to run (warnings do not matter), 2 at least one is not.
    """
    import json

    results = [_check(file) for file in files]
    if as_json:
        click.echo(json.dumps({"files": [result for result, _ in results]}, indent=2, ensure_ascii=False))
    else:
        for _, lines in results:
            click.echo("\n".join(lines))
    return 0 if all(result["ok"] for result, _ in results) else 2


def _check(file: str) -> tuple[dict[str, Any], list[str]]:
    """The result of one file, for machines and for people."""
    from voicebench.errors import ScenarioError
    from voicebench.load_files import load_plan

    try:
        loaded = load_plan(file)
    except ScenarioError as error:
        result = {"file": file, "ok": False, "problems": [_problem(each, "error") for each in error.problems]}
        return result, [str(each) for each in error.problems]
    result = {"file": file, "ok": True, **_facts(loaded)}
    result["problems"] = [_problem(each, "warning") for each in loaded.warnings]
    return result, [f"ok   {_summary(loaded)}", *(_warning(each) for each in loaded.warnings)]


def _facts(loaded: LoadedPlan) -> dict[str, Any]:
    scenarios = [
        {
            "file": each.file,
            "name": each.scenario.name,
            "turns": len(each.scenario.turns),
            "adapter": each.scenario.adapter.type,
        }
        for each in loaded.scenarios
    ]
    return {"kind": "scenario" if loaded.is_scenario else "plan", "name": loaded.plan.name, "scenarios": scenarios}


def _summary(loaded: LoadedPlan) -> str:
    adapters = ", ".join(dict.fromkeys(each.scenario.adapter.type for each in loaded.scenarios))
    n_turns = sum(len(each.scenario.turns) for each in loaded.scenarios)
    turns = _count(n_turns, "turn")
    mix = "" if loaded.is_scenario else f"{_count(len(loaded.scenarios), 'scenario')}, "
    return f"{loaded.plan.name}: {mix}{turns}, {'adapter' if ',' not in adapters else 'adapters'} {adapters}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def _warning(problem: Problem) -> str:
    """The place first, so that editors can jump to it, as with a mistake."""
    from dataclasses import replace

    path = f"{problem.path}: " if problem.path else ""
    return str(replace(problem, path="", message=f"warning: {path}{problem.message}"))


def _problem(problem: Problem, severity: str) -> dict[str, Any]:
    return {
        "file": problem.source,
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "message": problem.message,
        "severity": severity,
    }
