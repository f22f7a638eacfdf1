"""HTTP: the listener, connections, routes, and all responses that are not metric values.

listener, connection       sockets and their limits; one connection
server                     the path of a request through the stages
requests, list_options     request lines and query parameters, parsed once
routes, resource_routes    which provider serves a path
discovery                  groups, versions and metrics; `aggregated_discovery` has them in one document
health, telemetry          /healthz, /livez, /readyz and /metrics
debug_pages                /debug

Values of metrics come from `adapter.metrics`; no query is planned or sent here.
"""
