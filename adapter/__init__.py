"""Process 1: custom.metrics.k8s.io and external.metrics.k8s.io, answered from Prometheus.

A request goes left to right, never back: HTTP, authenticate, authorize, route, catalog (which rule?), query (which
PromQL?), Prometheus, MetricValueList, encode.
"""
