"""Warnings about a rule in the log."""

from __future__ import annotations

import logging

import pytest

from adapter.planning.rule_queries import RuleQueries
from adapter.telemetry import RuleTelemetry
from tests.adapter.coalescing_rules import RAW, rule
from tests.adapter.metrics_env import CannedPrometheus


def test_warnings_are_bounded_in_number_and_length(caplog: pytest.LogCaptureFixture) -> None:
    queries = RuleQueries(CannedPrometheus(), telemetry=RuleTelemetry())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            for n in range(1_000):
                queries.warn_once(rule(RAW), f"printf 'pod={n}': " + "more arguments than verbs " * 1_000)
    assert len(caplog.messages) == 8
    assert max(map(len, caplog.messages)) < 600
    assert sum(len(warning) for warned in queries._warned.values() for warning in warned) < 5_000

    caplog.clear()
    queries = RuleQueries(CannedPrometheus(), telemetry=RuleTelemetry())  # of the next version
    with caplog.at_level(logging.WARNING):
        queries.warn_once(rule(RAW), "left out a sample")
        queries.warn_once(rule(RAW), "left out a sample")
    assert len(caplog.messages) == 1
