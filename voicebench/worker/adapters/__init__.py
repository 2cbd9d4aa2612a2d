"""Ways to reach an agent."""
