"""Pods of realistic size: some 6 KiB of JSON, of which an autoscaler needs a tenth.

They have the defaulted fields, environment, volume, probes, statuses and managedFields of real pods.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

_STARTED = "2026-01-01T00:00:00Z"
_IMAGE = "registry.example.com/team/app:1.2.3"
_TOKEN_VOLUME = "kube-api-access-x7k2p"
_ENVIRONMENT: list[dict[str, Any]] = [
    *({"name": f"SETTING_{number}", "value": f"value-of-setting-{number}"} for number in range(3)),
    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
]
_CONTAINER: dict[str, Any] = {
    "name": "app",
    "image": _IMAGE,
    "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
    "env": _ENVIRONMENT,
    "resources": {"limits": {"memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
    "volumeMounts": [
        {"name": _TOKEN_VOLUME, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    ],
    "readinessProbe": {
        "httpGet": {"path": "/readyz", "port": 8080, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    },
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}
_VOLUME = {
    "name": _TOKEN_VOLUME,
    "projected": {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ],
        "defaultMode": 420,
    },
}
_SPEC: dict[str, Any] = {
    "volumes": [_VOLUME],
    "containers": [_CONTAINER],
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "default",
    "serviceAccount": "default",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "tolerations": [
        {
            "key": f"node.kubernetes.io/{condition}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for condition in ("not-ready", "unreachable")
    ],
    "priority": 0,
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}
_CONDITIONS = [
    {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": _STARTED}
    for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
]


def running_pod(namespace: str, app: str, name: str) -> dict[str, Any]:
    """A pod of a Deployment's ReplicaSet that is Ready; always the same for one name."""
    digest = hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()
    address = f"10.{int(digest[:2], 16)}.{int(digest[2:4], 16)}.{int(digest[4:6], 16)}"
    node = int(digest[6:8], 16)
    replica_set = f"{app}-6c5d8f7b9c"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": f"{replica_set}-",
            "namespace": namespace,
            "labels": {"app": app, "app.kubernetes.io/name": "app", "pod-template-hash": "6c5d8f7b9c"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": replica_set,
                    "uid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{namespace}/{replica_set}")),
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": _MANAGED_FIELDS,
        },
        "spec": {**_SPEC, "nodeName": f"node-{node}"},
        "status": {
            "phase": "Running",
            "conditions": _CONDITIONS,
            "hostIP": f"192.168.0.{node}",
            "hostIPs": [{"ip": f"192.168.0.{node}"}],
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": _STARTED,
            "containerStatuses": [
                {
                    "name": "app",
                    "state": {"running": {"startedAt": _STARTED}},
                    "lastState": {},
                    "ready": True,
                    "restartCount": 0,
                    "image": _IMAGE,
                    "imageID": f"{_IMAGE.partition(':')[0]}@sha256:{64 * 'a'}",
                    "containerID": f"containerd://{digest}",
                    "started": True,
                }
            ],
            "qosClass": "Burstable",
        },
    }


def _managed(manager: str, obj: object, **more: str) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": _STARTED,
        "fieldsType": "FieldsV1",
        "fieldsV1": _fields(obj),
        **more,
    }


def _fields(obj: object) -> dict[str, Any]:
    """Return the fields of an object as managedFields have them."""
    if isinstance(obj, dict):
        return {f"f:{name}": _fields(value) for name, value in obj.items()}
    if isinstance(obj, list):
        return {f'k:{{"name":"{each.get("name", each.get("type"))}"}}': {".": {}, **_fields(each)} for each in obj}
    return {}


_MANAGED_FIELDS = [
    _managed("kube-controller-manager", {"spec": {name: _SPEC[name] for name in _SPEC if name[0] not in "tv"}}),
    _managed("kubelet", {"status": {"conditions": _CONDITIONS[:4], "podIP": ""}}, subresource="status"),
]
