"""All scenarios, in the order in which they run."""

from tests.chaos import prometheus_scenarios
from tests.chaos.scenario import Scenario

SCENARIOS: tuple[Scenario, ...] = prometheus_scenarios.SCENARIOS
