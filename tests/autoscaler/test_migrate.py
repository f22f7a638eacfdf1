"""Moving HPAs between Kubernetes' API and ours: the printed steps, and that nothing else happens."""

import asyncio
from typing import Any

import yaml
from click.testing import CliRunner

from autoscaler.cli import main
from autoscaler.commands.migrate import move, render
from autoscaler.core.model import KUBERNETES, MILLISCALE
from kube.api.mapping import GroupResource
from tests.autoscaler.cluster import Cluster

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


async def migrate(cluster: Cluster, *arguments: str) -> tuple[int, str, str]:
    """Exit status, output and errors."""
    kubeconfig = f"--kubeconfig={cluster.server.kubeconfig()}"
    result = await asyncio.to_thread(CliRunner().invoke, main, ["migrate", *arguments, kubeconfig])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


def served(**metadata: Any) -> dict[str, Any]:
    """An HPA as an API server serves it."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "resourceVersion": "7", **metadata},
        "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 5},
        "status": {"currentReplicas": 3},
    }


def commands(to: Any, **metadata: Any) -> list[str]:
    return [command for command, _ in move(served(**metadata), to).steps]


def test_manifest_has_the_spec_and_another_api_version() -> None:
    annotations = {"note": "kept", LAST_APPLIED: "{}", "autoscaling.alpha.kubernetes.io/conditions": "[]"}
    assert move(served(labels={"team": "a"}, annotations=annotations), MILLISCALE).manifest == {
        "apiVersion": "milliscale.io/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "labels": {"team": "a"},
            "annotations": {"note": "kept", "milliscale.io/mode": "dry-run"},
        },
        "spec": served()["spec"],
    }


def test_new_milliscale_hpa_is_in_dry_run_until_the_old_one_is_deleted() -> None:
    assert commands(MILLISCALE) == [
        "kubectl apply --filename=FILE",
        "python -m autoscaler explain shop/web --api=milliscale",
        "kubectl delete hpa --namespace=shop web",
        "kubectl annotate mhpa --namespace=shop web milliscale.io/mode-",
    ]


def test_old_milliscale_hpa_is_in_dry_run_before_the_new_one_is_created() -> None:
    assert commands(KUBERNETES) == [
        "kubectl annotate mhpa --namespace=shop web milliscale.io/mode=dry-run --overwrite",
        "kubectl apply --filename=FILE",
        "kubectl delete mhpa --namespace=shop web",
    ]


def test_round_trip_returns_the_same_object() -> None:
    first = served(labels={"team": "a"}, annotations={"note": "kept"})
    there = move(first, MILLISCALE).manifest
    back = move(there, KUBERNETES).manifest
    assert back == {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {key: first["metadata"][key] for key in ("name", "namespace", "labels", "annotations")},
        "spec": first["spec"],
    }


def test_owners_and_lost_annotations_are_warnings() -> None:
    owner = {"kind": "ScaledObject", "name": "web", "uid": "u-2"}
    assert move(served(ownerReferences=[owner]), MILLISCALE).warnings == [
        "ScaledObject web owns it and may create it again after it is deleted; change that first."
    ]
    overrides = {"milliscale.io/tolerance": "0.2", "milliscale.io/mode": "act"}
    (warning,) = move(served(annotations=overrides), KUBERNETES).warnings
    assert warning == "Kubernetes' own controller does not know milliscale.io/tolerance; they will have no effect."


def test_min_replicas_0_is_a_warning() -> None:
    asleep = served()
    asleep["spec"]["minReplicas"] = 0
    (warning,) = move(asleep, MILLISCALE).warnings
    assert warning.startswith("it may scale its target to zero, and the new HPA would not scale it up again")


def test_unusual_names_are_quoted() -> None:
    moved = move(served(name="0x10", annotations={"odd": "a: 'b'\n---\n# c"}), MILLISCALE)
    (found,) = [each for each in yaml.safe_load_all(render([moved], MILLISCALE)) if each]
    assert found == moved.manifest


async def test_hpas_of_a_namespace_are_printed_and_nothing_is_changed(cluster: Cluster) -> None:
    for name in ("one", "two"):
        cluster.add_hpa(name)
    before = cluster.hpa("one"), cluster.hpa("two")
    status, output, errors = await migrate(cluster, "--to=milliscale")
    assert (status, errors) == (0, "")
    found = [each for each in yaml.safe_load_all(output) if each]
    assert [each["metadata"]["name"] for each in found] == ["one", "two"]
    assert {each["apiVersion"] for each in found} == {"milliscale.io/v1"}
    assert output.startswith("# HPAs for milliscale.io/v1. Nothing has been changed yet")
    assert (cluster.hpa("one"), cluster.hpa("two")) == before
    assert not cluster.server.storage.objects(GroupResource(MILLISCALE.group, "horizontalpodautoscalers"))
    for each in found:
        cluster.server.create(each)  # the API server takes them as they are printed


async def test_hpas_that_cannot_be_moved_are_errors_beside_the_others(cluster: Cluster) -> None:
    for name in ("one", "two"):
        cluster.add_hpa(name)
    cluster.add_hpa("two", api=MILLISCALE)
    status, output, errors = await migrate(cluster, "--to=milliscale", "one", "two", "three")
    assert [each["metadata"]["name"] for each in yaml.safe_load_all(output) if each] == ["one"]
    assert status == 1
    assert errors.splitlines() == [
        "Error: default/three: there is no such HPA in autoscaling/v2",
        "Error: default/two: milliscale.io/v1 has an HPA of this name already",
    ]


async def test_hpa_with_target_scaled_to_zero_is_not_moved(cluster: Cluster) -> None:
    cluster.add_hpa("web")
    hpa = cluster.hpa("web")
    hpa["status"] = {"conditions": [{"type": "ScaledToZero", "status": "True", "reason": "ScaledToZero"}]}
    cluster.server.storage.put(GroupResource("autoscaling", "horizontalpodautoscalers"), hpa)
    status, output, errors = await migrate(cluster, "--to=milliscale")
    assert (status, output) == (1, "")
    assert "its target is scaled to zero" in errors


async def test_nothing_to_move_is_a_note(cluster: Cluster) -> None:
    assert await migrate(cluster, "--to=kubernetes", "-A") == (
        0,
        "",
        "Note: there is no HPA in milliscale.io/v1 to move.\n",
    )


async def test_names_with_all_namespaces_are_a_usage_error(cluster: Cluster) -> None:
    status, _, errors = await migrate(cluster, "--to=kubernetes", "-A", "web")
    assert status == 2
    assert errors.endswith("Error: give names, or --all-namespaces, not both\n")
