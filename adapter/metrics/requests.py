"""Requests for metric values, as the router passes them to the providers."""

from __future__ import annotations

import math

import msgspec

from kube.values.selectors import EVERYTHING, LabelSelector

ALL_OBJECTS = "*"
"""The name in a request for all objects that the selector matches."""


class CustomMetricRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a custom metric of one object, or of all that a selector matches."""

    resource: str
    """Plural or singular; "namespaces" for a metric of a namespace itself."""
    group: str
    """The resource's API group; "" also finds resources that only another group has."""
    namespace: str
    """The objects' namespace; "" for cluster-scoped objects, namespaces among them."""
    name: str
    """The object's name, or ALL_OBJECTS."""
    metric: str
    """The metric's name."""
    selector: LabelSelector = EVERYTHING
    """Selects the objects; used with ALL_OBJECTS only."""
    metric_selector: LabelSelector = EVERYTHING
    """Selects the metric's series."""
    deadline: float = math.inf
    """When the response is due, by the event loop's clock."""


class ExternalMetricRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an external metric's series; rules with `namespaced: false` ignore the namespace."""

    namespace: str
    metric: str
    selector: LabelSelector = EVERYTHING
    deadline: float = math.inf
