"""Credentials for Prometheus from the pod's service account or from a kubeconfig.

Prometheus is often behind a proxy that accepts the cluster's own credentials: `--prometheus-auth-incluster` and
`--prometheus-auth-config`. Here they become files and headers of PrometheusOptions. Certificates inside a kubeconfig
are written to temporary files, because the ssl module reads files.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from adapter.commands.options import PrometheusAccess
from adapter.prometheus import PrometheusConfigError, PrometheusOptions

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_UNSUPPORTED = ("exec", "auth-provider", "impersonate", "as")


@contextlib.contextmanager
def authorized_options(
    access: PrometheusAccess, *, service_account: Path = _SERVICE_ACCOUNT
) -> Iterator[PrometheusOptions]:
    """Yield the options with their credentials. Temporary files live as long as the context.

    With a CA file of its own, Prometheus does not get the cluster's credentials, as with prometheus-adapter.

    Raises:
        PrometheusConfigError: there is no service account, or the kubeconfig cannot be used for this.
    """
    options = access.options
    if options.ca_file is not None or (not access.in_cluster and access.kubeconfig is None):
        yield options
    elif access.kubeconfig is None:
        token = service_account / "token"
        if not token.is_file():
            raise PrometheusConfigError(
                "--prometheus-auth-incluster: not running in a pod with a service account "
                f"(there is no {token}); give --prometheus-auth-config or --prometheus-token-file"
            )
        ca_file = None if options.insecure_skip_tls_verify else service_account / "ca.crt"
        yield replace(options, token_file=options.token_file or token, ca_file=ca_file)
    else:
        with tempfile.TemporaryDirectory(prefix="prometheus-auth-") as directory:
            yield _Kubeconfig(access.kubeconfig, Path(directory)).apply(options)


class _Kubeconfig:
    """The current context of a kubeconfig; `directory` is for certificates that are written in it."""

    def __init__(self, path: Path, directory: Path) -> None:
        self._path = path
        self._directory = directory
        try:
            tree = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise self._error(str(error).splitlines()[0]) from error
        self._tree = tree if isinstance(tree, Mapping) else {}
        context = self._entry("contexts", "context", self._tree.get("current-context"))
        self._cluster = self._entry("clusters", "cluster", context.get("cluster"))
        self._user = self._entry("users", "user", context.get("user"))

    def apply(self, options: PrometheusOptions) -> PrometheusOptions:
        """Return the options with the context's credentials where they have none of their own."""
        for key in _UNSUPPORTED:
            if key in self._user:
                raise self._error(f"user.{key} is not supported for Prometheus; use a token or a client certificate")
        token_file = options.token_file or self._file(self._user, "tokenFile")
        return replace(
            options,
            headers=options.headers if token_file else options.headers + self._authorization(),
            token_file=token_file,
            ca_file=self._file(self._cluster, "certificate-authority"),
            cert_file=options.cert_file or self._file(self._user, "client-certificate"),
            key_file=options.key_file or self._file(self._user, "client-key"),
            insecure_skip_tls_verify=options.insecure_skip_tls_verify
            or self._cluster.get("insecure-skip-tls-verify") is True,
        )

    def _authorization(self) -> tuple[tuple[str, str], ...]:
        if token := self._user.get("token"):
            return (("Authorization", f"Bearer {token}"),)
        if name := self._user.get("username"):
            pair = f"{name}:{self._user.get('password', '')}"
            return (("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"),)
        return ()

    def _entry(self, section: str, kind: str, name: object) -> Mapping[str, Any]:
        entries = self._tree.get(section)
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, Mapping) and entry.get("name") == name and isinstance(entry.get(kind), Mapping):
                found: Mapping[str, Any] = entry[kind]
                return found
        raise self._error(f"there is no entry {name!r} under {section}")

    def _file(self, mapping: Mapping[str, Any], key: str) -> Path | None:
        """Return the file that a key names, relative to the kubeconfig, or a temporary one with the key's `-data`."""
        data = mapping.get(f"{key}-data")
        if data:
            path = self._directory / key
            try:
                path.write_bytes(base64.b64decode(data, validate=True))
            except (binascii.Error, TypeError, ValueError) as error:
                raise self._error(f"{key}-data is not base64") from error
            return path
        name = mapping.get(key)
        return self._path.parent / str(name) if name else None

    def _error(self, why: str) -> PrometheusConfigError:
        return PrometheusConfigError(f"--prometheus-auth-config={self._path}: {why}")
