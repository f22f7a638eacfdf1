"""From a request for a metric to the fewest queries of Prometheus that serve it.

metric_queries     the query of a request: its plan, and the coalesced query, if there is one
rendering          PromQL from a rule's template
separable          finds out whether one query has the values for all objects
coalescer          sends that query in the background, and serves requests from its result
coalescing_costs   whether it costs less than it saves
refresh_ahead      a TTL cache with single flight and refresh-ahead
vector_cache       the cache of Prometheus' results
vector_index       a cached vector with its index
rule_queries       coalesced, or else planned and executed; with a rule's policies and errors

HTTP, the shape of responses and the catalog of metrics are not decided here.
"""
