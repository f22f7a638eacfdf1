"""Inputs to start fuzzing from: recorded cases, and a few that have every part of a format."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import yaml

from autoscaler.core.history import History, Recommendation, ScaleEvent
from autoscaler.core.model import HPAKey
from autoscaler.loop.histories import HistoryEntry, encode

_DATA = Path(__file__).resolve().parent.parent / "data"
_FOUND = _DATA / "fuzz"
_RECORDED = 150
"""Seeds of one file of recorded cases."""

_TEMPLATES = (
    "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
    '<<range $i, $v := .GroupBySlice>><<if $i>>,<<end>><<printf "%q" $v>><<else>>none<<end>>',
    '<<- with index .LabelValuesByName "pod" ->> <<len .>> <<. | printf "%s-%v" "a">><<end>>',
    '<</* note */>><<if and (eq .Series "a") (not (lt (len .GroupBy) 3))>>x<<else if or $>>y<<end>>',
    "<<$x := `raw`>><<$x = 1>><<$x>>",
)
_CALENDARS = (
    "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:a\nDTSTART;VALUE=DATE:20261225\nEND:VEVENT\nEND:VCALENDAR\n",
    (
        "BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:a\nDTSTART;TZID=Europe/Berlin:20260329T023000\nDURATION:PT2H\n"
        "RRULE:FREQ=YEARLY;INTERVAL=2;BYMONTH=3;BYDAY=-1SU;UNTIL=20400101T000000Z\nEXDATE:20280326T023000\n"
        "RDATE;VALUE=DATE:20270101,20270102\nEND:VEVENT\nBEGIN:VEVENT\nUID:a\nRECURRENCE-ID:20300331T023000\n"
        "DTSTART:20300401T000000Z\nDTEND:20300402T000000Z\nSTATUS:CANCELLED\nEND:VEVENT\nEND:VCALENDAR\n"
    ),
    (
        "BEGIN:VCALENDAR\nBEGIN:VTIMEZONE\nTZID:x\nBEGIN:STANDARD\nDTSTART:19700101T000000\nTZOFFSETFROM:+0000\n"
        "TZOFFSETTO:+0100\nRRULE:FREQ=SECONDLY\nEND:STANDARD\nEND:VTIMEZONE\nEND:VCALENDAR\n"
    ),
)
_CRONS = ("0 8 * * 1-5", "*/15 0-6,22 L JAN,DEC MON#1", "30 2 29 2 */7", "0 0 */31 * SUN,5L", "59 23 LW * 7")
_QUERIES = (
    'sum by (pod) (rate(http_requests_total{namespace="a",code!~"5.."}[5m] offset 1h)) / on (pod) group_left (x) b > 0',
    'histogram_quantile(0.9, sum(rate(x_bucket{job=~"a|b"}[1m])) by (le)) or vector(0) unless absent(y @ 5)',
    'label_replace(topk(3, {"a.b"}), "x", "$1", "y", "(.*)") and -1 ^ 2',
    "max_over_time(a[5m:30s] @ end())",
    r"^(?P<name>[a-z]{1,3})_\d+?(?:x|y)*$",
)
_ACCEPTS = (
    "application/vnd.kubernetes.protobuf,application/json",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList, */*;q=0.1",
    "text/html, application/yaml; pretty=1 ;q=0.9, *",
)
_PROTOBUF = ("queue_depth\0Pod\0ns-1\0queue\0q1\0tier\0silver", "é\0\0\0a\0b")
_STATUSES = (
    (
        '{"kind":"Status","status":"Failure","reason":"Invalid","message":"m","code":422,"details":{"name":"n","group":"g",'
        '"kind":"k","uid":"u","retryAfterSeconds":3,"causes":[{"reason":"r","message":"m","field":"f"}]}}'
    ),
    "<html>502 Bad Gateway</html>",
)
_HEADERS = (
    (
        "X-Remote-User: alice\nX-Remote-Group: dev\nX-Remote-Group: ops\nX-Remote-Uid: 1\n"
        "X-Remote-Extra-Scopes%2Fa: read\nAuthorization: Bearer abc\nImpersonate-User: bob"
    ),
    "Authorization: Bearer a.b.c\nX-Remote-User: system:admin",
)
_LINES = (
    "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns-1/pods/*/http_requests?labelSelector=app%3Dweb&limit=5",
    "/apis/external.metrics.k8s.io/v1beta1/namespaces/ns-1/queue?labelSelector=a+in+(b,c)&timeout=5s",
    "/apis/metrics.k8s.io/v1beta1/nodes?fieldSelector=metadata.name%3Da&watch=true",
    "/readyz?verbose&exclude=a",
)
_RESPONSES = (
    (
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"up","pod":"a"},'
        '"value":[1795163859.9,"1.5"]},{"metric":{},"value":[0,"NaN"]},{"metric":{"a":"b"},"histogram":[1,{}]}]},'
        '"warnings":["w"]}'
    ),
    '{"status":"success","data":{"resultType":"scalar","result":[1795163859.9,"-Inf"]}}',
    '{"status":"error","errorType":"bad_data","error":"no"}',
    '{"status":"success","data":[{"__name__":"up","pod":"a"},{"__name__":"up","node":"b"},{"x":"y"}]}',
)
_POD = (
    '{"metadata":{"name":"a","namespace":"n","uid":"1","labels":{"a":"b"},"ownerReferences":[{"kind":"ReplicaSet",'
    '"name":"r","uid":"2","controller":true}],"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"containers":[{"name":'
    '"c","resources":{"requests":{"cpu":"100m","memory":1}}}]},"status":{"phase":"Running","startTime":'
    '"2026-01-01T00:00:00Z","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}'
)
_SCALE = '{"metadata":{"name":"a","namespace":"n"},"spec":{"replicas":3},"status":{"replicas":2,"selector":"a=b"}}'


def seeds(target: str) -> Iterator[bytes]:
    """Yield the seeds of a target, and the inputs that once made it fail, which tests/data/fuzz has."""
    yield b""
    for path in sorted((_FOUND / target).glob("*")):
        yield path.read_bytes()
    match target:
        case "quantity":
            yield from _recorded("quantity.jsonl.gz", "input")
        case "selector":
            yield from _recorded("label_selectors.jsonl.gz", "input")
            yield b'{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"c","operator":"NotIn","values":["d"]}]}'
            yield b"metadata.name=a,metadata.namespace!=b"
            yield b"1h30m5.5s"
        case "rules":
            yield from (path.read_bytes() for path in sorted((_DATA / "rules").rglob("*.yaml")))
        case "saved-history":
            yield _history()
            yield gzip.decompress(_history())
        case "tenant-query":
            groups = yaml.safe_load((_DATA / "hostile_queries.yaml").read_text(encoding="utf-8")).values()
            yield from (query.encode() for group in groups for queries in group.values() for query in queries)
            yield from (query.encode() for query in _QUERIES)
        case "objects":
            yield from _recorded("hpa_validation.jsonl.gz", "input")
            yield from (text.encode() for text in (_POD, _SCALE))
        case _:
            texts = {
                "template": _TEMPLATES,
                "calendar": _CALENDARS,
                "cron": _CRONS,
                "promql": _QUERIES,
                "accept": _ACCEPTS,
                "protobuf": _PROTOBUF,
                "status": _STATUSES,
                "headers": _HEADERS,
                "request-line": _LINES,
                "prometheus": _RESPONSES,
            }
            yield from (text.encode() for text in texts[target])


def _recorded(name: str, field: str) -> Iterator[bytes]:
    with gzip.open(_DATA / name, "rt", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    for case in cases[:: max(1, len(cases) // _RECORDED)]:
        value = case.get(field)
        if value is not None:
            yield value.encode() if isinstance(value, str) else json.dumps(value).encode()


def _history() -> bytes:
    history = History(
        recommendations=(Recommendation(3, 1_799_999_990_000),),
        scale_up_events=(ScaleEvent(2, 1_799_999_980_000),),
        scale_down_events=(ScaleEvent(1, 1_799_999_970_000, outdated=True),),
        metric_failures=1,
        complete=True,
    )
    return encode({HPAKey("shop", "web", "autoscaling"): HistoryEntry("1", history)}, now_ms=1_800_000_000_000)[0]
