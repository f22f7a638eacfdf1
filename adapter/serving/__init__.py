"""HTTP: connections, paths, and everything that is answered without a metric.

connection            one connection, its limits, and its mistakes
server                a request's way from headers to an answer
parsed_targets        request lines, read once
routes                which path is answered by what
list_options          query parameters
discovery             which groups, versions and metrics there are; `aggregated_discovery` in one document
health, status_page   /healthz, /livez, /readyz, and the page for people
telemetry             /metrics; `check_metrics` those of the health checks
debug_pages           /debug
"""
