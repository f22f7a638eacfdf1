"""/statusz: text for people, a document for who asks for it by its kind, and nothing else."""

import json

import pytest

from adapter.serving.status_page import StatusPage
from kube.status import StatusError

PATHS = ("/healthz", "/metrics")


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def page() -> StatusPage:
    clock = Clock()
    page = StatusPage(version="1.2.3", clock=clock)
    clock.now += 3_725
    return page


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain", "text/plain;q=0.9, application/json"])
def test_text(page: StatusPage, accept: str) -> None:
    content = page.answer(accept, PATHS)
    assert content.content_type == "text/plain; charset=utf-8"
    lines = content.body.decode().splitlines()
    assert lines[1] == "milliscale-adapter statusz"
    assert "Started: 2023-11-14T22:13:20Z" in lines
    assert "Up: 1 hr 02 min 05 sec" in lines
    assert "Binary version: 1.2.3" in lines
    assert "Paths: /healthz /metrics" in lines


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha1"])
def test_a_document_for_who_asks_by_its_kind(page: StatusPage, version: str) -> None:
    media_type = f"application/json;g=config.k8s.io;v={version};as=Statusz"
    content = page.answer(media_type, PATHS)
    assert content.content_type == media_type
    document = json.loads(content.body)
    assert (document["kind"], document["apiVersion"]) == ("Statusz", f"config.k8s.io/{version}")
    assert (document["startTime"], document["uptimeSeconds"]) == ("2023-11-14T22:13:20Z", 3725)


@pytest.mark.parametrize(
    "accept", ["application/json", "application/yaml", "image/png", "application/json;as=Table;v=v1"]
)
def test_any_other_form_is_refused(page: StatusPage, accept: str) -> None:
    with pytest.raises(StatusError) as refused:
        page.answer(accept, PATHS)
    assert (refused.value.code, refused.value.reason) == (406, "NotAcceptable")
    assert str(refused.value) == (
        "only the following media types are accepted: application/json, application/yaml, text/plain"
    )
