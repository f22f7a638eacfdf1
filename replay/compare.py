"""Replay several HPAs on the same load, and compare them with each other and with reality."""

from __future__ import annotations

from collections.abc import Mapping

from autoscaler.core.model import HPA
from replay.load import Load
from replay.output.comparison import Comparison
from replay.output.documents import Document
from replay.simulation import Settings, replay_hpa, replay_reality


def compare(
    hpas: Mapping[str, HPA],
    load: Load,
    settings: Settings,
    *,
    document: Document | None = None,
    sentences: bool = True,
) -> Comparison:
    """Replay HPAs.

    Args:
        hpas: {name in the outputs: the HPA}.
        load: the recorded load, of at least their metrics.
        settings: the assumptions, the same for all HPAs.
        document: written while the replays run.
        sentences: whether the decisions get their sentences, which take time.

    Raises:
        ReplayError: see `simulate`.
    """
    document, replays = document or Document(), []
    for name, hpa in hpas.items():
        document.begin(name, hpa)
        replays.append(replay_hpa(hpa, load, settings, name=name, on_step=document.step, sentences=sentences))
        document.end(replays[-1])
    reality = replay_reality(load, settings)
    document.close(reality)
    return Comparison(load=load, settings=settings, hpas=list(hpas.values()), replays=replays, reality=reality)
