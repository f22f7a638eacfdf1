"""Prometheus's targets are the pods that listen, labelled as a cluster's scrape configuration labels them."""

from playground.pod_discovery import targets
from playground.prometheus import Target
from playground.views import Metadata, Pod, Service, ServiceSpec

SHOP = Service(metadata=Metadata(name="shop"), spec=ServiceSpec(selector={"app": "shop", "version": "2"}))
HEADLESS = Service(metadata=Metadata(name="manual"))


def test_target_has_namespace_pod_and_service_labels() -> None:
    pods = [
        Pod(metadata=Metadata(name="shop-0", labels={"app": "shop", "version": "2"})),
        Pod(metadata=Metadata(name="shop-1", labels={"app": "shop"})),
    ]
    addresses = {"shop-0": "127.0.0.1:1", "shop-1": "127.0.0.1:2"}
    assert targets(pods, [HEADLESS, SHOP], namespace="default", addresses=addresses) == [
        Target(address="127.0.0.1:1", labels={"namespace": "default", "pod": "shop-0", "service": "shop"}),
        Target(address="127.0.0.1:2", labels={"namespace": "default", "pod": "shop-1"}),
    ]


def test_pod_without_address_is_no_target() -> None:
    assert targets([Pod(metadata=Metadata(name="a"))], [SHOP], namespace="default", addresses={}) == []
