"""Whatever is asked: an answer or a Status, never another exception, and never what authorization did not see."""

import contextlib
import string

from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.discovery import Discovery
from adapter.encoding import Representation
from adapter.health import Health
from adapter.request_info import RequestInfo, Target
from adapter.routes import Call, Router
from adapter.telemetry import Telemetry
from kube.status import StatusError
from tests.adapter.serving import CannedMetrics, CannedNames

# Pieces that mean something, among others that do not.
SEGMENTS = st.one_of(
    st.sampled_from(
        ("namespaces", "metrics", "pods", "pods.", "a.b.c", "*", "%2A", "watch", "proxy", "status", "..", "%2e%2e", "")
    ),
    st.text(alphabet=string.printable.replace("?", "").replace("/", ""), max_size=8),
    st.text(max_size=4),
)
PARAMETERS = st.sampled_from(["labelSelector", "metricLabelSelector", "fieldSelector", "pretty", "watch", "foo"])
SELECTORS = st.one_of(st.text(alphabet="ab=!,()<> in", max_size=12), st.text(max_size=6))
PREFIXES = st.sampled_from(
    [
        "",
        "/apis",
        "/apis/custom.metrics.k8s.io/v1beta2",
        "/apis/custom.metrics.k8s.io/v1beta1/namespaces",
        "/apis/external.metrics.k8s.io/v1beta1/namespaces",
    ]
)
TARGETS = st.builds(
    lambda prefix, segments, pairs: (
        prefix
        + "".join(f"/{segment}" for segment in segments)
        + "?"
        + "&".join(f"{key}={value}" for key, value in pairs)
    ),
    PREFIXES,
    st.lists(SEGMENTS, max_size=6),
    st.lists(st.tuples(PARAMETERS, SELECTORS), max_size=2),
)
ROUTER = Router(
    discovery=Discovery(CannedNames(), custom=True, external=True, port=6443),
    custom=CannedMetrics(),
    external=CannedMetrics(),
    health=Health(alive={"ping": lambda: None}, ready={}),
    telemetry=Telemetry(),
)


@given(method=st.sampled_from(["GET", "HEAD", "POST", "DELETE", "FOO"]), raw=TARGETS, accept=st.text(max_size=20))
@settings(max_examples=400, deadline=None)
async def test_any_request_has_an_answer_or_a_status(method: str, raw: str, accept: str) -> None:
    try:
        target = Target.parse(raw)
        info = RequestInfo.of(method, target)
        call = Call(method=method, target=target, info=info, accept=accept, user_agent="", timeout=1.0)
        answer = await ROUTER.answer(call)
        code = answer.status
    except StatusError as error:
        code = error.code
        Representation().encode_error(error)
    assert code == 200 or 400 <= code < 500


@given(raw=TARGETS)
@settings(max_examples=400, deadline=None)
async def test_what_is_answered_is_what_was_authorized(raw: str) -> None:
    """The data path is asked for the very resource, name, metric and namespace that the attributes name."""
    metrics = CannedMetrics()
    router = Router(
        discovery=Discovery(CannedNames(), custom=True, external=True, port=6443),
        custom=metrics,
        external=metrics,
        health=Health(alive={}, ready={}),
        telemetry=Telemetry(),
    )
    with contextlib.suppress(StatusError):
        target = Target.parse(raw)
        info = RequestInfo.of("GET", target)
        await router.answer(Call(method="GET", target=target, info=info, accept="", user_agent="", timeout=1.0))
    for asked in metrics.asked:
        assert info.is_resource
        if info.group == "external.metrics.k8s.io":
            assert (info.resource, info.namespace) == (asked["metric"], asked["namespace"])
        elif (asked["resource"], asked["namespace"]) == ("namespaces", ""):
            assert (info.resource, info.name, info.namespace) == ("metrics", asked["metric"], asked.get("name", "*"))
        else:
            assert (info.namespace, info.subresource) == (asked["namespace"], asked["metric"])
            assert info.resource.partition(".")[::2] == (asked["resource"], asked["group"])
            assert info.name == asked.get("name", "*")


@given(accept=st.text(alphabet="*/;,=q.01 ajsonylmtextppication", max_size=40))
@settings(deadline=None)
def test_any_accept_header_can_be_read(accept: str) -> None:
    with contextlib.suppress(StatusError):
        Representation.negotiate(accept)
