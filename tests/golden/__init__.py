"""Recorded answers of prometheus-adapter, and a bed in which our adapter is asked the same.

`python -m tests.golden` (`make golden`) starts what the answers were recorded with: an API server with its objects and
users, a real Prometheus with an application's series, and the adapter as a process of its own. Every case is sent as it
was then, and the answer and what Prometheus was asked are compared. Where we want to do better than what was recorded,
`wanted` says so, rule by rule; everything else must be the same.

    cases           a recorded case, read from a file
    application     the series of the measured application
    bed             the cluster, its users, Prometheus and the adapter
    prometheus_tap  between adapter and Prometheus: notes what is asked, and fails where a case says so
    wanted          what a case's answer must be, made from what was recorded
    verdict         whether an answer is that
    runner          all cases of a file, one after the other
"""
