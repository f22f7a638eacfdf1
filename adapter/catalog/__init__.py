"""The metrics that the rules make of the series in Prometheus.

catalog         lists the series of every rule periodically, and finds metrics
snapshot        all metrics at one moment
inventory       which metric of which resource a rule makes of a series
values          the values of metrics, in integer milli-units
groups          the API groups that are served
rule_telemetry  the adapter's own metrics of its rules and of Prometheus

Requests never wait for anything here; values of metrics are fetched elsewhere.
"""
