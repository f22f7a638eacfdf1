"""What each value of the prometheus-adapter chart changes in the objects, whichever of the two charts renders them."""

from collections.abc import Callable
from typing import Any, Final

import yaml

from tools.render_chart import Object

# Volumes that the charts themselves add.
_OWN_VOLUMES: Final = {"config", "rules", "serving-cert", "tls", "tmp", "volume-serving-cert"}
_AUTH_READER: Final = "extension-apiserver-authentication-reader"


class Rendered:
    """The objects that one of the charts renders, with the parts that values change."""

    def __init__(self, objects: list[Object]) -> None:
        self.objects = objects
        (self.deployment,) = self.of_kind("Deployment")
        self.template: Object = self.deployment["spec"]["template"]
        self.pod: Object = self.template["spec"]
        (self.container,) = (
            each for each in self.pod["containers"] if each["name"] in ("adapter", "prometheus-adapter")
        )
        self.flags = dict(argument.partition("=")[::2] for argument in self.container["args"])

    def of_kind(self, *kinds: str) -> list[Object]:
        return [entry for entry in self.objects if entry["kind"] in kinds]

    def rules(self) -> Any:
        """The rules file, or the name of the ConfigMap that has it."""
        (name,) = (each["configMap"]["name"] for each in self.pod["volumes"] if each["name"] in ("config", "rules"))
        for entry in self.of_kind("ConfigMap"):
            if entry["metadata"]["name"] == name:
                (text,) = entry["data"].values()
                return yaml.safe_load(text)
        return name

    def registered(self) -> list[tuple[Any, ...]]:
        """The APIServices. We serve custom metrics in v1beta2, too."""
        specs = {entry["metadata"]["name"]: entry["spec"] for entry in self.of_kind("APIService")}
        specs.pop("v1beta2.custom.metrics.k8s.io", None)
        keys = ("groupPriorityMinimum", "versionPriority", "caBundle", "insecureSkipTLSVerify")
        return [(name, *(spec.get(key) for key in keys)) for name, spec in sorted(specs.items())]

    def certificates(self) -> list[tuple[Any, ...]]:
        """Validity and history of cert-manager's certificates, and how many APIServices get their CA."""
        specs = [entry["spec"] for entry in self.of_kind("Certificate")]
        kept = sorted((spec.get("isCA", False), spec["duration"], spec.get("revisionHistoryLimit")) for spec in specs)
        names = [entry["metadata"].get("annotations", {}) for entry in self.of_kind("APIService")]
        return [*kept, all("cert-manager.io/inject-ca-from" in each for each in names), self.serving_secret()]

    def serving_secret(self) -> Any:
        """The data of the Secret from which the adapter serves, or whether there is one."""
        mounts = {each["name"]: each["mountPath"] for each in self.container["volumeMounts"]}
        for volume in self.pod["volumes"]:
            if volume["name"] in _OWN_VOLUMES and "secret" in volume:
                folder = mounts[volume["name"]]
                assert self.flags["--tls-cert-file"] == f"{folder}/tls.crt"
                assert self.flags["--tls-private-key-file"] == f"{folder}/tls.key"
                found = {entry["metadata"]["name"]: entry["data"] for entry in self.of_kind("Secret")}
                return found.get(volume["secret"]["secretName"], True)
        return False

    def service(self) -> Object:
        (service,) = self.of_kind("Service")
        spec = {"type": "ClusterIP", **service["spec"]}
        return {
            "annotations": service["metadata"].get("annotations"),
            "port": spec["ports"][0]["port"],
            **{key: spec.get(key) for key in ("type", "clusterIP", "ipFamilies", "ipFamilyPolicy")},
        }

    def account(self) -> list[Any]:
        """The name of the pods' service account, and whatever the release says about it."""
        entries = self.of_kind("ServiceAccount")
        return [self.pod["serviceAccountName"]] + [
            (entry["metadata"].get("annotations"), entry["automountServiceAccountToken"]) for entry in entries
        ]

    def readers(self) -> dict[str, list[str]]:
        """The metrics that readers may read, by API group, and the kind of the auth reader's binding."""
        granted = {
            group: rule["resources"]
            for entry in self.of_kind("ClusterRole")
            for rule in entry.get("rules", [])
            for group in rule["apiGroups"]
            if group.endswith("custom.metrics.k8s.io")
        }
        kinds = [entry["kind"] for entry in self.objects if entry.get("roleRef", {}).get("name") == _AUTH_READER]
        return {**granted, "auth reader": kinds}

    def budget(self) -> list[Object]:
        keys = ("minAvailable", "maxUnavailable")
        return [
            {key: entry["spec"][key] for key in keys if key in entry["spec"]}
            for entry in self.of_kind("PodDisruptionBudget")
        ]


def _added(entries: list[Object]) -> list[Object]:
    return [entry for entry in entries if entry["name"] not in _OWN_VOLUMES]


