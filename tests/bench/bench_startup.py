"""bench_startup.py: `voicebench --help` as a whole process. Budget: 150 ms, best of ten."""

from __future__ import annotations

import subprocess
import sys
import time

BUDGET_MS = 150.0


def main() -> None:
    """Time it and name what it must not have imported."""
    spent_ms = []
    for _ in range(10):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "voicebench", "--help"], check=True, capture_output=True)
        spent_ms.append(1000 * (time.perf_counter() - began))
    best_ms = min(spent_ms)
    print(f"help_startup_ms={best_ms:.0f} budget={BUDGET_MS:.0f} {'ok' if best_ms <= BUDGET_MS else 'OVER'}")


if __name__ == "__main__":
    main()
