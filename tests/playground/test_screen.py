"""The demo's screen shows load, metric against target, replicas, problems and events; without a terminal, in lines."""

import io
from dataclasses import replace

import msgspec
from rich.console import Console, RenderableType

from playground.scoreboard import Standing, Tally
from playground.screen import Picture, Row, draw, event_line, plain_lines, summary
from playground.views import Deployment, DeploymentSpec, DeploymentStatus, Event, Hpa, Metadata, Reference


def an_hpa(*, problem: str = "", **current: str) -> Hpa:
    metric = {"metric": {"name": "packets_per_second"}, "target": {"averageValue": "100"}, "current": current}
    reason, _, message = problem.partition(": ")
    condition = {
        "type": "ScalingActive",
        "status": "False" if problem else "True",
        "reason": reason,
        "message": message,
    }
    hpa = Hpa.select(
        {
            "metadata": {"name": "router"},
            "spec": {"scaleTargetRef": {"name": "router"}, "maxReplicas": 8, "metrics": [{"pods": metric}]},
            "status": {"currentMetrics": [{"pods": metric}], "conditions": [condition]},
        }
    )
    assert hpa is not None
    return hpa


ABOUT = Reference(kind="HorizontalPodAutoscaler", name="router")
NAMED = Metadata(name="router")
EVENT = Event(metadata=NAMED, involved_object=ABOUT, reason="SuccessfulRescale", message="New size: 3")
STANDING = Standing(
    an_hpa(averageValue="87500m"),
    Deployment(metadata=NAMED, spec=DeploymentSpec(replicas=5), status=DeploymentStatus(ready_replicas=3)),
    Tally(ups=2, downs=1, lowest=1, highest=7, largest="142500m"),
)
PICTURE = Picture(
    elapsed=34.4,
    limit=90,
    rows=[Row(STANDING, load=412.3, history=[0, 200, 400])],
    events=[EVENT],
)


def printed(what: RenderableType, *, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, legacy_windows=False)
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_live_screen_shows_load_metric_replicas_and_events() -> None:
    screen = printed(draw(PICTURE), width=80)
    for part in ["34 s", "ends after 90 s", "412/s", "▁▅█", "87.5 / 100", "■■■■■··· 5", "2/1"]:
        assert part in screen
    assert "horizontalpodautoscaler/router: SuccessfulRescale: New size: 3" in screen


def test_problem_of_an_hpa_is_shown() -> None:
    hpa = an_hpa(problem="FailedGetPodsMetric: unable to get metric packets_per_second")
    picture = replace(PICTURE, rows=[Row(replace(STANDING, hpa=hpa), load=0, history=[])])
    assert "- / 100" in printed(draw(picture))
    assert "router: FailedGetPodsMetric: unable to get metric packets_per_second" in printed(draw(picture))
    assert plain_lines(picture)[0].endswith("; FailedGetPodsMetric"), "the event has the message"


def test_an_hpa_without_a_load_of_its_own_has_none() -> None:
    picture = replace(PICTURE, rows=[Row(STANDING, load=None, history=[])])
    assert "load -, packets_per_second" in plain_lines(picture)[0]
    assert "/s" not in printed(draw(picture)).split("router", 1)[1].splitlines()[0]


def test_last_events_are_shown_without_markup() -> None:
    events = [msgspec.structs.replace(EVENT, message=f"[bold]size[/bold] {number} [link") for number in range(100, 120)]
    screen = printed(draw(replace(PICTURE, events=events, limit=None)))
    assert "[bold]size[/bold] 119 [link" in screen
    assert "size[/bold] 105" not in screen
    assert "Ctrl-C ends it" in screen


def test_plain_output_has_a_line_per_hpa() -> None:
    assert plain_lines(PICTURE) == ["  34 s  router   load 412/s, packets_per_second 87.5 of 100, 5 replicas, 3 ready"]
    repeated = msgspec.structs.replace(EVENT, count=2)
    assert event_line(repeated) == "horizontalpodautoscaler/router: SuccessfulRescale (2 times): New size: 3"


def test_summary_has_the_number_of_scalings() -> None:
    text = printed(summary([STANDING]), width=80)
    for part in ["router", "packets_per_second", "142.5", "2 x", "1 x", "1 to 7"]:
        assert part in text
