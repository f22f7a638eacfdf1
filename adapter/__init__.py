"""Process 1: custom.metrics.k8s.io, external.metrics.k8s.io and metrics.k8s.io from Prometheus.

A request passes these stages once, in this order: HTTP, authenticate, authorize, route, catalog (which rule), plan
(which PromQL), cache, Prometheus, encode. docs/architecture.md has a drawing. Nothing here imports the autoscaler.
"""
