"""The running controller: everything that calls the API server or owns a task.

reconcile                   one reconciliation: observe, decide, act
observe, metrics_client     all reads of a reconciliation; `metrics_query_coalescer` coalesces metric queries
scales, clients             writes, and the limits on requests
hpas, pod_owners            watched objects
histories, saved_history    recommendations and scale events, in the process and in a ConfigMap
foreign_writer              detects HPAs on which another controller acts
pages                       serves the web pages, and labels the leader for their Service
endpoint                    the endpoint of health checks, metrics and debug pages
controller                  owns all other parts

Queue, rate limits, events, election and shards are in `kube`, because they work for any controller.

Replica counts are decided in `autoscaler.core` only.
"""
