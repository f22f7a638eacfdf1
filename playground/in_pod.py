"""Programs as in a pod: they find the API server and their token where a pod has them, and read no kubeconfig."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from playground.apiserver import PlaygroundApiServer

NAMESPACE: Final = "milliscale"
# It imports what is not of the program in the same way as the program does.
_PROGRAM: Final = """
import runpy, sys
from kube.process.starting import importing
with importing():
    from pathlib import Path
    from kube.api import config
module, folder, *arguments = sys.argv[1:]
config._SERVICE_ACCOUNT = Path(folder)
sys.argv[1:] = arguments
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


class ServiceAccount:
    """The files and variables that a pod has; the account may do everything."""

    def __init__(self, folder: Path, server: PlaygroundApiServer) -> None:
        """Create the account, and write the files."""
        account = {"name": "pod", "namespace": NAMESPACE}
        server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        server.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        server.create(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "pod"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", **account}],
            }
        )
        self._folder = folder
        self._url = urlsplit(server.url)
        folder.mkdir()
        (folder / "token").write_text(server.token(NAMESPACE, "pod"))
        (folder / "ca.crt").write_bytes(server.pki.serving_ca.cert_pem)

    def command(self, module: str, *arguments: str, before: str = "") -> list[str]:
        """Return the command that runs a module; `before` is Python that runs before it."""
        variables = {"HOST": self._url.hostname, "PORT": self._url.port}
        environment = [f"KUBERNETES_SERVICE_{name}={value}" for name, value in variables.items()]
        return ["env", *environment, sys.executable, "-c", before + _PROGRAM, module, str(self._folder), *arguments]
