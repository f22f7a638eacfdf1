"""The environment of the recording: the cluster, its users, Prometheus with the series, and the adapter.

milliscale is installed from its own manifests, with the rights that they give it. The objects are those of the
recording; no controller looks after them, so that they stay as they are.

The adapter first runs as it must for the recording, in which each request sends its own queries. `restart` puts one
with other flags in its place.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
from yarl import URL

from kube.api.client import KubeClient
from playground.apiserver import PlaygroundApiServer
from playground.apiserver.pki import KeyPairFiles, Pki
from playground.binaries import find_async
from playground.errors import PlaygroundError
from playground.install import Manifests, apply, write_account_kubeconfig
from playground.kube_apiserver import KubeApiServer, find_assets
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess
from playground.prometheus import PrometheusServer
from tests.golden.application import BIG_PODS, NAMESPACES, PODS, samples
from tests.golden.cases import Case
from tests.golden.prometheus_tap import InstantQuery, PrometheusTap

_ROOT: Final = Path(__file__).resolve().parents[2]
_RULES: Final = _ROOT / "tests" / "data" / "rules" / "packets.yaml"
# Each case has the queries that Prometheus gets.
_RECORDED_FLAGS: Final = {
    "metrics-relist-interval": "10s",
    # Prometheus' blocks end with every second hour, and gauges may begin later than ten seconds in the next.
    "metrics-max-age": "5m",
    "metrics-freshness": "0s",
}
_START_SECONDS: Final = 60.0
_REQUEST_SECONDS: Final = 30.0
_LATE_SECONDS: Final = 0.5
_POLL: Final = 0.1
_AT_A_TIME: Final = 16

_GROUPS: Final = {
    "admin": ("system:masters",),
    "hpa": ("system:serviceaccounts", "system:serviceaccounts:kube-system"),
}
_NAMES: Final = {"hpa": "system:serviceaccount:kube-system:horizontal-pod-autoscaler"}
_VERSIONS: Final = ("custom.metrics.k8s.io/v1beta1", "custom.metrics.k8s.io/v1beta2", "external.metrics.k8s.io/v1beta1")
_READER, _NOBODY = "reader", "nobody"
"""Service accounts of ns-1, with and without the right to read metrics."""

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """A response (still compressed), and the queries that Prometheus got for it."""

    status: int
    content_type: str
    encoding: str
    body: bytes
    queries: Sequence[InstantQuery]


@dataclass(slots=True)
class Environment:
    """The running environment."""

    is_real: bool
    """Whether a real kube-apiserver serves the API."""
    api_url: str
    """Where the API is."""
    adapter_url: str
    """Where the adapter is."""
    tap: PrometheusTap
    """Between the adapter and Prometheus."""
    adapter: ChildProcess
    """The process."""
    _folder: Path
    _places: Mapping[str, object]
    _pki: Pki
    _tokens: dict[str, str]
    _http: aiohttp.ClientSession
    _contexts: dict[tuple[str, str | None], ssl.SSLContext] = field(default_factory=dict)
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def restart(self, flags: Mapping[str, str]) -> None:
        """Start the adapter anew, with these flags beside those that say where everything is; {} for the defaults.

        Raises:
            PlaygroundError: it does not start; the message says why.
        """
        await self.adapter.stop()
        self.adapter = await _start_adapter(self._folder, {**self._places, **flags})
        await self.wait_ready()
        await self.wait_available()

    async def wait_ready(self) -> None:
        """Wait until the adapter is ready; PlaygroundError after a while."""
        await _until(self, "the adapter is not ready", "direct", "/readyz")

    async def wait_available(self) -> None:
        """Wait until the API server forwards requests to the adapter. Raise PlaygroundError after a while."""
        for version in _VERSIONS:
            await _until(self, f"{version} is not available", "aggregator", f"/apis/{version}")

    async def send(self, case: Case) -> Reply:
        """Send a case's request, with Prometheus failing as it did then.

        Raises:
            UnknownFaultError: it cannot be made to fail like this.
            OSError, aiohttp.ClientError, TimeoutError: there was no response.
        """
        await self.tap.fail(case.fault)
        self.tap.take()
        base = self.api_url if case.via == "aggregator" else self.adapter_url
        try:
            async with self._http.request(
                case.method,
                URL(base + case.path, encoded=True),
                headers=list(self._headers(case)),
                ssl=await self._context(case),
                allow_redirects=False,
            ) as response:
                body = await response.read()
                if "timeout" in case.query:
                    # If the API server responded itself, the cancelled query may still be on its way to Prometheus.
                    await asyncio.sleep(_LATE_SECONDS)
                return Reply(
                    status=response.status,
                    content_type=response.headers.get("Content-Type", ""),
                    encoding=response.headers.get("Content-Encoding", ""),
                    body=body,
                    queries=self.tap.take(),
                )
        finally:
            await self.tap.fail(None)

    def _headers(self, case: Case) -> Iterator[tuple[str, str]]:
        if case.header("Accept") is None and not case.title.startswith("Accept: None"):
            yield "Accept", "application/json"
        for name, value in case.headers:
            # The recording does not keep tokens; its titles say whose they were.
            if name == "Authorization" and value.startswith("Bearer eyJ"):
                yield name, f"Bearer {self._tokens[_NOBODY if 'without rights' in case.title else _READER]}"
            else:
                yield name, value

    async def _context(self, case: Case) -> ssl.SSLContext:
        key = (case.via, case.user)
        async with self._making:
            if key not in self._contexts:
                self._contexts[key] = await asyncio.to_thread(self._make_context, *key)
        return self._contexts[key]

    def _make_context(self, via: str, user: str | None) -> ssl.SSLContext:
        if via == "aggregator":
            context = ssl.create_default_context(cafile=str(self._pki.serving_ca_file))
        else:  # the adapter made its certificate itself
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if user is not None:
            files = self._certificate(user)
            context.load_cert_chain(files.certificate, files.key)
        return context

    def _certificate(self, user: str) -> KeyPairFiles:
        if user == "front-proxy-client":
            return self._pki.front_proxy
        authority = self._pki.requestheader_ca if user == "stranger" else self._pki.client_ca
        pair = authority.issue(_NAMES.get(user, user), organizations=_GROUPS.get(user, ()), client=True)
        files = KeyPairFiles(self._pki.folder / f"{user}.crt", self._pki.folder / f"{user}.key")
        files.certificate.write_bytes(pair.cert_pem)
        files.key.write_bytes(pair.key_pem)
        return files


@asynccontextmanager
async def golden_environment(folder: Path) -> AsyncIterator[Environment]:
    """Start everything in `folder`; it ends with the context.

    Raises:
        PlaygroundError: something does not start; the message says what.
    """
    async with AsyncExitStack() as stack:
        prometheus = PrometheusServer(folder / "prometheus", samples=await asyncio.to_thread(samples, time.time()))
        kubectl = await find_async("kubectl")
        await stack.enter_async_context(prometheus)
        api_url, pki, is_real = await _start_api(stack, folder / "cluster")
        tap = await stack.enter_async_context(PrometheusTap(prometheus.url))
        admin = pki.kubeconfig(api_url, "admin", _GROUPS["admin"])
        client = await stack.enter_async_context(await KubeClient.connect(admin))

        manifests = await Manifests.render(kubectl)
        await apply(client, manifests.rights)
        await _create(client, list(_objects()))
        account = folder / "adapter.kubeconfig"
        await write_account_kubeconfig(client, account, admin=admin, account=manifests.account("adapter"))
        tokens = {name: await _token(client, name) for name in (_READER, _NOBODY)}
        http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=_REQUEST_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
        )
        await stack.enter_async_context(http)
        port = free_port()
        places = {
            "prometheus-url": tap.url,
            "config": _RULES,
            "bind-address": LOOPBACK,
            "secure-port": port,
            "cert-dir": folder / "adapter-certificates",
            "lister-kubeconfig": account,
            "authentication-kubeconfig": account,
            "authorization-kubeconfig": account,
            "shutdown-delay-duration": "100ms",
            "namespace-slow-query-seconds": 0,  # Prometheus is slow on a busy machine; the limit has tests of its own
        }
        environment = Environment(
            is_real=is_real,
            api_url=api_url,
            adapter_url=f"https://{LOOPBACK}:{port}",
            tap=tap,
            adapter=await _start_adapter(folder, {**places, **_RECORDED_FLAGS}),
            _folder=folder,
            _places=places,
            _pki=pki,
            _tokens=tokens,
            _http=http,
        )
        stack.push_async_callback(lambda: environment.adapter.stop())
        await environment.wait_ready()
        # Registered once it is ready: the API server asks a server that failed its check only seconds later.
        await apply(client, manifests.registration(port=port))
        await environment.wait_available()
        yield environment


async def _start_adapter(folder: Path, flags: Mapping[str, object]) -> ChildProcess:
    command = [sys.executable, "-m", "adapter", "serve", *(f"--{name}={value}" for name, value in flags.items())]
    return await ChildProcess.start("adapter", command, log=folder / "adapter.log", directory=_ROOT)


async def _start_api(stack: AsyncExitStack, folder: Path) -> tuple[str, Pki, bool]:
    """A kube-apiserver where KUBEBUILDER_ASSETS names one, or else the playground's; its URL and certificates."""
    assets = find_assets(os.environ)
    if assets is None:
        server = await stack.enter_async_context(PlaygroundApiServer(folder))
        return server.url, server.pki, False
    pki = await asyncio.to_thread(Pki.create, folder)
    real = await stack.enter_async_context(KubeApiServer(folder, assets=assets, pki=pki))
    return real.url, pki, True


