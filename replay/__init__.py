"""Replay HPAs on recorded load: `replay`, and `tune`, which searches for a better spec.

The decisions are those of `autoscaler.core` over the recorded values; only the workload (when a pod is ready, and its
share of the load) is a model. The running controller does not depend on this package, except for the what-if of its
pages.
"""
