"""Network namespaces as hosts of their own, where this user may make some."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def ip(*arguments: str) -> None:
    """Raises CalledProcessError."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def make_namespace(name: str) -> None:
    """Make one; the test is skipped where that is not possible."""
    if not shutil.which("ip"):
        pytest.skip("there is no `ip` to make namespaces with")
    try:
        ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no namespaces for this user: {error.stderr.decode().strip()}")
