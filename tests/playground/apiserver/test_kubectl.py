"""What users type into a second terminal, with a real kubectl: whichever version is at hand."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
import yaml

from playground.apiserver import PlaygroundApiServer
from playground.binaries import find_async
from tests.playground.apiserver.objects import deployment, hpa, pod

Kubectl = Callable[..., Coroutine[None, None, str]]


@pytest.fixture
async def kubectl(server: PlaygroundApiServer, tmp_path: Path) -> Kubectl:
    """`kubectl` with these arguments: what it wrote, or an AssertionError with what it complained of."""
    program = await find_async("kubectl")
    kubeconfig = server.kubeconfig()

    async def run(*arguments: str, stdin: str = "", fails: bool = False) -> str:
        process = await asyncio.create_subprocess_exec(
            program,
            f"--kubeconfig={kubeconfig}",
            f"--cache-dir={tmp_path / 'cache'}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            output, complaint = await process.communicate(stdin.encode())
        assert (process.returncode != 0) is fails, complaint.decode()
        return (output + (complaint if fails else b"")).decode()

    return run


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]


async def test_get_shows_tables(server: PlaygroundApiServer, kubectl: Kubectl) -> None:
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
    wide = rows(await kubectl("get", "deploy", "-o", "wide"))
    assert wide[1][-3:] == ["c", "i", "app=web"]


async def test_apply_creates_and_then_changes(kubectl: Kubectl) -> None:
    objects = [deployment(), hpa()]
    assert rows(await kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))) == [
        ["deployment.apps/web", "created"],
        ["horizontalpodautoscaler.autoscaling/web", "created"],
    ]
    objects[0]["spec"]["template"]["spec"]["containers"].append({"name": "d", "image": "i"})
    objects[0]["spec"]["template"]["spec"]["containers"][0]["image"] = "new"
    assert rows(await kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))) == [
        ["deployment.apps/web", "configured"],
        ["horizontalpodautoscaler.autoscaling/web", "unchanged"],
    ]
    containers = json.loads(await kubectl("get", "deploy", "web", "-o", "json"))["spec"]["template"]["spec"][
        "containers"
    ]
    assert [(container["name"], container["image"]) for container in containers] == [("c", "new"), ("d", "i")]


async def test_the_commands_that_change_one_thing(server: PlaygroundApiServer, kubectl: Kubectl) -> None:
    server.create(deployment())
    await kubectl("scale", "deployment", "web", "--replicas=3")
    await kubectl("annotate", "deployment", "web", "a=b")
    await kubectl("label", "deployment", "web", "tier=front")
    await kubectl("set", "image", "deployment/web", "c=new")
    await kubectl("patch", "deployment", "web", "-p", '{"spec":{"paused":true}}')
    await kubectl("autoscale", "deployment", "web", "--min=2", "--max=4", "--cpu-percent=50")
    found = json.loads(await kubectl("get", "deployment", "web", "-o", "json"))
    assert found["spec"]["replicas"] == 3
    assert found["metadata"]["annotations"]["a"] == "b"
    assert found["metadata"]["labels"]["tier"] == "front"
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "new"
    assert found["spec"]["paused"] is True
    created = json.loads(await kubectl("get", "hpa", "web", "-o", "json"))
    assert created["apiVersion"] == "autoscaling/v2"
    assert created["spec"]["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 50}


async def test_create_and_delete(kubectl: Kubectl) -> None:
    assert await kubectl("create", "deployment", "foo", "--image=x") == "deployment.apps/foo created\n"
    assert await kubectl("create", "namespace", "bar") == "namespace/bar created\n"
    assert await kubectl("delete", "deployment/foo", "namespace/bar")
    assert 'deployments.apps "foo" not found' in await kubectl("get", "deployment", "foo", fails=True)


async def test_describe_tells_of_events(server: PlaygroundApiServer, kubectl: Kubectl) -> None:
    uid = server.create(hpa())["metadata"]["uid"]
    server.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "web.1", "namespace": "default"},
            "involvedObject": {"kind": "HorizontalPodAutoscaler", "name": "web", "namespace": "default", "uid": uid},
            "reason": "SuccessfulRescale",
            "message": "New size: 3",
            "type": "Normal",
            "count": 1,
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z",
        }
    )
    described = await kubectl("describe", "hpa", "web")
    assert "Deployment/web" in described
    assert "SuccessfulRescale" in described
    assert "New size: 3" in await kubectl("get", "events")


async def test_a_watch_shows_changes(server: PlaygroundApiServer, kubectl: Kubectl, tmp_path: Path) -> None:
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


async def test_auth_can_i_asks_the_same_authorizer(kubectl: Kubectl) -> None:
    assert (await kubectl("auth", "can-i", "create", "pods")).strip() == "yes"
    assert "no" in await kubectl("auth", "can-i", "create", "pods", "--as=ann", fails=True)


async def test_api_resources_lists_what_is_there(kubectl: Kubectl) -> None:
    listed = {row[1]: row for row in rows(await kubectl("api-resources", "--no-headers"))}
    assert listed["hpa"] == [
        "horizontalpodautoscalers",
        "hpa",
        "autoscaling/v2",
        "true",
        "HorizontalPodAutoscaler",
    ]


async def test_raw_paths_are_answered(kubectl: Kubectl) -> None:
    assert json.loads(await kubectl("get", "--raw", "/apis/autoscaling"))["name"] == "autoscaling"
    assert await kubectl("get", "--raw", "/readyz") == "ok"
