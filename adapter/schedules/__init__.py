"""Metrics whose value follows the clock."""
