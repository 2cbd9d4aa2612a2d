"""voicebench: load tests for real-time voice agents, scored from what was recorded."""

__version__ = "0.3.0"
