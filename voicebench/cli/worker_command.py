"""What `voicebench worker` does."""

from __future__ import annotations

import os
import platform
import secrets
import socket
from collections.abc import Callable

import gevent

from voicebench import __version__
from voicebench.children import bind_to_parent
from voicebench.cli.output import say
from voicebench.cli.signals import Signals
from voicebench.errors import UsageError
from voicebench.wire.address import to_connect
from voicebench.wire.messages import Hello
from voicebench.worker.node import Node

NAME_LENGTH = 100


AGAIN_S = 1.0
"""Between two runs: a master that has just ended may still refuse."""


def worker_command(address: str, name: str | None, *, quiet: bool, parent: int | None, stay: bool = False) -> int:
    """Be a worker until the run is over, or with `stay` until somebody ends it, and return the exit code."""
    if parent is not None:
        bind_to_parent(parent)
    try:
        endpoint = to_connect(address)
    except ValueError as error:
        raise UsageError(f"--master: {error}") from None
    while True:
        exit_code, is_over = _one_run(endpoint, name, (lambda text: None) if quiet else say)
        if not stay or is_over or exit_code == UsageError.exit_code:
            return exit_code
        gevent.sleep(AGAIN_S)


def _one_run(endpoint: str, name: str | None, tell: Callable[[str], None]) -> tuple[int, bool]:
    """The exit code, and whether a signal has ended it."""
    node = Node(endpoint, _hello(name), os.environ, tell)
    tell(f"looking for a master at {endpoint.removeprefix('tcp://')}")
    signals = Signals(node.leave, node.cut)
    try:
        exit_code = node.run()
    finally:
        signals.close()
    return exit_code or signals.exit_code or 0, signals.exit_code is not None


def _hello(name: str | None) -> Hello:
    host = socket.gethostname()[:NAME_LENGTH] or "unnamed"
    return Hello(
        version=__version__,
        incarnation=secrets.token_hex(16),
        name=_clean(name)[:NAME_LENGTH] if name else f"{host}-{os.getpid()}",
        host=host,
        python=platform.python_version(),
        platform=platform.platform()[:200],
        cpus=len(os.sched_getaffinity(0)),
    )


def _clean(name: str) -> str:
    if not name.isprintable() or not name.strip():
        raise UsageError("--name: letters, digits and signs that can be shown")
    return name.strip()
