"""Replay several HPAs on the same load, and compare them with each other and with reality."""

from __future__ import annotations

from collections.abc import Sequence

from replay.hpa_files import HPAFile, spec_names
from replay.load import Load
from replay.output.comparison import Comparison
from replay.output.documents import Document
from replay.simulation import Settings, replay, replay_reality


def compare(
    files: Sequence[HPAFile],
    load: Load,
    settings: Settings,
    *,
    document: Document | None = None,
    sentences: bool = True,
) -> Comparison:
    """Replay HPAs.

    Args:
        files: the HPAs.
        load: the recorded load, of at least their metrics.
        settings: the assumptions, the same for all HPAs.
        document: written while the replays run.
        sentences: whether the decisions get their sentences, which take time.

    Raises:
        ReplayError: see `simulate`.
    """
    replays = []
    for file, name in zip(files, spec_names(files), strict=True):
        if document is not None:
            document.begin(name, file.hpa)
        on_step = document.step if document is not None else None
        replayed = replay(file.hpa, load, settings, name=name, on_step=on_step, sentences=sentences)
        if document is not None:
            document.end(replayed)
        replays.append(replayed)
    reality = replay_reality(load, settings)
    if document is not None:
        document.close(reality)
    hpas = [file.hpa for file in files]
    return Comparison(load=load, settings=settings, hpas=hpas, replays=replays, reality=reality)
