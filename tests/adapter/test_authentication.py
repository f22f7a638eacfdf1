"""Authentication over real TLS, with the CAs that the API server publishes."""

import asyncio
import datetime
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kube.api.status import StatusError
from kube.security.authentication import Authenticator, RawHeaders, TokenReviewer, User
from kube.security.authorization import AuthorizationOptions
from kube.security.trust import CertificateBundle, ClientTrust, FrontProxy, TrustOptions
from playground.certs import CertificateAuthority, KeyPair
from tests.adapter.serving import POD_PATH, ServedAdapter, served_adapter
from tests.eventually import eventually
from tests.kube.access_api import FRONT_PROXY, Authorities
from tests.kube.scripted import connected, respond, scripted_server

UNAUTHORIZED = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "Unauthorized",
    "reason": "Unauthorized",
    "code": 401,
}


def spec_of(adapter: ServedAdapter) -> dict[str, object]:
    """The user of the one access review that there was."""
    (review,) = [review for review in adapter.api.reviews if review["kind"] == "SubjectAccessReview"]
    spec: dict[str, object] = review["spec"]
    return spec


async def test_front_proxy_headers_name_the_user(new_adapter: ServedAdapter) -> None:
    reply = await new_adapter.request(
        POD_PATH,
        certificate=new_adapter.authorities.front_proxy.issue(FRONT_PROXY, client=True),
        headers=[
            ("X-Remote-User", "bob"),
            ("X-Remote-Group", "devs"),
            ("X-Remote-Group", "system:authenticated"),
            ("X-Remote-Extra-Scopes%2ferp", "read"),
        ],
    )
    assert reply.status == 200
    spec = spec_of(new_adapter)
    assert spec["user"] == "bob"
    assert spec["groups"] == ["devs", "system:authenticated"]
    assert spec["extra"] == {"scopes/erp": ["read"]}


async def test_authorities_may_have_the_same_name(tmp_path: Path) -> None:
    twins = Authorities(
        front_proxy=CertificateAuthority.create("kubernetes"), clients=CertificateAuthority.create("kubernetes")
    )
    async with served_adapter(tmp_path, authorities=twins) as adapter:
        headers = {"X-Remote-User": "bob"}
        proxy = twins.front_proxy.issue(FRONT_PROXY, client=True)
        assert (await adapter.request(POD_PATH, certificate=proxy, headers=headers)).status == 200
        # The client CA issues certificates for all users; these must not be able to impersonate others.
        client = twins.clients.issue(FRONT_PROXY, client=True)
        reply = await adapter.request(POD_PATH, certificate=client, headers=headers)
        assert reply.status == 403
        assert f'User "{FRONT_PROXY}" cannot get' in reply.json["message"]


async def test_front_proxy_without_a_user_is_nobody(new_adapter: ServedAdapter) -> None:
    proxy = new_adapter.authorities.front_proxy.issue(FRONT_PROXY, client=True)
    reply = await new_adapter.request(POD_PATH, certificate=proxy)
    assert (reply.status, reply.json) == (401, UNAUTHORIZED)


async def test_an_empty_group_is_no_group(new_adapter: ServedAdapter) -> None:
    proxy = new_adapter.authorities.front_proxy.issue(FRONT_PROXY, client=True)
    headers = {"X-Remote-User": "bob", "X-Remote-Group": ""}
    assert (await new_adapter.request(POD_PATH, certificate=proxy, headers=headers)).status == 200
    assert spec_of(new_adapter)["groups"] == ["system:authenticated"]


async def test_front_proxy_authority_with_a_name_that_is_not_allowed(new_adapter: ServedAdapter) -> None:
    stranger = new_adapter.authorities.front_proxy.issue("stranger", client=True)
    reply = await new_adapter.request(POD_PATH, certificate=stranger, headers={"X-Remote-User": "bob"})
    assert (reply.status, reply.json) == (401, UNAUTHORIZED)


