"""The values of metrics for one request, before they are encoded.

requests          what the router passes to the providers
custom            metrics of objects
external          metrics that describe no object of the cluster
resource_metrics  CPU and memory of nodes and pods
forward           external metrics of other adapters
objects           the objects that a selector matches, in memory

Neither HTTP nor PromQL belongs here.
"""
