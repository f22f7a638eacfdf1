"""The served resources: the table for routing and discovery. Names and generations are those of Kubernetes 1.36."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autoscaler.core.model import KIND, MILLISCALE
from kube.api.mapping import GroupResource

_ALL_VERBS: Final = ("create", "delete", "get", "list", "patch", "update", "watch")
CREATE_ONLY: Final = ("create",)
"""The verbs of reviews, which are not stored."""


@dataclass(frozen=True, slots=True)
class ResourceType:
    """One resource in one version."""

    group: str
    """The API group, "" for the core group."""
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    """Their names."""
    verbs: tuple[str, ...] = _ALL_VERBS
    generation: bool = False
    """True if metadata.generation counts changes of spec."""
    unconditional_update: bool = True
    """An update without resourceVersion is allowed."""

    @property
    def api_version(self) -> str:
        """The apiVersion: "apps/v1", or "v1" for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> GroupResource:
        """The key in the storage, which all versions of a resource share."""
        return GroupResource(self.group, self.plural)

    @property
    def custom(self) -> bool:
        """True if a CustomResourceDefinition would serve it."""
        return self.group == MILLISCALE.group

    @property
    def has_status(self) -> bool:
        """True if there is a status subresource."""
        return "status" in self.subresources


def _workload(kind: str, short_name: str) -> ResourceType:
    singular = kind.lower()
    return ResourceType(
        "apps",
        "v1",
        kind,
        f"{singular}s",
        singular,
        short_names=(short_name,),
        categories=("all",),
        subresources=("status", "scale"),
        generation=True,
    )


def _rbac(kind: str, *, namespaced: bool) -> ResourceType:
    singular = kind.lower()
    return ResourceType("rbac.authorization.k8s.io", "v1", kind, f"{singular}s", singular, namespaced=namespaced)


def _review(group: str, kind: str) -> ResourceType:
    singular = kind.lower()
    return ResourceType(group, "v1", kind, f"{singular}s", singular, namespaced=False, verbs=CREATE_ONLY)


def _autoscaler(version: str) -> ResourceType:
    return ResourceType(
        "autoscaling",
        version,
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        "horizontalpodautoscaler",
        short_names=("hpa",),
        categories=("all",),
        subresources=("status",),
    )


def _autoscaler_of_ours() -> ResourceType:
    """The resource of manifests/crds, served without a CustomResourceDefinition."""
    return ResourceType(
        MILLISCALE.group,
        MILLISCALE.version,
        KIND,
        "horizontalpodautoscalers",
        "horizontalpodautoscaler",
        short_names=("mhpa",),
        categories=("all",),
        subresources=("status",),
        generation=True,
    )


def _metric_rule(kind: str, short_name: str, *, namespaced: bool) -> ResourceType:
    """A resource of manifests/crds, served without a CustomResourceDefinition, and so without its checks."""
    singular = kind.lower()
    return ResourceType(
        MILLISCALE.group,
        MILLISCALE.version,
        kind,
        f"{singular}s",
        singular,
        namespaced=namespaced,
        short_names=(short_name,),
        categories=("milliscale",),
        subresources=("status",),
        generation=True,
    )


RESOURCE_TYPES: Final[tuple[ResourceType, ...]] = (
    ResourceType("", "v1", "ConfigMap", "configmaps", "configmap", short_names=("cm",)),
    ResourceType("", "v1", "Event", "events", "event", short_names=("ev",)),
    ResourceType(
        "",
        "v1",
        "Namespace",
        "namespaces",
        "namespace",
        namespaced=False,
        short_names=("ns",),
        subresources=("status",),
    ),
    ResourceType("", "v1", "Node", "nodes", "node", namespaced=False, short_names=("no",), subresources=("status",)),
    ResourceType(
        "",
        "v1",
        "Pod",
        "pods",
        "pod",
        short_names=("po",),
        categories=("all",),
        subresources=("status",),
        generation=True,
    ),
    ResourceType(
        "", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount", short_names=("sa",), subresources=("token",)
    ),
    ResourceType(
        "", "v1", "Service", "services", "service", short_names=("svc",), categories=("all",), subresources=("status",)
    ),
    ResourceType(
        "apiregistration.k8s.io",
        "v1",
        "APIService",
        "apiservices",
        "apiservice",
        namespaced=False,
        categories=("api-extensions",),
        subresources=("status",),
    ),
    _workload("Deployment", "deploy"),
    _workload("ReplicaSet", "rs"),
    _workload("StatefulSet", "sts"),
    _review("authentication.k8s.io", "TokenReview"),
    _review("authorization.k8s.io", "SubjectAccessReview"),
    _autoscaler("v2"),
    _autoscaler("v1"),
    _autoscaler_of_ours(),
    _metric_rule("ClusterMetricRule", "cmrule", namespaced=False),
    _metric_rule("MetricRule", "mrule", namespaced=True),
    # No controller runs them. Every scraped series has a label `job`, which rules may map to this resource.
    ResourceType("batch", "v1", "Job", "jobs", "job", categories=("all",), subresources=("status",), generation=True),
    # Stored without effect, so that all manifests can be applied.
    ResourceType(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "customresourcedefinition",
        namespaced=False,
        short_names=("crd",),
    ),
    ResourceType(
        "networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", "networkpolicy", short_names=("netpol",)
    ),
    ResourceType(
        "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "poddisruptionbudget", short_names=("pdb",)
    ),
    ResourceType("coordination.k8s.io", "v1", "Lease", "leases", "lease", unconditional_update=False),
    # No controller serves them. Rules map labels of gateways to this resource.
    ResourceType(
        "networking.k8s.io",
        "v1",
        "Ingress",
        "ingresses",
        "ingress",
        short_names=("ing",),
        subresources=("status",),
        generation=True,
    ),
    _rbac("ClusterRole", namespaced=False),
    _rbac("ClusterRoleBinding", namespaced=False),
    _rbac("Role", namespaced=True),
    _rbac("RoleBinding", namespaced=True),
)

_BY_PATH: Final = {(kind.group, kind.version, kind.plural): kind for kind in RESOURCE_TYPES}


def find_resource_type(group: str, version: str, plural: str) -> ResourceType | None:
    """Return the resource of a path, or None."""
    return _BY_PATH.get((group, version, plural))


def resource_type_of_kind(api_version: str, kind: str) -> ResourceType | None:
    """Return the resource of a kind, or None."""
    return next((entry for entry in RESOURCE_TYPES if (entry.api_version, entry.kind) == (api_version, kind)), None)


def resource_types_of(group: str, version: str) -> tuple[ResourceType, ...]:
    """Return the resources of a group version."""
    return tuple(kind for kind in RESOURCE_TYPES if (kind.group, kind.version) == (group, version))


def storage_type(kind: ResourceType) -> ResourceType:
    """Return the stored version of a resource: the first one in the table."""
    return next(entry for entry in RESOURCE_TYPES if entry.group_resource == kind.group_resource)
