"""Kubernetes JSON into the decision core's model: HPAs, scales, workloads and pods; also defaults and validation.

No I/O. An object that cannot be decoded is a ParseError or an HPA with a `problem`, never another exception.
"""
