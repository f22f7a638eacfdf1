"""milliscale's version, the only place that has it; docs/releases.md says which files are compared with it."""

from typing import Final

VERSION: Final = "0.2.0"
"""That of the newest release, or of the next one while it is prepared; as in PEP 440."""