async def _create(client: KubeClient, objects: Sequence[tuple[str, Object]]) -> None:
    """Create objects at their paths: first the namespaces, then everything else, several at a time."""
    namespaces = [entry for entry in objects if entry[0] == "/api/v1/namespaces"]
    others = [entry for entry in objects if entry[0] != "/api/v1/namespaces"]
    limit = asyncio.Semaphore(_AT_A_TIME)

    async def create(path: str, entry: Object) -> None:
        async with limit:
            await client.post(path, entry)

    for some in (namespaces, others):
        async with asyncio.TaskGroup() as group:
            for path, entry in some:
                group.create_task(create(path, entry))


def _objects() -> Iterator[tuple[str, Object]]:
    """The objects of the recording, each with the path at which it is created."""

    def core(
        kind: str, name: str, namespace: str = "", labels: Object | None = None, **more: Any
    ) -> tuple[str, Object]:
        resource = f"{kind.lower()}s"
        path = f"/api/v1/namespaces/{namespace}/{resource}" if namespace else f"/api/v1/{resource}"
        return path, {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": labels or {}}, **more}

    containers = {"containers": [{"name": "app", "image": "app"}]}
    yield core("Namespace", "big")
    for node, zone in (("node-1", "a"), ("node-2", "a"), ("node-3", "b")):
        yield core("Node", node, labels={"zone": zone})
    for n in range(1, NAMESPACES + 1):
        namespace = f"ns-{n}"
        yield core("Namespace", namespace, labels={"team": "odd" if n % 2 else "even"})
        yield core("Service", f"svc-{n}", namespace, {"app": "web"}, spec={"ports": [{"port": 80}]})
        for pod in range(PODS):
            labels = {"app": "api" if pod % 2 else "web", "idx": str(pod)}
            yield core("Pod", f"pod-{n}-{pod}", namespace, labels, spec=containers)
    yield core("Pod", "silent", "ns-1", {"app": "silent"}, spec=containers)
    for pod in range(BIG_PODS):
        yield core("Pod", f"big-{pod}", "big", {"app": "big"}, spec=containers)

    yield core("ServiceAccount", _READER, "ns-1")
    yield core("ServiceAccount", _NOBODY, "ns-1")
    group = "rbac.authorization.k8s.io"
    readable = [{"apiGroups": [f"{api}.metrics.k8s.io"], "resources": ["*"]} for api in ("custom", "external")]
    role: Object = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "golden-reader"},
        "rules": [{**rule, "verbs": ["get", "list"]} for rule in readable],
    }
    binding: Object = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "golden-readers"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "golden-reader"},
        "subjects": [
            {"kind": "User", "apiGroup": group, "name": "bob"},
            {"kind": "User", "apiGroup": group, "name": _NAMES["hpa"]},
            {"kind": "ServiceAccount", "namespace": "ns-1", "name": _READER},
        ],
    }
    yield f"/apis/{group}/v1/clusterroles", role
    yield f"/apis/{group}/v1/clusterrolebindings", binding


async def _token(client: KubeClient, account: str) -> str:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    response = await client.post(f"/api/v1/namespaces/ns-1/serviceaccounts/{account}/token", request)
    return str(response["status"]["token"])


async def _until(environment: Environment, what: str, via: str, path: str) -> None:
    """Wait until an administrator's request succeeds there."""
    case = Case.read(
        {"n": 0, "title": "start", "via": via, "user": "admin", "method": "GET", "path": path, "request_headers": []}
        | {"status": 200, "content_type": "", "bytes": 0, "json": None, "text": None, "promql": []}
    )
    last = ""
    try:
        async with asyncio.timeout(_START_SECONDS):
            while True:
                if environment.adapter.exit_status is not None:
                    raise PlaygroundError(
                        "\n".join(["the adapter ended; the end of its log:", *environment.adapter.last_lines()])
                    )
                try:
                    reply = await environment.send(case)
                except (OSError, aiohttp.ClientError) as error:
                    last = str(error)
                else:
                    if reply.status == case.status:
                        return
                    last = f"{reply.status} {reply.body[:300].decode(errors='replace')}"
                await asyncio.sleep(_POLL)
    except TimeoutError as error:
        raise PlaygroundError(f"{what} after {_START_SECONDS:.0f} s: {last}") from error
