"""Decisions: from an observation of an HPA to the desired replica count and the reasons for it.

Pure functions on typed data, after Kubernetes' podautoscaler package. No I/O, no clock, no randomness, no globals; the
import linter forbids modules that provide them.
"""
