"""OpenAPI: what the served APIs look like, for the API server that merges it into its own, and for `kubectl explain`.

    description   the APIs, once, as data
    documents     OpenAPI 2 and 3 written from it, as JSON
    protobuf      OpenAPI 2 as protobuf, which old clients ask for
    pages         what is answered at /openapi/v2 and /openapi/v3

Lists, times and quantities are described where they stand instead of by reference to Kubernetes' own definitions. The
API server has those too, in other words; of two definitions with one name it keeps both and renames one.
"""

from __future__ import annotations

from adapter.openapi.pages import OpenApiPage, OpenApiPages

__all__ = ["OpenApiPage", "OpenApiPages"]
