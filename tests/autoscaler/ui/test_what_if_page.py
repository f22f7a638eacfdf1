"""The page of a what-if: the form, its errors, the result, and who may see it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
import yaml
from aiohttp import web

from autoscaler.core.config import Config
from autoscaler.core.model import HPA, HPAKey
from autoscaler.objects.hpa import parse_hpa
from autoscaler.records.record import DecisionRecord
from autoscaler.ui.access import NamespaceAccess
from autoscaler.ui.sources import WhatIfError, WhatIfResult
from kube.api.status import StatusError
from kube.security.authentication import User
from replay.what_if import what_if
from tests.autoscaler.ui.pages import Controller
from tests.replay.builders import cpu_metric, hpa_document, make_hpa, pods_metric
from tests.replay.live import Live
from tests.replay.test_recorded import wave

PATH = ("hpas", "shop", "web", "what-if")


def controller_of(live: Live, **options: Any) -> Controller:
    """A controller with the HPA and its decisions."""
    controller = Controller(**{"kept": 1000, "what_if": what_if, **options})
    controller.add(live.hpa)
    for record in live.records:
        controller.log.add(record)
    return controller


@pytest.fixture
def live() -> Live:
    live = Live(parse_hpa(hpa_document(pods_metric("rps", "100"), cpu_metric(80))), seed=1)
    live.run(wave(80, low=100, high=1500))
    return live


async def test_page_without_parameters_is_the_form_with_the_present_spec(live: Live) -> None:
    page = await controller_of(live, what_if=_fails).html(*PATH)
    form = page.find("form")
    assert form.attributes["method"] == "get"
    assert {each.attributes["name"]: each.attributes["value"] for each in form.find_all("input")} == {
        "minReplicas": "1",
        "maxReplicas": "20",
        "target.0": "100",
        "target.1": "80",
        "down.window": "",
        "startup": "",
        "capacity.0": "",
        "capacity.1": "",
    }
    assert "80 kept decisions" in page.find("main").text
    assert not page.find_all("table")


async def _fails(*_: object, **__: object) -> None:
    raise AssertionError("there are no parameters")


async def test_each_control_has_a_label(live: Live) -> None:
    form = (await controller_of(live).html(*PATH)).find("form")
    labels = [each.attributes["for"] for each in form.find_all("label")]
    controls = [each for tag in ("input", "select", "textarea") for each in form.find_all(tag)]
    assert sorted(map(str, labels)) == sorted(str(each.attributes["id"]) for each in controls)


async def test_result_is_that_of_the_replay_package(live: Live) -> None:
    page = await controller_of(live).html(
        *PATH, user=None, **{"target.0": "50", "down.window": "60", "capacity.0": "120"}
    )

    changed = make_hpa(
        pods_metric("rps", "50"), cpu_metric(80), behavior={"scaleDown": {"stabilizationWindowSeconds": 60}}
    )
    expected = await what_if(live.hpa, changed, live.records, config=live.config, pod_startup=None, capacity={0: 120.0})
    result = page.find("section", id="result")
    verdict, table = result.find_all("p")[0], result.find("table")
    assert verdict.text == expected.verdict
    assert re.match(r"changed spec needs .*% fewer pod-hours than present spec in 20m16s", verdict.text)
    assert [each.text for each in table.find_all("th", scope="col")][1:] == list(expected.header)
    rows = [[cell.text for cell in (*row.find_all("th"), *row.find_all("td"))] for row in table.find_all("tr")[1:]]
    assert rows == [list(row) for row in expected.rows]
    figure = json.loads("".join(map(str, page.find("script", id="figure").children)))
    assert figure == json.loads(json.dumps(expected.figure))
    shown = [each.text for each in page.find("ol", class_="scales").find_all("li")]
    assert [text.partition(" ")[2].partition(" ")[2] for text in shown] == [
        " ".join(text.split()) for _, text in expected.sentences
    ]
    for note in expected.notes:
        assert note in page.text
    assert parse_hpa(yaml.safe_load("".join(map(str, page.find("pre").children)))).spec == changed.spec


async def test_command_has_the_assumptions_and_the_flags_of_the_controller(live: Live) -> None:
    config = Config(tolerance=0.2, downscale_stabilization_ms=6_000, scale_to_zero=False)
    page = await controller_of(live, config=config).html(
        *PATH, user=None, **{"startup": "45s", "capacity.0": "120", "capacity.1": "500m"}
    )
    assert (
        "kubectl milliscale replay web --namespace=shop --filename=changed.yaml --pod-startup=45s --capacity=rps=120 "
        "--capacity=cpu=0.5 --horizontal-pod-autoscaler-tolerance=0.2 "
        "--horizontal-pod-autoscaler-downscale-stabilization=6s --feature-gates=HPAScaleToZero=false"
    ) in page.text


async def test_unchanged_spec_says_that_the_decisions_are_the_real_ones(live: Live) -> None:
    page = await controller_of(live).html(*PATH, maxReplicas="20")
    assert "present spec: all 80 decisions are the same as the autoscaler's." in page.text
    assert "changed spec" not in page.find("section", id="result").text.lower()


async def test_error_is_shown_beside_the_field_and_nothing_is_replayed(live: Live) -> None:
    page = await controller_of(live, what_if=_fails).html(*PATH, user=None, **{"target.0": "-1"})
    control = page.find("input", name="target.0")
    assert control.attributes["aria-invalid"] == "true"
    assert control.attributes["value"] == "-1"
    error = page.find("p", id=str(control.attributes["aria-describedby"]))
    assert error.text == 'spec.metrics[0].pods.target.averageValue: Invalid value: "-1": must be positive'
    assert page.find("div", role="alert").text == "The changed spec is not valid, see the fields below."


async def test_problem_of_the_replay_is_shown() -> None:
    page = await controller_of(Live(make_hpa())).html(*PATH, maxReplicas="3")
    assert page.find("p", role="alert").text.startswith("there are 0 kept decisions on shop/web")


async def test_names_and_values_are_escaped() -> None:
    hostile = '<script>alert("x")'
    live = Live(make_hpa(pods_metric(hostile)), seed=2)
    live.run([200.0] * 5 + [900.0] * 10)
    page = await controller_of(live).html(*PATH, user=None, maxReplicas="30", behavior="scaleUp: {tolerance: '0.2'}")
    assert hostile not in page.html
    assert page.find("ol", class_="scales").text.count(hostile) > 0
    refused = await controller_of(live).html(*PATH, user=None, **{hostile: hostile})
    assert hostile not in refused.html
    assert hostile in refused.find("main").text
    page = await controller_of(live).html(*PATH, user=None, **{"target.0": hostile})
    assert hostile not in page.html
    assert page.find("input", name="target.0").attributes["value"] == hostile


async def test_hpa_of_the_other_api_keeps_its_group(live: Live) -> None:
    live = Live(parse_hpa({**hpa_document(), "apiVersion": "milliscale.io/v1"}), seed=3)
    live.run([200.0] * 5)
    page = await controller_of(live).html(*PATH, group="milliscale.io")
    assert page.find("input", name="group").attributes["value"] == "milliscale.io"
    assert not page.find_all("table")
    page = await controller_of(live).html(*PATH, group="milliscale.io", maxReplicas="9", startup="30s")
    assert "apiVersion: milliscale.io/v1" in page.find("pre").text


@pytest.mark.parametrize(
    ("hpas", "access", "code"),
    [
        ({}, NamespaceAccess(None), 404),
        ({HPAKey("shop", "web"): HPA(namespace="shop", name="web", problem="spec: bad")}, None, 409),
    ],
    ids=["no HPA", "invalid HPA"],
)
async def test_hpa_without_a_what_if(hpas: dict[HPAKey, HPA], access: NamespaceAccess | None, code: int) -> None:
    with pytest.raises(StatusError) as error:
        await Controller(hpas=hpas).get(*PATH)
    assert error.value.code == code


async def test_namespace_without_rights_is_forbidden(live: Live) -> None:
    class Nobody(NamespaceAccess):
        async def require(self, user: User | None, group: str, namespace: str) -> None:
            raise StatusError(403, "Forbidden", f"{group}/{namespace}")

    with pytest.raises(StatusError, match="autoscaling/shop"):
        await controller_of(live, access=Nobody(None)).get(*PATH, maxReplicas="3")


async def test_one_replay_runs_at_a_time_and_few_wait(live: Live) -> None:
    running = most = 0
    started, release = asyncio.Event(), asyncio.Event()

    async def slow(*_: object, **__: object) -> WhatIfResult:
        nonlocal running, most
        running += 1
        most = max(most, running)
        started.set()
        await release.wait()
        running -= 1
        raise WhatIfError("done")

    controller = controller_of(live, what_if=slow)
    requests = [asyncio.create_task(controller.get(*PATH, maxReplicas="3")) for _ in range(6)]
    await started.wait()
    release.set()
    responses = await asyncio.gather(*requests, return_exceptions=True)
    assert most == 1
    refused = [each for each in responses if isinstance(each, StatusError)]
    assert [each.code for each in refused] == [503, 503]
    assert sum(isinstance(each, web.Response) for each in responses) == 4


async def test_replays_of_a_user_do_not_wait_for_all_of_another(live: Live) -> None:
    order: list[str] = []
    release = asyncio.Event()

    async def slow(_: HPA, changed: HPA, *__: object, **___: object) -> WhatIfResult:
        order.append(str(changed.spec.max_replicas))
        await release.wait()
        raise WhatIfError("done")

    controller = controller_of(live, what_if=slow)
    tenant, other = User("tenant"), User("other")
    async with asyncio.TaskGroup() as tasks:
        for replicas in ("3", "4", "5"):
            tasks.create_task(controller.get(*PATH, user=tenant, maxReplicas=replicas))
        for _ in range(10):
            await asyncio.sleep(0)
        tasks.create_task(controller.get(*PATH, user=other, maxReplicas="6"))
        for _ in range(10):
            await asyncio.sleep(0)
        release.set()
    assert order.index("6") <= 2


@pytest.mark.looptime
async def test_a_replay_that_takes_too_long_is_ended(live: Live) -> None:
    async def endless(*_: object, **__: object) -> WhatIfResult:
        await asyncio.Event().wait()
        raise AssertionError

    page = await controller_of(live, what_if=endless).html(*PATH, maxReplicas="3")
    assert "the replay takes longer than 10 s" in page.text
    assert asyncio.get_running_loop().time() == pytest.approx(10.0, abs=1.0)


async def test_records_are_decoded_by_the_replay_not_by_the_page(live: Live) -> None:
    decoded: list[int] = []

    async def lazy(_: HPA, __: HPA, records: Iterable[DecisionRecord], **___: object) -> WhatIfResult:
        assert decoded == []
        assert len(list(records)) == 80
        raise WhatIfError("done")

    controller = controller_of(live, what_if=lazy)
    get = controller.log.get

    def noting(number: int) -> DecisionRecord | None:
        decoded.append(number)
        return get(number)

    controller.log.get = noting  # type: ignore[method-assign]
    await controller.html(*PATH, maxReplicas="3")
    assert len(decoded) == 80
