"""Settings that grow with the number of HPAs."""

from autoscaler.loop.options import Options


def test_the_number_of_workers_grows_with_the_hpas() -> None:
    assert [Options().workers_for(hpas) for hpas in (0, 99, 100, 1_000, 10_000)] == [5, 5, 6, 15, 105]
    assert Options(workers=2).workers_for(10_000) == 2


def test_the_rate_limit_grows_with_the_hpas() -> None:
    assert [Options().rate_limit_for(hpas) for hpas in (0, 100, 10_000)] == [(20, 30), (40, 60), (2020, 3030)]
    assert [Options().rate_limit_for(100, eager) for eager in (10, 5000)] == [(50, 75), (1040, 1560)]
    assert Options(sync_period=5).rate_limit_for(100) == (80, 120)
    assert Options(qps=10).rate_limit_for(10_000) == (10, 15)
    assert Options(qps=10, burst=40).rate_limit_for(10_000) == (10, 40)
    assert Options(burst=40).rate_limit_for(100) == (40, 40)
    assert Options(qps=-1).rate_limit_for(100) == (-1, 1)
