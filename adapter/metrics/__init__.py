"""The values of metrics for one request: what the three APIs answer with, before it is encoded.

custom            metrics of objects
external          metrics of nothing in the cluster
resource_metrics  CPU and memory of nodes and pods, with `usage` for their shape
forward           external metrics that another adapter has
objects           the names of the objects that a selector matches; `watched_objects` has them in memory
"""
