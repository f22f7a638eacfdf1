"""Outputs of a replay: the table, JSON and CSV, an HTML page, and pictures."""
