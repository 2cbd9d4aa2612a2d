"""Holds the floors of docs/architecture.md: imports point down, the pure floors touch nothing of the outside world.

The checker reads source, it runs none: an import inside a function or under `if TYPE_CHECKING` counts like any other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "voicebench"
ROOF = 3

FLOORS: dict[str, int] = {
    # The ground knows nobody above.
    "voicebench": 0,  # __init__.py: the version
    "voicebench.audio": 0,
    "voicebench.clock": 0,
    "voicebench.errors": 0,
    "voicebench.events": 0,
    "voicebench.instants": 0,
    "voicebench.records": 0,
    "voicebench.wire": 0,
    "voicebench.words": 0,
    # The pure core.
    "voicebench.assertions": 1,
    "voicebench.bundle": 1,
    "voicebench.distribution": 1,
    "voicebench.judging": 1,
    "voicebench.load": 1,
    "voicebench.metrics": 1,
    "voicebench.mock_agent": 1,
    "voicebench.mock_conversation": 1,
    "voicebench.mock_delivery": 1,
    "voicebench.playout": 1,
    "voicebench.proceedings": 1,
    "voicebench.protocols": 1,
    "voicebench.recording": 1,
    "voicebench.scenario": 1,
    "voicebench.score_document": 1,
    "voicebench.scoring": 1,
    "voicebench.script": 1,
    "voicebench.session": 1,
    "voicebench.summary": 1,
    "voicebench.turns": 1,
    "voicebench.vad": 1,
    "voicebench.virtual": 1,
    # The shells: sockets, files, waiting.
    "voicebench.bundle_files": 2,
    "voicebench.children": 2,
    "voicebench.clips": 2,
    "voicebench.examples": 2,
    "voicebench.load_files": 2,
    "voicebench.local_run": 2,
    "voicebench.master": 2,
    "voicebench.mock_connection": 2,
    "voicebench.mock_server": 2,
    "voicebench.mock_truth": 2,
    "voicebench.page": 2,
    "voicebench.reports": 2,
    "voicebench.run_folder": 2,
    "voicebench.worker": 2,
    # The roof.
    "voicebench.__main__": ROOF,
    "voicebench.cli": ROOF,
}
"""A module has the floor of its longest entry, so a package's entry speaks for all its modules. Every top-level module
stands here by name: a new one has no floor until somebody has thought about it."""

APART = {"voicebench.master": "voicebench.worker", "voicebench.worker": "voicebench.master"}

IMPURE = frozenset(
    (
        "asyncio", "concurrent", "ctypes", "flask", "gevent", "logging", "multiprocessing", "os", "pathlib",
        "select", "selectors", "shutil", "signal", "socket", "socketserver", "ssl", "subprocess",
        "tempfile", "threading", "zmq",
    )
)  # fmt: skip
ONLY_THE_CLOCK = "voicebench.clock"
NOW = frozenset((("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")))


@dataclass(frozen=True)
class Import:
    """One imported module, or a name of it that may itself be a module."""

    name: str
    line: int


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor_of(module: str) -> int | None:
    """The floor of a module; None when it has none. The entry of `voicebench` is for its `__init__.py` alone."""
    if module == "voicebench":
        return FLOORS[module]
    while "." in module:
        if module in FLOORS:
            return FLOORS[module]
        module = module.rpartition(".")[0]
    return None


def imports_of(tree: ast.AST, module: str, *, is_package: bool) -> Iterator[Import]:
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                parts = package.split(".")[: len(package.split(".")) - (node.level - 1)]
                origin = ".".join([*parts, origin] if origin else parts)
            for alias in node.names:
                yield Import(f"{origin}.{alias.name}", node.lineno)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "__import__"):
            yield from (
                Import(argument.value, node.lineno)
                for argument in node.args[:1]
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            )


def violations(source: str, path: Path, module: str) -> list[str]:
    """What a module does that its floor forbids, each as `file:line: ...`."""
    is_package = path.name == "__init__.py"
    floor = floor_of(module)
    if floor is None:
        return [f"{path}:1: {module} has no floor: enter it in FLOORS"]
    tree = ast.parse(source)
    found = []
    for each in imports_of(tree, module, is_package=is_package):
        top = each.name.partition(".")[0]
        why = None
        if top == "voicebench":
            why = _points_wrong(module, floor, each.name)
        elif top == "time" and module != ONLY_THE_CLOCK:
            why = f"imports {each.name}: only clock.py reads the clock"
        elif floor < 2 and top in IMPURE:
            why = f"imports {each.name}, which floor {floor} must not know"
        if why:
            found.append(f"{path}:{each.line}: {module} {why}")
    if module != ONLY_THE_CLOCK:
        found += [f"{path}:{line}: {module} reads the clock itself: {call}" for line, call in _clock_reads(tree)]
    return found


def _points_wrong(module: str, floor: int, target: str) -> str | None:
    for side, other in APART.items():
        if _within(module, side) and _within(target, other):
            return f"imports {target}: master and worker never know each other"
    below = floor_of(target)
    if below is None:
        # `from voicebench import __version__`: a name of the package itself, which lies at the bottom.
        return None if target.count(".") == 1 else f"imports {target}, which has no floor"
    return f"(floor {floor}) imports {target} (floor {below}): imports point down" if below > floor else None


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _clock_reads(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value).rpartition(".")[2]
            if (owner, node.func.attr) in NOW:
                yield node.lineno, ast.unparse(node.func)


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda path: module_name(path, ROOT))
def test_a_module_keeps_to_its_floor(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    found = violations(source, path.relative_to(ROOT), module_name(path, ROOT))
    assert not found, "\n".join(found)


def test_the_table_names_no_module_that_is_gone() -> None:
    there = {module_name(path, ROOT) for path in modules()}
    assert [name for name in FLOORS if name not in there] == []


def test_every_top_level_module_is_in_the_table() -> None:
    top = {".".join(module_name(path, ROOT).split(".")[:2]) for path in modules()}
    assert sorted(top - FLOORS.keys()) == []


PLANTED = {
    "voicebench/vad.py": [
        ("import socket", "imports socket, which floor 1 must not know"),
        ("import os.path", "imports os.path, which floor 1 must not know"),
        ("from pathlib import Path", "imports pathlib.Path, which floor 1 must not know"),
        ("def f():\n    from gevent import sleep", "imports gevent.sleep, which floor 1 must not know"),
        ("if TYPE_CHECKING:\n    import asyncio", "imports asyncio, which floor 1 must not know"),
        ("import time", "only clock.py reads the clock"),
        ("from time import monotonic", "only clock.py reads the clock"),
        ("import datetime\ndatetime.datetime.now()", "reads the clock itself"),
        ("from voicebench.worker.call import Call", "(floor 1) imports voicebench.worker.call.Call (floor 2)"),
        ("from voicebench import load_files", "(floor 1) imports voicebench.load_files (floor 2)"),
        ("from . import cli", "(floor 1) imports voicebench.cli (floor 3)"),
        ("import importlib\nimportlib.import_module('zmq')", "imports zmq, which floor 1 must not know"),
    ],
    "voicebench/records.py": [
        ("from voicebench.turns import Speech", "(floor 0) imports voicebench.turns.Speech (floor 1)"),
        ("from .scenario import model", "(floor 0) imports voicebench.scenario.model (floor 1)"),
    ],
    "voicebench/master/report.py": [
        ("from voicebench.worker.engine import Engine", "master and worker never know each other"),
        ("from ..worker import engine", "master and worker never know each other"),
        ("from voicebench.cli.grid import Cell", "(floor 2) imports voicebench.cli.grid.Cell (floor 3)"),
    ],
    "voicebench/worker/engine.py": [("import voicebench.master.report", "master and worker never know each other")],
    "voicebench/brand_new.py": [("", "has no floor: enter it in FLOORS")],
    "voicebench/brand_new/__init__.py": [("", "has no floor: enter it in FLOORS")],
}


@pytest.mark.parametrize(
    ("file", "source", "told"), [(file, *each) for file, planted in PLANTED.items() for each in planted]
)
def test_the_checker_sees_a_planted_violation(file: str, source: str, told: str) -> None:
    found = violations(source, Path(file), module_name(ROOT / file, ROOT))
    assert len(found) == 1
    assert told in found[0]
    line = 1 + source[: source.rfind("\n") + 1].count("\n")
    assert found[0].startswith(f"{file}:{line}: ")


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("voicebench/vad.py", "import numpy as np\nfrom voicebench.audio.level import Energies"),
        ("voicebench/clock.py", "import time\nfrom datetime import datetime\ndatetime.now()"),
        ("voicebench/worker/pacer.py", "import select\nimport gevent\nfrom voicebench.worker.call import Call"),
        ("voicebench/cli/run.py", "import os\nfrom voicebench.master.report import report_document"),
        ("voicebench/worker/adapters/websocket.py", "from voicebench import __version__"),
    ],
)
def test_the_checker_lets_pass_what_is_right(file: str, source: str) -> None:
    assert violations(source, Path(file), module_name(ROOT / file, ROOT)) == []
