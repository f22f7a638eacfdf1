"""The page of one HPA: its decisions as `explain` prints them, permalinks, events, and why there are none."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace
from rich.console import Console
from yarl import URL

from adapter.ui.metric_page import MetricForm
from autoscaler.commands.explain import print_records
from autoscaler.core.model import HPAKey
from autoscaler.records.metric_lookup import MetricNames
from autoscaler.records.record import DecisionRecord
from autoscaler.ui.access import NamespaceAccess
from autoscaler.ui.hpa_page import PAGE_SIZE
from kube.api.status import StatusError, forbidden
from kube.security.authentication import User
from kube.security.request_info import Query
from kube.web.event_stream import ServerEvent
from tests.autoscaler.simulated_cluster import (
    SimulatedCluster,
    behavior,
    external_metric,
    hpa,
    object_metric,
    pods_metric,
    rules,
    some_pods,
)
from tests.autoscaler.ui.pages import Controller, Document, Element
from tests.autoscaler.ui.test_rows import CPU

pytestmark = pytest.mark.looptime

WEB = ("hpas", "default", "web")
KEY = HPAKey("default", "web")


def simulated(replicas: int = 3, **spec: object) -> SimulatedCluster:
    return SimulatedCluster(hpa(**spec), replicas=replicas)  # type: ignore[arg-type]


def printed_words(record: DecisionRecord) -> list[str]:
    """The words that `explain` prints."""
    console = Console(file=io.StringIO(), width=10_000, color_system=None)
    print_records(console, [record])
    return console.file.getvalue().split()  # type: ignore[attr-defined, no-any-return]


def shown_words(item: Element) -> list[str]:
    """The words of an explanation, without the link below it."""
    words = item.find("div", class_="explanation").text.split()
    assert words[-4:] == ["Link", "to", "this", "decision"]
    return words[:-4]


def times(page: Element) -> list[str | None]:
    return [item.attributes["data-time"] for item in page.find("ol", id="decisions").find_all("li")]


# --- metrics -------------------------------------------------------------------------------------------------------


async def test_metrics_link_to_the_pages_that_explain_them() -> None:
    controller = Controller()
    metrics = (pods_metric(100), object_metric(50), external_metric(50), CPU)
    controller.add(hpa(*metrics))
    page = await controller.html(*WEB)
    links = [each.find_all("a") for each in page.find("section", id="status").find_all("div", class_="metric")]
    urls = [URL(each.attributes["href"] or "") for (each,) in links[:3]]
    assert {str(url.with_query(None)) for url in urls} == {"/metric"}
    forms = [MetricForm.parse(Query.parse(url.raw_query_string)) for url in urls]
    assert [(str(form.target), form.selection.namespace, form.selection.name, form.errors) for form in forms] == [
        ("pods/packets", "default", "", {}),
        ("service/requests", "default", "front", {}),
        ("external/queue", "default", "", {}),
    ]
    assert links[3] == []


async def test_metric_with_a_typo_is_followed_by_those_that_exist() -> None:
    names = {"resources": [{"name": "pods/<i>packets"}, {"name": "pods/other"}]}
    controller = Controller(metric_names=MetricNames(AsyncMock(return_value=names)))
    controller.reconcile(SimulatedCluster(hpa(pods_metric(100, "<i>packetz")), replicas=3), "not found")
    suggestion = (await controller.html(*WEB)).find("p", class_="suggestion")
    assert suggestion.text == "The cluster has no metric <i>packetz. Did you mean <i>packets ?"
    url = URL(suggestion.find("a").attributes["href"] or "")
    expected = {"metric": "pods/<i>packets", "namespace": "default", "labelSelector": "app=web"}
    assert (url.path, dict(url.query)) == ("/metric", expected)


async def test_mode_is_explained_in_words() -> None:
    controller = Controller()
    controller.add(hpa())
    status = (await controller.html(*WEB)).find("section", id="status").text
    assert "act: decisions are applied: the scale and the status are written" in status


async def test_error_of_a_metric_is_shown_once_in_an_explanation() -> None:
    controller = Controller()
    error = "unable to get metric packets: the server could not find the metric packets for pods"
    record = controller.reconcile(simulated(), error)
    explanation = (await controller.html(*WEB)).find("div", class_="explanation")
    assert explanation.text.count(error) == 1
    assert [event.message.count(error) for event in record.events] == [1, 1]
    assert explanation.find("dl").text.count("see above") >= 2


# --- decisions -----------------------------------------------------------------------------------------------------


async def test_each_decision_opens_into_what_explain_prints() -> None:
    controller = Controller()
    metrics = (pods_metric(100), external_metric(50, "<b>queue</b>"))
    limited = behavior(up=rules(some_pods(1, 60), window=0), down=rules(some_pods(9, 60), window=300))
    cluster = SimulatedCluster(hpa(*metrics, maximum=6, behavior=limited), replicas=3)
    values: list[tuple[int | str, ...]] = [
        (100, 150),
        (200, 150),
        (10, 10),
        ("<script>alert(1)</script> & more", 500),
        ("no pods", "no queue"),
    ]
    records = [controller.reconcile(cluster, *each) for each in values]
    page = await controller.html(*WEB)
    items = page.find("ol", id="decisions").find_all("li")
    assert [shown_words(item) for item in items] == [printed_words(record) for record in reversed(records)]
    assert [item.find("span", class_="sentence").text.replace(" :", ":") for item in items] == [
        " ".join(record.sentence.split()) for record in reversed(records)
    ]


async def test_texts_of_the_cluster_are_not_html() -> None:
    controller = Controller()
    cluster = SimulatedCluster(hpa(pods_metric(100, "</script><b>packets")), replicas=3)
    controller.reconcile(cluster, "</script><img src=x onerror=alert(1)>")
    page = await controller.html(*WEB)
    assert "<b>packets" not in page.html
    assert "<img" not in page.html
    assert json.loads(page.find("script", id="figure").text)["data"]


async def test_older_decisions_are_on_further_pages() -> None:
    controller = Controller()
    cluster = simulated()
    records = [controller.reconcile(cluster, 100) for _ in range(PAGE_SIZE + 5)]
    expected = [record.time for record in reversed(records)]
    page = await controller.html(*WEB)
    assert times(page) == expected[:PAGE_SIZE]
    link = page.find("a", id="older")
    assert link.attributes["href"] == f"/hpas/default/web?before={expected[PAGE_SIZE - 1].replace(':', '%3A')}"
    older = await controller.html(*WEB, before=expected[PAGE_SIZE - 1])
    assert times(older) == expected[PAGE_SIZE:]
    assert "hidden" in older.find("a", id="older").attributes


async def test_link_to_a_decision_shows_it_open_before_earlier_ones() -> None:
    controller = Controller()
    cluster = simulated()
    records = [controller.reconcile(cluster, 100) for _ in range(5)]
    page = await controller.html(*WEB, decision=records[2].time)
    assert times(page) == [record.time for record in reversed(records[:3])]
    first, *others = page.find("ol", id="decisions").find_all("details")
    assert "open" in first.attributes
    assert not any("open" in other.attributes for other in others)
    (newest,) = [link for link in page.find_all("a") if link.text == "Newest"]
    assert newest.attributes["href"] == "/hpas/default/web"


async def test_link_to_a_dropped_decision_says_so() -> None:
    controller = Controller(kept=2)
    cluster = simulated()
    first, *_ = [controller.reconcile(cluster, 100) for _ in range(3)]
    page = await controller.html(*WEB, decision=first.time)
    assert f"The decision at {first.time} is no longer in memory." in page.text
    assert times(page) == []


async def test_list_can_show_only_decisions_that_scale() -> None:
    controller = Controller()
    cluster = simulated()
    records = [controller.reconcile(cluster, value) for value in (100, 200, 100, "no metrics", 150)]
    page = await controller.html(*WEB, show="scaling")
    assert times(page) == [records[4].time, records[1].time]


# --- HPAs without decisions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("controller", "problem", "reason"),
    [
        (Controller(), "", "was not reconciled yet"),
        (Controller(), "spec.maxReplicas: must be an integer", "its spec is invalid"),
        (Controller(leader=False), "", "is not the leader"),
        (Controller(own=False), "", "another shard"),
        (Controller(kept=0), "", "keeps no decisions"),
    ],
)
async def test_page_without_decisions_says_why(controller: Controller, problem: str, reason: str) -> None:
    controller.add(replace(hpa(), problem=problem))
    page = await controller.html(*WEB)
    assert reason in page.find("p", id="decisions-note").text
    assert problem in page.find("section", id="status").text
    assert times(page) == []


async def test_hpas_of_one_name_in_two_apis_have_two_pages() -> None:
    controller = Controller()
    controller.reconcile(simulated(), 200)
    ours = controller.add(replace(hpa(), api_version="milliscale.io/v1"))
    assert len(times(await controller.html(*WEB))) == 1
    page = await controller.html(*WEB, group=ours.key.group)
    assert times(page) == []
    assert page.find("h1").text == "default/web (milliscale.io)"
    assert "kubectl milliscale explain web -n default --api milliscale" in page.text


@pytest.mark.parametrize("segments", [("hpas", "default", "absent"), ("hpas", "default", "absent", "events")])
async def test_absent_hpa_is_not_found(segments: tuple[str, ...]) -> None:
    with pytest.raises(StatusError) as error:
        await Controller().get(*segments)
    assert error.value.code == 404


# --- events --------------------------------------------------------------------------------------------------------


async def next_update(events: AsyncIterator[ServerEvent]) -> tuple[Document, list[str | None]]:
    """Return what is replaced, and the times of the decisions of the event after it."""
    replaced, added = await anext(events), await anext(events)
    assert (replaced.event, added.event) == ("replace", "decisions")
    items = Document(added.data).find_all("li")
    return Document(replaced.data), [item.attributes["data-time"] for item in items]


async def test_stream_begins_with_the_present_state_and_goes_on_with_new_decisions() -> None:
    controller = Controller()
    cluster = simulated()
    records = [controller.reconcile(cluster, 100) for _ in range(3)]
    stream = await controller.stream(*WEB, "events")
    async with aclosing(stream.events) as events:  # type: ignore[type-var]
        replaced, shown = await next_update(events)
        assert shown == [record.time for record in reversed(records)]
        new = controller.reconcile(cluster, 200)
        replaced, shown = await next_update(events)
        assert shown == [new.time]
        page = await controller.html(*WEB)
        for id_ in ("status", "figure", "decisions-note"):
            assert replaced.find(id=id_) == page.find(id=id_)


async def test_stream_of_an_older_page_leaves_its_list_alone() -> None:
    controller = Controller()
    cluster = simulated()
    records = [controller.reconcile(cluster, 100) for _ in range(3)]
    page = await controller.html(*WEB, before=records[2].time)
    assert page.find("body").attributes["data-events"] == "/hpas/default/web/events?list=no"
    stream = await controller.stream(*WEB, "events", list="no")
    async with aclosing(stream.events) as events:  # type: ignore[type-var]
        assert (await anext(events)).event == "replace"
        controller.reconcile(cluster, 200)
        assert (await anext(events)).event == "replace"


async def test_stream_of_decisions_that_scale_sends_no_others() -> None:
    controller = Controller()
    cluster = simulated()
    controller.reconcile(cluster, 100)
    stream = await controller.stream(*WEB, "events", show="scaling")
    async with aclosing(stream.events) as events:  # type: ignore[type-var]
        assert (await anext(events)).event == "replace"
        controller.reconcile(cluster, 100)
        assert (await anext(events)).event == "replace"
        scaled = controller.reconcile(cluster, 200)
        assert (await next_update(events))[1] == [scaled.time]


async def test_changes_of_other_hpas_do_not_load_the_page_of_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller()
    controller.add(hpa())
    numbers, loads = controller.log.numbers, 0

    def counted(key: HPAKey) -> Sequence[int]:
        nonlocal loads
        loads += 1
        return numbers(key)

    monkeypatch.setattr(controller.log, "numbers", counted)
    stream = await controller.stream(*WEB, "events")
    async with aclosing(stream.events) as events:  # type: ignore[type-var]
        await anext(events)
        following = asyncio.ensure_future(anext(events))
        for number in range(40):
            controller.add(replace(hpa(), name=f"other-{number}"))
            await asyncio.sleep(0.1)
        assert loads == 1
        controller.add(replace(hpa(), problem="changed"))
        await following
        assert loads == 2


async def test_stream_of_a_deleted_hpa_ends_as_not_found() -> None:
    controller = Controller()
    controller.add(hpa())
    stream = await controller.stream(*WEB, "events")
    async with aclosing(stream.events) as events:  # type: ignore[type-var]
        await anext(events)
        controller.remove(KEY)
        with pytest.raises(StatusError) as error:
            await anext(events)
    assert error.value.code == 404


# --- access --------------------------------------------------------------------------------------------------------


class Rights(NamespaceAccess):
    """The rights of a user; `namespaces` may change."""

    def __init__(self, *namespaces: str) -> None:
        super().__init__(None)
        self.namespaces = set(namespaces)

    async def require(self, user: User | None, group: str, namespace: str) -> None:
        if namespace not in self.namespaces:
            raise forbidden("no right to get horizontalpodautoscalers")


@pytest.mark.parametrize("name", ["web", "absent"])
async def test_namespace_without_rights_is_forbidden_whether_or_not_the_hpa_exists(name: str) -> None:
    controller = Controller(access=Rights("other"))
    controller.add(hpa())
    for segments in (("hpas", "default", name), ("hpas", "default", name, "events")):
        with pytest.raises(StatusError) as error:
            await controller.get(*segments)
        assert error.value.code == 403
