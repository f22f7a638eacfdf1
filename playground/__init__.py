"""A local cluster on loopback for `make demo`, tests and benchmarks: API server, pods with a load, Prometheus.

It is a test double: it emulates what the two processes need of Kubernetes (see README.md here), and runs them
unchanged. The image does not have it, and neither the adapter nor the autoscaler may import it.
"""
