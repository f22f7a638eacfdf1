"""What-if: the kept decisions of a running autoscaler, replayed with another spec (see autoscaler.ui)."""

from __future__ import annotations

from collections.abc import Sequence

from autoscaler.core.config import Config
from autoscaler.core.model import HPA
from autoscaler.records.record import DecisionRecord
from autoscaler.ui.sources import WhatIfError, WhatIfResult


async def what_if(
    hpa: HPA, changed: HPA, records: Sequence[DecisionRecord], *, config: Config, sync_period: float
) -> WhatIfResult:
    """Replay kept decisions; see `autoscaler.ui.sources.WhatIf`."""
    del changed, records, config, sync_period
    raise WhatIfError(f"{hpa.key}: not implemented yet")
