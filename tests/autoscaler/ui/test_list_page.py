"""The page of all HPAs: its HTML, who sees which rows, and the events that keep it current."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from autoscaler.core.model import HPAKey, Status
from autoscaler.ui.access import GroupNamespace, NamespaceAccess
from autoscaler.ui.listing import ROWS
from kube.api.status import StatusError
from kube.security.authentication import User
from kube.web.event_stream import ServerEvent
from tests.autoscaler.simulated_cluster import NOW, SimulatedCluster, hpa, pods_metric
from tests.autoscaler.ui.pages import Controller, Document, Element
from tests.autoscaler.ui.test_listing import named, using
from tests.autoscaler.ui.test_rows import condition

pytestmark = pytest.mark.looptime

JANE = User("jane")
WELL = Status(
    current_replicas=3,
    desired_replicas=3,
    last_scale_ms=NOW,
    conditions=(condition("AbleToScale", "True", "ReadyForNewScale"), condition("ScalingLimited", "False", "Within")),
)


class Rights(NamespaceAccess):
    """Everyone has the rights in `namespaces`."""

    def __init__(self, *namespaces: GroupNamespace) -> None:
        super().__init__(None)
        self.namespaces = frozenset(namespaces)

    async def visible(self, user: User | None, among: Iterable[GroupNamespace]) -> frozenset[GroupNamespace]:
        return self.namespaces.intersection(among)


def names(document: Element) -> list[str]:
    """The names in the rows of a document."""
    return [each.find("th", scope="row").find("a").text for each in document.find_all("tr") if each.has(role="row")]


def counts(document: Element) -> list[str]:
    """The links to the states; the document is the page, or that part of it."""
    (nav,) = document.find_all("nav", id="counts") or [document]
    return [each.text for each in nav.find_all("a")]


# --- the page ------------------------------------------------------------------------------------------------------


async def test_row_shows_the_hpa() -> None:
    controller = Controller()
    metrics = using("web", 87_500).status.current_metrics
    controller.add(named("web", "shop", status=replace(WELL, desired_replicas=5, current_metrics=metrics)))
    page = await controller.html()
    (row,) = page.find("tbody", id="rows").find_all("tr")
    assert row.find("a").attributes["href"] == "/hpas/shop/web"
    cells = {each.attributes["data-label"]: each for each in row.find_all("td")}
    assert row.find("th").text == "shop/ web Deployment/web"
    assert cells["Mode"].text == "act"
    assert cells["Metrics"].text == "packets 87.5 / 100 per pod"
    assert cells["Replicas"].text == "3 → scaling to 5 from 1 to 10"
    assert cells["Last scale"].find("time").attributes["datetime"] == "2001-09-09T01:46:40Z"
    conditions = cells["Last decision, conditions"]
    assert conditions.find("summary").text == "healthy"
    assert [each.text.partition(",")[0] for each in conditions.find_all("dt")] == [
        "AbleToScale True: ReadyForNewScale",
        "ScalingLimited False: Within",
    ]
    assert [each.text for each in conditions.find_all("dd")] == ["why", "why"]


async def test_only_conditions_that_are_not_as_they_should_be_are_named_before_they_are_opened() -> None:
    controller = Controller()
    limited = condition("ScalingLimited", "True", "TooManyReplicas")
    controller.add(named("web", "shop", status=replace(WELL, conditions=(*WELL.conditions[:1], limited))))
    summary = (await controller.html()).find("tbody", id="rows").find("summary")
    assert summary.text == "ScalingLimited True: TooManyReplicas"


async def test_row_has_the_last_decision_and_a_line_of_its_replicas() -> None:
    controller = Controller()
    cluster = SimulatedCluster(hpa(pods_metric(100, "<b>packets</b>")), replicas=3)
    for value in (100, 200):
        last = controller.reconcile(cluster, value)
    row = (await controller.html()).find("tbody", id="rows").find("tr")
    assert row.find("p", class_="last-decision").text.replace(" :", ":") == last.sentence
    assert last.sentence.startswith("3 -> 6: <b>packets</b> is 200m against a target of 100m per pod")
    assert row.find("path").attributes["d"] == "M0 11h1V1h1"
    assert row.find("title").text == "Desired replicas of the last 2 decisions: 3 to 6"


async def test_decision_that_changes_nothing_in_the_hpa_reaches_an_open_page() -> None:
    controller = Controller()
    cluster = SimulatedCluster(hpa(pods_metric(100)), replicas=3)
    record = controller.reconcile(cluster, 100)
    async with opened(controller) as viewer:
        controller.log.add(replace(record, desired_replicas=9))
        await viewer.follow(1.0)
        assert "3 -> 9" in viewer.parts["hpa/autoscaling/default/web"].find("p", class_="last-decision").text


async def test_columns_are_named_and_the_sorted_one_is_marked() -> None:
    page = await Controller().html(sort="-metrics")
    headings = page.find("thead").find_all("th", scope="col")
    assert [each.text for each in headings] == [
        *("HPA", "Mode", "Metrics", "Replicas", "Last scale"),
        "Last decision, conditions",
    ]
    assert [each.attributes.get("aria-sort") for each in headings] == [None, None, "descending", None, None, None]


async def test_texts_of_the_cluster_are_not_html() -> None:
    controller = Controller()
    hostile = '"><script>alert(1)</script>'
    bad = replace(condition("AbleToScale", "True", hostile), message=hostile)
    hpa = named(hostile, hostile, hostile, status=Status(conditions=(bad,)))
    controller.add(hpa)
    controller.add(replace(hpa, name=f"{hostile}2", problem=hostile))
    page = await controller.html(q="script", namespace=hostile)
    assert names(page) == [hostile, f"{hostile}2"]
    assert [each.attributes["src"] for each in page.find_all("script") if "src" not in each.attributes] == []
    assert page.find("input", id="q").attributes["value"] == "script"
    assert "<script>alert" not in page.html


async def test_choices_are_kept_in_links_and_in_the_form() -> None:
    controller = Controller()
    for number in range(ROWS + 1):
        controller.add(named(f"web-{number:03}", "shop"))
    page = await controller.html(q="web", namespace="shop", sort="-name")
    form = page.find("form")
    assert form.find("input", name="sort").attributes["value"] == "-name"
    assert [each.text for each in form.find_all("option") if "selected" in each.attributes] == ["shop"]
    next_page = page.find("a", rel="next").attributes["href"]
    assert next_page == "/?q=web&namespace=shop&sort=-name&page=2"
    assert page.find("a", class_="failing").attributes["href"] == "/?q=web&namespace=shop&show=failing&sort=-name"
    assert page.find("body").attributes["data-events"] == "/events?q=web&namespace=shop&sort=-name"
    second = await controller.html(q="web", namespace="shop", sort="-name", page="2")
    assert names(second) == ["web-000"]
    assert second.find("body").attributes["data-events"] == "/events?q=web&namespace=shop&sort=-name&page=2"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({}, "Rows 1 to 1 of 1"),
        ({"show": "failing"}, "None of 1 is failing. Show all"),
        ({"show": "scaling"}, "None of 1 is scaling now. Show all"),
        ({"q": "nothing"}, "Nothing was found. Show all"),
    ],
)
async def test_number_of_rows_is_said(query: dict[str, str], text: str) -> None:
    controller = Controller()
    controller.add(named("web", status=WELL))
    page = await controller.html(**query)  # type: ignore[arg-type]  # of the query
    assert page.find("p", role="status").text == text


async def test_page_without_hpas_says_so() -> None:
    assert (await Controller().html()).find("p", role="status").text == "There are no HorizontalPodAutoscalers."


async def test_notices_say_what_is_out_of_date_and_who_decides() -> None:
    notices = (await Controller().html()).find("div", id="notices")
    assert notices.text == ""
    controller = Controller(leader=False, problem="no contact to the API server")
    assert [each.text for each in (await controller.html()).find("div", id="notices").find_all("p")] == [
        "What you see may be out of date: no contact to the API server.",
        "This process is not the leader: the leader, if there is one, makes the decisions, and has their records.",
    ]


# --- rights --------------------------------------------------------------------------------------------------------


async def test_user_sees_hpas_of_own_namespaces_only() -> None:
    controller = Controller(access=Rights(("autoscaling", "mine")))
    for namespace in ("mine", "other"):
        controller.add(named(f"in-{namespace}", namespace, status=WELL))
    page = await controller.html(user=JANE)
    assert names(page) == ["in-mine"]
    assert counts(page)[0] == "all 1"
    assert [each.text for each in page.find("select", id="namespace").find_all("option")] == ["all", "mine"]
    assert "other" not in page.html
    assert names(await controller.html(user=JANE, namespace="other")) == []


@pytest.mark.parametrize("segments", [(), ("events",)])
async def test_user_without_rights_sees_nothing(segments: tuple[str, ...]) -> None:
    controller = Controller(access=Rights(("autoscaling", "unheard")))
    controller.add(named("web"))
    with pytest.raises(StatusError) as error:
        await first(controller, *segments) if segments else await controller.get(user=JANE)
    assert error.value.code == 403


async def first(controller: Controller, *segments: str) -> ServerEvent:
    stream = await controller.stream(*segments, user=JANE)
    return await anext(stream.events)


# --- events --------------------------------------------------------------------------------------------------------


class Viewer:
    """An open page, to which events are applied.

    Attributes:
        rows: the names in the body of the table.
        parts: all elements that were replaced, by id.
        times: of the events.
    """

    def __init__(self, events: AsyncIterator[ServerEvent]) -> None:
        self.rows: list[str] = []
        self.parts: dict[str, Element] = {}
        self.times: list[float] = []
        self._events = events
        self._following: asyncio.Future[ServerEvent] | None = None

    async def follow(self, seconds: float) -> list[Document]:
        """Apply the events of so many seconds, and return them."""
        documents: list[Document] = []
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        while True:
            self._following = self._following or asyncio.ensure_future(anext(self._events))
            await asyncio.wait([self._following], timeout=end - clock())
            if not self._following.done():
                return documents
            event, self._following = self._following.result(), None
            assert event.event == "replace"
            self.times.append(clock())
            documents.append(self._apply(event.data))

    async def close(self) -> None:
        """Disconnect."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        await self._events.aclose()  # type: ignore[attr-defined]

    def _apply(self, html: str) -> Document:
        document = Document(html)
        for each in document.children:
            if isinstance(each, Element):
                self.parts[str(each.attributes["id"])] = each
                if each.tag == "tbody":
                    self.rows = names(each)
        return document


