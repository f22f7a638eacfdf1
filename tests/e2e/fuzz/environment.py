"""The cluster of a run, the phases of its cases, and the comparison after each."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from aiohttp import web

from autoscaler.core.model import KIND, KUBERNETES, MILLISCALE, HPAApi
from kube.api.client import KubeClient
from kube.api.status import StatusError
from kube.cache.store import Key, Store
from playground.apiserver.pki import Pki
from playground.cluster import Cluster
from playground.install import apply, read_objects
from playground.kube_apiserver import KubeApiServer
from tests.e2e.controllers import ASSETS, ROOT, autoscaler, controller_manager, started
from tests.e2e.fuzz.allowed import ENDS_CASE, Difference, allowed_class, neutral
from tests.e2e.fuzz.cases import Case, Kind, Phase, Target, make_case
from tests.e2e.fuzz.compare import differing, fields_of, is_parked
from tests.e2e.fuzz.server import FuzzedMetrics
from tests.e2e.scripted_metrics import registered
from tests.eventually import eventually

SIDES: tuple[tuple[HPAApi, str], ...] = ((KUBERNETES, "fuzz-k"), (MILLISCALE, "fuzz-m"))
MIN_REQUESTS = 3
"""How often both look at a phase before they are compared."""
_AT_ONCE = 24
_SETTLE_SECONDS = 0.7
"""What a watch is given to tell of a change."""
_SPENT = 22
"""After so many warnings about one HPA the recorders hold some back, not at the same moment."""
_COMBINED = "(combined from similar events)"
_EVENT_SECONDS = 240.0
"""Events are written one by one; on a busy machine the last is late."""
_PATHS = {
    "Deployment": "/apis/apps/v1",
    "Widget": "/apis/fuzz.example.com/v1",
    "Gadget": "/apis/fuzz.example.com/v1",
    "Gizmo": "/apis/fuzz.example.com/v1",
}


@dataclass
class Report:
    """What a run has compared and found."""

    cases: int = 0
    phases: int = 0
    fields: int = 0
    scale_writes: int = 0
    events: int = 0
    coalesced: int = 0
    rejected: int = 0
    allowed: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)

    def __str__(self) -> str:
        allowed = ", ".join(f"{name} {count}" for name, count in sorted(self.allowed.items())) or "none"
        return (
            f"{self.cases} HPAs, {self.phases} phases, {self.fields} fields, {self.scale_writes} scale writes, "
            f"{self.events} events compared; {self.coalesced} coalesced requests; {self.rejected} specs refused by the "
            f"API server; allowed differences: {allowed}; others: {len(self.differences)}"
        )


async def run(folder: Path, *, hpas: int, phases: int, seed: int, eager: bool = False, say: Any = print) -> Report:
    """One round: `hpas` cases of `phases` phases each from `seed`, in a cluster of its own.

    Of four seeds one has HPAs whose queries are coalesced, and every second one those that may scale to zero.
    `eager`: the autoscaler runs with --eager.
    """
    kind = Kind(to_zero=seed % 2 == 0, coalescible=seed % 4 == 3)
    cases = [make_case(f"f{number}", Random(f"{seed}/{number}"), phases, kind) for number in range(hpas)]
    sync = max(1, -(-hpas // (80 if kind.coalescible else 40)))
    gates = f"HPAScaleToZero={str(kind.to_zero).lower()}"
    async with _environment(folder, cases, sync, gates, eager=eager) as environment:
        for number in range(phases):
            begun, seen = time.monotonic(), len(environment.report.differences)
            await environment.play(number)
            for difference in environment.report.differences[seen:]:
                say(str(difference))
            say(f"seed {seed}, phase {number + 1} of {phases}: {time.monotonic() - begun:.0f} s; {environment.report}")
    return environment.report


@asynccontextmanager
async def _environment(
    folder: Path, cases: list[Case], sync: int, gates: str, *, eager: bool
) -> AsyncIterator["Environment"]:
    pki = await asyncio.to_thread(Pki.create, folder)
    timing = [
        f"--horizontal-pod-autoscaler-sync-period={sync}s",
        "--horizontal-pod-autoscaler-downscale-stabilization=1s",
        "--kube-api-qps=2000",
        "--kube-api-burst=4000",
        "--concurrent-horizontal-pod-autoscaler-syncs=20",
    ]
    async with KubeApiServer(folder, assets=ASSETS, pki=pki, feature_gates=gates) as server:
        cluster = Cluster(server.url, pki.kubeconfig(server.url, "admin", ["system:masters"]), pki, server)
        metrics = FuzzedMetrics()
        app = web.Application()
        app.router.add_get("/apis/{group}/{version}", metrics.discover)
        app.router.add_get("/apis/{group}/{version}/namespaces/{namespace}/{rest:.*}", metrics.respond)
        async with await cluster.client() as client, registered(app, client, folder):
            await apply(client, await read_objects(ROOT / "manifests/crds/horizontalpodautoscalers.yaml"))
            await apply(client, await read_objects(Path(__file__).parent / "targets.yaml"))
            environment = Environment(client, cases, metrics, sync)
            await environment.prepare()
            flags = ("--hpa-apis=milliscale", "--metrics-port=0", f"--feature-gates={gates}", f"--eager={eager}")
            ours = autoscaler(cluster.kubeconfig, *flags, timing=timing)
            theirs = controller_manager(cluster, folder, f"--feature-gates={gates}", timing=timing)
            async with (
                started("kube-controller-manager", theirs, folder),
                started("autoscaler", ours, folder),
                asyncio.TaskGroup() as tasks,
            ):
                watches = [tasks.create_task(store.run()) for store in environment.stores]
                yield environment
                for watch in watches:
                    watch.cancel()


class Environment:
    """The cases in the cluster."""

    def __init__(self, client: KubeClient, cases: list[Case], metrics: FuzzedMetrics, sync: int) -> None:
        self.report = Report()
        self._client = client
        self._cases = {case.name: case for case in cases}
        self._metrics = metrics
        self._sync = sync
        self._replica_counts: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._scaled_at: dict[str, float] = {}
        self._known: dict[str, set[str]] = defaultdict(set)
        """Each HPA's events of the phases before."""
        self._standing: dict[tuple[str, str], tuple[Any, Any]] = {}
        """The last allowed difference in each HPA's fields."""
        self.stores = [
            Store(client, f"{_PATHS[kind]}/{kind.lower()}s", _replicas, on_change=self._scaled) for kind in _PATHS
        ]
        self._limit = asyncio.Semaphore(_AT_ONCE)
        self._ended: set[str] = set()
        """Cases whose twins are not in the same state any more."""

    async def prepare(self) -> None:
        """Create the namespaces; wait until the API server serves the custom resources that are targets."""
        for _, namespace in SIDES:
            await self._client.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        for kind in _PATHS:
            await eventually(partial(self._is_served, kind))

    async def _is_served(self, kind: str) -> bool:
        try:
            await self._client.get(f"{_PATHS[kind]}/{kind.lower()}s")
        except StatusError as error:
            if error.code != 404:
                raise
            return False
        return True

    async def play(self, number: int) -> None:
        """Bring every case into a phase, wait until both have reconciled it, and compare."""
        for name in self._ended & self._cases.keys():
            del self._cases[name]
        cases = {name: case.phases[number] for name, case in self._cases.items()}
        parked_change = {name: phase for name, phase in cases.items() if phase.parked_change}
        if number:
            parked = {name: self._cases[name].phases[number - 1].parked for name in parked_change}
            await self._all(self._put_spec(side, name, spec) for name, spec in parked.items() for side in SIDES)
            await self._until_parked(parked_change)
        for name, phase in parked_change.items():
            self._metrics.scripts[name] = phase.responses
        await self._all(
            self._set_up(namespace, name, number, phase)
            for name, phase in parked_change.items()
            for _, namespace in SIDES
        )
        await asyncio.sleep(_SETTLE_SECONDS)
        for replica_counts in self._replica_counts.values():
            del replica_counts[:-1]
        await self._all(self._open(name, phase, number) for name, phase in parked_change.items())
        for name, phase in cases.items():
            self._metrics.scripts[name] = phase.responses
        await self._compare(number, [name for name in cases if name in self._cases])

    # --- bringing about ------------------------------------------------------------------------------------------

    async def _all(self, works: Iterable[Awaitable[None]]) -> None:
        async def one(work: Awaitable[None]) -> None:
            async with self._limit:
                await work

        await asyncio.gather(*map(one, works))

    async def _open(self, name: str, phase: Phase, number: int) -> None:
        """Give both HPAs the phase's spec; a case ends with a spec that the API server refuses."""
        refused = [await self._refusal(side, name, phase.spec, create=not number) for side in SIDES]
        if any(refused):
            self.report.rejected += 1
            del self._cases[name]
            if not all(refused):
                self._note([Difference(name, number, "validity", refused[0], refused[1], phase)])
        elif not number:
            self.report.cases += 1

    async def _refusal(self, side: tuple[HPAApi, str], name: str, spec: dict[str, Any], *, create: bool) -> str:
        api, namespace = side
        try:
            if create:
                hpa = {"apiVersion": api.api_version, "kind": KIND, "metadata": {"name": name}, "spec": spec}
                await self._client.post(api.path(namespace), hpa)
            else:
                await self._put_spec(side, name, spec)
        except StatusError as error:
            if error.code != 422:
                raise
            return str(error)
        return ""

    async def _put_spec(self, side: tuple[HPAApi, str], name: str, spec: dict[str, Any]) -> None:
        api, namespace = side
        change = [{"op": "replace", "path": "/spec", "value": spec}]
        await self._client.patch(api.path(namespace, name), change, content_type="application/json-patch+json")

    async def _set_up(self, namespace: str, name: str, number: int, phase: Phase) -> None:
        await self._put_target(namespace, name, phase.target, create=not number)
        before = self._cases[name].phases[number - 1].pods if number else ()
        path = f"/api/v1/namespaces/{namespace}/pods"
        old, new = {pod.name: pod for pod in before}, {pod.name: pod for pod in phase.pods}
        for gone in old.keys() - new.keys():
            await self._delete(f"{path}/{gone}", finalized=old[gone].deleting)
        for pod_name, pod in new.items():
            if pod_name not in old:
                metadata = {**pod.manifest["metadata"]}
                await self._client.post(path, {**pod.manifest, "metadata": metadata})
            if pod_name not in old or old[pod_name].status != pod.status:
                # Every field is named, so that none of the old status is left.
                blank = {"startTime": None, "conditions": None}
                await self._client.patch(f"{path}/{pod_name}/status", {"status": {**blank, **pod.status}})
            if pod.deleting:
                await self._client.patch(f"{path}/{pod_name}", {"metadata": {"finalizers": ["fuzz.example.com/keep"]}})
                await self._client.delete(f"{path}/{pod_name}", {"gracePeriodSeconds": 0})

    async def _delete(self, path: str, *, finalized: bool) -> None:
        if finalized:
            await self._client.patch(path, {"metadata": {"finalizers": None}})
        else:
            await self._client.delete(path, {"gracePeriodSeconds": 0})

    async def _put_target(self, namespace: str, name: str, target: Target, *, create: bool) -> None:
        path = f"{_PATHS[target.kind]}/namespaces/{namespace}/{target.kind.lower()}s"
        status: dict[str, Any] = {"replicas": target.status_replicas}
        spec: dict[str, Any] = {"replicas": target.spec_replicas}
        if target.kind == "Deployment":
            labels = {"app": name, "tier": "front"}
            containers = [{"name": "c", "image": "i"}]
            template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
            if create:
                spec |= {"selector": target.selector, "template": template}
        else:
            status["selector"] = target.text
        metadata = {"name": name}
        if create:
            version = _PATHS[target.kind].removeprefix("/apis/")
            body = {"apiVersion": version, "kind": target.kind, "metadata": metadata, "spec": spec}
            await self._client.post(path, body)
        else:
            await self._client.patch(f"{path}/{name}", {"spec": spec})
        await self._client.patch(f"{path}/{name}/status", {"status": status})

    def _scaled(self, key: Key, _: int | None, new: int | None) -> None:
        counts = self._replica_counts[key]
        if new is not None and (not counts or counts[-1] != new):
            counts.append(new)
            self._scaled_at[key[1]] = time.monotonic()

    # --- comparing -------------------------------------------------------------------------------------------------

    async def _statuses(self) -> list[dict[str, dict[str, Any]]]:
        """{HPA: its status} of both sides."""
        found = []
        for api, namespace in SIDES:
            items = (await self._client.get(api.path(namespace)))["items"]
            found.append({item["metadata"]["name"]: item.get("status") or {} for item in items})
        return found

    async def _until_parked(self, names: Iterable[str]) -> None:
        deadline = time.monotonic() + 60 + 5 * self._sync
        waiting = set(names)
        while waiting:
            sides = await self._statuses()
            waiting = {name for name in waiting if not all(is_parked(side.get(name, {})) for side in sides)}
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"not parked: {sorted(waiting)[:10]}, e.g. {[side.get(min(waiting)) for side in sides]}"
                )
            if waiting:
                await asyncio.sleep(0.5)
        await asyncio.sleep(_SETTLE_SECONDS)

    async def _compare(self, number: int, names: list[str]) -> None:
        start = time.monotonic()
        before = {(space, name): self._metrics.requests_of(space, name) for _, space in SIDES for name in names}
        waiting, found = set(names), dict[str, tuple[int, list[Difference]]]()

        while waiting:
            await asyncio.sleep(0.5)
            elapsed = time.monotonic() - start
            sides = await self._statuses()
            for name in sorted(waiting):
                requests_of = [self._metrics.requests_of(space, name) - before[space, name] for _, space in SIDES]
                moved = time.monotonic() - max(start, self._scaled_at.get(name, 0.0))
                # They may be equal for a moment while they scale.
                rest = self._cases[name].phases[number].longest_period + 2 * self._sync
                if moved < rest or (min(requests_of) < MIN_REQUESTS and elapsed < 5 * self._sync + 3):
                    continue
                theirs, ours = (
                    dict(fields_of(side.get(name, {}), space)) for side, (_, space) in zip(sides, SIDES, strict=True)
                )
                replica_counts = [self._replica_counts[space, name] for _, space in SIDES]
                theirs["counts"], ours["counts"] = (list(counts) for counts in replica_counts)
                state = self._cases[name].phases[number]
                found[name] = len(theirs), differing(name, number, theirs, ours, state)
                wrong = [each for each in found[name][1] if self._class(each) is None]
                if not wrong or moved > rest + 6 * self._sync + 12:
                    waiting.remove(name)
                    self.report.scale_writes += max(0, len(replica_counts[0]) - 1)
        self.report.phases += len(names)
        for fields, differences in found.values():
            self.report.fields += fields
            self._note(differences)
        await self._compare_events(number, names)
        self.report.coalesced = self._metrics.coalesced

    async def _compare_events(self, number: int, names: list[str]) -> None:
        deadline = time.monotonic() + _EVENT_SECONDS
        while True:
            compared, differences = await self._events_that_differ(number, names)
            if time.monotonic() > deadline or all(map(self._class, differences)):
                break
            await asyncio.sleep(1)
        self.report.events += compared
        self._note(differences)
        for side in await self._events():
            for name, texts in side.items():
                self._known[name] |= texts.keys()

    async def _events(self) -> list[dict[str, Counter[str]]]:
        """{HPA: {type, reason and message: how often}} of both sides."""
        sides = []
        for _, space in SIDES:
            by_hpa: dict[str, Counter[str]] = defaultdict(Counter)
            for event in (await self._client.get(f"/api/v1/namespaces/{space}/events"))["items"]:
                # That a status could not be written is the work of this environment, which changes the HPAs.
                if event["reason"] != "FailedUpdateStatus":
                    text = f"{event['type']} {event['reason']} {neutral(event['message'], space)}"
                    by_hpa[event["involvedObject"]["name"]][text] += event.get("count") or 1
            sides.append(by_hpa)
        return sides

    async def _events_that_differ(self, number: int, names: list[str]) -> tuple[int, list[Difference]]:
        """How many were compared, and the differences."""
        compared, differences = 0, []
        sides = await self._events()
        for name in names:
            theirs, ours = (side[name] for side in sides)
            # Which of many similar events are combined is random in Kubernetes.
            if max(theirs.total(), ours.total()) > _SPENT or any(_COMBINED in text for text in (*theirs, *ours)):
                continue
            compared += len(theirs.keys() - self._known[name])
            only = [
                sorted(one.keys() - other.keys() - self._known[name]) for one, other in ((theirs, ours), (ours, theirs))
            ]
            if any(only):
                # A pair of messages that says the same in other words is one difference.
                state = self._cases[name].phases[number]
                differences.append(Difference(name, number, "events", only[0], only[1], state))
        return compared, differences

    def _note(self, differences: Iterable[Difference]) -> None:
        for difference in differences:
            name = self._class(difference)
            if name is None:
                self.report.differences.append(difference)
            else:
                self.report.allowed[name] += 1
                self._standing[difference.case, difference.field] = difference.theirs, difference.ours
            if name is None or name in ENDS_CASE:
                self._ended.add(difference.case)

    def _class(self, difference: Difference) -> str | None:
        """What allows a difference; one that is still there from the phase before is allowed as it was then."""
        before = self._standing.get((difference.case, difference.field))
        return "the same as before" if before == (difference.theirs, difference.ours) else allowed_class(difference)


def _replicas(raw: Mapping[str, Any]) -> int:
    return int((raw.get("spec") or {}).get("replicas") or 0)
