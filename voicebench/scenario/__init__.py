"""What to say: scenario and plan files, from text to frozen data."""