@asynccontextmanager
async def opened(controller: Controller, user: User | None = None, **query: str) -> AsyncIterator[Viewer]:
    """Follow a page, from the state that its events begin with."""
    stream = await controller.stream("events", user=user, **query)
    viewer = Viewer(stream.events)
    await viewer.follow(0.1)
    try:
        yield viewer
    finally:
        await viewer.close()


def replicas(document: Element) -> list[str]:
    return [each.find_all("b")[0].text for each in document.find_all("td", class_="replicas")]


async def test_events_begin_with_the_present_state() -> None:
    controller = Controller()
    controller.add(named("web", status=WELL))
    async with opened(controller) as viewer:
        assert viewer.rows == ["web"]
        assert set(viewer.parts) == {"rows", "notices", "counts", "pages"}


async def test_scale_replaces_the_row_of_its_hpa_alone() -> None:
    controller = Controller()
    for name in ("api", "web"):
        controller.add(named(name, status=WELL))
    async with opened(controller) as viewer:
        await viewer.follow(10)
        controller.add(named("web", status=replace(WELL, desired_replicas=5)))
        row, *parts = await viewer.follow(2)
        assert names(row) == ["web"]
        assert row.find("b", class_="desired").text == "5"
        assert [counts(each)[-1] for each in parts] == ["scaling now 1"]


