"""The resources that the playground serves: one table, from which routing, discovery and OpenAPI all follow.

Only what the project, its manifests and its users' commands touch. Short names, categories and which kinds have a
generation are those of Kubernetes 1.36.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autoscaler.core.model import KIND, MILLISCALE
from kube.mapping import GroupResource

_ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CREATE_ONLY: Final = ("create",)
"""The verbs of a review: it is answered, not stored."""


@dataclass(frozen=True, slots=True)
class ResourceType:
    """One resource in one version.

    Attributes:
        group: the API group, "" for the core group.
        subresources: those served beside the object, without their verbs.
        generation: whether metadata.generation counts the changes of the object's spec.
        unconditional_update: whether an update without a resourceVersion overwrites; otherwise it is an error.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = _ALL_VERBS
    generation: bool = False
    unconditional_update: bool = True

    @property
    def api_version(self) -> str:
        """As objects spell it: "apps/v1", and "v1" for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> GroupResource:
        """What objects are stored under: all versions of a resource share one storage."""
        return GroupResource(self.group, self.plural)

    @property
    def has_status(self) -> bool:
        """Whether status is written apart from the rest."""
        return "status" in self.subresources

    @property
    def has_scale(self) -> bool:
        """Whether it can be scaled."""
        return "scale" in self.subresources


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


def _review(group: str, kind: str, *, namespaced: bool = False) -> ResourceType:
    singular = kind.lower()
    return ResourceType(group, "v1", kind, f"{singular}s", singular, namespaced=namespaced, verbs=CREATE_ONLY)


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
    """What manifests/crds makes of a cluster; here it is there from the start, with the same defaults and checks."""
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


RESOURCE_TYPES: Final[tuple[ResourceType, ...]] = (
    ResourceType("", "v1", "ConfigMap", "configmaps", "configmap", short_names=("cm",)),
    ResourceType("", "v1", "Endpoints", "endpoints", "endpoints", short_names=("ep",)),
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
    ResourceType("", "v1", "Secret", "secrets", "secret"),
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
    _review("authentication.k8s.io", "SelfSubjectReview"),
    _review("authentication.k8s.io", "TokenReview"),
    _review("authorization.k8s.io", "LocalSubjectAccessReview", namespaced=True),
    _review("authorization.k8s.io", "SelfSubjectAccessReview"),
    _review("authorization.k8s.io", "SelfSubjectRulesReview"),
    _review("authorization.k8s.io", "SubjectAccessReview"),
    _autoscaler("v2"),
    _autoscaler("v1"),
    _autoscaler_of_ours(),
    # Nothing runs them here. Every series that Prometheus scrapes has a label `job`, so rules may mean these.
    ResourceType("batch", "v1", "Job", "jobs", "job", categories=("all",), subresources=("status",), generation=True),
    ResourceType("coordination.k8s.io", "v1", "Lease", "leases", "lease", unconditional_update=False),
    ResourceType(
        "policy",
        "v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        "poddisruptionbudget",
        short_names=("pdb",),
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
    """The resource that a path names, or None."""
    return _BY_PATH.get((group, version, plural))


def resource_type_of_kind(api_version: str, kind: str) -> ResourceType | None:
    """The resource whose objects say that they are this, or None."""
    return next((entry for entry in RESOURCE_TYPES if (entry.api_version, entry.kind) == (api_version, kind)), None)


def resource_types_of(group: str, version: str) -> tuple[ResourceType, ...]:
    """Everything that one group version serves."""
    return tuple(kind for kind in RESOURCE_TYPES if (kind.group, kind.version) == (group, version))


def storage_type(kind: ResourceType) -> ResourceType:
    """The version in which a resource is stored: the first one in the table."""
    return next(entry for entry in RESOURCE_TYPES if entry.group_resource == kind.group_resource)
