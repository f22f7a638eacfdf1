"""`check` and `explain`: which metrics the rules make of the series in Prometheus, and why a metric is missing.

    check, explain   the two reports, also served below /debug
    lint, query_lint   findings about the rules file alone, and about its PromQL
    checker          one rule that is not trusted, within limits
    probe            the values of example objects
    query_notes      what the authors of a query need to know beside its value
    forecasts        the forecast of a metric, made once
    report           the reports as data, encoded as JSON with -o json

The metrics come from the catalog, their values from the classes that serve requests.
"""
