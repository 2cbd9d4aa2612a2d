"""A run's reports for people and pipelines, from `report.json` and the recordings beside it: the same every time."""
