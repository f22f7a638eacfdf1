"""A real API server accepts what the chart renders: no unknown field, no invalid value."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from playground.binaries import find_async
from playground.cluster import Cluster, start_cluster
from tests.chart.choices import BASE_VALUES, CHOICES
from tests.chart.record import NAMESPACE, RELEASE, VALUES, load
from tests.helm_engine import render
from tools.render_chart import Object, objects

# Kinds whose CustomResourceDefinitions belong to cert-manager and the Prometheus operator.
_OTHERS: Final = ("cert-manager.io/", "monitoring.coreos.com/")

pytestmark = pytest.mark.kubebuilder


async def run_kubectl(cluster: Cluster, *arguments: str, text: str = "") -> str:
    process = await asyncio.create_subprocess_exec(
        await find_async("kubectl"),
        f"--kubeconfig={cluster.kubeconfig}",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate(text.encode())
    assert process.returncode == 0, output.decode()
    return output.decode()


def all_objects() -> Iterator[Object]:
    """Yield the objects of each choice, and of each values file of the prometheus-adapter chart."""
    for choice in CHOICES.values():
        yield from objects(render({**BASE_VALUES, **choice.values}))
    for path in VALUES:
        yield from objects(render(load(path), release=RELEASE, namespace=NAMESPACE))


async def test_server_accepts_the_objects_of_each_choice(tmp_path: Path) -> None:
    distinct = {yaml.safe_dump(entry) for entry in all_objects() if not entry["apiVersion"].startswith(_OTHERS)}
    assert len(distinct) > 100
    async with start_cluster(tmp_path) as cluster:
        for namespace in ("milliscale", NAMESPACE, "metrics"):
            await run_kubectl(cluster, "create", "namespace", namespace)
        # A dry run stores nothing, so objects of the same name do not conflict.
        flags = ("--server-side", "--dry-run=server", "--validate=strict", "--filename=-")
        output = await run_kubectl(cluster, "apply", *flags, text="---\n".join(sorted(distinct)))
        assert output.count("serverside-applied (server dry run)") == len(distinct)
