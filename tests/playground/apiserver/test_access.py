"""Authentication with certificates and tokens, authorization with RBAC, and reviews."""

import datetime
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kube.api.client import KubeClient
from kube.api.status import StatusError
from playground.apiserver import PlaygroundApiServer
from playground.apiserver.identity import User
from playground.apiserver.rbac import Access, RbacAuthorizer
from playground.apiserver.requests import RequestInfo

RBAC = "rbac.authorization.k8s.io/v1"
PODS = "/api/v1/namespaces/default/pods"


def role(server: PlaygroundApiServer, *rules: dict[str, Any], namespace: str = "", user: str = "ann") -> None:
    """Create a role with these rules, bound to a user: in the cluster, or in a namespace."""
    kind = "Role" if namespace else "ClusterRole"
    metadata = {"name": "r", **({"namespace": namespace} if namespace else {})}
    server.create({"apiVersion": RBAC, "kind": kind, "metadata": metadata, "rules": list(rules)})
    server.create(
        {
            "apiVersion": RBAC,
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "r"},
            "subjects": [{"kind": "User", "name": user}],
        }
    )


def rule(verbs: str, groups: str, resources: str, *names: str) -> dict[str, Any]:
    split = {"verbs": verbs.split(), "apiGroups": [group.strip("'") for group in groups.split()]}
    return {**split, "resources": resources.split(), **({"resourceNames": list(names)} if names else {})}


SCALE = Access("update", group="apps", resource="deployments", subresource="scale", namespace="default", name="web")
POD = Access("get", resource="pods", namespace="default", name="p")
METRIC = Access("get", "custom.metrics.k8s.io", "pods", "packets_per_second", namespace="default", name="*")


@pytest.mark.parametrize(
    ("given", "wanted", "allowed"),
    [
        (rule("get", "''", "pods"), POD, True),
        (rule("list", "''", "pods"), POD, False),
        (rule("*", "''", "pods"), POD, True),
        (rule("get", "apps", "pods"), POD, False),
        (rule("get", "*", "*"), POD, True),
        (rule("get", "''", "pods", "p"), POD, True),
        (rule("get", "''", "pods", "other"), POD, False),
        (rule("update", "apps", "deployments"), SCALE, False),
        (rule("update", "apps", "deployments/scale"), SCALE, True),
        (rule("update", "*", "*/scale"), SCALE, True),
        (rule("update", "*", "*/status"), SCALE, False),
        (rule("get", "custom.metrics.k8s.io", "pods"), METRIC, False),
        (rule("get", "custom.metrics.k8s.io", "pods/packets_per_second"), METRIC, True),
        (rule("get", "custom.metrics.k8s.io", "*"), METRIC, True),
        ({"verbs": ["get"], "nonResourceURLs": ["/metrics"]}, Access("get", path="/metrics"), True),
        ({"verbs": ["get"], "nonResourceURLs": ["/logs/*"]}, Access("get", path="/logs/a/b"), True),
        ({"verbs": ["get"], "nonResourceURLs": ["/logs/*"]}, Access("get", path="/metrics"), False),
        (rule("get", "*", "*"), Access("get", path="/metrics"), False),
    ],
)
async def test_rules_allow_as_in_kubernetes(
    server: PlaygroundApiServer, given: dict[str, Any], wanted: Access, allowed: bool
) -> None:
    role(server, given)
    assert RbacAuthorizer(server.storage).allowed(User("ann"), wanted) is allowed
    assert not RbacAuthorizer(server.storage).allowed(User("bob"), wanted)


async def test_role_is_limited_to_its_namespace(server: PlaygroundApiServer) -> None:
    role(server, rule("get", "''", "pods"), namespace="default")
    authorizer = RbacAuthorizer(server.storage)
    assert authorizer.allowed(User("ann"), POD)
    assert not authorizer.allowed(User("ann"), Access("get", resource="pods", namespace="kube-system", name="p"))
    assert not authorizer.allowed(User("ann"), Access("list", resource="pods"))


