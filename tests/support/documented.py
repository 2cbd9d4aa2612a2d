"""What README and docs print for readers to type or to save: commands, and files with their contents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

PROGRAMS = (
    "voicebench|make|python3?|pip|pytest|source|export|cd|ls|cat|echo|head|tail|grep|curl|wget|open|jq|sqlite3|ssh|scp|git|"
    r"docker|kubectl|sudo|apt|apt-get|npm|node|openssl|bash|sh|\S*bin/\S+|\./\S+"
)
COMMAND = re.compile(rf"(\$ )?([A-Z_]+=\S+ )*({PROGRAMS})( |$)")
SHELL = ("", "sh", "bash", "shell", "console", "text")
"""Fences whose lines may be commands; in those of YAML a pipeline's are, behind `run:` or a hyphen."""
COMMENT = re.compile(r"\s+#\s.*$|(?<=\S)\s{3,}(?!-).*$")
"""Behind a command: a comment, or a column of explanations."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code."""

    page: Path
    line: int
    """Of its first line, from 1."""
    language: str
    """Of a fence; `indented` for one without."""
    text: str
    named: str | None
    """The file that the sentence before it says it is."""

    @property
    def where(self) -> str:
        return f"{self.page.name}:{self.line}"


@dataclass(frozen=True, slots=True)
class Command:
    """One command as printed, without prompt and comment; continued lines are joined."""

    text: str
    where: str
    page: Path


def blocks_of(page: Path) -> Iterator[Block]:
    """In the order of the page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    sentence = ""
    at = 0
    while at < len(lines):
        line, first = lines[at], at
        fence = re.match(r"```(\w*)$", line)
        if fence:
            at = lines.index("```", at + 1)
            yield Block(page, first + 2, fence[1], "\n".join(lines[first + 1 : at]) + "\n", _file_in(sentence))
        elif line.startswith("    ") and not sentence.startswith(("|", "-")):
            while at + 1 < len(lines) and lines[at + 1].startswith("    "):
                at += 1
            yield Block(page, first + 1, "indented", "\n".join(each[4:] for each in lines[first : at + 1]) + "\n", None)
        elif line.strip():
            sentence = line
        at += 1


def _file_in(sentence: str) -> str | None:
    """`parrot.py` of "This is `parrot.py`:", the last code in a sentence that ends with a colon."""
    if not sentence.rstrip().endswith(":"):
        return None
    names = re.findall(r"`([\w-]+\.(?:yaml|py|json))`", sentence)
    return names[-1] if names else None


def commands_of(page: Path) -> Iterator[Command]:
    """Every command of a page. An indented block holds nothing else.

    Raises:
        ValueError: A line of an indented block is none.
    """
    for block in blocks_of(page):
        for number, line in _whole_lines(block):
            command = _command_in(line, block)
            if command is not None:
                yield Command(command, f"{page.name}:{number}", page)


def _whole_lines(block: Block) -> Iterator[tuple[int, str]]:
    begun, number = "", block.line
    for at, line in enumerate(block.text.splitlines()):
        number = number if begun else block.line + at
        if line.endswith("\\"):
            begun += line[:-1].rstrip() + " "
        else:
            yield number, begun + (line.strip() if begun else line)
            begun = ""


def _command_in(line: str, block: Block) -> str | None:
    if block.language == "yaml":
        step = re.match(r"\s*- (?:run: )?(?=\S*voicebench )", line)
        return line[step.end() :].strip() if step else None
    if block.language != "indented" and block.language not in SHELL:
        return None
    command = COMMENT.sub("", line).strip().removeprefix("$ ")
    if COMMAND.match(command):
        return command
    if block.language == "indented" and command:
        raise ValueError(
            f"{block.where}: no command that is known: {line}; see PROGRAMS in tests/support/documented.py"
        )
    return None


def inline_calls(page: Path) -> Iterator[str]:
    """`voicebench ...` within sentences and tables."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for span in re.findall(r"`([^`]+)`", text):
        if re.match(r"voicebench [a-z]", span):
            yield " ".join(span.split())
