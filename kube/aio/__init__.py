"""Additions to asyncio: owned tasks, one call for many callers, and limits that callers share fairly."""
