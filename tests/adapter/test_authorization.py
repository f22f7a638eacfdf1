"""Authorization: the reviews sent to the API server, the cache of decisions, and the messages of refusals."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kube.api.client import KubeClient
from kube.api.status import StatusError
from kube.security.authentication import User
from kube.security.authorization import AuthorizationOptions, Authorizer
from kube.security.request_info import RequestInfo, Target
from tests.adapter.serving import EXTERNAL_PATH, POD_PATH, ServedAdapter
from tests.kube.access_api import AccessApi, Authorities
from tests.kube.scripted import connected, respond, scripted_server

BOB = User("bob", ("system:authenticated",))
ALICE = User("alice", ("system:authenticated",))
POD = {
    "verb": "get",
    "group": "custom.metrics.k8s.io",
    "version": "v1beta2",
    "namespace": "ns-1",
    "resource": "pods",
    "subresource": "http_packets_per_second",
    "name": "pod-1-0",
}
QUEUE_DEPTH = {"group": "external.metrics.k8s.io", "version": "v1beta1", "namespace": "ns-1", "resource": "queue_depth"}


def without(attributes: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in attributes.items() if key != name}


def info(path: str, method: str = "GET") -> RequestInfo:
    return RequestInfo.of(method, Target.parse(path))


@pytest.fixture
async def access(tmp_path: Path) -> AsyncIterator[tuple[AccessApi, KubeClient]]:
    """An API server that reviews access, and a client of it."""
    async with scripted_server() as server, connected(server, tmp_path) as client:
        api = AccessApi(Authorities())
        api.script(server)
        yield api, client


@pytest.mark.parametrize(
    ("method", "path", "attributes"),
    [
        ("GET", POD_PATH, POD),
        ("POST", POD_PATH, {**POD, "verb": "create"}),
        (
            "GET",
            "/apis/custom.metrics.k8s.io/v1beta1/namespaces/ns-1/ingresses.networking.k8s.io/%2A/hits",
            {
                **POD,
                "version": "v1beta1",
                "resource": "ingresses.networking.k8s.io",
                "subresource": "hits",
                "name": "*",
            },
        ),
        (
            "GET",
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns-1/metrics/m",
            without(POD, "subresource") | {"resource": "metrics", "name": "m"},
        ),
        (
            "GET",
            "/apis/custom.metrics.k8s.io/v1beta2/nodes/node-1/load",
            without(POD, "namespace") | {"resource": "nodes", "subresource": "load", "name": "node-1"},
        ),
        ("GET", EXTERNAL_PATH, {"verb": "list", **QUEUE_DEPTH}),
        *(
            (method, EXTERNAL_PATH + query, {"verb": verb, **QUEUE_DEPTH})
            for method, query, verb in (
                ("DELETE", "", "deletecollection"),
                ("GET", "?watch=1", "watch"),
                ("GET", "?watch=T", "watch"),
                ("GET", "?watch=True", "watch"),
                ("GET", "?watch=0", "list"),
            )
        ),
        *(
            ("GET", f"{EXTERNAL_PATH}?fieldSelector={selector}", {"verb": "list", **QUEUE_DEPTH, **name})
            for selector, name in (
                ("metadata.name%3Dmain", {"name": "main"}),
                ("metadata.namespace%3Dns-1%2Cmetadata.name%3D%3Dmain", {"name": "main"}),
                ("metadata.name%21%3Dmain", {}),
                ("metadata.name%3D", {}),
                ("metadata.name%3D..", {}),
                ("metadata.name%3Da%2Fb", {}),
                ("metadata.name", {}),
            )
        ),
    ],
)
async def test_resource_request_is_reviewed(
    access: tuple[AccessApi, KubeClient], method: str, path: str, attributes: dict[str, str]
) -> None:
    api, client = access
    await Authorizer(client, AuthorizationOptions()).authorize(BOB, info(path, method))
    (review,) = api.reviews
    assert review["spec"]["resourceAttributes"] == attributes


async def test_non_resource_request_is_reviewed_by_its_path(access: tuple[AccessApi, KubeClient]) -> None:
    api, client = access
    user = User("bob", ("a", "b"), uid="7", extra=(("scopes", ("x", "y")),))
    await Authorizer(client, AuthorizationOptions()).authorize(user, info("/apis/custom.metrics.k8s.io/v1beta1"))
    (review,) = api.reviews
    assert review["kind"] == "SubjectAccessReview"
    assert review["spec"] == {
        "user": "bob",
        "groups": ["a", "b"],
        "uid": "7",
        "extra": {"scopes": ["x", "y"]},
        "nonResourceAttributes": {"path": "/apis/custom.metrics.k8s.io/v1beta1", "verb": "get"},
    }


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
async def test_the_verb_of_another_request_is_its_method(access: tuple[AccessApi, KubeClient], method: str) -> None:
    api, client = access
    await Authorizer(client, AuthorizationOptions()).authorize(BOB, info("/metrics", method))
    (review,) = api.reviews
    assert review["spec"]["nonResourceAttributes"] == {"path": "/metrics", "verb": method.lower()}


async def test_user_named_like_the_privileged_group_is_reviewed(access: tuple[AccessApi, KubeClient]) -> None:
    api, client = access
    with pytest.raises(StatusError, match="forbidden"):
        await Authorizer(client, AuthorizationOptions()).authorize(User("system:masters"), info("/metrics"))
    assert len(api.reviews) == 1


IN_NS_1 = 'in API group "custom.metrics.k8s.io" in the namespace "ns-1"'


@pytest.mark.parametrize(
    ("path", "method", "message", "details"),
    [
        *(
            (
                POD_PATH,
                method,
                (
                    f'pods.custom.metrics.k8s.io "pod-1-0" is forbidden: User "alice" cannot {verb} resource'
                    f' "pods/http_packets_per_second" {IN_NS_1}'
                ),
                {"name": "pod-1-0", "group": "custom.metrics.k8s.io", "kind": "pods"},
            )
            for method, verb in (("GET", "get"), ("POST", "create"))
        ),
        (
            EXTERNAL_PATH,
            "GET",
            (
                'queue_depth.external.metrics.k8s.io is forbidden: User "alice" cannot list resource "queue_depth"'
                ' in API group "external.metrics.k8s.io" in the namespace "ns-1"'
            ),
            {"group": "external.metrics.k8s.io", "kind": "queue_depth"},
        ),
        (
            "/apis/custom.metrics.k8s.io/v1beta2/nodes/node-1/load",
            "GET",
            (
                'nodes.custom.metrics.k8s.io "node-1" is forbidden: User "alice" cannot get resource "nodes/load"'
                ' in API group "custom.metrics.k8s.io" at the cluster scope'
            ),
            {"name": "node-1", "group": "custom.metrics.k8s.io", "kind": "nodes"},
        ),
        *((path, "GET", f'forbidden: User "alice" cannot get path "{path}"', {}) for path in ("/metrics", "/")),
    ],
)
async def test_refusal_in_the_words_of_kubernetes(
    access: tuple[AccessApi, KubeClient], path: str, method: str, message: str, details: dict[str, str]
) -> None:
    _, client = access
    with pytest.raises(StatusError) as refused:
        await Authorizer(client, AuthorizationOptions()).authorize(ALICE, info(path, method))
    assert (refused.value.code, refused.value.reason, refused.value.message) == (403, "Forbidden", message)
    assert refused.value.body()["details"] == details


async def test_reason_of_the_api_server_is_passed_on(access: tuple[AccessApi, KubeClient]) -> None:
    api, client = access
    api.reason = "not on Fridays"
    with pytest.raises(StatusError, match='cannot get path "/metrics": not on Fridays'):
        await Authorizer(client, AuthorizationOptions()).authorize(ALICE, info("/metrics"))


async def test_decisions_are_cached_for_their_ttl(access: tuple[AccessApi, KubeClient]) -> None:
    now = 0.0
    api, client = access
    options = AuthorizationOptions(authorized_ttl=10.0, unauthorized_ttl=3.0)
    authorizer = Authorizer(client, options, clock=lambda: now)

    async def new_reviews(user: User, path: str) -> int:
        before = len(api.reviews)
        with contextlib.suppress(StatusError) if user is ALICE else contextlib.nullcontext():
            await authorizer.authorize(user, info(path))
        return len(api.reviews) - before

    four = [(user, path) for user in (BOB, ALICE) for path in (POD_PATH, "/metrics")]
    assert [await new_reviews(*one) for one in four] == [1, 1, 1, 1]
    now = 2.9
    assert [await new_reviews(*one) for one in four] == [0, 0, 0, 0]
    now = 3.1
    assert [await new_reviews(BOB, POD_PATH), await new_reviews(ALICE, POD_PATH)] == [0, 1]
    now = 10.1
    assert await new_reviews(BOB, POD_PATH) == 1


async def test_attributes_are_not_confused_in_memory(access: tuple[AccessApi, KubeClient]) -> None:
    """Each request differs from the first in one attribute, and needs its own review."""
    api, client = access
    api.allowed = lambda spec: True
    authorizer = Authorizer(client, AuthorizationOptions())
    questions: list[tuple[User, str, str]] = [
        (BOB, "GET", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/pods/p/m"),
        (ALICE, "GET", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/pods/p/m"),
        (User("bob", ("other",)), "GET", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/pods/p/m"),
        (BOB, "PUT", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/pods/p/m"),
        (BOB, "GET", "/apis/custom.metrics.k8s.io/v1beta1/namespaces/a/pods/p/m"),
        (BOB, "GET", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/b/pods/p/m"),
        (BOB, "GET", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/jobs/p/m"),
        (BOB, "GET", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/pods/q/m"),
        (BOB, "GET", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/pods/p/n"),
        (BOB, "GET", "/apis/custom.metrics.k8s.io/v1beta2/pods/p/m"),
    ]
    for user, method, path in questions:
        await authorizer.authorize(user, info(path, method))
    assert len(api.reviews) == len(questions)


@pytest.mark.parametrize("refuse_with", [403, 500])
async def test_refused_review_allows_nothing(access: tuple[AccessApi, KubeClient], refuse_with: int) -> None:
    api, client = access
    api.refuse_with = refuse_with
    with pytest.raises(StatusError, match="access cannot be checked") as refused:
        await Authorizer(client, AuthorizationOptions()).authorize(BOB, info(POD_PATH))
    assert refused.value.code == 500


async def test_refused_reviews_are_logged_every_ten_seconds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        api, now = AccessApi(Authorities()), [0.0]
        api.script(server)
        api.refuse_with = 403
        authorizer = Authorizer(client, AuthorizationOptions(), clock=lambda: now[0])
        for seconds in (0.0, 1.0, 9.9, 10.0):
            now[0] = seconds
            with pytest.raises(StatusError):
                await authorizer.authorize(BOB, info(POD_PATH))
    assert len([text for text in caplog.messages if "refused a SubjectAccessReview" in text]) == 2


async def test_unavailable_api_server_denies_everything(tmp_path: Path) -> None:
    async with scripted_server() as server:
        kubeconfig = server.kubeconfig(tmp_path)
    async with await KubeClient.connect(kubeconfig) as client:
        with pytest.raises(StatusError, match="access cannot be checked now") as refused:
            await Authorizer(client, AuthorizationOptions()).authorize(BOB, info(POD_PATH))
        assert refused.value.code == 503


@pytest.mark.parametrize("status", [None, {}, {"allowed": "yes"}, {"allowed": 1}, [], "allowed"])
async def test_malformed_review_allows_nothing(tmp_path: Path, status: Any) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers["/apis/authorization.k8s.io/v1/subjectaccessreviews"] = respond({"status": status})
        with pytest.raises(StatusError):
            await Authorizer(client, AuthorizationOptions()).authorize(BOB, info(POD_PATH))


async def test_masters_and_open_paths_need_no_asking(new_adapter: ServedAdapter) -> None:
    new_adapter.api.refuse_with = 500
    assert (await new_adapter.request_as_master(POD_PATH)).status == 200
    for path in ("/healthz", "/livez", "/readyz", "/readyz?verbose"):
        assert (await new_adapter.request(path)).status == 200
    assert new_adapter.api.reviews == []


async def test_an_anonymous_client_gets_no_paths_below_the_health_checks(new_adapter: ServedAdapter) -> None:
    """As of kube-apiserver: what lists the paths, and single checks, need a right."""
    for path in ("/healthz/nosuch", "/livez/", "/readyz/ping", "/"):
        response = await new_adapter.request(path)
        assert response.status == 403
        assert "paths" not in response.json


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/metrics", True), ("/open/", True), ("/open/door", True), ("/metrics/", False), ("/opened", False)],
)
def test_paths_that_are_always_allowed(path: str, *, allowed: bool) -> None:
    options = AuthorizationOptions(always_allow_paths=("/metrics", "/open/*"))
    authorizer = Authorizer(client=None, options=options)  # type: ignore[arg-type]  # no review is sent
    assert authorizer.always_allows(path) is allowed
