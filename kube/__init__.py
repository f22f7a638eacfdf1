"""The Kubernetes code that both processes share.

client, config, retries     requests to the API server; `mapping` finds resources in its discovery
listing, store, label_index lists and watches: objects in memory, and their indexes
election, sharding          leader election on a Lease; one Lease for each shard
workqueue, flowcontrol, events, error_log   parts of a controller: due objects, rate limits, Events, logged errors
security                    delegated authentication and authorization, TLS
serving                     the listener with its limits on connections, health checks, probes, flags of HTTPS servers
quantity, selectors, field_selectors, names, fields, durations, status   values, validation and errors of the API
flags, process, tasks, deadlines, single_flight, fairness, files, certs   command line, process and asyncio helpers

Nothing here knows of metrics or of scaling, or imports another package of this repository.
"""
