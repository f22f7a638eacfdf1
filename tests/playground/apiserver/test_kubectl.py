"""The commands of kubectl that the demo prints, and a few more, with a real kubectl of any version."""

import asyncio
import json
import os
import re
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from kube.api.mapping import GroupResource
from playground.apiserver import PlaygroundApiServer
from playground.binaries import find_async
from tests.objects import deployment, hpa, pod

Kubectl = Callable[..., Coroutine[None, None, str]]


@pytest.fixture
async def kubectl(server: PlaygroundApiServer, tmp_path: Path) -> Kubectl:
    """Run `kubectl` with these arguments; return its output, or raise AssertionError with its errors."""
    program = await find_async("kubectl")
    kubeconfig = server.kubeconfig()

    async def run(*arguments: str, stdin: str = "", editor: str = "false", fails: bool = False) -> str:
        process = await asyncio.create_subprocess_exec(
            program,
            f"--kubeconfig={kubeconfig}",
            f"--cache-dir={tmp_path / 'cache'}",
            *arguments,
            env={**os.environ, "KUBE_EDITOR": editor},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            output, errors = await process.communicate(stdin.encode())
        assert (process.returncode != 0) is fails, errors.decode()
        return (output + (errors if fails else b"")).decode()

    return run


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]


async def test_get_prints_tables(server: PlaygroundApiServer, kubectl: Kubectl) -> None:
    metric = {"metric": {"name": "pps"}, "target": {"type": "AverageValue", "averageValue": "10"}}
    server.create(deployment())
    server.create(hpa(metrics=[{"type": "Pods", "pods": metric}]))
    server.create({**pod("web-1"), "status": {"phase": "Running", "containerStatuses": [{"ready": True}]}})
    shown = rows(await kubectl("get", "hpa,pods,deploy"))
    assert shown[0] == ["NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE"]
    assert shown[1][:-1] == ["horizontalpodautoscaler.autoscaling/web", "Deployment/web", "<unknown>/10", "1", "5", "0"]
    assert ["pod/web-1", "1/1", "Running", "0"] in [row[:4] for row in shown]
    assert ["deployment.apps/web", "0/2", "0", "0"] in [row[:4] for row in shown]
    assert (await kubectl("get", "deploy", "-o", "name")).strip() == "deployment.apps/web"


async def test_scale_annotate_label_and_patch(server: PlaygroundApiServer, kubectl: Kubectl) -> None:
    server.create(deployment())
    await kubectl("scale", "deployment", "web", "--replicas=3")
    await kubectl("annotate", "deployment", "web", "a=b")
    await kubectl("label", "deployment", "web", "tier=front")
    await kubectl("patch", "deployment", "web", "--type=merge", "-p", '{"spec":{"paused":true}}')
    found = json.loads(await kubectl("get", "deployment", "web", "-o", "json"))
    assert found["spec"]["replicas"] == 3
    assert found["metadata"]["annotations"]["a"] == "b"
    assert found["metadata"]["labels"]["tier"] == "front"
    assert found["spec"]["paused"] is True


async def test_apply_and_patch_in_all_forms(server: PlaygroundApiServer, kubectl: Kubectl) -> None:
    scaler = hpa()
    assert "created" in await kubectl("apply", "-f", "-", stdin=json.dumps(scaler))
    scaler["spec"] |= {"maxReplicas": 7, "minReplicas": 2}
    assert "configured" in await kubectl("apply", "-f", "-", stdin=json.dumps(scaler))
    await kubectl("patch", "hpa", "web", "-p", '{"metadata":{"labels":{"a":"b"}}}')
    replace = '[{"op":"replace","path":"/spec/maxReplicas","value":8}]'
    printed = await kubectl("patch", "hpa", "web", "--type=json", "-p", replace, "-o", "json")
    changed = json.loads(printed)
    assert (changed["spec"]["minReplicas"], changed["spec"]["maxReplicas"]) == (2, 8)
    assert changed["metadata"]["labels"] == {"a": "b"}


async def test_autoscale_and_create_which_may_send_protobuf(server: PlaygroundApiServer, kubectl: Kubectl) -> None:
    server.create(deployment())
    await kubectl("autoscale", "deployment", "web", "--min=2", "--max=7")
    spec = json.loads(await kubectl("get", "hpa", "web", "-o", "json"))["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"], spec["scaleTargetRef"]["name"]) == (2, 7, "web")
    await kubectl("create", "configmap", "c", "--from-literal=a=b")
    stored = server.storage.get(GroupResource("", "configmaps"), "default", "c")
    assert stored is not None
    assert stored["data"] == {"a": "b"}


