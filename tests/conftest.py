"""Runs in tests have no status page unless they ask for one with --page."""

import os

os.environ.setdefault("VOICEBENCH_HEADLESS", "1")
