"""Kubernetes' own API resources, for `check` and `explain` without an API server."""

from __future__ import annotations

from kube.api.mapping import FixedResources, ResourceInfo

_NAMESPACED = {
    "v1": "Pod Service ConfigMap Secret Endpoints Event ServiceAccount ReplicationController LimitRange ResourceQuota"
    " PersistentVolumeClaim PodTemplate",
    "apps/v1": "Deployment ReplicaSet StatefulSet DaemonSet ControllerRevision",
    "batch/v1": "Job CronJob",
    "autoscaling/v2": "HorizontalPodAutoscaler",
    "networking.k8s.io/v1": "Ingress NetworkPolicy",
    "policy/v1": "PodDisruptionBudget",
    "rbac.authorization.k8s.io/v1": "Role RoleBinding",
    "coordination.k8s.io/v1": "Lease",
    "discovery.k8s.io/v1": "EndpointSlice",
}
_CLUSTER_SCOPED = {
    "v1": "Namespace Node PersistentVolume",
    "networking.k8s.io/v1": "IngressClass",
    "storage.k8s.io/v1": "StorageClass VolumeAttachment CSIDriver CSINode",
    "rbac.authorization.k8s.io/v1": "ClusterRole ClusterRoleBinding",
    "scheduling.k8s.io/v1": "PriorityClass",
    "apiextensions.k8s.io/v1": "CustomResourceDefinition",
    "apiregistration.k8s.io/v1": "APIService",
}


def builtin_resources() -> FixedResources:
    """Return the resources that every cluster has."""
    return FixedResources(
        _info(group_version, kind, namespaced=namespaced)
        for table, namespaced in ((_NAMESPACED, True), (_CLUSTER_SCOPED, False))
        for group_version, kinds in table.items()
        for kind in kinds.split()
    )


def _info(group_version: str, kind: str, *, namespaced: bool) -> ResourceInfo:
    group, _, version = group_version.rpartition("/")
    singular = kind.lower()
    return ResourceInfo(
        group=group, version=version, kind=kind, plural=_plural(singular), singular=singular, namespaced=namespaced
    )


def _plural(singular: str) -> str:
    if singular == "endpoints":
        return singular
    if singular.endswith("y"):
        return f"{singular[:-1]}ies"
    return f"{singular}es" if singular.endswith("s") else f"{singular}s"
