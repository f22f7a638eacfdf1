"""HTTP: connections, the request path, routes, and everything that needs no metric value.

listener, connection  accept connections; limit their number, times and sizes
server                the request path: authenticate, authorize, route, encode
requests              requests and responses as routes see them
routes                paths; `resource_routes` those of metrics.k8s.io, `list_options` query parameters
discovery             which groups, versions and metrics there are; `aggregated_discovery` in one document
health                /healthz, /livez, /readyz, /metrics/slis and /statusz
telemetry             /metrics
debug_pages           /debug

Metric values and the queries for them belong to adapter.metrics and below.
"""
