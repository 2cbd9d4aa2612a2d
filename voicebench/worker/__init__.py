"""The load generator: holds sessions in real time and measures its own lateness."""