async def test_cluster_roles_aggregate(server: PlaygroundApiServer) -> None:
    label = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    server.create(
        {
            "apiVersion": RBAC,
            "kind": "ClusterRole",
            "metadata": {"name": "metrics-reader", "labels": label},
            "rules": [rule("get", "custom.metrics.k8s.io", "*")],
        }
    )
    server.create(
        {
            "apiVersion": RBAC,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "ann-views"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "ann"}],
        }
    )
    authorizer = RbacAuthorizer(server.storage)
    assert authorizer.allowed(User("ann"), METRIC)
    assert authorizer.allowed(User("ann"), POD)
    assert not authorizer.allowed(User("ann"), SCALE)


async def test_role_of_the_hpa_controller_exists(server: PlaygroundApiServer) -> None:
    controller = User("system:serviceaccount:kube-system:horizontal-pod-autoscaler")
    authorizer = RbacAuthorizer(server.storage)
    assert authorizer.allowed(controller, SCALE)
    assert authorizer.allowed(controller, METRIC)
    assert not authorizer.allowed(controller, Access("delete", resource="pods", namespace="default", name="p"))


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/v1/pods", ("list", "", "pods", "", "", "")),
        ("GET", "/api/v1/namespaces/ns/pods?watch=true", ("watch", "", "pods", "", "ns", "")),
        ("GET", "/api/v1/namespaces/ns/pods/web-0?watch=true", ("get", "", "pods", "", "ns", "web-0")),
        ("GET", "/api/v1/namespaces/ns/pods?fieldSelector=metadata.name%3Dp", ("list", "", "pods", "", "ns", "p")),
        ("DELETE", "/api/v1/namespaces/ns/pods", ("deletecollection", "", "pods", "", "ns", "")),
        ("GET", "/api/v1/namespaces/ns", ("get", "", "namespaces", "", "ns", "ns")),
        ("PUT", "/api/v1/namespaces/ns/status", ("update", "", "namespaces", "status", "ns", "ns")),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/ns/deployments/d/scale",
            ("patch", "apps", "deployments", "scale", "ns", "d"),
        ),
        (
            "GET",
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns/pods/%2A/pps",
            ("get", "custom.metrics.k8s.io", "pods", "pps", "ns", "*"),
        ),
        (
            "GET",
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/ns/queue_depth",
            ("list", "external.metrics.k8s.io", "queue_depth", "", "ns", ""),
        ),
    ],
)
def test_requests_are_parsed_as_in_kubernetes(method: str, path: str, expected: tuple[str, ...]) -> None:
    raw_path, _, query = path.partition("?")
    parameters = dict(pair.split("=", 1) for pair in query.replace("%3D", "=").split("&") if pair)
    info = RequestInfo.parse(method, raw_path, parameters)
    assert (info.verb, info.group, info.resource, info.subresource, info.namespace, info.name) == expected


async def test_forbidden_messages_are_those_of_kubernetes(server: PlaygroundApiServer) -> None:
    async with await KubeClient.connect(server.kubeconfig("ann", [])) as ann:
        with pytest.raises(StatusError) as refusal:
            await ann.get(PODS)
        assert (refusal.value.code, refusal.value.reason) == (403, "Forbidden")
        assert refusal.value.message == (
            'pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "default"'
        )
        with pytest.raises(StatusError) as refusal:
            await ann.get("/apis/apps/v1/namespaces/default/deployments/web/scale")
        assert refusal.value.message == (
            'deployments.apps "web" is forbidden: User "ann" cannot get resource "deployments/scale" '
            'in API group "apps" in the namespace "default"'
        )
        with pytest.raises(StatusError, match=r'nodes is forbidden: .* API group "" at the cluster scope$'):
            await ann.get("/api/v1/nodes")
        with pytest.raises(StatusError, match=r'^forbidden: User "ann" cannot get path "/metrics"$'):
            await ann.get("/metrics")


