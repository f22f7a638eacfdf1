"""Forecasts while they are served: what the value is, and when it is the plain one."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path

import pytest

from adapter.forecasts import registry
from adapter.forecasts.model import Expectation, ForecastModel, MinuteSeries
from adapter.forecasts.options import ForecastOptions
from adapter.forecasts.registry import ForecastKey, State
from adapter.metrics.external import ExternalMetrics
from adapter.metrics.forecasts import ForecastValues
from adapter.planning.rule_queries import RuleQueries
from adapter.rules import parse_rules
from adapter.settings import ForecastSettings
from kube.values.selectors import LabelSelector
from tests.adapter.forecasts.daily_load import DAY, EIGHT, KEY, Past, Served, load
from tests.adapter.metrics_env import CannedPrometheus, external_request, metrics_env, vector
from tests.eventually import eventually


async def test_value_is_what_is_expected_before_a_daily_step_and_the_plain_one_after_it() -> None:
    served = Served()
    assert served.forecasts.summary(KEY.rule) == "not requested: forecasts begin with a request"
    assert not served.forecasts.settled(KEY.rule)
    assert served.value() == load(served.now)
    assert served.state() == (State.LOADING, "its history is being read")
    await served.ready()
    assert 250 < served.value() < 331
    assert served.state() == (State.SERVED, "")
    assert served.forecasts.summary(KEY.rule) == "served"
    served.now = EIGHT + 3600.0
    for minute in range(70):  # the HPA goes on to request it
        served.now = EIGHT - 200 + 60 * minute
        served.value()
    assert served.value() == pytest.approx(load(served.now), rel=0.1)
    await served.refresh()
    outcomes = dict(re.findall(r'forecast_minutes_total\{outcome="(\w+)".*\} (\d+)', served.metrics()))
    assert outcomes == {"within": "64", "above": "0", "below": "0"}  # of 69, those whose horizon has passed
    assert 'milliscale_adapter_forecasts{rule="externalRules[0]",state="served"} 1.0' in served.metrics()


@pytest.mark.parametrize(
    ("past", "state", "reason"),
    [
        (Past(begin=EIGHT - 2 * DAY), State.NO_MODEL, "days of history, and at least 3 are needed"),
        (Past(error="Prometheus cannot be reached"), State.NO_HISTORY, "Prometheus cannot be reached"),
    ],
)
async def test_value_is_the_plain_one_without_a_history(past: Past, state: State, reason: str) -> None:
    served = Served(past)
    await served.ready()
    assert served.value() == load(served.now)
    assert served.state()[0] is state
    assert reason in served.state()[1]
    assert f'state="{state.value}"}} 1.0' in served.metrics()
    assert served.forecasts.summary(KEY.rule) == f"{state.value}: {served.state()[1]}"
    assert served.forecasts.settled(KEY.rule)


async def test_value_is_the_plain_one_at_a_level_that_the_model_has_not_seen() -> None:
    served = Served()
    await served.ready()
    assert served.value(5000.0) == 5000.0
    assert served.state() == (State.DOUBT, "the load is higher than any that the model has seen at this time of day")


async def test_load_that_was_zero_is_no_hole(tmp_path: Path) -> None:
    rules = parse_rules("externalRules: [{name: q, query: sum(q), forecast: {horizon: 5m, gate: off}}]", source="x")
    prometheus = CannedPrometheus(result=vector(({}, 0.0)))
    served = Served()
    async with metrics_env(tmp_path, rules, prometheus) as env:
        await env.catalog.relist()
        values = ForecastValues(served.forecasts, served.past)  # type: ignore[arg-type]  # nothing is read
        external = ExternalMetrics(env.catalog, RuleQueries(prometheus, telemetry=env.telemetry), forecasts=values)
        assert [value.milli for value in await external.values(external_request(metric="q"))] == [0]
        [one] = served.forecasts
        one.read = served.past.read
        await served.forecasts.refresh(one)
        for _ in range(30):
            served.now += 60
            assert [value.milli for value in await external.values(external_request(metric="q"))] == [0]
    assert one.state is State.SERVED


async def test_value_is_the_plain_one_after_a_hole_until_the_history_is_read_again() -> None:
    served = Served()
    await served.ready()
    served.now += DAY - 1800  # nobody requested it
    assert served.value() == load(served.now)
    assert served.state()[0] is State.DOUBT
    assert "minutes have no value" in served.state()[1]
    await served.refresh()
    served.now += 1800
    served.value()
    assert served.state()[0] is State.DOUBT  # half an hour is missing again
    served.now = EIGHT + DAY - 1800
    await served.refresh()
    served.value()
    assert served.state()[0] is State.SERVED


async def test_only_the_new_part_of_a_history_is_read_and_a_model_is_fitted_once_a_day() -> None:
    served = Served()
    await served.ready()
    [first] = served.past.reads
    assert first == (EIGHT - 240 - 5 * DAY, EIGHT - 240)
    [one] = served.forecasts.of_rule(KEY.rule)
    assert one.live is not None
    model, due = one.live.model, one.due
    assert (due - KEY.day_start(served.now)) % 3600 == 0 < due - served.now <= 3600
    served.now += 3600
    await served.refresh()
    assert served.past.reads[1:] == [(EIGHT - 180, EIGHT + 3360)]
    assert one.live.model is model
    served.now += DAY
    await served.refresh()
    assert one.live.model is not model


async def test_history_that_is_too_short_is_tried_again_every_hour_until_the_gate_knows() -> None:
    day_start = KEY.day_start(EIGHT)
    served = Served(Past(begin=day_start - 2.7 * DAY), ForecastOptions(horizon=300), now=day_start + 60.0)
    await served.ready()
    states = []
    for _ in range(15):
        states.append(served.state()[0])
        served.now += 4 * 3600
        await served.refresh()
        served.value()
    # Three days are nearly complete after 3.6 hours, and two more after 52.8.
    assert states == [State.NO_MODEL] + [State.GATE] * 13 + [State.SERVED]
    [one] = served.forecasts
    assert one.fitted_until == day_start + 53 * 3600
    late = Served(served.past, served.options, now=served.now)
    await late.ready()
    [other] = late.forecasts
    assert other.fitted_until == one.fitted_until  # replicas agree
    ungated = Served(served.past, now=day_start + 60.0)  # needs the first three days only
    await ungated.ready()
    ungated.now += 4 * 3600
    await ungated.refresh()
    [one] = ungated.forecasts
    assert (one.fitted_until, one.problem) == (day_start + 4 * 3600, None)


async def test_history_is_not_read_again_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    served, may_end = Served(Past(begin=EIGHT)), asyncio.Event()
    read = served.past.read

    async def held(start: int, end: int) -> list[tuple[float, float]]:
        points = await read(start, end)
        await may_end.wait()
        return points

    monkeypatch.setattr(registry, "_TICK_SECONDS", 0)
    monkeypatch.setattr(served.past, "read", held)
    served.value()
    running = asyncio.create_task(served.forecasts.run())
    for state in (State.LOADING, State.NO_MODEL):

        async def reached(state: State = state) -> bool:
            return served.state()[0] is state

        await eventually(reached, every=0.001)
        for _ in range(50):
            await asyncio.sleep(0)
        may_end.set()
    assert [thread for thread in threading.enumerate() if thread.name.startswith("forecasts")]
    running.cancel()
    await asyncio.wait([running])
    assert len(served.past.reads) == 1
    for thread in threading.enumerate():
        if thread.name.startswith("forecasts"):
            await asyncio.to_thread(thread.join, 60)
            assert not thread.is_alive()


async def test_history_of_other_objects_than_those_of_the_request_is_not_used() -> None:
    served = Served()
    await served.ready()
    served.past.factor = 3.0
    for _ in range(3):
        served.now += 60
        served.value()
    await served.refresh()
    assert served.value() == load(served.now)
    assert served.state()[0] is State.NO_HISTORY
    assert "its history is 3 times what is served" in served.state()[1]


async def test_forecasts_of_a_namespace_and_all_together_are_limited_and_others_go_on() -> None:
    served = Served(settings=ForecastSettings(total=3, of_namespace=2))
    names = (("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("b", "2"))
    keys = [ForecastKey("rule", "orders", namespace, of) for namespace, of in names]
    for each in keys:
        served.value(7.0, each)
    assert [one.key for one in served.forecasts] == [keys[0], keys[1], keys[3]]
    assert served.forecasts.refusal("rule") == "all forecasts count as 3 of at most 3"
    why = "its history is being read (orders in a (1))"
    assert served.forecasts.summary("rule") == f"3 loading: {why}"
    assert 'milliscale_adapter_forecasts{rule="rule",state="limit"} 1.0' in served.metrics()
    served = Served(settings=ForecastSettings(total=3))
    for each in (*keys[:3], keys[3], keys[2], keys[4]):  # the namespace with the most makes room for others
        served.value(7.0, each)
    assert [one.key for one in served.forecasts] == [keys[0], keys[1], keys[3]]
    of_all = ForecastKey("rule", "orders", "", "")  # a metric of the operators' makes no room for those of namespaces
    served.value(7.0, of_all)
    served.value(7.0, keys[1])
    assert [one.key for one in served.forecasts] == [keys[0], keys[3], of_all]
    # One with more than a fortnight of history takes the memory of two.
    served = Served(options=ForecastOptions(horizon=300, history=28 * DAY), settings=ForecastSettings(total=3))
    for each in keys:
        served.value(7.0, each)
    assert [one.key for one in served.forecasts] == [keys[0]]


async def test_selectors_of_a_metric_of_all_namespaces_are_in_the_share_of_the_one_that_requests_them(
    tmp_path: Path,
) -> None:
    rules = parse_rules("externalRules: [{name: q, query: sum(q), forecast: {horizon: 5m}}]", source="x")
    prometheus = CannedPrometheus(result=vector(({}, 5.0)))
    served = Served(settings=ForecastSettings(total=6, of_namespace=4))
    async with metrics_env(tmp_path, rules, prometheus) as env:
        await env.catalog.relist()
        values = ForecastValues(served.forecasts, served.past)  # type: ignore[arg-type]  # nothing is read
        external = ExternalMetrics(env.catalog, RuleQueries(prometheus, telemetry=env.telemetry), forecasts=values)
        served.value(7.0, ForecastKey("rule", "orders", "shop", "1"))
        served.value(7.0, ForecastKey("rule", "orders", "shop", "2"))
        for number in range(8):
            selector = LabelSelector.parse(f"!none-{number}")
            await external.values(external_request(metric="q", namespace="many", selector=selector))
    assert [one.owner for one in served.forecasts] == ["shop", "shop", "many", "many", "many", "many"]
    assert served.forecasts.refusal("externalRules[0]") == "the forecasts of namespace many count as 4 of at most 4"


async def test_replicas_have_the_same_model_and_verdict_whenever_they_began() -> None:
    options = ForecastOptions(horizon=300, history=6 * DAY)
    first, second = Served(options=options), Served(options=options, now=EIGHT + 2 * DAY + 5 * 3600)
    await first.ready()
    for _ in range(60):  # what it observes does not count once the history has been read
        first.now += 60
        first.value(load(first.now) * 1.1)
    first.now = EIGHT + DAY + 13 * 3600  # within the same day of the forecast
    await first.refresh()
    await second.ready()
    [one], [other] = first.forecasts, second.forecasts
    assert one.live is not None is not other.live
    assert one.live.model is not None is not other.live.model
    assert one.live.model.weights.tolist() == other.live.model.weights.tolist()
    assert (one.problem, one.fitted_until) == (other.problem, other.fitted_until)


async def test_load_that_is_not_expected_to_grow_is_served_as_it_is() -> None:
    plain = 20_000_001.1  # more digits than a history has
    served = Served(Past(constant=plain))
    await served.ready()
    assert served.value(plain) == plain
    assert served.state() == (State.SERVED, "")


async def test_only_another_value_or_another_minute_is_given_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several HPAs request the same metric, an eager one each second."""
    served, times = Served(), list[float]()
    await served.ready()
    expect = ForecastModel.expect

    def counted(model: ForecastModel, recent: MinuteSeries) -> Expectation | str:
        times.append(served.now)
        return expect(model, recent)

    monkeypatch.setattr(ForecastModel, "expect", counted)
    first = served.value()
    assert [served.value() for _ in range(4)] == [first] * 4
    assert len(times) == 1
    served.value(load(served.now) * 1.01)
    assert len(times) == 2
    served.now += 60
    served.value()
    assert len(times) == 3


