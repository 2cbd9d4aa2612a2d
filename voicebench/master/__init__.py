"""The run: merges what the workers measured, and reports it."""
