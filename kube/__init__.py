"""The Kubernetes code that both processes share.

client, config              requests to the API server; `mapping` finds resources in its discovery
listing, store, label_index lists and watches: objects in memory, and their indexes
election, sharding          leader election on a Lease; one Lease for each shard
workqueue, flowcontrol, events, error_log   parts of a controller: due objects, rate limits, Events, logged errors
security                    delegated authentication and authorization, TLS
serving                     the listener with its limits on connections, health checks, probes, flags of HTTPS servers
quantity, selectors, field_selectors, names, fields, objects, durations, status   values, validation, decoding, errors
flags, election_flags, process, files, certs   command line, process and files
tasks, deadlines, single_flight, fairness, retries   asyncio

Metrics and scaling do not belong here. No other package of this repository is imported.
"""
