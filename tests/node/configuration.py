"""Configuration of the node's programs: kubelet, containerd, kube-proxy, and the network of pods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import yaml

from tests.node.images import PAUSE

NAME: Final = "node1"
ADDRESS: Final = "10.99.0.1"
"""Of the node, and of its DNS server."""
SERVICES: Final = "10.96.0.0/16"
API_SERVICE: Final = "10.96.0.1"
DOMAIN: Final = "cluster.local"
CONTAINERD_SOCKET: Final = "/run/containerd/containerd.sock"
"""cAdvisor looks for containerd here."""

_PODS: Final = "10.244.0.0/24"
_CONTAINERD: Final = """
version = 3
root = "{folder}/containerd"
state = "/run/containerd/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]
[grpc]
  address = "{socket}"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
  # In a container even root may not lower the score.
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{cni}"]
    conf_dir = "{folder}/cni"
"""


def write_containerd(folder: Path, *, cni: Path) -> Path:
    """Write containerd's configuration, and that of the pods' network, into a folder."""
    (folder / "cni").mkdir()
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": _PODS}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(folder / "cni-addresses"),
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    network = {"cniVersion": "1.0.0", "name": "node", "plugins": [bridge, portmap]}
    (folder / "cni" / "10-node.conflist").write_text(json.dumps(network))
    path = folder / "containerd.toml"
    path.write_text(_CONTAINERD.format(folder=folder, socket=CONTAINERD_SOCKET, pause=PAUSE, cni=cni))
    return path


def write_kubelet(folder: Path, *, client_ca: Path, certificate: Path, key: Path) -> Path:
    """Write kubelet's configuration into a folder."""
    resolv = folder / "resolv.conf"
    resolv.write_text(f"nameserver {ADDRESS}\n")
    return _write(
        folder / "kubelet.yaml",
        apiVersion="kubelet.config.k8s.io/v1beta1",
        kind="KubeletConfiguration",
        failCgroupV1=False,
        cgroupDriver="cgroupfs",
        cgroupRoot=f"/{folder.name}",
        containerRuntimeEndpoint=f"unix://{CONTAINERD_SOCKET}",
        failSwapOn=False,
        clusterDNS=[ADDRESS],
        clusterDomain=DOMAIN,
        resolvConf=str(resolv),
        authentication={
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(client_ca)},
        },
        authorization={"mode": "Webhook"},
        tlsCertFile=str(certificate),
        tlsPrivateKeyFile=str(key),
        address=ADDRESS,
        oomScoreAdj=0,
        maxOpenFiles=20_000,
        volumePluginDir=str(folder / "volume-plugins"),
        podLogsDir=str(folder / "pod-logs"),
        # A disk that others have filled is not what is tested.
        evictionHard={"memory.available": "100Mi"},
        imageGCHighThresholdPercent=100,
    )


def write_kube_proxy(folder: Path, *, kubeconfig: Path) -> Path:
    """Write kube-proxy's configuration into a folder."""
    return _write(
        folder / "kube-proxy.yaml",
        apiVersion="kubeproxy.config.k8s.io/v1alpha1",
        kind="KubeProxyConfiguration",
        clientConnection={"kubeconfig": str(kubeconfig)},
        clusterCIDR=_PODS,
        hostnameOverride=NAME,
        mode="nftables",
        oomScoreAdj=0,
        # Settings of the machine's kernel stay as they are.
        conntrack={"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    )


def _write(path: Path, **content: Any) -> Path:
    path.write_text(yaml.safe_dump(content))
    return path
