"""Faults of the adapter's process: signals, its files, its certificates, its clock."""

from __future__ import annotations

import asyncio
import resource
import signal
import ssl

from playground.apiserver.pki import KeyPairFiles, client_tls
from playground.certs import CertificateAuthority
from playground.ports import LOOPBACK
from tests.chaos.adapter_load import adapter_load
from tests.chaos.environment import (
    ADMIN_HEADERS,
    RULES,
    Environment,
    prometheus_ca,
    start_adapter,
    write_serving_certificate,
)
from tests.chaos.faketime import FakeClock
from tests.chaos.measured import MeasuredProcess
from tests.chaos.scenario import Run, Scenario
from tests.eventually import eventually

_TRUST = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
_CUTS = 3
_CLOCK_STEPS = (3600, -1800)
"""Seconds by which the clock is ahead or behind: within the time for which the certificates are valid."""


async def sigterm(run: Run) -> None:
    """Restart it with SIGTERM under load: no response is cut off, and its exit status is 0."""
    adapter = run.environment.adapter
    async with adapter_load(run.environment) as load:
        await asyncio.sleep(run.random.uniform(0.1, 1.0))
        status = await adapter.child.stop(grace=30)
        await adapter.child.restart()
        await eventually(adapter.is_ready)
    assert status == 0, f"exit status {status}"
    assert set(load.statuses) <= {200, 503}, load  # 503: a rule's metrics are not listed yet
    assert not [text for text in load.broken if "Payload" in text], load


async def sigkill(run: Run) -> None:
    """Kill it under load, and start it again."""
    adapter = run.environment.adapter
    async with adapter_load(run.environment):
        await asyncio.sleep(run.random.uniform(0.1, 1.0))
        adapter.child.send_signal(signal.SIGKILL)
        await adapter.child.wait()
        await run.hold()
        await adapter.child.restart()


async def frozen(run: Run) -> None:
    """Stop it from running, without closing its connections: a node without CPU."""
    adapter = run.environment.adapter
    adapter.child.send_signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(run.seconds)
    finally:
        adapter.child.send_signal(signal.SIGCONT)


async def rules_cut(run: Run) -> None:
    """Write only the beginning of the rules file, cut at random places, and reload each."""
    environment, adapter = run.environment, run.environment.adapter
    try:
        for _ in range(_CUTS):
            cut = run.random.randrange(1, len(RULES))
            await _reload(environment, RULES[:cut])
            await run.environment.wait_for_reconciliations()
            assert await adapter.is_ready(), f"not ready after {cut} bytes"
    finally:
        await _reload(environment, RULES)


async def _reload(environment: Environment, text: str) -> None:
    """Write the rules file in place, and have it read."""
    await asyncio.to_thread(environment.rules.write_text, text)
    environment.adapter.child.send_signal(signal.SIGHUP)


