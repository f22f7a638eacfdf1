"""A Kubernetes node in the namespaces of this process: control plane, containerd, kubelet, kube-proxy and DNS."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kube.api.client import KubeClient
from playground.apiserver.pki import KeyPairFiles, Pki, client_tls
from playground.kube_apiserver import KubeApiServer
from playground.processes import ChildProcess
from tests.eventually import eventually
from tests.node.cgroups import make_cgroups
from tests.node.configuration import (
    ADDRESS,
    API_SERVICE,
    CONTAINERD_SOCKET,
    DOMAIN,
    NAME,
    SERVICES,
    write_containerd,
    write_kube_proxy,
    write_kubelet,
)
from tests.node.images import REPOSITORY, TAGS
from tests.node.requirements import Programs

PROMETHEUS_ADDRESS: Final = "10.96.0.90"
"""Of the Service prometheus-k8s in the namespace monitoring."""
_NAMES: Final = {"kubernetes.default": API_SERVICE, "prometheus-k8s.monitoring": PROMETHEUS_ADDRESS}

# Software of containers uses these by fixed names.
_PRIVATE_FOLDERS: Final = ("/run/containerd", "/run/netns", "/var/lib/cni", "/var/log/containers", "/var/log/pods")
# kubelet writes these settings of the whole machine, unless they are so.
_SETTINGS: Final = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}
_NETWORK: Final = f"""
ip link set lo up
ip link add node0 type bridge
ip address add {ADDRESS}/24 dev node0
ip link add node0p type veth peer name node0q
ip link set node0p master node0 up
ip link set node0q up
ip link set node0 up
ip route add default via 10.99.0.254 dev node0 onlink
"""
"""A bridge with a port, so that it has a carrier. The route leads nowhere; addresses of Services need one."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A running node; `client` is of an admin."""

    folder: Path
    programs: Programs
    server: KubeApiServer
    pki: Pki
    kubeconfig: Path
    client: KubeClient
    controller_manager: list[ChildProcess] = field(default_factory=list)

    def admin_tls(self) -> ssl.SSLContext:
        """Return the TLS of an admin, for clients that retry nothing."""
        pair = self.pki.client_ca.issue("admin", organizations=["system:masters"], client=True)
        folder = self.folder / "pki"
        return client_tls(
            KeyPairFiles(_write(folder / "admin.crt", pair.cert_pem), _write(folder / "admin.key", pair.key_pem))
        )

    @property
    def environment(self) -> dict[str, str]:
        """Of commands that a user types."""
        path = f"{self.programs.assets}:{os.environ['PATH']}"
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PATH": path}

    async def run(self, *command: str | Path) -> str:
        """Run a command as a user of the cluster; return what it prints. An exit status is an AssertionError."""
        child = await asyncio.create_subprocess_exec(
            *command,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await child.communicate()
        assert child.returncode == 0, f"{command}: {errors.decode()}{output.decode()}"
        return output.decode()

    async def kubectl(self, *arguments: str | Path) -> str:
        return await self.run("kubectl", *arguments)

    async def service_address(self, namespace: str, name: str) -> str:
        service = await self.client.get(f"/api/v1/namespaces/{namespace}/services/{name}")
        return str(service["spec"]["clusterIP"])

    async def ctr(self, *arguments: str | Path) -> str:
        """Run containerd's client, for the containers of pods."""
        return await self.run(
            self.programs.node / "ctr", f"--address={CONTAINERD_SOCKET}", "--namespace=k8s.io", *arguments
        )

    async def start_controller_manager(self, *flags: str) -> None:
        """Start kube-controller-manager, or start it again with other flags."""
        for child in self.controller_manager:
            await child.stop()
        kubeconfig = self.pki.kubeconfig(self.server.url, "system:kube-controller-manager")
        command: list[str | Path] = [
            self.programs.assets / "kube-controller-manager",
            *_delegating(kubeconfig),
            f"--client-ca-file={self.pki.client_ca_file}",
            f"--root-ca-file={self.pki.serving_ca_file}",
            f"--service-account-private-key-file={self.server.account_key}",
            "--use-service-account-credentials=true",
            f"--cert-dir={self.folder / 'kube-controller-manager'}",
            "--leader-elect=false",
            *flags,
        ]
        log = self.folder / "log" / "kube-controller-manager.log"
        self.controller_manager[:] = [await ChildProcess.start("kube-controller-manager", command, log=log)]


@asynccontextmanager
async def start_node(folder: Path, programs: Programs) -> AsyncIterator[Node]:
    """Run a node that keeps its files in `folder`, which has the archives of images in `images`."""
    await asyncio.to_thread(_prepare_namespaces, folder)
    pki = await asyncio.to_thread(Pki.create, folder / "pki", hosts=[ADDRESS, API_SERVICE])
    kubelet_pair = pki.client_ca.issue("kube-apiserver", organizations=["system:masters"], client=True)
    flags = {
        "bind-address": "0.0.0.0",
        "advertise-address": ADDRESS,
        "endpoint-reconciler-type": None,
        "disable-admission-plugins": None,
        "enable-admission-plugins": "NodeRestriction",
        "authorization-mode": "Node,RBAC",
        "allow-privileged": "true",
        "service-cluster-ip-range": SERVICES,
        "kubelet-certificate-authority": pki.serving_ca_file,
        "kubelet-client-certificate": _write(folder / "pki" / "to-kubelet.crt", kubelet_pair.cert_pem),
        "kubelet-client-key": _write(folder / "pki" / "to-kubelet.key", kubelet_pair.key_pem),
        "kubelet-preferred-address-types": "InternalIP",
    }
    server = KubeApiServer(folder / "control-plane", assets=programs.assets, pki=pki, flags=flags)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server)
        kubeconfig = pki.kubeconfig(server.url, "admin", ["system:masters"])
        client = await stack.enter_async_context(await KubeClient.connect(kubeconfig, user_agent="node"))
        node = Node(folder=folder, programs=programs, server=server, pki=pki, kubeconfig=kubeconfig, client=client)
        await node.start_controller_manager()
        stack.push_async_callback(_stop_all, node.controller_manager)

        async def start(name: str, *command: str | Path) -> None:
            path = f"PATH={programs.node}:{os.environ['PATH']}"
            child = await ChildProcess.start(name, ["env", path, *command], log=folder / "log" / f"{name}.log")
            await stack.enter_async_context(child)

        scheduler = _delegating(pki.kubeconfig(server.url, "system:kube-scheduler"))
        await start("kube-scheduler", programs.node / "kube-scheduler", *scheduler, "--leader-elect=false")
        containerd = write_containerd(folder, cni=programs.cni)
        await start("containerd", programs.node / "containerd", f"--config={containerd}")
        await _import_images(node)
        await start("dnsmasq", "dnsmasq", *_dns_flags())
        pair = pki.serving_ca.issue(NAME, hosts=[NAME, ADDRESS], server=True)
        configuration = write_kubelet(
            folder,
            client_ca=pki.client_ca_file,
            certificate=_write(folder / "pki" / "kubelet.crt", pair.cert_pem),
            key=_write(folder / "pki" / "kubelet.key", pair.key_pem),
        )
        await start(
            "kubelet",
            programs.node / "kubelet",
            f"--config={configuration}",
            f"--kubeconfig={pki.kubeconfig(server.url, f'system:node:{NAME}', ['system:nodes'])}",
            f"--hostname-override={NAME}",
            f"--node-ip={ADDRESS}",
            f"--root-dir={folder / 'kubelet'}",
            f"--cert-dir={folder / 'kubelet-pki'}",
        )
        await node.kubectl(
            *("create", "clusterrolebinding", "node-proxier", "--clusterrole=system:node-proxier"),
            "--user=system:kube-proxy",
        )
        proxy = write_kube_proxy(folder, kubeconfig=pki.kubeconfig(server.url, "system:kube-proxy"))
        await start("kube-proxy", programs.node / "kube-proxy", f"--config={proxy}")
        await eventually(lambda: _is_ready(client), every=0.5)
        yield node


