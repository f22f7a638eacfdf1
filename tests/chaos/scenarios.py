"""All scenarios, in the order in which they run."""

from tests.chaos import api_server_scenarios, autoscaler_scenarios, prometheus_scenarios
from tests.chaos.scenario import Scenario

SCENARIOS: tuple[Scenario, ...] = (
    *prometheus_scenarios.SCENARIOS,
    *api_server_scenarios.SCENARIOS,
    *autoscaler_scenarios.SCENARIOS,
)