async def test_any_name_is_allowed_where_none_is_listed(tmp_path: Path) -> None:
    async with served_adapter(tmp_path) as adapter:
        authority = tmp_path / "front-proxy-ca.crt"
        authority.write_bytes(adapter.authorities.front_proxy.cert_pem)
    async with served_adapter(
        tmp_path,
        authorities=adapter.authorities,
        trust=TrustOptions(requestheader_client_ca_file=authority, skip_lookup=True),
    ) as adapter:
        anyone = adapter.authorities.front_proxy.issue("anyone", client=True)
        assert (await adapter.request(POD_PATH, certificate=anyone, headers={"X-Remote-User": "bob"})).status == 200


async def test_impostor_authority_with_the_right_names_is_refused(new_adapter: ServedAdapter) -> None:
    impostor = new_adapter.authorities.impostor.issue(FRONT_PROXY, client=True)
    with pytest.raises((aiohttp.ClientError, ConnectionError)):
        await new_adapter.request(POD_PATH, certificate=impostor, headers={"X-Remote-User": "bob"})
    assert new_adapter.metrics.requests == []


async def test_expired_certificate_is_refused(new_adapter: ServedAdapter) -> None:
    expired = new_adapter.authorities.front_proxy.issue(FRONT_PROXY, client=True, days=-1)
    with pytest.raises((aiohttp.ClientError, ConnectionError)):
        await new_adapter.request(POD_PATH, certificate=expired, headers={"X-Remote-User": "bob"})
    assert new_adapter.metrics.requests == []


async def test_remote_user_header_means_nothing_without_a_certificate(new_adapter: ServedAdapter) -> None:
    reply = await new_adapter.request(POD_PATH, headers={"X-Remote-User": "bob", "X-Remote-Group": "system:masters"})
    assert reply.status == 403
    assert 'User "system:anonymous" cannot get' in reply.json["message"]
    assert spec_of(new_adapter)["groups"] == ["system:unauthenticated"]


async def test_remote_user_header_means_nothing_beside_a_bearer_token(new_adapter: ServedAdapter) -> None:
    new_adapter.api.tokens["secret"] = {"username": "alice", "groups": ["staff"], "uid": "7"}
    reply = await new_adapter.request(
        POD_PATH, headers={"Authorization": "Bearer secret", "X-Remote-User": "bob", "X-Remote-Group": "system:masters"}
    )
    assert reply.status == 403
    assert 'User "alice" cannot get' in reply.json["message"]
    spec = spec_of(new_adapter)
    assert (spec["groups"], spec["uid"]) == (["staff", "system:authenticated"], "7")


async def test_client_certificate_names_its_holder(new_adapter: ServedAdapter) -> None:
    bob = new_adapter.authorities.clients.issue("bob", organizations=["devs", "ops"], client=True)
    reply = await new_adapter.request(POD_PATH, certificate=bob, headers={"X-Remote-User": "root"})
    assert reply.status == 200
    spec = spec_of(new_adapter)
    assert (spec["user"], spec["groups"]) == ("bob", ["devs", "ops", "system:authenticated"])


async def test_bearer_token_of_nobody(new_adapter: ServedAdapter) -> None:
    reply = await new_adapter.request(POD_PATH, headers={"Authorization": "Bearer nonsense"})
    assert (reply.status, reply.json) == (401, UNAUTHORIZED)


async def test_all_fields_of_the_reviewed_user_are_authorized(new_adapter: ServedAdapter) -> None:
    new_adapter.api.tokens["secret"] = {"username": "bob", "groups": ["ops"], "extra": {"b": ["2", "3"], "a": ["1"]}}
    assert (await new_adapter.request(POD_PATH, headers={"Authorization": "Bearer secret"})).status == 200
    spec = spec_of(new_adapter)
    assert spec["groups"] == ["ops", "system:authenticated"]
    assert spec["extra"] == {"a": ["1"], "b": ["2", "3"]}


@pytest.mark.parametrize(
    "status",
    [
        None,
        {},
        {"authenticated": "true", "user": {"username": "bob"}},
        {"authenticated": False, "user": {"username": "bob"}},
        {"user": {"username": "bob"}},
        {"authenticated": True},
        {"authenticated": True, "user": {"username": ""}},
        {"authenticated": True, "user": {"username": 5}},
    ],
)
async def test_an_unclear_review_makes_a_token_nobodys(tmp_path: Path, status: object) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers["/apis/authentication.k8s.io/v1/tokenreviews"] = respond({"status": status})
        assert await TokenReviewer(client, ttl=10.0).review("secret") is None


