"""The family of errors: each class says whose fault it is, and so which exit code follows.

`ScenarioError` the file's author, `BundleError` the recording, `AgentError` the system under test, `WireError` a peer,
`TesterError` ourselves. They must never be mixed: the first is a typing mistake, the third a finding, the last voids
the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FailureReason = Literal[
    "refused", "handshake", "auth", "limited", "timeout", "dropped", "agent_hangup", "protocol", "no_audio",
    "generator",
]  # fmt: skip
FAILURE_REASONS: tuple[FailureReason, ...] = (
    "refused", "handshake", "auth", "limited", "timeout", "dropped", "agent_hangup", "protocol", "no_audio",
    "generator",
)  # fmt: skip


class VoicebenchError(Exception):
    """Everything we raise on purpose. `exit_code` is what the command line ends with."""

    exit_code = 4


class UsageError(VoicebenchError):
    """The command line asks for something that does not exist or does not fit together."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file: where it is, and a sentence with key, value and remedy."""

    source: str
    """The file's name as the user gave it, or what stands for it (`<stdin>`, a bundle)."""
    line: int | None
    """1-based, None where the document has no lines (JSON of a bundle)."""
    column: int | None
    path: str
    """The key as people write it: `turns[2].start.delay_ms`; empty for the whole document."""
    message: str

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.source, self.line, self.column) if part is not None)
        return ": ".join(part for part in (place, self.path, self.message) if part)


class ScenarioError(VoicebenchError):
    """A scenario or plan is wrong: all its mistakes at once, each with its place."""

    exit_code = 2

    def __init__(self, problems: list[Problem] | tuple[Problem, ...]) -> None:
        if not problems:
            raise ValueError("a ScenarioError needs at least one problem")
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class AudioError(VoicebenchError):
    """Audio bytes that cannot be read, or that say something a track cannot represent."""

    exit_code = 2


class BundleError(VoicebenchError):
    """A recording on disk is not whole or not what it says it is."""

    exit_code = 2


class AgentError(VoicebenchError):
    """The system under test refused, vanished or broke its protocol: a finding, not a crash."""

    exit_code = 3

    def __init__(self, reason: FailureReason, message: str) -> None:
        self.reason: FailureReason = reason
        super().__init__(message)


class AdapterError(VoicebenchError):
    """An adapter cannot be loaded or its options do not fit."""

    exit_code = 3


class WireError(VoicebenchError):
    """A peer (master or worker) sent what is no message of ours, or what can't be: it is refused, nothing stops."""

    exit_code = 4


class WrongProtocolError(WireError):
    """A peer of another version."""

    exit_code = 2

    def __init__(self, protocol: int, version: str) -> None:
        self.protocol = protocol
        self.version = version
        super().__init__(f"protocol {protocol} (voicebench {version or 'of another version'})")


class TesterError(VoicebenchError):
    """We ourselves failed (overload, disk full): what was measured can't be trusted."""

    exit_code = 4
