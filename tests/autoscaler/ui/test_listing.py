"""Search, filters, order and pages of the list, and the entries, which follow the changes of HPAs."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request
from msgspec.structs import replace

from autoscaler.core.config import AnnotationOverrides, Mode, Pause
from autoscaler.core.model import HPA, HPAKey, Status
from autoscaler.ui.access import GroupNamespace
from autoscaler.ui.listing import ROWS, Entry, ListPage, ListQuery, ListRows, Selection, select
from autoscaler.ui.page_context import PageContext
from kube.aio.fairness import Throttle
from kube.api.status import StatusError
from kube.security.request_info import Query
from kube.web.pages import PageRequest
from tests.autoscaler.simulated_cluster import average_target, hpa, pods_metric
from tests.autoscaler.ui.pages import Controller
from tests.autoscaler.ui.test_rows import condition


def named(name: str, namespace: str = "default", metric: str = "packets", **fields: Any) -> HPA:
    return replace(hpa(pods_metric(100_000, metric)), name=name, namespace=namespace, **fields)


def using(name: str, milli: int) -> HPA:
    """An HPA whose metric has this value."""
    (metric,) = hpa(pods_metric(100_000)).spec.metrics
    return named(name, status=Status(current_metrics=(metric.with_target(average_target(milli)),)))


async def selected(
    hpas: Iterable[HPA], query: str = "", *, visible: frozenset[GroupNamespace] | None = None
) -> Selection:
    sources = Controller().sources
    entries = [Entry(each, sources) for each in hpas]
    return await select(entries, ListQuery.parse(Query.parse(query)), visible)


async def names(hpas: Iterable[HPA], query: str = "") -> list[str]:
    return [each.key.name for each in (await selected(hpas, query)).entries]


# --- the query -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    ["", "q=a+b", "namespace=shop", "show=failing", "sort=-metrics", "page=7", "q=%26&show=paused&sort=mode&page=2"],
)
def test_query_survives_a_round_trip(query: str) -> None:
    parsed = ListQuery.parse(Query.parse(query))
    assert parsed.url(page=parsed.page).lstrip("/?") == query
    assert parsed.url("/events").startswith("/events")


@pytest.mark.parametrize("query", ["show=broken", "sort=size", "sort=--name", "page=0", "page=-1", "page=x"])
def test_invalid_query_is_a_bad_request(query: str) -> None:
    with pytest.raises(StatusError) as error:
        ListQuery.parse(Query.parse(query))
    assert error.value.code == 400


def test_another_choice_begins_at_the_first_page() -> None:
    query = ListQuery(q="a", page=4)
    assert query.url(show="limited") == "/?q=a&show=limited"
    assert query.url(page=5) == "/?q=a&page=5"


def test_heading_sorts_and_then_reverses() -> None:
    assert ListQuery().sorted_by("name") == "/?sort=-name"
    assert ListQuery(sort="-name").sorted_by("name") == "/"
    assert ListQuery().sorted_by("metrics") == "/?sort=-metrics"
    assert ListQuery(sort="-metrics").sorted_by("metrics") == "/?sort=metrics"


# --- the selection -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("q=web", ["web"]),
        ("q=SHOP", ["api", "web"]),
        ("q=shop/api", ["api"]),
        ("q=shop+queue", ["api"]),
        ("q=deployment", ["cron", "api", "web"]),
        ("q=nothing", []),
        ("namespace=shop", ["api", "web"]),
        ("namespace=sho", []),
        ("namespace=shop&q=queue", ["api"]),
    ],
)
async def test_search_finds_all_words_in_name_namespace_target_and_metrics(query: str, found: list[str]) -> None:
    given = hpa()
    target = replace(given, name="cron")
    hpas = [target, named("api", "shop", "queue_length"), named("web", "shop")]
    hpas = [replace(each, spec=replace_target(each, "worker")) for each in hpas]
    assert await names(hpas, query) == found


def replace_target(given: HPA, name: str) -> Any:
    return replace(given.spec, scale_target_ref=replace(given.spec.scale_target_ref, name=name))


async def test_states_are_counted_and_shown() -> None:
    failing = named("failing", status=Status(conditions=(condition("AbleToScale", "False"),)))
    limited = named("limited", status=Status(conditions=(condition("ScalingLimited", "True"),)))
    both = named("both", status=Status(conditions=(*failing.status.conditions, *limited.status.conditions)))
    paused = named("paused", overrides=AnnotationOverrides(paused=Pause.ALL))
    scaling = named("scaling", status=Status(desired_replicas=1))
    hpas = [both, failing, limited, paused, scaling, named("well")]
    counts = (await selected(hpas)).counts
    assert counts == {"": 6, "failing": 2, "limited": 2, "paused": 1, "scaling": 1}
    assert await names(hpas, "show=failing") == ["both", "failing"]
    assert await names(hpas, "show=limited") == ["both", "limited"]
    assert await names(hpas, "show=paused") == ["paused"]
    assert await names(hpas, "show=scaling") == ["scaling"]
    assert (await selected(hpas, "show=scaling")).counts == counts
    assert (await selected(hpas, "q=both")).counts == {"": 1, "failing": 1, "limited": 1, "paused": 0, "scaling": 0}


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("name", ["a", "b", "c"]),
        ("-name", ["c", "b", "a"]),
        ("mode", ["a", "c", "b"]),
        ("-metrics", ["b", "a", "c"]),
        ("metrics", ["c", "a", "b"]),
        ("-replicas", ["c", "a", "b"]),
        ("-scaled", ["b", "a", "c"]),
        ("scaled", ["a", "c", "b"]),
        ("-conditions", ["c", "b", "a"]),
    ],
)
async def test_each_column_sorts_and_equal_rows_are_sorted_by_name(sort: str, expected: list[str]) -> None:
    a, b, c = using("a", 50_000), using("b", 90_000), named("c")
    b = replace(b, overrides=AnnotationOverrides(mode=Mode.SHADOW))
    b = replace(b, status=replace(b.status, last_scale_ms=5, conditions=(condition("ScalingLimited", "True"),)))
    c = replace(c, status=Status(current_replicas=9, conditions=(condition("AbleToScale", "False"),)))
    assert await names([a, b, c], f"sort={sort}") == expected


async def test_pages_have_a_hundred_rows() -> None:
    hpas = [named(f"{number:04}") for number in range(250)]
    first, last, beyond = [await selected(hpas, f"page={page}") for page in (1, 3, 9)]
    assert (first.pages, first.total, len(first.entries), first.first, first.last) == (3, 250, ROWS, 1, 100)
    assert (len(last.entries), last.first, last.last) == (50, 201, 250)
    assert last.entries[0].key.name == "0200"
    assert beyond.page == 3
    none = await selected([])
    assert (none.pages, none.page, none.first, none.last) == (1, 1, 0, 0)


# --- the entries ---------------------------------------------------------------------------------------------------


def test_entries_follow_new_changed_and_deleted_hpas() -> None:
    controller = Controller()
    rows = ListRows(PageContext(controller.sources, controller.access, controller.pages.templates))
    for name in ("b", "c", "d"):
        controller.add(named(name))
    *_, kept = rows.entries()
    controller.add(named("a", "another"))
    controller.add(named("b", status=Status(current_replicas=7)))
    controller.remove(HPAKey("default", "c"))
    entries = rows.entries()
    assert [(each.key.name, each.hpa.status.current_replicas) for each in entries] == [("a", 0), ("b", 7), ("d", 0)]
    assert entries[2] is kept, "nothing is computed again"
    assert rows.state(HPAKey("default", "c")) is None


async def test_hpas_are_listed_for_one_open_page_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, throttle, listed = Controller(), Throttle(), asyncio.Event()
    controller.add(named("a"))
    context = PageContext(controller.sources, controller.access, controller.pages.templates)
    rows = ListRows(context)

    def entries() -> Sequence[Entry]:
        listed.set()
        return ListRows.entries(rows)

    monkeypatch.setattr(rows, "entries", entries)
    request = PageRequest(segments=(), query=Query.parse(""), user=None, raw=make_mocked_request("GET", "/"))
    async with throttle.slot("another user"):
        loading = asyncio.create_task(ListPage(context, request, rows).load(throttle))
        await asyncio.sleep(0)
        assert not listed.is_set()
    assert (await loading).rows is not None
    assert listed.is_set()
