"""Kubernetes' own API resources, for `check` and `explain` without an API server."""

from __future__ import annotations

from collections.abc import Iterable

from kube.api.mapping import GroupResource, NoMatchError, ResourceInfo

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


class FixedResources:
    """Finds resources in a list, as RestMapper does in discovery."""

    def __init__(self, infos: Iterable[ResourceInfo]) -> None:
        self._infos = tuple(infos)

    async def resource_for(self, resource: str, group: str = "") -> ResourceInfo:
        """See RestMapper.resource_for; raises NoMatchError."""
        wanted = resource.lower()
        found = [info for info in self._infos if wanted in (info.plural, info.singular) and group in ("", info.group)]
        if not found:
            raise NoMatchError(f'no matches for resource "{GroupResource(group, wanted)}"')
        return min(found, key=lambda info: bool(info.group))  # the core group first


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
