"""From a request for a metric to the fewest queries of Prometheus that serve it.

metric_queries     the query of a request: PromQL from a rule's template, its plan, and the coalesced query, if any
coalescer          sends coalesced queries in the background, and serves requests from their results
sample_times       when the next sample can be there, for the refresh
vectors            the cache of Prometheus' results, each with its index
slow_queries       limits how long the requests of a namespace wait
rule_queries       evaluates a request's query, coalesced or alone, with the rule's policies and errors

HTTP, response formats and the catalog of metrics do not belong here.
"""
