"""Measurements: of what the documentation says in figures."""
