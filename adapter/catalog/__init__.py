"""The metrics that the rules make of the series in Prometheus.

catalog         lists the series of every rule periodically, and finds metrics
snapshot        all metrics, immutable; replaced when they change
inventory       from a rule and a series to metrics of resources
values          the values of metrics, in integer milli-units
groups          the served API groups
rule_telemetry  the adapter's own metrics of its rules and of Prometheus

Requests never wait for anything here; values of metrics are fetched elsewhere.
"""
