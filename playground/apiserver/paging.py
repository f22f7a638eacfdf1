"""Paginated lists: `limit` and `continue`.

A continue token has the revision of the first page and the last object that was sent, so all pages are of the same
revision; the storage keeps a few revisions for that.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from kube.api.mapping import GroupResource
from kube.api.status import StatusError, bad_request
from playground.apiserver.errors import gone
from playground.apiserver.objects import Object, name_of, namespace_of
from playground.apiserver.selection import Selection
from playground.apiserver.storage import Storage

_FORMAT = "meta.k8s.io/v1"
_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You must start a new list without "
    "the continue parameter."
)


@dataclass(frozen=True, slots=True)
class Page:
    """Objects in the storage's version, and the list's metadata."""

    objects: list[Object]
    metadata: Object


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: tuple[str, str]
    """Namespace and name of the last object of the previous page."""


def page_of(
    storage: Storage, resource: GroupResource, namespace: str, selection: Selection, query: Mapping[str, str]
) -> Page:
    """Return the requested page of a list; without a limit, all of it.

    Raises:
        StatusError: 400, a parameter is invalid; 410, the list's revision is compacted.
    """
    limit, token = _limit(query), _token(query)
    revision = storage.revision if token is None else token.rv
    try:
        objects = storage.objects(resource, namespace, at=revision)
    except StatusError as error:
        raise gone(_EXPIRED) from error
    found = objects if selection.everything else [obj for obj in objects if selection.matches(obj)]
    if token is not None:
        found = found[bisect_right(found, token.start, key=_key) :]
    metadata: Object = {"resourceVersion": str(revision)}
    if limit and len(found) > limit:
        storage.keep_revision(resource, revision)
        metadata["continue"] = _text(_Token(_FORMAT, revision, _key(found[limit - 1])))
        if selection.everything:
            metadata["remainingItemCount"] = len(found) - limit
        found = found[:limit]
    return Page(found, metadata)


def _limit(query: Mapping[str, str]) -> int:
    """Return the maximum number of objects; 0 for all."""
    text = query.get("limit") or "0"
    try:
        limit = int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
    # Lists from the watch cache are not paginated.
    from_cache = query.get("resourceVersion") == "0" and not query.get("continue")
    return 0 if from_cache else max(limit, 0)


def _token(query: Mapping[str, str]) -> _Token | None:
    text = query.get("continue", "")
    if not text:
        return None
    if query.get("resourceVersion", "") not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except ValueError as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    if token.v != _FORMAT:
        raise bad_request("invalid continue token: continue key is not valid: server does not recognize this version")
    return token


def _text(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()


def _key(obj: Object) -> tuple[str, str]:
    return namespace_of(obj), name_of(obj)
