"""Chaos tests: real processes, with faults between them and Prometheus or the API server (`python -m tests.chaos`).

proxy        the HTTP proxy that injects faults; faults has the faults, exchange what they work on
environment  the cluster, Prometheus, adapter and autoscaler with the proxies between them
promises     what must hold after each scenario
scenario     the form of a scenario
scenarios    all of them
run          runs them and prints the table
"""