async def test_forecast_begins_again_after_a_clock_that_was_a_year_ahead() -> None:
    served = Served()
    await served.ready()
    served.now += 365 * DAY
    served.value()
    await served.refresh()
    assert served.past.reads[-1][0] == served.now - (served.now % 60) - 5 * DAY  # and not a year
    served.now -= 365 * DAY
    served.value()
    await served.refresh()
    assert served.value() > 250
    assert served.state() == (State.SERVED, "")


@pytest.mark.parametrize("minutes", [0, 1, 59])
async def test_last_day_is_shown_up_to_the_last_request(minutes: int) -> None:
    served = Served()
    await served.ready()
    [one] = served.forecasts
    assert one.live is not None
    times = [time for time, *_ in one.live.day(served.now + 60 * minutes)]
    last = int(served.now) // 60 * 60
    assert times == [*range(last - DAY + 60, last + 60, 60)]


async def test_outage_of_an_hour_is_a_hole_and_no_failure_of_the_model() -> None:
    served = Served()
    await served.ready()
    seconds = [*range(0, 3600, 60), *range(3600, DAY - 300, 1200), DAY - 300, DAY + 3000]  # since 08:00, yesterday
    for since in seconds:
        served.now = EIGHT + since
        served.value()
    assert served.state()[0] is State.DOUBT


async def test_failure_of_a_model_is_no_error_of_the_metric() -> None:
    served = Served()
    await served.ready()
    [one] = served.forecasts.of_rule(KEY.rule)
    assert one.live is not None
    one.live.model = "no model"  # type: ignore[assignment]
    assert served.value() == load(served.now)
    assert served.state() == (State.NO_MODEL, "the model failed")


async def test_no_text_of_clients_is_in_metrics() -> None:
    served, growth = Served(), 'milliscale_adapter_forecast_growth{metric="orders",namespace="shop",rule="rule"} '
    for selector in ("app=1", "app=2"):
        served.value(key=ForecastKey("rule", "orders", "shop", selector))
        assert (f"{growth}1.0" in served.metrics()) == (selector == "app=1")
        assert selector not in served.metrics()


async def test_changed_rule_begins_again_and_a_removed_one_ends() -> None:
    served = Served()
    await served.ready()
    served.value(5.0, definition="other")
    assert served.state()[0] is State.LOADING
    served.forecasts.forget([KEY.rule])
    assert not served.forecasts.of_rule(KEY.rule)
    assert KEY.rule not in served.metrics()