async def test_edit(server: PlaygroundApiServer, kubectl: Kubectl) -> None:
    server.create(hpa())
    assert "edited" in await kubectl("edit", "hpa", "web", editor="sed -i 's/maxReplicas: 5/maxReplicas: 9/'")
    assert json.loads(await kubectl("get", "hpa", "web", "-o", "json"))["spec"]["maxReplicas"] == 9


def create_hpa_with_event(server: PlaygroundApiServer) -> None:
    about = server.create(hpa())
    names = {key: about["metadata"][key] for key in ("name", "namespace", "uid")}
    server.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "web.1", "namespace": "default"},
            "involvedObject": {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", **names},
            "type": "Warning",
            "reason": "FailedGetScale",
            "message": "there is no Deployment web",
            "lastTimestamp": "2026-01-01T11:59:30Z",
        }
    )


async def test_describe_shows_an_hpa_with_its_events(server: PlaygroundApiServer, kubectl: Kubectl) -> None:
    create_hpa_with_event(server)
    shown = await kubectl("describe", "hpa", "web")
    assert re.search(r"^Reference: +Deployment/web$", shown, re.MULTILINE)
    assert re.search(r"^Max replicas: +5$", shown, re.MULTILINE)
    assert "FailedGetScale" in shown.partition("Events:")[2]
    assert "FailedGetScale" in await kubectl("get", "events")


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (("explain", "hpa.spec.maxReplicas"), "FIELD: maxReplicas <integer>"),
        (("explain", "metricrules.spec.query"), "FIELD: query <string>"),
        (("explain", "deployments"), "This is the demo's API server: it has schemas of HorizontalPodAutoscalers and"),
        (("events", "--for=hpa/web"), "FailedGetScale HorizontalPodAutoscaler/web there is no Deployment web"),
    ],
)
async def test_explain_and_events_of_kubectl_since_1_27(
    server: PlaygroundApiServer, kubectl: Kubectl, command: tuple[str, ...], shown: str
) -> None:
    create_hpa_with_event(server)
    client = json.loads(await kubectl("version", "--client", "-o", "json"))["clientVersion"]
    if int(client["minor"].rstrip("+")) < 27:
        pytest.skip("it has no `events`, and `explain` reads another document")
    assert shown in " ".join((await kubectl(*command)).split())


async def test_logs_are_one_sentence(server: PlaygroundApiServer, kubectl: Kubectl) -> None:
    server.create(pod("web-1"))
    printed = await kubectl("logs", "web-1", fails=True)
    assert printed.startswith("Error from server (NotImplemented): this is the demo's API server: its pods have no")


async def test_delete(server: PlaygroundApiServer, kubectl: Kubectl) -> None:
    server.create(deployment())
    assert await kubectl("delete", "deployment/web")
    assert 'deployments.apps "web" not found' in await kubectl("get", "deployment", "web", fails=True)


async def test_get_watch_prints_changes(server: PlaygroundApiServer, kubectl: Kubectl, tmp_path: Path) -> None:
    server.create(deployment())
    watching = await asyncio.create_subprocess_exec(
        await find_async("kubectl"),
        f"--kubeconfig={server.kubeconfig()}",
        f"--cache-dir={tmp_path / 'cache'}",
        *("get", "deployment", "-w"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert watching.stdout is not None
    try:
        shown = [(await watching.stdout.readline()).split()[:2] for _ in range(2)]
        await kubectl("scale", "deployment", "web", "--replicas=7")
        shown.append((await watching.stdout.readline()).split()[:2])
    finally:
        watching.kill()
        await watching.communicate()
    assert shown == [[b"NAME", b"READY"], [b"web", b"0/2"], [b"web", b"0/7"]]


async def test_api_resources(kubectl: Kubectl) -> None:
    listed = {row[1]: row for row in rows(await kubectl("api-resources", "--no-headers"))}
    assert listed["hpa"] == [
        "horizontalpodautoscalers",
        "hpa",
        "autoscaling/v2",
        "true",
        "HorizontalPodAutoscaler",
    ]


async def test_get_raw(kubectl: Kubectl) -> None:
    assert json.loads(await kubectl("get", "--raw", "/apis/autoscaling"))["name"] == "autoscaling"
    assert await kubectl("get", "--raw", "/readyz") == "ok"
