"""Times in records."""

from __future__ import annotations

from datetime import UTC, datetime


def time_text(time_ms: int) -> str:
    """Return a time since the Unix epoch as RFC 3339 text, UTC, with milliseconds."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
