"""What `voicebench worker` does."""

from __future__ import annotations

import os
import platform
import secrets
import socket
from collections.abc import Callable

from gevent.event import Event

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
    tell: Callable[[str], None] = (lambda text: None) if quiet else say
    over = Event()
    nodes: list[Node] = []

    def leave(signal_name: str) -> None:
        over.set()
        for node in nodes:
            node.leave(signal_name)

    def cut(signal_name: str) -> None:
        for node in nodes:
            node.cut(signal_name)

    signals = Signals(leave, cut)
    try:
        while True:
            nodes[:] = [Node(endpoint, _hello(name), os.environ, tell)]
            tell(f"looking for a master at {endpoint.removeprefix('tcp://')}")
            exit_code = nodes[0].run() or signals.exit_code or 0
            nodes.clear()
            # Between two runs nothing is there to be let finish.
            if not stay or exit_code == UsageError.exit_code or over.wait(AGAIN_S):
                return exit_code or signals.exit_code or 0
    finally:
        signals.close()


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
