"""The recorded load from Prometheus.

source          the load of some HPAs: everything below together
rules           from an HPA's metrics to PromQL, by the adapter's own rules
default_rules   the rules where there is no rules file
workload        the target's pods, replicas and requests
ranges          range queries in chunks, of which the past is cached
cache           the chunks on disk
client          prometheus-api-client over the adapter's HTTP, with one deadline for a query and its retries
errors          what is wrong with a server, in one sentence
"""
