"""The report on shadow mode: the page that is served, the table, and the command."""

import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from click.testing import CliRunner

from autoscaler import cli
from autoscaler.commands import debug_client
from autoscaler.commands.shadow_report import as_table
from autoscaler.core.config import Config
from autoscaler.core.model import HPAKey
from autoscaler.loop.endpoint import DebugAccess, debug_page, probe_handler, serving
from autoscaler.records.decision_log import DecisionLog
from autoscaler.records.record import time_text
from autoscaler.records.shadow import Comparison, HPAComparisons, ShadowComparer, Verdict, page_of
from kube.serving.health import Health
from tests.autoscaler.simulated_cluster import NOW

START = "2001-09-09T01:46:40.000Z"
"""NOW, as text."""


class FakeComparer(ShadowComparer):
    """Returns given comparisons."""

    def __init__(self, comparisons: dict[HPAKey, HPAComparisons]) -> None:
        super().__init__(sync_period=10, config=Config())
        self._given = comparisons

    def comparisons(self, now_ms: int) -> dict[HPAKey, HPAComparisons]:
        return self._given


def comparison_of(verdict: Verdict, ours: int | None, theirs: int | None, *, lag_seconds: float = 0.0) -> Comparison:
    return Comparison(time=time_text(NOW), ours=ours, theirs=theirs, verdict=verdict, lag_seconds=lag_seconds)


def hpa_comparisons(*comparisons: Comparison, agreed: int = 0) -> HPAComparisons:
    compared = HPAComparisons(uid="u", warm_ms=NOW)
    compared.counts[Verdict.AGREED] += agreed
    for comparison in comparisons:
        compared.counts[comparison.verdict] += 1
        compared.last = comparison
        if comparison.verdict is not Verdict.AGREED:
            compared.differences.append(comparison)
    return compared


@pytest.fixture
def shadow() -> ShadowComparer:
    return FakeComparer(
        {
            HPAKey("shop", "web"): hpa_comparisons(
                comparison_of(Verdict.WARMING_UP, 2, 3),
                comparison_of(Verdict.HIGHER, 5, 3),
                comparison_of(Verdict.PASSED, 4, 6),
                comparison_of(Verdict.ONLY_THEIRS, None, 6),
                agreed=996,
            ),
            HPAKey("shop", "api"): hpa_comparisons(comparison_of(Verdict.AGREED, 3, 3, lag_seconds=7.25), agreed=9),
            HPAKey("shop", "new"): hpa_comparisons(),
        }
    )


def test_page_has_counts_and_latest_differences_of_every_hpa(shadow: ShadowComparer) -> None:
    page = page_of(shadow, NOW)
    assert [(entry.namespace, entry.name, entry.agreement) for entry in page.hpas] == [
        ("shop", "api", 1.0),
        ("shop", "new", None),
        ("shop", "web", 996 / 999),
    ]
    assert page.agreement == 1006 / 1009
    assert page.window_seconds == 15.0
    api, _, web_ = page.hpas
    assert api.last is not None
    assert (api.last.time, api.last.ours, api.last.theirs, api.last.lag_seconds) == (START, 3, 3, 7.25)
    assert web_.comparisons == {
        "agreed": 996,
        "higher": 1,
        "lower": 0,
        "passed": 1,
        "only_ours": 0,
        "only_theirs": 1,
        "warming_up": 1,
    }
    assert [each.verdict for each in web_.differences] == ["warming_up", "higher", "passed", "only_theirs"]


def test_table_has_lowest_agreement_first_and_latest_differences_last(shadow: ShadowComparer) -> None:
    assert as_table(page_of(shadow, NOW)).splitlines() == [
        "NAMESPACE   NAME   AGREEMENT   COMPARED   HIGHER   LOWER   OTHER   WARMING UP   OURS   THEIRS",
        "shop        web    99.6%       999        1        0       2       1            none   6",
        "shop        api    100%        10         0        0       0       0            3      3",
        "shop        new    -           0          0        0       0       0            -      -",
        "",
        "Latest differences:",
        f"  {START}  shop/web: ours 5, theirs 3 (ours is higher)",
        f"  {START}  shop/web: ours 4, theirs 6 (theirs went past ours)",
        f"  {START}  shop/web: ours none, theirs 6 (only theirs found a count)",
        "",
        "99.7% of all decisions agree, within 15 s of each other.",
    ]


def test_empty_table_is_a_sentence() -> None:
    assert as_table(page_of(FakeComparer({}), NOW)) == "No HPA is in shadow mode."
    waiting = as_table(page_of(FakeComparer({HPAKey("shop", "new"): hpa_comparisons()}), NOW))
    assert waiting.endswith("Nothing has been compared yet.")


@pytest.fixture
async def server(shadow: ShadowComparer) -> AsyncIterator[str]:
    page = debug_page(DecisionLog(1), shadow, DebugAccess.LOCAL, clock=lambda: NOW / 1000)
    handler = probe_handler(lambda: b"", Health(live={}, ready={}), page=page)
    async with serving(handler, host="127.0.0.1", port=0) as port:
        yield f"http://127.0.0.1:{port}"


async def test_page_is_served_as_json(server: str) -> None:
    async with aiohttp.ClientSession() as http, http.get(f"{server}/debug/shadow") as response:
        assert response.content_type == "application/json"
        page = await response.json()
    assert (page["version"], page["windowSeconds"], len(page["hpas"])) == (1, 15.0, 3)
    assert page["hpas"][2]["differences"][1] == {
        "time": START,
        "ours": 5,
        "theirs": 3,
        "verdict": "higher",
        "lagSeconds": 0.0,
    }


class TestCommand:
    @pytest.fixture
    def requested(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The URLs that were requested; the pages are empty."""
        urls: list[str] = []

        async def get_page(url: str, _: object) -> bytes:
            urls.append(url)
            return b'{"version":1,"windowSeconds":22.5,"agreement":null,"hpas":[]}'

        monkeypatch.setattr(debug_client, "get_page", get_page)
        return urls

    def test_prints_a_table(self, requested: list[str]) -> None:
        result = CliRunner().invoke(cli.main, ["shadow-report"])
        assert (result.exit_code, result.output) == (0, "No HPA is in shadow mode.\n")
        assert requested == ["http://127.0.0.1:8080/debug/shadow"]

    def test_prints_json(self, requested: list[str]) -> None:
        result = CliRunner().invoke(cli.main, ["shadow-report", "--server=http://autoscaler:80/", "-o", "json"])
        assert json.loads(result.output) == {"version": 1, "windowSeconds": 22.5, "agreement": None, "hpas": []}
        assert requested == ["http://autoscaler:80/debug/shadow"]
