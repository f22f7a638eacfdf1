"""A Kubernetes API server on loopback, in this process: as small as the project's needs, as honest as they ask for.

Its rooms, from the outside in:

    server              the listener, and the way of a request
    identity, rbac      who asks, and may they (requests reads what is asked; audit counts it)
    aggregation         other API servers behind this one
    discovery, openapi, reviews: answers that are computed
    rest                the verbs on stored objects; encoding, tables and versions say in which form
    registry            the rules of an object's life; shapes and admission know the kinds, patches and scale change one
    watching            changes as a stream; selection says of which objects
    storage             the objects, their revisions and their history

`resource_types` is the table of what is served, `bootstrap` (with its YAML) what is there from the start, `pki` makes
the certificates and kubeconfigs. Texts, status codes and orderings are those of Kubernetes 1.36.
"""

from playground.apiserver.audit import RequestCounts
from playground.apiserver.server import PlaygroundApiServer

__all__ = ["PlaygroundApiServer", "RequestCounts"]
