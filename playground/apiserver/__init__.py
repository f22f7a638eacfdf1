"""A Kubernetes API server on loopback, in this process: as small as the project's needs, as honest as they ask for."""

from playground.apiserver.audit import RequestCounts
from playground.apiserver.server import PlaygroundApiServer

__all__ = ["PlaygroundApiServer", "RequestCounts"]