async def test_bearer_token_is_reviewed_once_while_it_is_cached(new_adapter: ServedAdapter) -> None:
    new_adapter.api.tokens["secret"] = {"username": "bob"}
    for _ in range(3):
        assert (await new_adapter.request(POD_PATH, headers={"Authorization": "Bearer secret"})).status == 200
        assert (await new_adapter.request(POD_PATH, headers={"Authorization": "Bearer wrong"})).status == 401
    tokens = [review["spec"]["token"] for review in new_adapter.api.reviews if review["kind"] == "TokenReview"]
    assert tokens == ["secret", "wrong"]


async def test_bearer_token_is_reviewed_every_time_without_a_cache(tmp_path: Path) -> None:
    async with served_adapter(tmp_path, token_ttl=0.0) as adapter:
        adapter.api.tokens["secret"] = {"username": "bob"}
        assert (await adapter.request(POD_PATH, headers={"Authorization": "Bearer secret"})).status == 200
        del adapter.api.tokens["secret"]
        assert (await adapter.request(POD_PATH, headers={"Authorization": "Bearer secret"})).status == 401


async def test_bearer_token_that_cannot_be_reviewed_is_not_believed(new_adapter: ServedAdapter) -> None:
    new_adapter.api.refuse_with = 500
    reply = await new_adapter.request(POD_PATH, headers={"Authorization": "Bearer secret"})
    assert (reply.status, reply.json["reason"]) == (503, "ServiceUnavailable")
    assert new_adapter.metrics.requests == []


async def test_rotated_ca_replaces_the_old_one(new_adapter: ServedAdapter) -> None:
    """The connection with the old certificate stays open, but its requests are unauthenticated."""
    old = new_adapter.authorities.front_proxy.issue(FRONT_PROXY, client=True)
    connector = aiohttp.TCPConnector(ssl=new_adapter.client_context(old))
    async with aiohttp.ClientSession(connector=connector, headers={"X-Remote-User": "bob"}) as session:
        url = f"https://127.0.0.1:{new_adapter.port}{POD_PATH}"
        async with session.get(url) as response:
            assert response.status == 200
        new_adapter.authorities.front_proxy = new_adapter.authorities.impostor
        new_adapter.api.publish(new_adapter.authorities.config_map())

        async def refused() -> bool:
            async with session.get(url) as response:
                return response.status == 401

        await eventually(refused, within=5.0, every=0.01)
    new = new_adapter.authorities.front_proxy.issue(FRONT_PROXY, client=True)
    assert (await new_adapter.request(POD_PATH, certificate=new, headers={"X-Remote-User": "bob"})).status == 200


async def test_garbage_in_the_authorization_header_is_no_token(new_adapter: ServedAdapter) -> None:
    for header in ("Bearer", "Bearer  ", "Bearer  secret", "Basic Ym9iOmJvYg==", "\xff"):
        reply = await new_adapter.request(POD_PATH, headers={"Authorization": header})
        assert reply.status == 403, header
    assert [review["kind"] for review in new_adapter.api.reviews] == ["SubjectAccessReview"]


async def test_headers_and_names_are_those_that_are_published(new_adapter: ServedAdapter) -> None:
    new_adapter.api.publish(
        new_adapter.authorities.config_map()
        | {
            "requestheader-allowed-names": '["aggregator"]',
            "requestheader-username-headers": '["X-Who", "X-Else"]',
            "requestheader-group-headers": '["X-Whose"]',
            "requestheader-uid-headers": '["X-Number"]',
            "requestheader-extra-headers-prefix": '["X-More-"]',
        }
    )
    proxy = new_adapter.authorities.front_proxy.issue("aggregator", client=True)
    headers = {"X-Else": "bob", "X-Whose": "devs", "X-Number": "7", "X-More-Scope": "a", "X-Remote-User": "alice"}

    async def is_known() -> bool:
        return (await new_adapter.request(POD_PATH, certificate=proxy, headers=headers)).status == 200

    await eventually(is_known, within=5.0, every=0.01)
    (review,) = new_adapter.api.reviews
    assert (review["spec"]["user"], review["spec"]["uid"], review["spec"]["extra"]) == ("bob", "7", {"scope": ["a"]})
    former = new_adapter.authorities.front_proxy.issue(FRONT_PROXY, client=True)
    assert (await new_adapter.request(POD_PATH, certificate=former, headers=headers)).status == 401


