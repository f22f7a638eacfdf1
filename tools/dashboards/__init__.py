"""Generate the Grafana dashboards of manifests/components/*-monitoring: `make dashboards`.

A test compares the files with what this package generates, and another one runs each query against a real Prometheus.
"""
