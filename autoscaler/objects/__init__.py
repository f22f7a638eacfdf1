"""Kubernetes JSON into the decision core's model: HPAs, scales, workloads and pods; also defaults and validation.

No I/O. An object that cannot be decoded is an error or an invalid object, never an exception of another kind.
"""
