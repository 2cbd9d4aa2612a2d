"""bench_virtual.py: one scripted session of some 20 s with the mock agent, virtual clock. Budget: 25 ms of CPU."""

from __future__ import annotations

import time
import timeit
from pathlib import Path

import voicebench.examples
from voicebench.load_files import load_plan
from voicebench.scenario.adapter_options import mock_options
from voicebench.scoring import score
from voicebench.script import prepare
from voicebench.virtual import run_virtual

BUDGET_MS = 25.0


def main() -> None:
    """Session and score together, best of nine."""
    example = Path(voicebench.examples.__file__).with_name("mock-conversation.yaml")
    (prepared,) = load_plan(example).scenarios
    script, options = prepare(prepared.scenario, prepared.clips), mock_options(prepared.scenario.adapter.options)
    length_s = run_virtual(script, options).recording("x", clock="virtual").duration_s

    def once() -> None:
        score(run_virtual(script, options).recording("x", clock="virtual"))

    cpu_ms = 1000 * min(timeit.repeat(once, number=1, repeat=9, timer=time.process_time))
    print(
        f"virtual_{length_s:.1f}s_session_cpu_ms={cpu_ms:.1f} budget={BUDGET_MS:.1f} "
        f"{'ok' if cpu_ms <= BUDGET_MS else 'OVER'}"
    )


if __name__ == "__main__":
    main()
