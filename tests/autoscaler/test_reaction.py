"""How soon a scale-up followed the load, as records say it."""

from msgspec.structs import replace

from autoscaler.core.decide import decide
from autoscaler.core.decision import Decision
from autoscaler.core.history import History
from autoscaler.core.model import HPA
from autoscaler.core.observation import MetricError, Observation, PodsResponse, Scale, ValuesResponse
from autoscaler.records.build import build_record
from autoscaler.records.explanation import metric_cells
from autoscaler.records.reaction import Reactions, reaction_text
from autoscaler.records.record import ReactionRecord
from tests.autoscaler.simulated_cluster import (
    NOW,
    behavior,
    external_metric,
    hpa,
    percent,
    pods,
    pods_metric,
    rules,
    sample,
)

# NOW is 01:46:40.


class Load:
    """Reconciliations of an HPA that wants a replica for each 10."""

    def __init__(self, given: HPA) -> None:
        self._hpa = given
        self._reactions = Reactions()
        self._history = History()
        self._replicas = 2

    def sync(self, seconds: float, value: int, *, sampled: float | None) -> ReactionRecord | None:
        """Reconcile so long after NOW; a scale is written 0.2 s later."""
        now_ms = NOW + round(seconds * 1000)
        timestamp_ms = 0 if sampled is None else NOW + round(sampled * 1000)
        response = ValuesResponse(values=(value * 1000,), timestamp_ms=timestamp_ms, window_ms=60_000)
        scale = Scale(spec_replicas=self._replicas, status_replicas=self._replicas, selector="app=web")
        observation = Observation(hpa=self._hpa, scale=scale, pods=pods(self._replicas), responses=(response,))
        decision = decide(observation, self._history, now_ms)
        self._history = decision.history
        self._replicas = decision.scale_to or self._replicas
        return self._reactions.decided(decision, written_ms=now_ms + 200 if decision.scale_to else None)


def test_a_scale_up_names_the_samples_and_what_it_waited_for() -> None:
    load = Load(hpa(external_metric(10_000), behavior=behavior(up=rules(percent(1000, 1), window=20))))
    assert load.sync(0, 20, sampled=-7) is None
    assert load.sync(15, 40, sampled=8) is None  # held by the window of 20 s
    reaction = load.sync(30, 40, sampled=23)
    assert reaction == ReactionRecord(
        sufficed="2001-09-09T01:46:33.000Z",
        sampled="2001-09-09T01:46:48.000Z",
        sync_seconds=7.0,
        held_seconds=15.0,
        write_seconds=0.2,
        written="2001-09-09T01:47:10.200Z",
    )
    assert reaction_text(reaction) == (
        "called for by the sample of 01:46:48.0, not yet by that of 01:46:33.0, written at 01:47:10.2: "
        "7.0s of sync period, 15.0s of windows and policies, 0.2s of writing"
    )


def test_the_sync_period_counts_from_the_last_sync_that_could_not_see_the_sample() -> None:
    load = Load(hpa(external_metric(10_000)))
    load.sync(0, 20, sampled=-20)
    reaction = load.sync(15, 40, sampled=-5)
    assert reaction is not None
    assert "written at 01:46:55.2: 15.0s of sync period, 0.2s of writing" in reaction_text(reaction)


def test_what_is_not_known_is_not_said() -> None:
    """After a start, and where samples have no timestamps."""
    first, untimed = Load(hpa(external_metric(10_000))), Load(hpa(external_metric(10_000)))
    for reaction, text in (
        (
            first.sync(0, 40, sampled=-5),
            "called for by the sample of 01:46:35.0, written at 01:46:40.2: 0.2s of writing",
        ),
        (untimed.sync(0, 20, sampled=None), None),
        (untimed.sync(15, 40, sampled=None), "written at 01:46:55.2: 15.0s of sync period, 0.2s of writing"),
        (untimed.sync(30, 20, sampled=None), None),
    ):
        assert (reaction and reaction_text(reaction)) == text


def test_each_metric_says_how_old_its_newest_sample_was() -> None:
    queue, failing = external_metric(10_000), external_metric(10_000, name="failing")
    values = {f"web-{index}": sample(90_000, timestamp_ms=NOW - 1000 * (4 + index), window_ms=0) for index in range(2)}
    observation = Observation(
        hpa=hpa(pods_metric(100_000), queue, failing),
        scale=Scale(spec_replicas=2, status_replicas=2, selector="app=web"),
        pods=pods(2),
        responses=(
            PodsResponse(values),
            ValuesResponse(values=(20_000,), timestamp_ms=NOW - 3400, window_ms=60_000),
            MetricError("gone"),
        ),
    )
    decision: Decision = decide(observation, History(), NOW)
    record = build_record(decision)
    assert [(each.age_seconds, each.window_seconds) for each in record.metrics] == [(4, None), (3.4, 60), (None, None)]
    assert [list(metric_cells(each, is_winner=False))[-2] for each in record.metrics] == ["4.0s", "3.4s of 1m0s", "-"]
    untimed = replace(observation, responses=(PodsResponse({"web-0": sample(9, timestamp_ms=0)}), None, None))
    untimed = replace(
        untimed, hpa=hpa(pods_metric(100_000)), responses=untimed.responses[:1] if untimed.responses else ()
    )
    assert build_record(decide(untimed, History(), NOW)).metrics[0].age_seconds is None
