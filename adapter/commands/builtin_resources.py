"""The resources that every cluster has, for when there is no API server to ask."""

from __future__ import annotations

from kube.mapping import FixedResources, ResourceInfo

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
_AT_ROOT = {
    "v1": "Namespace Node PersistentVolume",
    "networking.k8s.io/v1": "IngressClass",
    "storage.k8s.io/v1": "StorageClass VolumeAttachment CSIDriver CSINode",
    "rbac.authorization.k8s.io/v1": "ClusterRole ClusterRoleBinding",
    "scheduling.k8s.io/v1": "PriorityClass",
    "apiextensions.k8s.io/v1": "CustomResourceDefinition",
    "apiregistration.k8s.io/v1": "APIService",
}


def builtin_resources() -> FixedResources:
    """Kubernetes' own resources, without those that are added to a cluster."""
    infos = []
    for table, namespaced in ((_NAMESPACED, True), (_AT_ROOT, False)):
        for group_version, kinds in table.items():
            group, _, version = group_version.rpartition("/")
            for kind in kinds.split():
                singular = kind.lower()
                infos.append(
                    ResourceInfo(
                        group=group,
                        version=version,
                        kind=kind,
                        plural=_plural(singular),
                        singular=singular,
                        namespaced=namespaced,
                    )
                )
    return FixedResources(infos)


def _plural(singular: str) -> str:
    if singular == "endpoints":
        return singular
    if singular.endswith("y"):
        return f"{singular[:-1]}ies"
    return f"{singular}es" if singular.endswith("s") else f"{singular}s"
