"""The recorded load from Prometheus.

source          the load of some HPAs: everything below together
rules           from an HPA's metrics to PromQL, by the adapter's own rules, or by default ones
workload        the target's pods, replicas and requests
ranges          range queries in chunks, of which the past is cached on disk
client          prometheus-api-client over the adapter's HTTP, with one deadline for a query and its retries
"""
