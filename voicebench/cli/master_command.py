"""What `voicebench master` does with its flags."""

from __future__ import annotations

import os

from voicebench.cli.distributed import hold_with_workers
from voicebench.cli.run_command import settle
from voicebench.cli.settle import MasterFlags, RunFlags
from voicebench.errors import UsageError
from voicebench.wire.address import is_private, to_bind


def master_command(flags: RunFlags, own: MasterFlags) -> int:
    """Run with the workers that come, and return the exit code."""
    try:
        endpoint = to_bind(own.bind)
    except ValueError as error:
        raise UsageError(f"--bind: {error}") from None
    if not is_private(endpoint) and not own.insecure:
        raise UsageError(
            f"--bind {own.bind}: whoever reaches that port could read the test and forge its results, since workers "
            "are not authenticated; --insecure if that is all right on this network, and every report will say so"
        )
    settled = settle(flags, os.environ, agent_is_called_here=False)
    return hold_with_workers(settled, flags, own, endpoint)
