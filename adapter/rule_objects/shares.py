"""How namespaces share a total, so that none takes the share of another one."""

from __future__ import annotations

from collections.abc import Iterable


def fair_share(demands: Iterable[int], total: int) -> int:
    """Return the most that each can have so that all together have at most `total` (max-min fairness).

    A smaller demand leaves the rest of its share to the others. If there is enough for all, it is at least the total.
    """
    left, ordered = total, sorted(demands)
    for number, demand in enumerate(ordered):
        share = left // (len(ordered) - number)
        if demand > share:
            return share
        left -= demand
    return total
