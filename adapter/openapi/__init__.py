"""OpenAPI documents of the served APIs, for the API server that merges them into its own, and for `kubectl explain`.

v3/          the documents of OpenAPI 3 as JSON, one for each path of the index, named as in Kubernetes' repository
documents    reads them, derives OpenAPI 2 from them, and serves both as JSON

Lists, times and quantities are described in place instead of by reference to Kubernetes' own definitions. The API
server also has those definitions, with other descriptions; of two definitions with the same name it keeps both and
renames one. The documents do not list the metrics.
"""

from __future__ import annotations

from adapter.openapi.documents import openapi_documents

__all__ = ["openapi_documents"]
