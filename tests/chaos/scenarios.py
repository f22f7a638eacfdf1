"""All scenarios, in the order in which they run."""

import os

from playground.kube_apiserver import find_assets
from tests.chaos import (
    adapter_api_scenarios,
    adapter_scenarios,
    api_server_scenarios,
    autoscaler_scenarios,
    etcd_scenarios,
    prometheus_scenarios,
    rule_object_scenarios,
)
from tests.chaos.scenario import Scenario

SCENARIOS: tuple[Scenario, ...] = (
    *prometheus_scenarios.SCENARIOS,
    *adapter_scenarios.SCENARIOS,
    *adapter_api_scenarios.SCENARIOS,
    *rule_object_scenarios.SCENARIOS,
    *api_server_scenarios.SCENARIOS,
    *autoscaler_scenarios.SCENARIOS,
    *(etcd_scenarios.SCENARIOS if find_assets(os.environ) else ()),
)
