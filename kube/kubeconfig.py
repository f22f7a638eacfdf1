"""Where the command-line tools find the cluster: as kubectl does."""

from __future__ import annotations

import os
from pathlib import Path


def default_kubeconfig() -> Path | None:
    """The file that $KUBECONFIG names, or the usual one; None: neither is there, so this should be a pod."""
    if named := os.environ.get("KUBECONFIG"):
        return Path(named)
    usual = Path.home() / ".kube" / "config"
    return usual if usual.is_file() else None
