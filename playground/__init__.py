"""A local cluster on loopback, for `make demo` and for tests: the Kubernetes API, pods with a load, Prometheus."""
