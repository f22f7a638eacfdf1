"""Create, update and delete objects by the rules that hold for every kind.

Upstream: k8s.io/apiserver/pkg/registry/generic. Names and UIDs, optimistic concurrency, status apart from spec,
generations, graceful deletion of pods that are on a node, and no write if nothing changes.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from typing import Any, Final

from kube.api.mapping import GroupResource
from kube.api.status import StatusError, bad_request
from kube.values import fields, names
from playground.apiserver.admission import admit
from playground.apiserver.errors import already_exists, invalid_object, modified, no_such_object
from playground.apiserver.objects import Object, child, copy_of, name_of, namespace_of, text_time, uid_of
from playground.apiserver.resource_types import ResourceType, resource_type_of_kind
from playground.apiserver.storage import Storage

_NAMESPACES: Final = GroupResource("", "namespaces")
_DEFAULT_GRACE_SECONDS: Final = 30
# Set by the server alone; updates cannot change them.
_SYSTEM_METADATA: Final = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generateName",
    "namespace",
)


class ObjectRegistry:
    """Creates, updates and deletes the objects in a storage."""

    def __init__(self, storage: Storage, *, now: Callable[[], datetime.datetime]) -> None:
        self._storage = storage
        self._now = now

    def get(self, kind: ResourceType, namespace: str, name: str) -> Object:
        """One object. Raises StatusError 404 where there is none."""
        found = self._storage.get(kind.group_resource, namespace if kind.namespaced else "", name)
        if found is None:
            raise no_such_object(kind.group_resource, name)
        return found

    def create(self, kind: ResourceType, namespace: str, obj: Object) -> Object:
        """Store a new object; it belongs to the registry from now on.

        Raises:
            StatusError: 400, 403, 404, 409, 422.
        """
        _check_type(kind, obj)
        obj = _without_nulls(obj)
        metadata = obj.setdefault("metadata", {})
        self._check_namespace(kind, namespace, metadata)
        if metadata.get("resourceVersion"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        _check_name(kind, metadata)
        if self._storage.get(kind.group_resource, namespace_of(obj), name_of(obj)) is not None:
            raise already_exists(kind.group_resource, name_of(obj))
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink", "managedFields"):
            metadata.pop(field, None)
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = text_time(self._now())
        if kind.generation:
            metadata["generation"] = 1
        if kind.has_status:
            obj["status"] = {}
        admit(kind, obj, new=True)
        return self._storage.put(kind.group_resource, obj)

    def update(
        self,
        kind: ResourceType,
        namespace: str,
        name: str,
        obj: Object,
        *,
        subresource: str = "",
    ) -> Object:
        """Replace an object, or only its status; `obj` belongs to the registry from now on.

        Raises:
            StatusError: 400, 404, 409, 422.
        """
        _check_type(kind, obj)
        obj = _without_nulls(obj)
        metadata = obj.setdefault("metadata", {})
        self._check_namespace(kind, namespace, metadata)
        if metadata.setdefault("name", name) != name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            )
        old = self.get(kind, namespace, name)
        _check_version(kind, metadata, old)
        obj = _status_of(old, obj) if subresource == "status" else _all_but_status_of(kind, old, obj)
        for field in (*_SYSTEM_METADATA, "resourceVersion"):
            obj["metadata"].pop(field, None)
            if field in old["metadata"]:
                obj["metadata"][field] = old["metadata"][field]
        obj["metadata"].pop("managedFields", None)
        if subresource != "status":
            admit(kind, obj, new=False)
            if kind.generation and obj.get("spec") != old.get("spec"):
                obj["metadata"]["generation"] += 1
        if obj == old:
            return obj
        return self._storage.put(kind.group_resource, obj)

    def delete(self, kind: ResourceType, namespace: str, name: str, options: Object) -> tuple[Object, bool]:
        """Delete an object, or mark it for deletion.

        Args:
            kind: the resource.
            namespace: the object's namespace.
            name: the object's name.
            options: metav1.DeleteOptions, of which only gracePeriodSeconds counts.

        Returns:
            Its last state, and whether it is deleted.

        Raises:
            StatusError: 404.
        """
        old = self.get(kind, namespace, name)
        grace = _grace_seconds(kind, old, options)
        if grace:
            if old["metadata"].get("deletionTimestamp"):
                return old, False
            marked = copy_of(old)
            deadline = self._now() + datetime.timedelta(seconds=grace)
            marked["metadata"]["deletionTimestamp"] = text_time(deadline)
            marked["metadata"]["deletionGracePeriodSeconds"] = grace
            if kind.generation:
                marked["metadata"]["generation"] = marked["metadata"].get("generation", 0) + 1
            return self._storage.put(kind.group_resource, marked), False
        if kind.group_resource == _NAMESPACES:
            self._empty_namespace(name)
        return self._storage.remove(kind.group_resource, namespace_of(old), name) or old, True

    def _empty_namespace(self, namespace: str) -> None:
        """Delete all objects in a namespace at once; upstream the namespace controller does that."""
        for resource, obj in self._storage.namespaced_in(namespace):
            self._storage.remove(resource, namespace, name_of(obj))

    def _check_namespace(self, kind: ResourceType, namespace: str, metadata: Object) -> None:
        if not kind.namespaced:
            metadata.pop("namespace", None)
            return
        if metadata.setdefault("namespace", namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if self._storage.get(_NAMESPACES, "", namespace) is None:
            raise no_such_object(_NAMESPACES, namespace)


def _check_type(kind: ResourceType, obj: Object) -> None:
    given, version = obj.setdefault("kind", kind.kind), obj.setdefault("apiVersion", kind.api_version)
    if (given, version) == (kind.kind, kind.api_version):
        return
    if resource_type_of_kind(version, given) is None:
        raise bad_request(
            f'{given} in version "{version}" cannot be handled as a {kind.kind}: '
            f'no kind "{given}" is registered for version "{version}"'
        )
    if given != kind.kind:
        raise bad_request(f'{given} in version "{version}" cannot be handled as a {kind.kind}')
    raise bad_request(
        f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
    )


def _check_name(kind: ResourceType, metadata: Object) -> None:
    name = str(metadata.get("name") or "")
    # Names of RBAC objects may hold colons; an APIService of the core group ends in a dot.
    free = kind.group in ("rbac.authorization.k8s.io", "apiregistration.k8s.io")
    problems = names.path_segment_errors(name) if free else names.rfc1123_subdomain_errors(name)
    errors = [fields.invalid("metadata.name", name, problem) for problem in problems]
    if not name:
        errors = [fields.required("metadata.name")]
    if errors:
        raise invalid_object(kind.group, kind.kind, name, errors)


def _check_version(kind: ResourceType, metadata: Object, old: Object) -> None:
    resource, name = kind.group_resource, name_of(old)
    if metadata.get("uid") and metadata["uid"] != uid_of(old):
        why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {uid_of(old)}"
        raise modified(resource, name, why)
    version = metadata.get("resourceVersion")
    if version and version != old["metadata"]["resourceVersion"]:
        raise modified(resource, name)
    if not version and not kind.unconditional_update:
        error = fields.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid_object(kind.group, resource.resource, name, [error])


def _status_of(old: Object, new: Object) -> Object:
    """Return `old` with the status, labels and annotations of `new`, as most kinds allow."""
    metadata = {**old["metadata"]}
    for field in ("labels", "annotations"):
        metadata.pop(field, None)
        if new["metadata"].get(field):
            metadata[field] = new["metadata"][field]
    return {**old, "metadata": metadata, "status": new.get("status") or {}}


def _all_but_status_of(kind: ResourceType, old: Object, new: Object) -> Object:
    if kind.has_status:
        new["status"] = old.get("status", {})
    return new


def _grace_seconds(kind: ResourceType, old: Object, options: Object) -> int:
    """Return how long a deletion waits: only pods on a node are stopped gracefully, by its kubelet."""
    spec = child(old, "spec")
    if kind.kind != "Pod" or not spec.get("nodeName"):
        return 0
    if child(old, "status").get("phase") in ("Succeeded", "Failed"):
        return 0
    grace = options.get("gracePeriodSeconds")
    if grace is None:
        grace = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS)
    return int(grace)


def _without_nulls(obj: Object) -> Object:
    """Return a copy without null values outside of status: in Go, null and absent are the same."""
    return {key: value if key == "status" else _pruned(value) for key, value in obj.items() if value is not None}


def _pruned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _pruned(inner) for key, inner in value.items() if inner is not None}
    return [_pruned(item) for item in value] if isinstance(value, list) else value
