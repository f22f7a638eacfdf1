"""List a collection of any size: in pages, decoded one object at a time. Upstream: pager.ListPager.

Twenty thousand pods are 100 MB of JSON, seven times that as dicts, and seconds of decoding. This module needs the
memory of one page (500 objects, see ClientSettings) and one decoded object, and yields to other tasks every few
objects. After a page that is too large, takes too long or cannot be decoded, pages have fewer objects, at last one;
then they grow again. So an object that cannot be read costs some requests, and the rest of the list is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from kube.api.client import KubeClient, KubeUnreachable, Query, ResponseTooLarge
from kube.api.objects import item_of, list_of

T = TypeVar("T")

_FEWER = 10
_MORE = 2
# Bytes of JSON decoded between yields, which take a few ms. Objects have between 500 bytes and 1.5 MiB.
_BYTES_AT_ONCE = 2**18
_MALFORMED = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_OnUnreadable: TypeAlias = Callable[[Any], None] | None
# The continue token holds the version; an API server refuses both together.
_FIRST_PAGE_ONLY = ("resourceVersion", "resourceVersionMatch")


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """A collection at one resourceVersion."""

    version: str
    """The resourceVersion to watch from; "" if the response has none, which aggregated APIs may omit."""
    items: list[T]


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    items: list[msgspec.Raw] | None = None


async def list_objects(
    client: KubeClient,
    path: str,
    select: Callable[[Any], T | None],
    query: Query | None = None,
    *,
    accept: str = "application/json",
    on_unreadable: _OnUnreadable = None,
) -> Listed[T]:
    """List a collection. All pages are of the same resourceVersion, which the API server keeps for 5 to 10 minutes.

    Args:
        client: the connection.
        path: the collection's path, percent-encoded.
        select: returns a view of an object's JSON, which may be anything; None excludes the object.
        query: selectors and so on. With resourceVersion=0 an API server lists from its cache, in one page.
        accept: the media type to accept.
        on_unreadable: called for an object that is too large or cannot be decoded, with its name and namespace
            (`kube.api.objects.item_of`); None: that is an error.

    Raises:
        StatusError: the API server refuses; 410: the resourceVersion of the first page has expired, so start again.
        KubeUnreachable: there is no response, or it is no list.
        ResponseTooLarge: a single object is too large, and has no name to call `on_unreadable` with.
    """
    most = client.settings.page_objects
    first: Mapping[str, str | int | bool] = {**(query or {}), "limit": most}
    later = {name: value for name, value in first.items() if name not in _FIRST_PAGE_ONLY}
    items: list[T] = []
    page, limit = await _page(client, path, first, accept, on_unreadable, limit=most)
    version = page.metadata.resource_version
    while True:
        decoded = 0
        for raw in page.items or ():
            decoded += len(raw)
            if (item := _view(raw, select, on_unreadable)) is not None:
                items.append(item)
            if decoded >= _BYTES_AT_ONCE:
                decoded = 0
                await asyncio.sleep(0)
        if not page.metadata.continue_:
            return Listed(version, items)
        following = {**later, "continue": page.metadata.continue_}
        page, limit = await _page(client, path, following, accept, on_unreadable, limit=limit)


async def collection_version(
    client: KubeClient, path: str, query: Query | None = None, *, accept: str = "application/json"
) -> str:
    """Return the present resourceVersion of a collection: that of a list of at most one object.

    Raises:
        StatusError, KubeUnreachable: as list_objects.
    """
    page, _ = await _page(client, path, query or {}, accept, lambda _: None, limit=1)
    return page.metadata.resource_version


async def _page(
    client: KubeClient, path: str, query: Query, accept: str, on_unreadable: _OnUnreadable, *, limit: int
) -> tuple[_Page, int]:
    """Read a page of up to `limit` objects; return it with the limit of the next page."""
    failure: KubeUnreachable
    most, max_bytes = client.settings.page_objects, client.settings.page_bytes
    while True:
        try:
            page_query = {**query, "limit": limit}
            content = await client.get_bytes(path, page_query, accept=accept, max_bytes=max_bytes, is_list=True)
            page = msgspec.json.decode(content, type=_Page)
        except ResponseTooLarge as error:
            failure, start = error, error.start
        except RecursionError as error:
            failure, start = _no_list(error), content
        except _MALFORMED as error:
            raise _no_list(error) from error
        else:
            return page, min(limit * _MORE, most) if len(content) * _MORE < max_bytes else limit
        if limit == 1:
            found = list_of(start)
            # A server that ignores the limit has more objects; one that has sent an earlier page does not ignore it.
            if found is None or on_unreadable is None or not (b'"continue"' in found[0] or "continue" in query):
                raise failure
            on_unreadable(found[1])
            return _Page(msgspec.json.decode(found[0], type=_Metadata)), limit
        limit = max(1, limit // _FEWER)


def _view(raw: msgspec.Raw, select: Callable[[Any], T | None], on_unreadable: _OnUnreadable) -> T | None:
    try:
        entry = msgspec.json.decode(raw)
    except _MALFORMED as error:
        named = item_of(memoryview(raw))
        if named is None or on_unreadable is None:
            raise KubeUnreachable(f"the API server's response is not JSON: {error}") from error
        on_unreadable(named)
        return None
    return select(entry)


def _no_list(error: Exception) -> KubeUnreachable:
    return KubeUnreachable(f"the API server's response to a list request is no list: {error}")
