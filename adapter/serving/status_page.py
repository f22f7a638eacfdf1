"""/statusz: what this process is and since when it runs.

Kubernetes' components have this page (k8s.io/component-base/zpages/statusz): text for people, and a document for
clients that ask for it by its kind. Plain JSON or YAML is refused, so that nobody comes to depend on the text's form.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Collection

import msgspec

from adapter.content.encoding import Conversion, Encoded, Representation
from kube.status import StatusError

_TEXT = "text/plain; charset=utf-8"
_FORMS = tuple(Conversion("Statusz", "config.k8s.io", version) for version in ("v1beta1", "v1alpha1"))
_WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for"
    " debugging purposes only."
)


class _Name(msgspec.Struct):
    name: str


class _Statusz(msgspec.Struct, rename="camel"):
    kind: str
    api_version: str
    metadata: _Name
    start_time: str
    uptime_seconds: int
    go_version: str
    binary_version: str
    paths: Collection[str]


class StatusPage:
    """The page of one process, which began when this was made; `clock` gives seconds since the epoch."""

    def __init__(self, *, version: str, clock: Callable[[], float] = time.time) -> None:
        self._version = version
        self._clock = clock
        self._started = clock()

    def answer(self, accept: str, paths: Collection[str]) -> Encoded:
        """The page in the form that Accept wants; `paths` are those that people may want to look at, too.

        Raises:
            StatusError: 406 for any other form.
        """
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._started))
        uptime = int(self._clock() - self._started)
        representation = self._negotiated(accept)
        if representation is None:
            hours, minutes, seconds = uptime // 3600, uptime // 60 % 60, uptime % 60
            lines = [
                "",
                "milliscale-adapter statusz",
                _WARNING,
                "",
                f"Started: {started}",
                f"Up: {hours} hr {minutes:02} min {seconds:02} sec",
                f"Python version: {platform.python_version()}",
                f"Binary version: {self._version}",
                f"Paths: {' '.join(paths)}",
            ]
            return Encoded("\n".join([*lines, ""]).encode(), _TEXT)
        if representation.conversion is None:
            names = "application/json, application/yaml, text/plain"
            raise StatusError(406, "NotAcceptable", f"only the following media types are accepted: {names}")
        document = _Statusz(
            kind="Statusz",
            api_version=f"{representation.conversion.group}/{representation.conversion.version}",
            metadata=_Name("milliscale-adapter"),
            start_time=started,
            uptime_seconds=uptime,
            go_version="",
            binary_version=self._version,
            paths=paths,
        )
        return representation.encode(document)

    def _negotiated(self, accept: str) -> Representation | None:
        """How a document is wanted, with or without a form that there is; None for text."""
        wanted = [clause.partition(";")[0].strip().lower() for clause in accept.split(",")]
        if not accept.strip() or any(media_type in ("text/plain", "text/*", "*/*") for media_type in wanted):
            return None
        try:
            return Representation.negotiate(accept, offered=_FORMS)
        except StatusError:
            return Representation(None)
