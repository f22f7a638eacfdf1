"""Tests of the documentation: its commands, YAML, flags, metrics and links."""
