"""Run kubectl: it knows the clusters and the user's credentials, and it forwards ports.

Every child process ends before the function or context that started it.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import threading
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
    """kubectl with the user's flags.

    Attributes:
        program: the executable.
        kubeconfig: `--kubeconfig`; "" for $KUBECONFIG, or ~/.kube/config.
        context: `--context`; "" for the current one.
        given_namespace: `--namespace`; "" for that of the context.
    """

    program: str = "kubectl"
    kubeconfig: str = ""
    context: str = ""
    given_namespace: str = ""

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
        try:
            return cast("dict[str, Any]", json.loads(self.run("get", "--raw", _url(path, query))))
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
            forwarded = _forwarded_port(child)
            # kubectl prints a line for each connection, and would wait if nobody read them.
            reader = threading.Thread(target=_discard, args=(_output(child),), daemon=True)
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
        path = Path(self.kubeconfig) if self.kubeconfig else default_kubeconfig()
        return {"kubeconfig": path, "context": self.context or None}

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


def _url(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _output(child: subprocess.Popen[str]) -> IO[str]:
    assert child.stdout is not None, "it is a pipe"
    return child.stdout


def _forwarded_port(child: subprocess.Popen[str]) -> int:
    lines = []
    for line in _output(child):
        if found := _FORWARDING.match(line):
            return int(found[1])
        lines.append(line)
    raise KubectlError("".join(lines).strip() or "error: kubectl port-forward ended without a message")


def _discard(lines: IO[str]) -> None:
    for _ in lines:
        pass
