"""The recorded load from Prometheus.

source          the load of some HPAs: everything below together
rules           from an HPA's metrics to PromQL, by the adapter's own rules
default_rules   the rules where there is no rules file
workload        the target's pods, replicas and requests
ranges          range queries in chunks, of which the past is cached
cache           the chunks on disk
client          prometheus-api-client, with one deadline for a query and its retries
session         its HTTP: the adapter's credentials, and errors in one sentence
"""
