"""Each usual mistake has the one sentence of docs/errors.md, and none has a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mistakes.page import sentence, sentences
from tests.mistakes.rows import PLACES, Mistake

MISTAKES = {(place.title, mistake.did): mistake for place in PLACES for mistake in place.mistakes}
SAYS = sentences()


def test_page_has_all_mistakes_once() -> None:
    assert len(MISTAKES) >= 60
    assert list(SAYS) == list(MISTAKES)


@pytest.mark.parametrize(("key", "mistake"), MISTAKES.items(), ids=[" - ".join(key) for key in MISTAKES])
def test_mistake_has_one_sentence(
    key: tuple[str, str], mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = sentence(mistake)
    assert said == SAYS[key]
    assert "\n" not in said
