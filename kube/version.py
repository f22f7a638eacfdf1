"""Which version of this software runs. Run from its sources it is installed nowhere, and nobody knows."""

from __future__ import annotations

from importlib import metadata


def installed_version() -> str | None:
    """The version, such as 1.2.3; None where it is run from its sources without being installed."""
    try:
        return metadata.version("milliscale")
    except metadata.PackageNotFoundError:
        return None
