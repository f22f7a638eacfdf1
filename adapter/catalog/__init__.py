"""Which metrics there are: what the rules make of the series that Prometheus has.

catalog         lists the series of every rule again and again, and knows what can be asked for
inventory       which metric of which resource comes from which rule and series
values          what a metric's value is, in integer milli-values
groups          the API groups that metrics are served in
rule_telemetry  what became of each rule's listings and queries, for /metrics
"""
