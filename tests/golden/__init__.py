"""Recorded responses of prometheus-adapter, compared with our adapter's to the same requests.

`python -m tests.golden` (`make golden`) starts the environment of the recording: an API server with its objects and
users, a real Prometheus with an application's series, and the adapter as a process of its own. It sends the requests
again and compares the responses and the queries that Prometheus got. Intended differences from prometheus-adapter are
rules in `expected`; everything else must be the same.

    cases           a recorded case, read from a file
    application     the series of the measured application
    environment     the cluster, its users, Prometheus and the adapter
    prometheus_tap  a proxy before Prometheus that records queries, and fails if a case requires it
    expected        the expected response to a case, made from the recorded one
    verdict         compares a response with the expected one
    runner          all cases of a file, one after the other
"""
