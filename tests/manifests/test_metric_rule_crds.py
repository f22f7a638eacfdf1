"""The CustomResourceDefinitions of MetricRule and ClusterMetricRule, in a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from msgspec import structs

from adapter.catalog.rule_states import Reason
from adapter.rules.objects import Tenancy, read_object
from kube.api.client import KubeClient
from kube.api.status import StatusError
from kubectl_milliscale.keda.manifests import read_manifests
from kubectl_milliscale.keda.scaled import Migration
from kubectl_milliscale.keda.servers import Servers
from playground.apiserver.encoding import Form
from playground.apiserver.resource_types import resource_type_of_kind
from playground.apiserver.tables import table_of
from playground.binaries import find_async
from playground.cluster import Cluster, start_cluster
from playground.install import apply, read_objects
from tests.adapter.test_status_writer import Env
from tests.eventually import eventually
from tests.manifests.metric_rule_specs import (
    CLUSTER_ONLY,
    INVALID,
    LONG,
    NAMESPACED_ONLY,
    SCHEMA_ONLY,
    SHORT,
    VALID,
    Spec,
)
from tests.manifests.rendering import MANIFESTS

FOLDER = MANIFESTS / "crds/metric-rules"
FILES = {"MetricRule": FOLDER / "metricrules.yaml", "ClusterMetricRule": FOLDER / "clustermetricrules.yaml"}
PATHS = {
    "MetricRule": "/apis/milliscale.io/v1/namespaces/default/metricrules",
    "ClusterMetricRule": "/apis/milliscale.io/v1/clustermetricrules",
}
HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
KEDA = Path(__file__).parent.parent / "data/keda"
KINDS = tuple(FILES)
Kubectl = Callable[..., Coroutine[None, None, tuple[int | None, str]]]

real_api_server = [
    pytest.mark.e2e,
    pytest.mark.kubebuilder,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("metric-rule-crds"),
]


def on_real_api_server(test: Any) -> Any:
    """Mark a test that needs a real API server; all of them share one."""
    for mark in real_api_server:
        test = mark(test)
    return test


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with start_cluster(tmp_path_factory.mktemp("crds")) as cluster, await cluster.client() as client:
        for file in FILES.values():
            await apply(client, await read_objects(file))

        async def served() -> bool:
            try:
                for path in PATHS.values():
                    await client.get(path)
            except StatusError as error:
                raise AssertionError(str(error)) from error
            return True

        await eventually(served, within=20)
        yield cluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(cluster: Cluster) -> AsyncIterator[KubeClient]:
    async with await cluster.client() as client:
        yield client


def rule(kind: str, spec: Spec, *, name: str = "queue") -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": "default"} if kind == "MetricRule" else {})}
    return {"apiVersion": "milliscale.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def valid(kind: str) -> dict[str, Spec]:
    """Return the specs that a kind may have."""
    more = NAMESPACED_ONLY if kind == "MetricRule" else CLUSTER_ONLY
    return VALID | {name: spec for name, (spec, _) in more.items()}


def invalid(kind: str) -> dict[str, tuple[Spec, str]]:
    """Return the specs that a kind may not have, each with what is said against it."""
    return INVALID | (CLUSTER_ONLY if kind == "MetricRule" else NAMESPACED_ONLY)


async def refusal(client: KubeClient, kind: str, spec: Spec) -> str:
    """Return what the API server says against an object, in a dry run; "" if it is accepted."""
    try:
        await client.post(f"{PATHS[kind]}?dryRun=All", rule(kind, spec))
    except StatusError as error:
        return str(error)
    return ""


def schema(kind: str) -> dict[str, Any]:
    (version,) = yaml.safe_load(FILES[kind].read_text())["spec"]["versions"]
    return dict(version["schema"]["openAPIV3Schema"])


def descriptions(part: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the description of each field of a schema."""
    for name, field in (part.get("properties") or {}).items():
        yield f"{path}.{name}", field.get("description", "")
        yield from descriptions(field, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in part:
            yield from descriptions(part[key], f"{path}[]")


def test_both_kinds_have_the_same_schema_except_for_what_only_one_may_have() -> None:
    namespaced, cluster = (schema(kind)["properties"] for kind in KINDS)
    rules, cluster_rules = (each["spec"].pop("x-kubernetes-validations") for each in (namespaced, cluster))
    assert [one["message"] for one in rules if one not in cluster_rules] == [said for _, said in CLUSTER_ONLY.values()]
    (more,) = (one["message"] for one in cluster_rules if one not in rules)
    assert all(said in more for _, said in NAMESPACED_ONLY.values())
    for each in (namespaced, cluster):
        del each["kind"], each["spec"]["properties"]["labels"]["description"]
    assert namespaced == cluster


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_a_description(kind: str) -> None:
    found = dict(descriptions(schema(kind)))
    assert len(found) > 60
    assert [path for path, text in found.items() if not text and path != ".metadata"] == []


@pytest.mark.parametrize("kind", KINDS)
def test_playground_prints_the_columns_of_the_definition(kind: str) -> None:
    (version,) = yaml.safe_load(FILES[kind].read_text())["spec"]["versions"]
    columns = [(one["name"], one.get("priority", 0)) for one in version["additionalPrinterColumns"]]
    served = resource_type_of_kind("milliscale.io/v1", kind)
    assert served is not None
    table = table_of(served, [], Form("Table"), metadata={}, include="None", now=None)  # type: ignore[arg-type]
    assert [(one["name"], one["priority"]) for one in table["columnDefinitions"]] == [("Name", 0), *columns]
    names = yaml.safe_load(FILES[kind].read_text())["spec"]["names"]
    assert (served.plural, served.singular) == (names["plural"], names["singular"])
    assert (list(served.short_names), list(served.categories)) == (names["shortNames"], names["categories"])


@pytest.mark.parametrize("kind", KINDS)
def test_adapter_reads_what_the_schema_accepts_and_refuses_what_it_refuses(kind: str) -> None:
    def error(spec: Spec) -> str:
        return read_object(rule(kind, spec), servers={}, tenancy=Tenancy()).error

    assert {name: error(spec) for name, spec in valid(kind).items() if error(spec)} == {}
    assert [name for name, (spec, _) in invalid(kind).items() if not error(spec) and name not in SCHEMA_ONLY] == []


@on_real_api_server
@pytest.mark.parametrize("kind", KINDS)
async def test_valid_rules_are_accepted(admin: KubeClient, kind: str) -> None:
    specs = valid(kind)
    refusals = await asyncio.gather(*(refusal(admin, kind, spec) for spec in specs.values()))
    assert {name: said for name, said in zip(specs, refusals, strict=True) if said} == {}


@on_real_api_server
@pytest.mark.parametrize("kind", KINDS)
async def test_invalid_rules_are_refused_with_what_to_change(admin: KubeClient, kind: str) -> None:
    specs = invalid(kind)
    refusals = await asyncio.gather(*(refusal(admin, kind, spec) for spec, _ in specs.values()))
    cases = zip(specs.items(), refusals, strict=True)
    assert {name: (message, said) for (name, (_, message)), said in cases if message not in said} == {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kubectl(cluster: Cluster) -> Kubectl:
    """Run `kubectl` with these arguments; return its exit status and its output, with errors."""
    program = await find_async("kubectl")

    async def run(*arguments: str, stdin: str = "") -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            program,
            f"--kubeconfig={cluster.kubeconfig}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate(stdin.encode())
        return process.returncode, output.decode()

    return run


@on_real_api_server
@pytest.mark.parametrize("kind", KINDS)
async def test_strict_server_side_apply_refuses_unknown_keys_and_wrong_types(admin: KubeClient, kind: str) -> None:
    async def apply(spec: Spec) -> None:
        options = {"fieldManager": "test", "fieldValidation": "Strict", "dryRun": "All"}
        content_type = "application/apply-patch+yaml"
        await admin.patch(f"{PATHS[kind]}/queue", rule(kind, spec), options, content_type=content_type)

    for spec in (SHORT, LONG):
        await apply(spec)
    with pytest.raises(StatusError, match=r"spec\.qeury: field not declared in schema"):
        await apply({**SHORT, "qeury": "up"})
    with pytest.raises(StatusError, match=r"spec\.query: expected string"):
        await apply({**SHORT, "query": 1})


@on_real_api_server
@pytest.mark.parametrize("kind", KINDS)
async def test_kubectl_get_prints_the_state(admin: KubeClient, kubectl: Kubectl, kind: str) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "it has a value"}
    status = {
        "observedGeneration": 1,
        "conditions": [{**ready, "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "metrics": ["queue_length", "queue_age"],
        "metricsCount": 2,
        "series": 12,
        "value": "42",
        "queryDuration": "12ms",
    }
    await admin.post(PATHS[kind], rule(kind, SHORT))
    stored = await admin.patch(f"{PATHS[kind]}/queue/status", {"status": status})
    assert stored["status"] == status
    short_name = "mrule" if kind == "MetricRule" else "cmrule"
    _, output = await kubectl("get", short_name)
    heads, row = (line.split() for line in output.splitlines())
    assert heads == ["NAME", "TYPE", "METRIC", "READY", "REASON", "VALUE", "AGE"]
    assert row[:-1] == ["queue", "External", "queue_length", "True", "Ready", "42"]
    _, output = await kubectl("get", "milliscale", "-o", "wide")
    assert "SERIES   QUERY TIME   MESSAGE          AGE" in output
    assert "12       12ms         it has a value   " in output


@on_real_api_server
async def test_adapter_writes_statuses_that_the_schema_accepts(admin: KubeClient, kubectl: Kubectl) -> None:
    await admin.post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
    env = Env(admin)
    name, replaced = await env.create("queue"), await env.create("replaced")
    async with env.running() as writer:
        await env.until_reason("queue", "Ready")
        await env.until_reason("replaced", "Ready")
        assert (await env.status("queue"))["value"] == "4"
        env.reasons[name] = (Reason.CONFLICT, "queue is made by MetricRule shop/older, which is older")
        env.known[replaced] = structs.replace(env.known[replaced], uid="of-the-deleted-one", generation=7)
        writer.changed([replaced, name])
        await env.until_reason("queue", "Conflict")
        # Objects of a namespace are written in order, so the other one has been tried.
        assert (await env.status("replaced"))["observedGeneration"] == 1
    assert "value" not in await env.status("queue")
    _, output = await kubectl("get", "mrule", "queue", "--namespace=shop", "--no-headers")
    assert output.split()[:5] == ["queue", "External", "queue", "False", "Conflict"]


@on_real_api_server
@pytest.mark.parametrize("kind", KINDS)
async def test_status_and_spec_are_written_apart(admin: KubeClient, kind: str) -> None:
    path = f"{PATHS[kind]}/apart"
    await admin.post(PATHS[kind], {**rule(kind, SHORT, name="apart"), "status": {"value": "1"}})
    stored = await admin.patch(f"{path}/status", {"spec": {"metric": "other"}, "status": {"value": "2"}})
    assert (stored["spec"], stored["status"], stored["metadata"]["generation"]) == (SHORT, {"value": "2"}, 1)
    stored = await admin.patch(path, {"spec": {"metric": "other"}, "status": {"value": "3"}})
    assert (stored["spec"]["metric"], stored["status"], stored["metadata"]["generation"]) == (
        "other",
        {"value": "2"},
        2,
    )


@on_real_api_server
@pytest.mark.parametrize("kind", KINDS)
async def test_kubectl_explain_describes_every_field(kubectl: Kubectl, kind: str) -> None:
    _, tree = await kubectl("explain", kind.lower(), "--recursive")
    fields = [path.rpartition(".")[2].removesuffix("[]") for path, _ in descriptions(schema(kind))]
    shown = {line.split("\t")[0].strip() for line in tree.splitlines() if "\t<" in line}
    assert set(fields) <= shown
    _, text = await kubectl("explain", f"{kind.lower()}.spec.activation.for")
    assert "How long the metric must have been below it" in text


@on_real_api_server
@pytest.mark.parametrize("file", ["rendered.yaml", "exported.yaml"])
async def test_objects_of_migrate_keda_are_accepted(admin: KubeClient, file: str) -> None:
    manifests = read_manifests(await asyncio.to_thread((KEDA / file).read_text), source=file)
    migration = Migration(servers=Servers(), authentications=manifests.authentications)
    found = [each for one in manifests.scaled for each in migration.migrate(one).objects]
    paths = {"MetricRule": PATHS["MetricRule"], "HorizontalPodAutoscaler": HPAS}
    for each in found:
        each["metadata"]["namespace"] = "default"
        if each["kind"] == "HorizontalPodAutoscaler":  # 0 needs a feature gate
            each["spec"]["minReplicas"] = max(each["spec"]["minReplicas"], 1)
        created = await admin.post(f"{paths[each['kind']]}?dryRun=All&fieldValidation=Strict", each)
        assert created["metadata"]["name"] == each["metadata"]["name"]
    assert {each["kind"] for each in found} == set(paths)