async def test_header_names_are_not_normalized(new_adapter: ServedAdapter) -> None:
    """The first of two headers counts, an underscore is not a dash, and escaped characters are decoded."""
    reply = await new_adapter.request(
        POD_PATH,
        certificate=new_adapter.authorities.front_proxy.issue(FRONT_PROXY, client=True),
        headers=[
            ("X_Remote_User", "root"),
            ("X-Remote-User", "alice"),
            ("X-Remote-User", "bob"),
            ("X_Remote_Group", "system:masters"),
            ("X-Remote-Extra-Example.com%2fRoles%2FOf", "a"),
            ("X-Remote-Extra-Example.com%2fRoles%2FOf", "b"),
            ("X-Remote-Extra-100%", "c"),
        ],
    )
    assert reply.status == 403
    assert 'User "alice" cannot get' in reply.json["message"]
    spec = spec_of(new_adapter)
    assert spec["groups"] == ["system:authenticated"]
    assert spec["extra"] == {"example.com/roles/of": ["a", "b"], "100%": ["c"]}


async def test_front_proxy_headers_beside_its_own_bearer_token(new_adapter: ServedAdapter) -> None:
    """The certificate takes precedence: the token is not reviewed."""
    new_adapter.api.tokens["secret"] = {"username": "alice"}
    reply = await new_adapter.request(
        POD_PATH,
        certificate=new_adapter.authorities.front_proxy.issue(FRONT_PROXY, client=True),
        headers={"Authorization": "Bearer secret", "X-Remote-User": "bob"},
    )
    assert reply.status == 200
    assert [review["kind"] for review in new_adapter.api.reviews] == ["SubjectAccessReview"]


@pytest.mark.looptime
async def test_concurrent_reviews_of_one_token_are_one(tmp_path: Path) -> None:
    async with served_adapter(
        tmp_path, token_ttl=0.0, authorization=AuthorizationOptions(authorized_ttl=0.0)
    ) as adapter:
        adapter.api.tokens["secret"] = {"username": "bob"}
        adapter.api.hold = asyncio.Event()
        asking = [
            asyncio.create_task(adapter.request(POD_PATH, headers={"Authorization": "Bearer secret"}))
            for _ in range(20)
        ]
        leaving = asyncio.create_task(
            adapter.request(f"{POD_PATH}?timeout=50ms", headers={"Authorization": "Bearer secret"})
        )
        assert (await leaving).status == 504
        adapter.api.hold.set()
        assert {reply.status for reply in await asyncio.gather(*asking)} == {200}
        kinds = Counter(review["kind"] for review in adapter.api.reviews)
        assert kinds["TokenReview"] == 1
        assert kinds["SubjectAccessReview"] < 20


# --- the cache of verified certificates ------------------------------------------------------------------------------

SAYS_BOB = ((b"x-remote-user", b"bob"),)
HOUR = datetime.timedelta(hours=1)
NO_HEADERS: RawHeaders = ()
BOB = User("bob", ("system:authenticated",))


class Clock:
    """A wall clock that the test sets."""

    def __init__(self) -> None:
        self.now = datetime.datetime.now(datetime.UTC)

    def __call__(self) -> datetime.datetime:
        return self.now


def trusting(authorities: Authorities) -> ClientTrust:
    def bundle(authority: CertificateAuthority) -> CertificateBundle:
        return CertificateBundle.parse(authority.cert_pem.decode(), source="a test")

    proxy = FrontProxy(
        ca=bundle(authorities.front_proxy),
        allowed_names=frozenset({FRONT_PROXY}),
        username_headers=("X-Remote-User",),
        group_headers=("X-Remote-Group",),
        uid_headers=(),
        extra_prefixes=("X-Remote-Extra-",),
    )
    return ClientTrust(front_proxy=proxy, clients=bundle(authorities.clients))


async def named_by_proxy(authenticator: Authenticator, certificate: bytes, headers: RawHeaders) -> User | None:
    """Return the user of a request with this certificate and these headers; None if it is refused."""
    try:
        return await authenticator.authenticate(certificate, headers)
    except StatusError as error:
        if error.code != 401:
            raise
        return None


