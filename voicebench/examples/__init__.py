"""Scenario and plan files to start from. The files themselves are package data beside this one."""

from __future__ import annotations

from importlib import resources

EXAMPLES: dict[str, str] = {
    "mock-conversation": "every kind of turn against the built-in mock agent; needs no network",
    "short-question": "the smallest scenario: one question to the mock agent, one answer",
    "websocket": "real speech against an agent behind a WebSocket, with every option",
    "plan": "a load test: two scenarios mixed, several callers at once",
}
"""Name to description, in the order of a first acquaintance."""


def example_text(name: str) -> str:
    """The text of an example.

    Raises:
        KeyError: There is no example of this name.

    >>> "turns:" in example_text("short-question")
    True
    """
    if name not in EXAMPLES:
        raise KeyError(name)
    return resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