async def test_change_of_nothing_that_the_row_shows_sends_no_row() -> None:
    controller = Controller()
    controller.add(named("web", status=WELL))
    async with opened(controller) as viewer:
        await viewer.follow(10)
        controller.changes += 1
        assert await viewer.follow(5) == []


async def test_hpas_appear_and_disappear() -> None:
    controller = Controller()
    controller.add(named("b"))
    async with opened(controller) as viewer:
        controller.add(named("a"))
        await viewer.follow(2)
        assert viewer.rows == ["a", "b"]
        controller.remove(HPAKey("default", "b"))
        await viewer.follow(2)
        assert viewer.rows == ["a"]
        assert counts(viewer.parts["counts"])[0] == "all 1"


async def test_filter_follows_the_states() -> None:
    controller = Controller()
    for name in ("api", "web"):
        controller.add(named(name, status=WELL))
    async with opened(controller, show="scaling") as viewer:
        assert viewer.rows == []
        controller.add(named("web", status=replace(WELL, desired_replicas=5)))
        await viewer.follow(2)
        assert viewer.rows == ["web"]
        controller.add(named("web", status=WELL))
        await viewer.follow(2)
        assert viewer.rows == []


async def test_page_is_updated_twice_a_second_at_most() -> None:
    controller = Controller()
    controller.add(named("web", status=WELL))
    async with opened(controller) as viewer:
        viewer.times.clear()
        for count in range(100):
            controller.add(named("web", status=replace(WELL, current_replicas=count, desired_replicas=count)))
            await viewer.follow(0.1)
        assert 18 <= len(viewer.times) <= 20


