"""The Prometheus servers of triggers: each becomes an entry of prometheusServers in the adapter's rules file."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from adapter.prometheus import PrometheusOptions

_NOT_NAME = re.compile(r"[^a-z0-9-]+")
_SERVICE = re.compile(r"\.svc(\.cluster\.local)?\.?$")


class Servers:
    """The servers that triggers need, each once.

    Args:
        default_url: the address of --prometheus-url; "" if it is not known.
        known: the servers of the rules file.
    """

    def __init__(self, *, default_url: str = "", known: Iterable[PrometheusOptions] = ()) -> None:
        self._default_url = _address(default_url)
        known = tuple(known)
        self._known = {(_address(one.url), one.headers): one.name for one in known}
        self._taken = {*self._known.values(), "default"}
        self.closed = frozenset(one.name for one in known if not one.tenants)
        """The known servers that MetricRules may not use yet."""
        self._names: dict[str, str] = {}
        self.entries: dict[str, dict[str, Any]] = {}
        """The servers to add to the rules file, by name."""

    def name_of(self, entry: Mapping[str, Any], *, files: Mapping[str, str]) -> str:
        """Return the name of the server for an entry of prometheusServers, or "" for that of --prometheus-url.

        `files` are further keys of the entry, by the names of the files.

        Raises:
            ValueError: the address is not that of a Prometheus.
        """
        url = _address(entry["url"])
        headers = tuple(entry.get("headers", {}).items())
        if not entry.keys() - {"url", "headers"} and not files:
            if url == self._default_url and not headers:
                return ""
            if (url, headers) in self._known:
                return self._known[url, headers]
        key = json.dumps([{**entry, "url": url}, files], sort_keys=True)
        if key not in self._names:
            PrometheusOptions(url=entry["url"])
            self._names[key] = name = self._new_name(entry["url"])
            paths = {key: f"/etc/milliscale/{name}/{file}" for key, file in files.items()}
            self.entries[name] = {**entry, **paths, "tenants": True}
        return self._names[key]

    def _new_name(self, url: str) -> str:
        """Return the host's first label, or the host, or the host with a number."""
        host = _SERVICE.sub("", urlsplit(url).hostname or "")
        first, whole = host.partition(".")[0], _NOT_NAME.sub("-", host)
        numbered = (f"{whole}-{number}" for number in itertools.count(2))
        candidates = itertools.chain([whole if first.isdigit() else _NOT_NAME.sub("-", first), whole], numbered)
        name = next(one for one in candidates if one not in self._taken)
        self._taken.add(name)
        return name


def _address(url: str) -> str:
    """Return an address in the form in which addresses of the same Service are equal."""
    parts = urlsplit(url.strip().rstrip("/"))
    host = _SERVICE.sub("", parts.hostname or "")
    default_port = {"http": 80, "https": 443}.get(parts.scheme, 0)
    return f"{parts.scheme}://{host}:{parts.port or default_port}{parts.path}"
