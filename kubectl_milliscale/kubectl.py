"""Run kubectl: it knows the clusters and the user's credentials, and it forwards ports.

Every child process ends before the function or context that started it.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast
from urllib.parse import urlencode

import click

from kube.api.config import default_kubeconfig, own_namespace

_FORWARDING: Final = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) -> ")
_NO_CONTEXT: Final = "current-context must exist"
_UNAUTHORIZED: Final = "(Unauthorized)"
_STOP_SECONDS: Final = 5.0

DEFAULT_NAMESPACE: Final = "milliscale"
"""The namespace in manifests/base."""


class KubectlError(click.ClickException):
    """kubectl failed; the message is what it printed."""

    @property
    def is_not_found(self) -> bool:
        """True if the object, or its API, does not exist."""
        return "(NotFound)" in self.message

    def show(self, file: IO[Any] | None = None) -> None:
        """Print kubectl's message as it is, such as `Error from server (NotFound): ...`."""
        click.echo(self.message, file=file, err=file is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    """kubectl with the user's flags."""

    program: str = "kubectl"
    """The executable."""
    kubeconfig: Path | None = None
    """`--kubeconfig`; None for $KUBECONFIG, or ~/.kube/config."""
    context: str | None = None
    """`--context`; None for the current one."""
    given_namespace: str = ""
    """`--namespace`; "" for that of the context."""
    autoscaler_namespace: str = DEFAULT_NAMESPACE
    """That of the autoscaler's pods."""
    adapter_namespace: str = DEFAULT_NAMESPACE
    """That of the adapter's pods."""

    def run(self, *arguments: str) -> str:
        """Return what kubectl prints. Raises KubectlError."""
        with self._start(*arguments, stderr=subprocess.PIPE) as child:
            output, errors = child.communicate()
        if child.returncode != 0:
            if _UNAUTHORIZED in errors:
                errors = f"{errors.strip()}: {self._credentials()}"
            raise KubectlError(errors.strip() or f"error: kubectl ended with exit status {child.returncode}")
        return output

    def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the JSON at a path of the API server. Raises KubectlError."""
        url = f"{path}?{urlencode(query)}" if query else path
        try:
            return cast("dict[str, Any]", json.loads(self.run("get", "--raw", url)))
        except json.JSONDecodeError as error:
            raise KubectlError(f"error: the response to {path} is not JSON: {error}") from error

    @contextlib.contextmanager
    def port_forward(self, namespace: str, target: str, port: int | str) -> Iterator[int]:
        """Forward a free port on 127.0.0.1, and yield it.

        Args:
            namespace: of the target.
            target: KIND/NAME of a pod or a Service.
            port: of the target; of a pod also by its name.

        Raises:
            KubectlError: the port cannot be forwarded.
        """
        arguments = ("port-forward", f"--namespace={namespace}", "--address=127.0.0.1", target, f":{port}")
        with self._start(*arguments, stderr=subprocess.STDOUT) as child:
            assert child.stdout is not None, "it is a pipe"
            forwarded = _forwarded_port(child.stdout)
            # kubectl prints a line for each connection, and would wait if they were not read; this deque keeps none.
            reader = threading.Thread(target=deque, args=(child.stdout, 0), daemon=True)
            reader.start()
            try:
                yield forwarded
            finally:
                child.terminate()
                reader.join(_STOP_SECONDS)

    def namespace(self) -> str:
        """Return `--namespace`, or that of the context. Raises KubectlError."""
        if self.given_namespace:
            return self.given_namespace
        try:
            found = self.run("config", "view", "--minify", "-o", "jsonpath={.contexts[0].context.namespace}")
        except KubectlError as error:
            if _NO_CONTEXT not in error.message:
                raise
            return own_namespace(default="default")
        return found or "default"

    def client_flags(self) -> dict[str, Any]:
        """Return `kubeconfig` and `context` for commands that connect themselves; None: the pod's, the current one."""
        return {"kubeconfig": self.kubeconfig or default_kubeconfig(), "context": self.context}

    def _credentials(self) -> str:
        """Return which server refused which user of which kubeconfig."""
        names = "{.clusters[0].cluster.server} refused user {.contexts[0].context.user}"
        try:
            who = self.run("config", "view", "--minify", "-o", f"jsonpath={names}")
        except KubectlError:
            return "the server refused the user"  # of no kubeconfig, as in a pod
        return f"{who} of kubeconfig {self.client_flags()['kubeconfig']}"

    @contextlib.contextmanager
    def _start(self, *arguments: str, stderr: int) -> Iterator[subprocess.Popen[str]]:
        flags = {"--kubeconfig": self.kubeconfig, "--context": self.context}
        given = [f"{flag}={value}" for flag, value in flags.items() if value]
        command = [self.program, *given, *arguments]
        try:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, errors="replace")
        except OSError as error:
            reason = "is not on PATH" if isinstance(error, FileNotFoundError) else f"cannot be run: {error.strerror}"
            raise KubectlError(f"error: {self.program} {reason}") from error
        with child:
            try:
                yield child
            finally:
                child.terminate()
                try:
                    child.wait(_STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    child.kill()


def _forwarded_port(output: IO[str]) -> int:
    lines = []
    for line in output:
        if found := _FORWARDING.match(line):
            return int(found[1])
        lines.append(line)
    raise KubectlError("".join(lines).strip() or "error: kubectl port-forward ended without a message")