async def test_last_change_is_shown_after_many() -> None:
    controller = Controller()
    controller.add(named("web", status=WELL))
    async with opened(controller) as viewer:
        for count in range(20):
            controller.add(named("web", status=replace(WELL, current_replicas=count, desired_replicas=99)))
            await viewer.follow(0.09)
        await viewer.follow(2)
        assert replicas(viewer.parts["hpa/autoscaling/default/web"]) == ["19"]


async def test_order_by_a_metric_changes_every_ten_seconds_at_most() -> None:
    controller = Controller()
    controller.add(using("a", 50_000))
    controller.add(using("b", 40_000))
    async with opened(controller, sort="-metrics") as viewer:
        assert viewer.rows == ["a", "b"]
        controller.add(using("b", 60_000))
        (changed,) = await viewer.follow(9)
        assert names(changed) == ["b"]
        assert viewer.rows == ["a", "b"]
        await viewer.follow(2)
        assert viewer.rows == ["b", "a"]


async def test_changes_of_other_pages_send_no_rows() -> None:
    controller = Controller()
    for number in range(ROWS + 1):
        controller.add(named(f"{number:03}", status=WELL))
    async with opened(controller) as viewer:
        assert len(viewer.rows) == ROWS
        controller.add(named(f"{ROWS:03}", status=replace(WELL, current_replicas=4, desired_replicas=4)))
        assert await viewer.follow(3) == []


async def test_idle_page_says_that_the_api_server_is_not_reached() -> None:
    controller = Controller()
    controller.add(named("web", status=WELL))
    async with opened(controller) as viewer:
        assert await viewer.follow(60) == []
        controller.problem = "no contact to the API server"
        await viewer.follow(6)
        assert "no contact" in viewer.parts["notices"].text


async def test_right_that_is_withdrawn_ends_the_events() -> None:
    access = Rights(("autoscaling", "default"))
    controller = Controller(access=access)
    controller.add(named("web", status=WELL))
    async with opened(controller, JANE) as viewer:
        access.namespaces = frozenset()
        controller.add(named("web", status=replace(WELL, current_replicas=4)))
        with pytest.raises(StatusError, match="need the right"):
            await viewer.follow(3)


async def test_row_is_rendered_once_for_all_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller()
    controller.add(named("web", status=WELL))
    templates = controller.pages.templates
    rendered_names: list[str] = []
    render = templates.render

    def counted(name: str, **values: object) -> str:
        rendered_names.append(name)
        return render(name, **values)

    monkeypatch.setattr(templates, "render", counted)
    async with opened(controller), opened(controller):
        await controller.html()
    assert rendered_names.count("list_row.html") == 1
