"""HTTP: the path of a request, routes, and all responses that are not metric values.

rule_sets                  one for each version of the rules file, with everything that belongs to it
server                     the request path: deadline, requests in flight, authentication, authorization, response
routes                     which provider serves a path, and with which parameters
usage_routes               the same for metrics.k8s.io
discovery                  groups, versions and metrics
debug_pages                /debug

Connections belong to `kube.serving`, values of metrics to `adapter.metrics`, queries to `adapter.planning`.
"""
