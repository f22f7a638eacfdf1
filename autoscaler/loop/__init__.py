"""The running controller: everything that talks to the API server or owns a task.

queue, reconcile            which HPA is due; one reconciliation: observe, decide, act
observe, metrics_client     all reads of a reconciliation; `metrics_query_coalescer` coalesces metric queries
scales, events, throttle    writes, and the limit on requests
hpas, workloads, pod_owners, selector_index   watched objects and their indexes
histories, saved_history    recommendations and scale events, in the process and in a ConfigMap
sharding, foreign_writer    which HPAs this process acts on
controller, process         owners of all this

How many replicas an HPA gets is decided in `autoscaler.core` only.
"""
