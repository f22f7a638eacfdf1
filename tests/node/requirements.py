"""What a node needs of the machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.render_chart import ChartError, load_helm

NODE_PROGRAMS: Final = ("containerd", "containerd-shim-runc-v2", "ctr", "kube-proxy", "kube-scheduler", "kubelet")
ASSETS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
CNI_PLUGINS: Final = ("bridge", "host-local", "loopback", "portmap")
CNI_FOLDERS: Final = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
"""Debian's folder, and that of the plugins' own releases."""
PACKAGES: Final = {
    "buildah": "buildah",
    "dnsmasq": "dnsmasq-base",
    "gcc": "gcc",
    "ip": "iproute2",
    "nft": "nftables",
    "prometheus": "prometheus",
    "runc": "runc",
    "unshare": "util-linux",
}
"""Programs on the PATH, and Debian's packages that have them."""


@dataclass(frozen=True)
class Programs:
    """Where the programs are that no package of the distribution has."""

    node: Path
    assets: Path
    cni: Path


def find_programs(environment: Mapping[str, str]) -> Programs | list[str]:
    """Return where everything is, or what is missing, a sentence each."""
    missing = ["root's rights"] if os.geteuid() != 0 else []
    named = {}
    for variable, programs in (("NODE_BIN", NODE_PROGRAMS), ("KUBEBUILDER_ASSETS", ASSETS)):
        if not (folder := environment.get(variable)):
            missing.append(f"{variable}, a folder with {', '.join(programs)}")
            continue
        named[variable] = Path(folder).resolve()
        missing += [f"{each} in {variable}" for each in programs if not (named[variable] / each).is_file()]
    missing += [f"{name} (Debian's {package})" for name, package in PACKAGES.items() if shutil.which(name) is None]
    cni = [each for each in CNI_FOLDERS if all((each / plugin).is_file() for plugin in CNI_PLUGINS)]
    if not cni:
        missing.append(f"{', '.join(CNI_PLUGINS)} in {CNI_FOLDERS[0]} (Debian's containernetworking-plugins)")
    if (tar := environment.get("BASE_TAR")) and not Path(tar).is_file():
        missing.append(f"{tar}, which BASE_TAR names")
    try:
        load_helm()
    except ChartError as error:
        missing.append(str(error))
    return missing or Programs(named["NODE_BIN"], named["KUBEBUILDER_ASSETS"], cni[0])