def der(pair: KeyPair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.cert_pem.decode())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authorities() -> Authorities:
    return Authorities()


@pytest.fixture
async def authenticator(tmp_path: Path, clock: Clock, authorities: Authorities) -> AsyncIterator[Authenticator]:
    trust = trusting(authorities)
    async with scripted_server() as server, connected(server, tmp_path) as client:
        yield Authenticator(lambda: trust, TokenReviewer(client, ttl=10.0), clock=lambda: clock().timestamp())


async def test_a_certificate_is_not_believed_past_its_end_because_it_was_believed_a_moment_before(
    authenticator: Authenticator, authorities: Authorities, clock: Clock
) -> None:
    proxy = authorities.front_proxy.issue(FRONT_PROXY, client=True, days=1)
    client = authorities.clients.issue("bob", client=True, days=1)
    ends = [x509.load_pem_x509_certificate(pair.cert_pem).not_valid_after_utc for pair in (proxy, client)]
    clock.now = min(ends) - datetime.timedelta(seconds=1)
    assert await named_by_proxy(authenticator, der(proxy), SAYS_BOB) == BOB
    assert await authenticator.authenticate(der(client), NO_HEADERS) == BOB

    clock.now = max(ends) + datetime.timedelta(seconds=1)
    assert await named_by_proxy(authenticator, der(proxy), SAYS_BOB) is None
    with pytest.raises(StatusError, match="Unauthorized"):
        await authenticator.authenticate(der(client), NO_HEADERS)


async def test_certificate_is_verified_again_if_the_clock_was_set_back(
    authenticator: Authenticator, authorities: Authorities, clock: Clock
) -> None:
    proxy = der(authorities.front_proxy.issue(FRONT_PROXY, client=True))
    assert await named_by_proxy(authenticator, proxy, SAYS_BOB) == BOB
    clock.now -= datetime.timedelta(days=2)
    assert await named_by_proxy(authenticator, proxy, SAYS_BOB) is None, "it is not valid yet"


async def test_anonymous_user_of_the_front_proxy_stays_unauthenticated(
    authenticator: Authenticator, authorities: Authorities
) -> None:
    proxy = der(authorities.front_proxy.issue(FRONT_PROXY, client=True))
    for name, group in (("system:anonymous", ""), ("system:anonymous", "others"), ("ann", "system:unauthenticated")):
        headers = ((b"x-remote-user", name.encode()), (b"x-remote-group", group.encode()))
        assert await named_by_proxy(authenticator, proxy, headers) == User(name, (group,) if group else ())


async def test_last_of_several_common_names_counts(authenticator: Authenticator, authorities: Authorities) -> None:
    """As in Go. Otherwise a certificate with the front proxy's name among several could pass."""
    now = datetime.datetime.now(datetime.UTC)

    def named(authority: CertificateAuthority, *names: str) -> bytes:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
        builder = x509.CertificateBuilder(authority.certificate.subject, subject, key.public_key(), 1)
        builder = builder.not_valid_before(now - HOUR).not_valid_after(now + HOUR)
        return builder.sign(authority.key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)

    last = named(authorities.clients, "ann", "bob")
    assert await authenticator.authenticate(last, NO_HEADERS) == BOB
    assert await named_by_proxy(authenticator, named(authorities.front_proxy, "stranger", FRONT_PROXY), SAYS_BOB) == BOB
    assert (
        await named_by_proxy(authenticator, named(authorities.front_proxy, FRONT_PROXY, "stranger"), SAYS_BOB) is None
    )


async def test_the_front_proxys_memory_knows_no_other_certificate(
    authenticator: Authenticator, authorities: Authorities
) -> None:
    proxy = der(authorities.front_proxy.issue(FRONT_PROXY, client=True))
    assert await named_by_proxy(authenticator, proxy, SAYS_BOB) == BOB
    for other in (
        authorities.front_proxy.issue("stranger", client=True),
        authorities.clients.issue(FRONT_PROXY, client=True),
        authorities.impostor.issue(FRONT_PROXY, client=True),
        authorities.front_proxy.issue(FRONT_PROXY, server=True),
    ):
        assert await named_by_proxy(authenticator, der(other), SAYS_BOB) != BOB