async def _stop_all(children: Sequence[ChildProcess]) -> None:
    for child in children:
        await child.stop()


def _prepare_namespaces(folder: Path) -> None:
    """Mount what the node's programs must not share with the machine, and make an interface."""
    make_cgroups(folder.name)
    settings = folder / "settings"
    settings.mkdir()
    for path in _PRIVATE_FOLDERS:
        Path(path).mkdir(parents=True, exist_ok=True)
        _do(f"mount -t tmpfs tmpfs {path}")
    # Mounts of kubelet are for its pods, too.
    _do("mount --make-rshared /")
    for name, value in _SETTINGS.items():
        _do(f"mount --bind {_write(settings / Path(name).name, value.encode())} /proc/sys/{name}")
    # The interfaces of this network namespace, with the cgroups as they were.
    cgroups = folder / "cgroups"
    cgroups.mkdir()
    _do(f"mount --rbind /sys/fs/cgroup {cgroups}")
    _do("mount -t sysfs sysfs /sys")
    _do(f"mount --rbind {cgroups} /sys/fs/cgroup")
    _do(f"mount --make-rprivate {cgroups}")
    _do(f"umount --recursive {cgroups}")
    for command in _NETWORK.strip().splitlines():
        _do(command)
    for name in ("ipv4/ip_forward", "bridge/bridge-nf-call-iptables"):
        Path("/proc/sys/net", name).write_text("1")


def _do(command: str) -> None:
    subprocess.run(command.split(), check=True)


def _write(path: Path, content: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path


def _delegating(kubeconfig: Path) -> list[str]:
    """Return the flags of a component that authenticates and authorizes its own clients with the API server."""
    return [f"--{name}kubeconfig={kubeconfig}" for name in ("", "authentication-", "authorization-")]


def _dns_flags() -> list[str]:
    records = [f"--host-record={name}.svc.{DOMAIN},{address}" for name, address in _NAMES.items()]
    return [
        *("--keep-in-foreground", "--no-resolv", "--no-hosts", "--user=root", "--pid-file="),
        *(f"--local=/{DOMAIN}/", f"--listen-address={ADDRESS}", "--bind-interfaces"),
        *records,
    ]


async def _import_images(node: Node) -> None:
    async def serves() -> bool:
        return bool(await node.ctr("version"))

    await eventually(serves)
    for archive in sorted((node.folder / "images").glob("*.tar")):
        await node.ctr("images", "import", archive)
    first, *others = (f"{REPOSITORY}:{version}" for version in TAGS)
    for each in others:
        await node.ctr("images", "tag", first, each)


async def _is_ready(client: KubeClient) -> bool:
    nodes: dict[str, Any] = await client.get("/api/v1/nodes")
    conditions = {entry["type"]: entry["status"] for each in nodes["items"] for entry in each["status"]["conditions"]}
    return conditions.get("Ready") == "True"
