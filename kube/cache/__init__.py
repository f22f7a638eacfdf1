"""Watched objects in memory, and an index of their labels."""
