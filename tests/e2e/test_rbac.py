"""The service accounts of the manifests have the rights that the processes use, and no others.

The API server's audit log tells which rights a process uses: none of its requests may be refused, and for each right
there must be a request that no other right allows. So a rule that is added to the manifests, or removed from them,
makes a test fail.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from autoscaler.loop.pages import LEADER_LABEL, SHARD_LABEL
from kube.api.client import KubeClient, KubeError
from kube.api.status import StatusError
from playground.install import Account
from playground.ports import free_port
from tests.autoscaler.process import Autoscaler
from tests.e2e.installation import APPLICATIONS, Installation, autoscalers, installation, start_adapter
from tests.e2e.rights import GradualRights, Request, is_allowed, needed_for, rights_of, summary, without
from tests.e2e.tools import fetch
from tests.eventually import eventually
from tests.helm_engine import render, require_helm
from tests.manifests.rendering import Objects, render_with
from tests.objects import hpa
from tests.replay.builders import external_metric
from tools import render_chart

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.kubebuilder,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("rbac"),
]

ADAPTER = Account("milliscale", "milliscale-adapter")
AUTOSCALER = Account("milliscale", "milliscale-autoscaler")
HPA_CONTROLLER = Account("kube-system", "horizontal-pod-autoscaler")
CUSTOM, EXTERNAL = "/apis/custom.metrics.k8s.io/v1beta2", "/apis/external.metrics.k8s.io/v1beta1"
SCALES = [f"/apis/apps/v1/namespaces/shop/statefulsets/{name}/scale" for name in APPLICATIONS]
LISTED = (
    f"{CUSTOM}/namespaces/shop/pods/*/packets",
    f"{CUSTOM}/namespaces/shop/services/*/requests",
    f"{CUSTOM}/namespaces/*/metrics/packets",
    f"{CUSTOM}/nodes/*/node_load",
)

REVIEWS = {
    "create tokenreviews.authentication.k8s.io",
    "create subjectaccessreviews.authorization.k8s.io",
    "list configmaps in kube-system",
    "watch configmaps in kube-system",
}
"""Delegated authentication and authorization."""
EVENTS = {"create events", "patch events"}
WRITES = {
    *EVENTS,
    *(f"{verb} leases.coordination.k8s.io in milliscale" for verb in ("get", "list", "watch", "create", "update")),
    *(f"{verb} configmaps in milliscale" for verb in ("list", "create", "update")),
}
"""Events, leader election and saved history."""
HPA_GROUPS = ("autoscaling", "milliscale.io")
LEASE = {f"{verb} leases.coordination.k8s.io in milliscale" for verb in ("get", "watch", "create", "update")}
RULE_OBJECTS = {
    *(
        f"{verb} {plural}.milliscale.io"
        for plural in ("metricrules", "clustermetricrules")
        for verb in ("list", "watch")
    ),
    *(f"patch {plural}/status.milliscale.io" for plural in ("metricrules", "clustermetricrules")),
    *LEASE,
}
"""MetricRules and ClusterMetricRules, their status and its Lease."""
RULES = ("/apis/milliscale.io/v1/namespaces/shop/metricrules", "/apis/milliscale.io/v1/clustermetricrules")
RULES_LEASE = "/apis/coordination.k8s.io/v1/namespaces/milliscale/leases/milliscale-adapter-rules"


def requests_for(*groups: str, acts: bool = True) -> set[str]:
    """Return what the autoscaler requests for the HPAs of API groups, their targets and metrics, and its pages."""
    hpas = "horizontalpodautoscalers"
    writes = {"update */scale", *(f"update {hpas}/status.{group}" for group in groups)}
    watched = [*(f"{hpas}.{group}" for group in groups), "pods"]
    watched += [f"{plural}.apps" for plural in ("replicasets", "deployments", "statefulsets")]
    return {
        *(f"{verb} {resource}" for resource in watched for verb in ("list", "watch")),
        "get */scale",
        "list pods.metrics.k8s.io",
        "get *.custom.metrics.k8s.io",
        "list *.external.metrics.k8s.io",
        "get *.external.metrics.k8s.io",  # debug/external
        "patch pods in milliscale",
        *(writes if acts else ()),
        *REVIEWS,
    }


COMPONENTS = ("resource-metrics", "adapter-ui", "metric-rules")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    folder = tmp_path_factory.mktemp("rbac")
    async with installation(folder, render_with(folder, *COMPONENTS)) as made:
        for path, kind in zip(RULES, ("MetricRule", "ClusterMetricRule"), strict=True):
            spec = {"type": "External", "metric": kind.lower(), "query": "vector(1)"}
            await made.client.post(
                path, {"apiVersion": "milliscale.io/v1", "kind": kind, "metadata": {"name": "one"}, "spec": spec}
            )
        yield made


async def add_account(installed: Installation, name: str, role: str) -> Path:
    """Create a service account with a ClusterRole, as a user would; return its kubeconfig."""
    account = Account("milliscale", name)
    await installed.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": account.name, "namespace": account.namespace},
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"test:{name}"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}],
            },
        ]
    )
    return await installed.kubeconfig(account)


def token_of(kubeconfig: Path) -> str:
    return str(yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"])


async def get_page(port: int, path: str, token: str) -> int:
    """GET a page over TLS with a token; return the status, or 0 if nothing listens."""
    status, _ = await fetch(f"https://127.0.0.1:{port}{path}", {"Authorization": f"Bearer {token}"})
    return status


async def check_rights(
    installed: Installation,
    account: Account,
    expected: set[str],
    exercise: Callable[[], Awaitable[None]],
    *,
    role: str = "",
) -> dict[str, Request]:
    """Check that an account uses each of its rights and needs no other; return a request for each right.

    Args:
        installed: the cluster.
        account: whose rights.
        expected: what the account requests, as `summary` has it.
        exercise: makes the process use its rights; called until it has sent all requests.
        role: check only the rights of this role; the account has others that allow some of the same requests.
    """
    rights = [right for right in await rights_of(installed.client, account) if right.role.endswith(role)]

    async def needed() -> dict[str, Request]:
        await exercise()
        requests = [request for request in installed.audit.requests(account) if not request.access.path]
        assert {summary(request.access) for request in requests} == expected
        assert installed.audit.refused(account) == []
        found = {str(right): needed_for(right, rights, requests) for right in rights}
        unused = [name for name, examples in found.items() if not examples]
        assert not unused, f"rights that are not used: {unused}"
        return {name: examples[0] for name, examples in found.items()}

    return await eventually(needed)


async def check_each_right_is_needed(installed: Installation, account: Account, requests: dict[str, Request]) -> None:
    """Remove one right after the other from its role or binding; the API server then refuses the request for it."""
    for right in await rights_of(installed.client, account):
        access = requests[str(right)].access

        async def refused() -> bool:
            return not await is_allowed(installed.client, account, access)  # noqa: B023  # awaited within the loop

        async with without(installed.client, right):
            await eventually(refused, every=0.02)
    await installed.until_granted(account)


async def test_adapter_has_exactly_the_rights_that_it_uses(installed: Installation) -> None:
    installed.audit.mark()
    await restart_adapter(installed)
    viewer = token_of(await add_account(installed, "adapter-viewer", "milliscale-adapter-ui-viewer"))
    kinds = ("namespaces", "nodes", "pods", "services")
    expected = {*REVIEWS, *RULE_OBJECTS, *(f"{verb} {kind}" for kind in kinds for verb in ("list", "watch"))}
    requests = await check_rights(installed, ADAPTER, expected, partial(request_all, installed, viewer))
    await check_each_right_is_needed(installed, ADAPTER, requests)


async def restart_adapter(installed: Installation) -> None:
    """Restart the adapter while another process holds the Lease, so that it first watches the Lease."""
    await installed.adapter.stop()
    await hold_lease_as_another(installed)
    await installed.restart_adapter()


async def hold_lease_as_another(installed: Installation) -> None:
    with suppress(StatusError):
        await installed.client.delete(RULES_LEASE)
    namespace, _, name = RULES_LEASE.partition("/leases/")
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
    await installed.client.post(f"{namespace}/leases", lease)


async def delete_lease_of_another(installed: Installation) -> None:
    """Delete the Lease that another process holds once the adapter watches it; the adapter then creates one."""
    watched = {request.access for request in installed.audit.requests(ADAPTER) if request.status != 403}
    if "watch leases.coordination.k8s.io in milliscale" not in map(summary, watched):
        return
    with suppress(StatusError):
        if (await installed.client.get(RULES_LEASE))["spec"]["holderIdentity"] == "another":
            await installed.client.delete(RULES_LEASE)


async def request_all(installed: Installation, token: str) -> None:
    """Request metrics of each kind of object, change rules that have a status, and get a page; errors do not matter."""
    await get_page(installed.adapter_ui_port, "/", token)
    await delete_lease_of_another(installed)
    for path in RULES:
        found = await installed.client.get(f"{path}/one")
        generation = found["metadata"]["generation"]
        if (found.get("status") or {}).get("observedGeneration") == generation:
            await installed.client.patch(f"{path}/one", {"spec": {"query": f"vector({generation + 1})"}})
    for path in LISTED:
        with suppress(KubeError, StatusError):
            await installed.client.get(path)


INVALID = {
    "rules-config-maps": (
        "/api/v1/namespaces/shop/configmaps",
        {"labels": {"milliscale.io/rules": "true"}},
        {"data": {"rules.yaml": "TEXT: []"}},
    ),
    "hpa-annotations": (
        "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers",
        {"annotations": {"metric-config.external.rps.prometheus/prometheus-server": "TEXT"}},
        {"spec": hpa("invalid", external_metric("rps", averageValue="1"))["spec"]},
    ),
}
"""Objects with an invalid rule: path of the collection, metadata, and the rest."""


@pytest.mark.parametrize("component", INVALID)
async def test_adapter_has_exactly_the_rights_that_it_uses_for_objects_without_a_status(
    installed: Installation, tmp_path: Path, component: str
) -> None:
    """These rights include some of others: to read ConfigMaps of the API server, and to use the Lease."""
    name, folder = f"milliscale-adapter-{component}", tmp_path / "metric-rules"
    rendered = render_with(tmp_path, component)
    roles = [entry for (_, entry_name), entry in rendered.items() if entry_name == name]
    folder.mkdir()
    others = [
        each
        for (_, other), each in render_with(folder, "metric-rules").items()
        if other == "milliscale-adapter-metric-rules"
    ]
    await installed.adapter.stop()
    await installed.delete(others)
    await installed.apply(roles)
    await installed.until_granted(ADAPTER)
    await hold_lease_as_another(installed)
    installed.audit.mark()
    of_objects = {
        "rules-config-maps": ["configmaps"],
        "hpa-annotations": [f"horizontalpodautoscalers.{group}" for group in HPA_GROUPS],
    }[component]
    expected = {
        *(
            f"{verb} {each}"
            for verb in ("list", "watch")
            for each in (*of_objects, "pods", "configmaps in kube-system")
        ),
        *(*LEASE, *EVENTS),
    }
    (path, metadata, body), changes = INVALID[component], 0

    async def exercise() -> None:
        """Make the rule invalid in one of two ways, in turn: an event that repeats is patched."""
        nonlocal changes
        await delete_lease_of_another(installed)
        found = (await installed.client.get("/api/v1/namespaces/shop/events"))["items"]
        if sum(each["count"] for each in found if each["involvedObject"]["name"] == "invalid") < changes:
            return
        changes += 1
        text = json.dumps({**body, "metadata": {"name": "invalid", **metadata}})
        changed = json.loads(text.replace("TEXT", f"text-{changes % 2}"))
        try:
            await installed.client.patch(f"{path}/invalid", changed)
        except StatusError:
            await installed.client.post(path, changed)

    flags = (*installed.adapter_settings, f"--secure-port={free_port()}")
    async with await start_adapter(tmp_path / "adapter.log", rendered, *flags):
        requests = await check_rights(installed, ADAPTER, expected, exercise, role=name)
        assert len(requests) == 2 * len(of_objects) + len(LEASE) + len(EVENTS)
    await installed.client.delete(f"{path}/invalid")
    await installed.delete(roles)
    await installed.apply(others)
    await installed.restart_adapter()
    await eventually(partial(metrics_are_served, installed))


async def metrics_are_served(installed: Installation) -> bool:
    try:
        return bool((await installed.client.get(LISTED[0]))["items"])
    except (KubeError, StatusError):
        return False


async def test_hpa_controller_of_kubernetes_reads_metrics_without_a_binding_of_ours(installed: Installation) -> None:
    account = {"name": HPA_CONTROLLER.name, "namespace": HPA_CONTROLLER.namespace}
    await installed.apply([{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}])
    assert not [right for right in await rights_of(installed.client, HPA_CONTROLLER) if right.is_ours]
    async with await KubeClient.connect(await installed.kubeconfig(HPA_CONTROLLER)) as client:
        for path in (*LISTED[:2], f"{EXTERNAL}/namespaces/shop/queue_depth"):
            assert (await client.get(path))["items"]


EXPLAINED = "/metric?metric=external/queue_depth&namespace=shop"


def page_port(process: Autoscaler) -> int:
    found = re.search(r"pages on https://\S+:(\d+)/", "\n".join(process.log_lines))
    assert found, process.log_lines[-10:]
    return int(found[1])


async def scale_down(installed: Installation) -> None:
    """Undo the scale-up, so that scales and statuses are written again, and events repeat."""
    for scale in SCALES:
        await installed.client.patch(scale, {"spec": {"replicas": 1}})


async def leads_each_shard(installed: Installation, shards: set[str]) -> bool:
    """Return whether the pods with the leader's label have these shards' labels, which Services select."""
    selector = {"labelSelector": f"{LEADER_LABEL}=true"}
    pods = (await installed.client.get("/api/v1/namespaces/milliscale/pods", selector))["items"]
    return {pod["metadata"]["labels"].get(SHARD_LABEL, "") for pod in pods} == shards


def dry_run() -> Objects:
    """Render the Helm chart in a mode for which there is no overlay."""
    require_helm()
    values = {
        "adapter": {"enabled": False},
        "autoscaler": {"enabled": True, "mode": "dry-run", "ui": {"enabled": True}},
    }
    rendered = render_chart.objects(render(values))
    return {(entry["kind"], entry["metadata"]["name"]): entry for entry in rendered}


OVERLAYS = {
    "base": requests_for(*HPA_GROUPS) | WRITES,
    "overlays/managed": requests_for("milliscale.io") | WRITES,
    "overlays/sharded": requests_for(*HPA_GROUPS) | WRITES,
    "overlays/shadow": requests_for(*HPA_GROUPS, acts=False),
    "dry-run": requests_for(*HPA_GROUPS, acts=False) | EVENTS,  # of the Helm chart
}


@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_autoscaler_has_exactly_the_rights_that_it_uses(
    installed: Installation, tmp_path: Path, overlay: str
) -> None:
    installed.audit.mark()
    rendered = dry_run() if overlay == "dry-run" else render_with(tmp_path, "autoscaler-ui", base=overlay)
    async with autoscalers(installed, rendered) as processes:
        viewer = token_of(await add_account(installed, "viewer", "milliscale-hpa-viewer"))
        operator = token_of(await add_account(installed, "operator", "milliscale-adapter-ui-viewer"))

        async def exercise() -> None:
            await scale_down(installed)
            for process in processes:
                assert await get_page(page_port(process), "/", viewer) == 200
                assert await get_page(page_port(process), EXPLAINED, operator) == 200
                assert await get_page(page_port(process), EXPLAINED, viewer) == 403

        requests = await check_rights(installed, AUTOSCALER, OVERLAYS[overlay], exercise)
        for process in processes:
            assert not [line for line in process.log_lines if "forbidden" in line.lower()]
        await eventually(partial(leads_each_shard, installed, {"0", "1"} if overlay == "overlays/sharded" else {""}))
        await check_each_right_is_needed(installed, AUTOSCALER, requests)


async def test_autoscaler_requests_each_missing_right_and_recovers(installed: Installation, tmp_path: Path) -> None:
    rights = GradualRights(installed.client, AUTOSCALER, installed.audit)
    objects = render_with(tmp_path, "autoscaler-ui")
    async with autoscalers(installed, objects, before_start=rights.revoke) as processes:
        viewer = token_of(await add_account(installed, "viewer", "milliscale-hpa-viewer"))
        operator = token_of(await add_account(installed, "operator", "milliscale-adapter-ui-viewer"))

        async def exercise() -> None:
            await scale_down(installed)
            for process in processes:
                await get_page(page_port(process), "/", viewer)
                await get_page(page_port(process), EXPLAINED, operator)

        await check_recovery(rights, exercise)
        for process in processes:
            assert await process.get("/readyz") == "ok"


async def test_adapter_requests_each_missing_right_and_recovers(installed: Installation) -> None:
    rights = GradualRights(installed.client, ADAPTER, installed.audit)
    viewer = token_of(await add_account(installed, "adapter-viewer", "milliscale-adapter-ui-viewer"))
    await rights.revoke()
    await restart_adapter(installed)
    await check_recovery(rights, partial(request_all, installed, viewer))
    for path in LISTED:
        assert (await installed.client.get(path))["items"]


async def check_recovery(rights: GradualRights, exercise: Callable[[], Awaitable[None]]) -> None:
    """Give back each right once a request for it was refused, until none is missing."""

    async def all_given_back() -> bool:
        await exercise()
        await rights.give_back()
        assert not rights.missing, [str(right) for right in rights.missing]
        return True

    await eventually(all_given_back)
    assert rights.unexpected() == []


HPAS = [
    f"/apis/{api}/namespaces/shop/horizontalpodautoscalers{suffix}"
    for name, api in APPLICATIONS.items()
    for suffix in ("", f"/{name}", "?watch=true&timeoutSeconds=1")
]
RESOURCE = [
    f"/apis/metrics.k8s.io/v1beta1/{path}"
    for path in ("nodes", "nodes/playground", "namespaces/shop/pods", "namespaces/shop/pods/web-0")
]
READERS = {
    "milliscale-metrics-reader": {"get *.custom.metrics.k8s.io", "list *.external.metrics.k8s.io"},
    "milliscale-resource-metrics-reader": {
        f"{verb} {kind}.metrics.k8s.io" for verb in ("get", "list") for kind in ("nodes", "pods")
    },
    "milliscale-metric-rule-viewer": {f"{verb} metricrules.milliscale.io" for verb in ("get", "list", "watch")},
    "milliscale-hpa-viewer": {
        f"{verb} horizontalpodautoscalers.{group}" for verb in ("get", "list", "watch") for group in HPA_GROUPS
    },
}
"""What the ClusterRoles for users allow, as `summary` has it."""


@pytest.mark.parametrize(
    ("role", "paths"),
    [
        ("milliscale-metrics-reader", [LISTED[0], f"{EXTERNAL}/namespaces/shop/queue_depth"]),
        ("milliscale-resource-metrics-reader", RESOURCE),
        ("milliscale-metric-rule-viewer", [f"{RULES[0]}{end}" for end in ("", "/one", "?watch=true&timeoutSeconds=1")]),
        ("milliscale-hpa-viewer", HPAS),
    ],
    ids=READERS,
)
async def test_roles_for_readers_have_exactly_the_rights_for_what_they_read(
    installed: Installation, tmp_path: Path, role: str, paths: list[str]
) -> None:
    await installed.apply([render_with(tmp_path, "autoscaler-ui")["ClusterRole", "milliscale-hpa-viewer"]])
    kubeconfig, reader = await add_account(installed, f"{role}-1", role), Account("milliscale", f"{role}-1")
    await installed.until_granted(reader)
    async with await KubeClient.connect(kubeconfig) as client:

        async def exercise() -> None:
            await asyncio.gather(*(client.get_bytes(path) for path in paths))

        requests = await check_rights(installed, reader, READERS[role], exercise)
    await check_each_right_is_needed(installed, reader, requests)


async def test_role_for_editors_has_exactly_the_rights_to_write_metric_rules(installed: Installation) -> None:
    role = "milliscale-metric-rule-editor"
    kubeconfig, editor = await add_account(installed, role, role), Account("milliscale", role)
    await installed.until_granted(editor)
    async with await KubeClient.connect(kubeconfig) as client:

        async def exercise() -> None:
            spec = {"type": "External", "metric": "edited", "query": "vector(1)"}
            rule = {
                "apiVersion": "milliscale.io/v1",
                "kind": "MetricRule",
                "metadata": {"name": "edited"},
                "spec": spec,
            }
            path = f"{RULES[0]}/edited"
            created = await client.post(RULES[0], rule)
            await client.put(path, {**created, "spec": {**spec, "empty": "zero"}})
            await client.patch(path, {"spec": {"nan": "missing"}})
            await client.delete(path)
            await client.delete(RULES[0], {"labelSelector": "none=such"})

        verbs = ("create", "delete", "deletecollection", "patch", "update")
        expected = {f"{verb} metricrules.milliscale.io" for verb in verbs}
        requests = await check_rights(installed, editor, expected, exercise)
    await check_each_right_is_needed(installed, editor, requests)


PAGES = {"/debug/rules": "/", "/debug/metrics/*": "/metric?metric=pods/packets&namespace=shop", "/debug/try": "/try"}
"""The adapter's pages by the nonResourceURL that shows them."""


async def test_each_right_of_the_roles_for_the_adapters_pages_shows_one_page(installed: Installation) -> None:
    async def shown(token: str) -> set[str]:
        statuses = {url: await get_page(installed.adapter_ui_port, page, token) for url, page in PAGES.items()}
        assert set(statuses.values()) <= {200, 403}, statuses
        return {url for url, status in statuses.items() if status == 200}

    for role, urls in (
        ("milliscale-adapter-rule-author", {*PAGES}),
        ("milliscale-adapter-ui-viewer", {*PAGES} - {"/debug/try"}),
    ):
        token, account = token_of(await add_account(installed, f"{role}-1", role)), Account("milliscale", f"{role}-1")
        await eventually(partial(is_shown, shown, token, urls))
        for right in await rights_of(installed.client, account):
            async with without(installed.client, right):
                await eventually(partial(is_shown, shown, token, urls - {*(right.rules[0].non_resource_urls or ())}))


async def is_shown(shown: Callable[[str], Awaitable[set[str]]], token: str, urls: set[str]) -> bool:
    return await shown(token) == urls
