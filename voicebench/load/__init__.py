"""How many sessions, when: arithmetic on session numbers."""