def _metadata(rendered: Rendered, part: str, values: dict[str, Any]) -> list[bool]:
    """Whether each object, except those of extraManifests, has the labels or annotations."""
    return [
        values.items() <= entry["metadata"].get(part, {}).items()
        for entry in rendered.objects
        if "app.kubernetes.io/name" in entry["metadata"].get("labels", {})
    ]


# By value, what both charts must render alike: from the objects, and the value in the file.
EFFECTS: Final[dict[str, Callable[[Rendered, Any], Any]]] = {
    "affinity": lambda rendered, value: rendered.pod["affinity"],
    "automountServiceAccountToken": lambda rendered, value: rendered.pod["automountServiceAccountToken"],
    "certManager": lambda rendered, value: rendered.certificates(),
    "customAnnotations": lambda rendered, value: all(_metadata(rendered, "annotations", value)),
    "customLabels": lambda rendered, value: all(_metadata(rendered, "labels", value)),
    "deploymentAnnotations": lambda rendered, value: (
        value.items() <= rendered.deployment["metadata"]["annotations"].items()
    ),
    "dnsConfig": lambda rendered, value: rendered.pod["dnsConfig"],
    "dnsPolicy": lambda rendered, value: rendered.pod["dnsPolicy"],
    "env": lambda rendered, value: rendered.container["env"],
    "extraArguments": lambda rendered, value: rendered.container["args"][-len(value) :],
    "extraContainers": lambda rendered, value: [each for each in rendered.pod["containers"] if each in value],
    "extraManifests": lambda rendered, value: [
        entry for entry in rendered.objects if entry["metadata"]["name"] in [each["metadata"]["name"] for each in value]
    ],
    "extraVolumeMounts": lambda rendered, value: _added(rendered.container["volumeMounts"]),
    "extraVolumes": lambda rendered, value: _added(rendered.pod["volumes"]),
    "fullnameOverride": lambda rendered, value: rendered.deployment["metadata"]["name"].startswith(value),
    "hostNetwork": lambda rendered, value: rendered.pod.get("hostNetwork"),
    "image": lambda rendered, value: [
        rendered.container["image"],
        rendered.container["imagePullPolicy"],
        rendered.pod["imagePullSecrets"],
    ],
    "listenPort": lambda rendered, value: [
        rendered.flags["--secure-port"],
        next(port["containerPort"] for port in rendered.container["ports"] if port["name"] == "https"),
    ],
    "livenessProbe": lambda rendered, value: value.items() <= rendered.container["livenessProbe"].items(),
    "logLevel": lambda rendered, value: rendered.flags["--v"],
    "metricsRelistInterval": lambda rendered, value: rendered.flags["--metrics-relist-interval"],
    "nameOverride": lambda rendered, value: rendered.template["metadata"]["labels"]["app.kubernetes.io/name"],
    "namespaceOverride": lambda rendered, value: rendered.deployment["metadata"]["namespace"],
    "nodeSelector": lambda rendered, value: value.items() <= rendered.pod["nodeSelector"].items(),
    "podAnnotations": lambda rendered, value: value.items() <= rendered.template["metadata"]["annotations"].items(),
    "podDisruptionBudget": lambda rendered, value: rendered.budget(),
    "podLabels": lambda rendered, value: value.items() <= rendered.template["metadata"]["labels"].items(),
    "podSecurityContext": lambda rendered, value: value.items() <= rendered.pod["securityContext"].items(),
    "priorityClassName": lambda rendered, value: rendered.pod["priorityClassName"],
    "prometheus": lambda rendered, value: rendered.flags["--prometheus-url"],
    "rbac": lambda rendered, value: rendered.readers(),
    "readinessProbe": lambda rendered, value: value.items() <= rendered.container["readinessProbe"].items(),
    "replicas": lambda rendered, value: rendered.deployment["spec"]["replicas"],
    "resources": lambda rendered, value: rendered.container["resources"],
    "revisionHistoryLimit": lambda rendered, value: rendered.deployment["spec"]["revisionHistoryLimit"],
    "rules": lambda rendered, value: [rendered.rules(), rendered.registered()],
    "securityContext": lambda rendered, value: value.items() <= rendered.container["securityContext"].items(),
    "service": lambda rendered, value: rendered.service(),
    "serviceAccount": lambda rendered, value: [
        rendered.account()[0] == value.get("name"),
        [annotations for annotations, _ in rendered.account()[1:]],
    ],
    "startupProbe": lambda rendered, value: rendered.container["startupProbe"],
    "strategy": lambda rendered, value: rendered.deployment["spec"]["strategy"],
    "tls": lambda rendered, value: [rendered.serving_secret(), rendered.registered()],
    "tolerations": lambda rendered, value: rendered.pod["tolerations"],
    "topologySpreadConstraints": lambda rendered, value: rendered.pod["topologySpreadConstraints"],
}