async def disk_full(run: Run) -> None:
    """No byte can be written to any file, the log included."""
    environment, adapter = run.environment, run.environment.adapter
    before = resource.prlimit(adapter.child.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(adapter.child.pid, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        async with adapter_load(environment) as load:
            adapter.child.send_signal(signal.SIGHUP)  # which logs
            await run.hold()
    finally:
        resource.prlimit(adapter.child.pid, resource.RLIMIT_FSIZE, before)
    assert load.all_served, load


async def serving_certificate(run: Run) -> None:
    """Replace the adapter's certificate under load: every request is served."""
    environment, adapter = run.environment, run.environment.adapter

    async def certificate() -> str:
        port = int(adapter.url.rpartition(":")[2])
        return await asyncio.to_thread(ssl.get_server_certificate, (LOOPBACK, port))

    before = await certificate()

    async def renewed() -> bool:
        return await certificate() != before

    async with adapter_load(environment) as load:
        await asyncio.to_thread(write_serving_certificate, environment.folder, environment.cluster.pki.serving_ca)
        await eventually(renewed)
        await run.hold()
    assert load.all_served, load


async def prometheus_certificate(run: Run) -> None:
    """Prometheus gets a certificate of another CA; the file of CAs has both for a while."""
    environment, folder = run.environment, run.environment.folder
    old, new = environment.cluster.pki.serving_ca, CertificateAuthority.create("new-prometheus-ca")
    for cas, issuer in (((old, new), old), ((old, new), new), ((new,), new)):
        await asyncio.to_thread(prometheus_ca(folder).write_bytes, b"".join(ca.cert_pem for ca in cas))
        proxy = environment.prometheus_proxy
        await proxy.stop()
        proxy.use_certificate(await asyncio.to_thread(_prometheus_pair, environment, issuer))
        await proxy.start()
        await environment.wait_recovered()
        await run.hold()


def _prometheus_pair(environment: Environment, issuer: CertificateAuthority) -> KeyPairFiles:
    pair = issuer.issue("prometheus", hosts=[LOOPBACK], server=True)
    files = KeyPairFiles(environment.folder / "prometheus.crt", environment.folder / "prometheus.key")
    files.certificate.write_bytes(pair.cert_pem)
    files.key.write_bytes(pair.key_pem)
    return files


async def front_proxy_ca(run: Run) -> None:
    """A second CA of the front proxy is published under load: its certificates are accepted, the old ones still are."""
    environment = run.environment
    new, old = CertificateAuthority.create("new-front-proxy-ca"), environment.cluster.pki.requestheader_ca
    pair = new.issue("front-proxy-client", client=True)
    files = KeyPairFiles(environment.folder / "front-proxy.crt", environment.folder / "front-proxy.key")
    files.certificate.write_bytes(pair.cert_pem)
    files.key.write_bytes(pair.key_pem)
    adapter = environment.adapter
    by_new_ca = MeasuredProcess(
        adapter.child, url=adapter.url, tasks=environment.folder, headers=ADMIN_HEADERS, tls=client_tls(files)
    )

    async def accepted() -> bool:
        return bool(await by_new_ca.metrics())

    async def publish(*cas: CertificateAuthority) -> None:
        text = "".join(ca.cert_pem.decode() for ca in cas)
        await environment.client.patch(_TRUST, {"data": {"requestheader-client-ca-file": text}})

    assert not await accepted()
    async with adapter_load(environment) as load:
        await publish(old, new)
        try:
            await eventually(accepted)
            await run.hold()
        finally:
            await publish(old)
    assert load.all_served, load


async def clock(run: Run) -> None:
    """The adapter's clock is an hour ahead, then half an hour behind."""
    environment, adapter = run.environment, run.environment.adapter
    fake = await FakeClock.create(environment.folder / "adapter-clock")
    await adapter.child.stop(grace=30)
    port = int(adapter.url.rpartition(":")[2])
    skewed = await start_adapter(
        environment.folder,
        environment.cluster,
        port=port,
        prometheus_url=environment.prometheus_proxy.url,
        rules=environment.rules,
        name="adapter-clock",
        environment=fake.variables,
    )
    try:
        await eventually(skewed.is_ready)
        for seconds in _CLOCK_STEPS:
            fake.set(seconds)
            await run.hold()
            assert await skewed.is_ready(), f"not ready with a clock {seconds:+d} s"
        fake.set(0)
        await environment.wait_for_reconciliations(good=True)
    finally:
        assert await skewed.child.stop(grace=30) == 0
        await adapter.child.restart()


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="adapter-sigterm",
        fault="SIGTERM to the adapter under load, then started again",
        promise="no response is cut off; exit status 0; HPAs keep their replicas",
        inject=sigterm,
    ),
    Scenario(
        name="adapter-sigkill",
        fault="SIGKILL to the adapter under load, then started again",
        promise="HPAs keep their replicas",
        inject=sigkill,
    ),
    Scenario(
        name="adapter-frozen",
        fault="the adapter gets no CPU (SIGSTOP)",
        promise="HPAs keep their replicas",
        inject=frozen,
    ),
    Scenario(
        name="adapter-rules-cut",
        fault="the rules file is cut in the middle of a write, three times",
        promise="the adapter stays ready, with the last good rules; HPAs keep their replicas",
        inject=rules_cut,
        short=True,
    ),
    Scenario(
        name="adapter-disk-full",
        fault="the adapter's disk is full, for the log too",
        promise="every request is served",
        inject=disk_full,
    ),
    Scenario(
        name="adapter-certificate",
        fault="the adapter's certificate is replaced under load",
        promise="every request is served, without a restart",
        inject=serving_certificate,
    ),
    Scenario(
        name="prometheus-certificate",
        fault="Prometheus gets a certificate of another CA",
        promise="the CA file is reloaded, without a restart",
        inject=prometheus_certificate,
    ),
    Scenario(
        name="front-proxy-ca",
        fault="the API server publishes a second CA of the front proxy, under load",
        promise="certificates of both are accepted; every request is served",
        inject=front_proxy_ca,
    ),
    Scenario(
        name="adapter-clock",
        fault="the adapter's clock is an hour ahead, then half an hour behind",
        promise="the adapter stays ready; HPAs keep their replicas",
        inject=clock,
    ),
)
