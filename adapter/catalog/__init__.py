"""The metrics that the rules make: which rules exist, which series each has, which metrics they make, and who wins.

catalog         all metrics: of the rules file first, then of objects; what requests read
listings        when series are listed, and listed again
rule_states     from the series of a rule to its metrics; what is wrong with a rule
metric_index    the metrics: of the file, immutable; of objects, by name and namespace
inventory       from a rule and a series to metrics of resources

Requests never wait for anything here; values of metrics are fetched elsewhere.
"""
