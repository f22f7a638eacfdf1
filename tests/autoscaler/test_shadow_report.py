"""The report on shadow mode: the page that is served, the table, and the command."""

import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from click.testing import CliRunner

from autoscaler import cli
from autoscaler.commands import debug_client
from autoscaler.commands.debug_client import DebugClientError
from autoscaler.core.config import Config
from autoscaler.core.model import Condition, HPAKey, Status
from autoscaler.loop.debug import DebugAccess, shadow_routes
from autoscaler.loop.health import serving
from autoscaler.records.shadow import Comparison, Shadow, Standing, Verdict
from autoscaler.records.shadow_report import as_table, page_of
from tests.autoscaler.worlds import NOW, hpa

START = "2001-09-09T01:46:40.000Z"
"""NOW, as text."""


class FakeShadow(Shadow):
    """A shadow whose standings are given."""

    def __init__(self, standings: dict[HPAKey, Standing]) -> None:
        super().__init__(sync_period=10, config=Config())
        self._given = standings

    def standings(self, now_ms: int) -> dict[HPAKey, Standing]:
        return self._given


def compared(verdict: Verdict, ours: int | None, theirs: int | None, *, lag_ms: int = 0) -> Comparison:
    return Comparison(time_ms=NOW, ours=ours, theirs=theirs, verdict=verdict, lag_ms=lag_ms)


def standing(*comparisons: Comparison, agreed: int = 0) -> Standing:
    standing = Standing(uid="u", warm_ms=NOW)
    standing.counts[Verdict.AGREED] += agreed
    for comparison in comparisons:
        standing.counts[comparison.verdict] += 1
        standing.last = comparison
        if comparison.verdict is not Verdict.AGREED:
            standing.differences.append(comparison)
    return standing


@pytest.fixture
def shadow() -> Shadow:
    return FakeShadow(
        {
            HPAKey("shop", "web"): standing(
                compared(Verdict.WARMING_UP, 2, 3),
                compared(Verdict.HIGHER, 5, 3),
                compared(Verdict.PASSED, 4, 6),
                compared(Verdict.ONLY_THEIRS, None, 6),
                agreed=996,
            ),
            HPAKey("shop", "api"): standing(compared(Verdict.AGREED, 3, 3, lag_ms=7250), agreed=9),
            HPAKey("shop", "new"): standing(),
        }
    )


def test_the_page_has_every_hpa_with_its_counts_and_latest_differences(shadow: Shadow) -> None:
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


def test_the_table_begins_with_those_that_agree_least_and_ends_with_a_few_differences_of_each(shadow: Shadow) -> None:
    assert as_table(page_of(shadow, NOW)).splitlines() == [
        "NAMESPACE   NAME   AGREEMENT   COMPARED   HIGHER   LOWER   OTHER   WARMING UP   OURS   THEIRS",
        "shop        web    99.6%       999        1        0       2       1            none   6",
        "shop        api    100%        10         0        0       0       0            3      3",
        "shop        new    -           0          0        0       0       0            -      -",
        "",
        "Latest differences:",
        f"  {START}  shop/web: ours 5, theirs 3 (ours is higher)",
        f"  {START}  shop/web: ours 4, theirs 6 (the built-in controller went past ours)",
        f"  {START}  shop/web: ours none, theirs 6 (ours found no count)",
        "",
        "99.7% of all decisions agree, within 15 s of each other.",
    ]


def test_the_table_says_where_there_is_nothing_to_show() -> None:
    assert as_table(page_of(FakeShadow({}), NOW)) == "No HPA is in shadow mode."
    waiting = as_table(page_of(FakeShadow({HPAKey("shop", "new"): standing()}), NOW))
    assert waiting.endswith("Nothing has been compared yet.")


@pytest.fixture
async def server(shadow: Shadow) -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes(shadow_routes(shadow, DebugAccess.LOCAL, wall_clock=lambda: NOW / 1000, clock=lambda: NOW / 1000))
    async with serving(app, host="127.0.0.1", port=0) as port:
        yield f"http://127.0.0.1:{port}"


async def test_it_is_served_as_json(server: str) -> None:
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


def test_where_the_pages_are_off_it_is_not_there(shadow: Shadow) -> None:
    assert shadow_routes(shadow, DebugAccess.OFF) == []


async def test_a_real_shadow_fills_it() -> None:
    shadow = Shadow(sync_period=10, config=Config())
    active = Condition(type="ScalingActive", status="True", reason="", message="", last_transition_ms=NOW)
    web_ = hpa(status=Status(desired_replicas=3, conditions=(active,)))
    shadow.saw(web_, NOW)
    assert [entry.name for entry in page_of(shadow, NOW).hpas] == ["web"]


class TestCommand:
    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The pages that were asked for; they are empty."""
        urls: list[str] = []

        async def get_page(url: str) -> bytes:
            urls.append(url)
            if "nobody" in url:
                raise DebugClientError(f"{url} cannot be read: refused")
            if "other" in url:
                return b"<html>"
            return b'{"version":1,"windowSeconds":22.5,"agreement":null,"hpas":[]}'

        monkeypatch.setattr(debug_client, "get_page", get_page)
        return urls

    def test_prints_a_table(self, asked: list[str]) -> None:
        result = CliRunner().invoke(cli.main, ["shadow-report"])
        assert (result.exit_code, result.output) == (0, "No HPA is in shadow mode.\n")
        assert asked == ["http://127.0.0.1:8080/debug/shadow"]

    def test_prints_json(self, asked: list[str]) -> None:
        result = CliRunner().invoke(cli.main, ["shadow-report", "--server=http://autoscaler:80/", "-o", "json"])
        assert json.loads(result.output) == {"version": 1, "windowSeconds": 22.5, "agreement": None, "hpas": []}
        assert asked == ["http://autoscaler:80/debug/shadow"]

    @pytest.mark.parametrize(
        ("server", "problem"),
        [
            ("http://nobody:80", "http://nobody:80/debug/shadow cannot be read: refused"),
            ("http://other:80", "http://other:80/debug/shadow is not a page of the autoscaler: JSON is malformed"),
        ],
    )
    def test_says_in_one_line_what_is_wrong(self, server: str, problem: str, asked: list[str]) -> None:
        result = CliRunner().invoke(cli.main, ["shadow-report", f"--server={server}"])
        assert result.exit_code == 1
        assert result.output.startswith(f"Error: {problem}")
        assert result.output.count("\n") == 1

    def test_refuses_what_is_no_server(self) -> None:
        result = CliRunner().invoke(cli.main, ["shadow-report", "--server=autoscaler"])
        assert result.exit_code == 2
        assert "must be the autoscaler's URL, such as http://127.0.0.1:8080" in result.output
