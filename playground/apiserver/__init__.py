"""A small Kubernetes API server in this process, on loopback, for the demo and the tests. See playground/README.md.

server              the HTTPS server and its routing
identity, rbac      authentication and authorization; requests parses paths, audit counts requests
aggregation         aggregated API servers; forwarded has the headers of their requests
discovery, reviews  computed responses
rest                the verbs on stored objects; encoding, tables, versions and paging are their forms
registry            the life of an object; admission has its defaults, scale its subresource
watching            changes as a stream; selection has the selectors
storage             objects, revisions and history
resource_types, bootstrap, pki   what is served, what exists at the start, certificates and kubeconfigs
"""

from playground.apiserver.audit import RequestCounts
from playground.apiserver.server import PlaygroundApiServer

__all__ = ["PlaygroundApiServer", "RequestCounts"]
