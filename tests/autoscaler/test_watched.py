"""Objects from the watches."""

import pytest

from autoscaler.objects.hpa import track_hpa
from autoscaler.objects.workloads import track_pod


def test_an_object_that_cannot_be_parsed_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    odd = {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"maxReplicas": "many", "containers": 3}}
    hpa = track_hpa(odd)
    assert hpa is not None
    assert hpa.problem
    assert track_pod(odd) is None
    assert [record.message.count("default/odd") for record in caplog.records] == [1]
