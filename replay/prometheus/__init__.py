"""The recorded load from Prometheus.

source    the load of some HPAs: everything below together
rules     from an HPA's metrics to PromQL, by the adapter's own rules
workload  the target's pods, replicas and requests
ranges    range queries in chunks, of which the past is cached
cache     the chunks on disk
client    prometheus-api-client, with the adapter's credentials, a deadline, retries and errors in one sentence
"""
