"""A kubectl that returns prepared objects, for tests without a cluster."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kubectl_milliscale.kubectl import Kubectl, KubectlError
from playground.apiserver.selection import Selection

NOT_FOUND = "Error from server (NotFound): the server could not find the requested resource"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedKubectl(Kubectl):
    """Returns `objects` by path, of lists those that the field selector matches; fails for other paths and commands.

    Forwards are recorded, and get `port`.
    """

    objects: Mapping[str, Any]
    port: int = 4000
    forwarded: list[str] = field(default_factory=list)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        if path not in self.objects:
            raise KubectlError(NOT_FOUND)
        found: dict[str, Any] = self.objects[path]
        if query and "fieldSelector" in query:
            selection = Selection.parse({"fieldSelector": query["fieldSelector"]})
            return {**found, "items": [each for each in found["items"] if selection.matches(each)]}
        return found

    def run(self, *arguments: str) -> str:
        raise AssertionError(f"kubectl was run: {arguments}")

    @contextmanager
    def port_forward(self, namespace: str, target: str, port: int | str) -> Iterator[int]:
        self.forwarded.append(f"{namespace} {target} {port}")
        yield self.port
