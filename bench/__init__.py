"""Benchmarks of both processes, which make the figures of docs/performance.md.

They start real processes and measure them from outside; kube-controller-manager and prometheus-adapter get the same
load where they are installed. Nothing here is a test: the suite must not depend on figures.
"""