async def test_token_is_valid_until_its_service_account_is_deleted(
    admin: KubeClient, server: PlaygroundApiServer
) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await admin.post(accounts, {"metadata": {"name": "robot"}})
    token = server.token("default", "robot")
    review = {"spec": {"token": token}}
    response = await admin.post("/apis/authentication.k8s.io/v1/tokenreviews", review)
    assert response["status"]["authenticated"]
    assert response["status"]["user"]["username"] == "system:serviceaccount:default:robot"
    assert "system:serviceaccounts:default" in response["status"]["user"]["groups"]
    async with await KubeClient.connect(server.pki.kubeconfig(server.url, "robot", token=token)) as robot:
        await robot.get("/version")
        await admin.delete(f"{accounts}/robot")
        with pytest.raises(StatusError) as refusal:
            await robot.get("/version")
    assert refusal.value.code == 401
    response = await admin.post("/apis/authentication.k8s.io/v1/tokenreviews", review)
    assert not response["status"].get("authenticated")


async def test_token_requests_have_audiences(admin: KubeClient) -> None:
    await admin.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    path = "/api/v1/namespaces/default/serviceaccounts/robot/token"
    response = await admin.post(path, {"spec": {"audiences": ["adapter"], "expirationSeconds": 600}})
    token = response["status"]["token"]
    reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
    assert not (await admin.post(reviews, {"spec": {"token": token}}))["status"].get("authenticated")
    response = await admin.post(reviews, {"spec": {"token": token, "audiences": ["adapter"]}})
    assert response["status"]["audiences"] == ["adapter"]


@pytest.mark.parametrize("token", ["nonsense", "a.b.c", "", "é.é.é"])
async def test_unknown_tokens_are_invalid(admin: KubeClient, token: str) -> None:
    response = await admin.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}})
    assert response["status"] == {"user": {}, "error": "invalid bearer token"}


async def test_subject_access_reviews_use_the_stored_roles(admin: KubeClient, server: PlaygroundApiServer) -> None:
    role(server, rule("get", "''", "pods"), namespace="default")
    wanted = {"namespace": "default", "verb": "get", "resource": "pods", "name": "p"}
    reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    for user, allowed in (("ann", True), ("bob", False)):
        review = {"spec": {"user": user, "resourceAttributes": wanted}}
        assert (await admin.post(reviews, review))["status"] == {"allowed": allowed}
    async with await KubeClient.connect(server.kubeconfig("ann", [])) as ann:
        with pytest.raises(StatusError, match='cannot create resource "subjectaccessreviews"'):
            await ann.post(reviews, review)


async def test_requests_are_counted_by_user_verb_and_resource(admin: KubeClient, server: PlaygroundApiServer) -> None:
    await admin.get(PODS)
    await admin.get(PODS)
    with pytest.raises(StatusError):
        await admin.get("/apis/apps/v1/namespaces/default/deployments/web/scale")
    assert server.requests.of("list", "pods", user="admin") == 2
    assert server.requests.of("list", "pods", user="ann") == 0
    assert server.requests.by_user("admin")["get", "deployments/scale"] == 1
    server.requests.clear()
    assert server.requests.of("list", "pods") == 0


async def test_token_expires(tmp_path: Path) -> None:
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    async with PlaygroundApiServer(tmp_path, now=lambda: now) as server:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
        server.create(account)
        token = server.token("default", "robot", seconds=60)
        async with await KubeClient.connect(server.pki.kubeconfig(server.url, "robot", token=token)) as robot:
            await robot.get("/version")
            now += datetime.timedelta(seconds=60)
            with pytest.raises(StatusError) as refusal:
                await robot.get("/version")
    assert refusal.value.code == 401


@pytest.mark.parametrize("spec", [{}, {"user": "ann"}])
async def test_review_without_attributes_is_refused(admin: KubeClient, spec: dict[str, Any]) -> None:
    with pytest.raises(StatusError) as refusal:
        await admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
    assert refusal.value.code == 400


async def test_requests_without_credentials_are_anonymous(server: PlaygroundApiServer) -> None:
    context = ssl.create_default_context(cafile=str(server.pki.serving_ca_file))
    async with aiohttp.ClientSession(server.url, connector=aiohttp.TCPConnector(ssl=context)) as nobody:
        assert (await nobody.get("/version")).status == 200
        refused = await nobody.get("/api/v1/pods")
        assert refused.status == 403
        assert 'User "system:anonymous"' in (await refused.json())["message"]
        assert (await nobody.get("/version", headers={"Authorization": "Basic eDp5"})).status == 401
