"""The REST verbs on stored resources: list, watch, get, create, update, patch, delete, and the subresources.

A handler does not await between reading and writing the storage, so each request is atomic.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from kube.api.status import bad_request
from playground.apiserver.encoding import Form, decode_body, encode
from playground.apiserver.errors import no_such_resource, not_in_the_demo, unsupported_method
from playground.apiserver.identity import User
from playground.apiserver.objects import Object, copy_of, name_of, uid_of
from playground.apiserver.paging import page_of
from playground.apiserver.patches import patched
from playground.apiserver.registry import ObjectRegistry
from playground.apiserver.requests import RequestInfo
from playground.apiserver.resource_types import CREATE_ONLY, ResourceType, find_resource_type, storage_type
from playground.apiserver.reviews import Reviews
from playground.apiserver.scale import apply_scale, scale_of
from playground.apiserver.selection import Selection
from playground.apiserver.storage import Storage
from playground.apiserver.tables import partial_metadata, table_of
from playground.apiserver.versions import from_version, to_version
from playground.apiserver.watching import WatchOptions, watch

_OF_CONTAINERS: Final = frozenset(("pods", name) for name in ("attach", "exec", "log", "portforward", "proxy"))
_DEFAULT_WATCH_SECONDS: Final = 1800.0


@dataclass(frozen=True, slots=True)
class Call:
    """One authorized request for a resource."""

    request: web.Request
    info: RequestInfo
    user: User
    form: Form

    @property
    def query(self) -> Mapping[str, str]:
        """The query parameters."""
        return self.request.query

    async def body(self) -> Any:
        """Return the decoded body."""
        return decode_body(await self.request.read(), self.request.headers.get("Content-Type", ""))

    async def object_body(self) -> Object:
        """Return the decoded body, which must be a JSON object."""
        body = await self.body()
        if not isinstance(body, dict):
            raise bad_request("the body of the request must be an API object")
        return body


def json_response(obj: Object, status: int = 200) -> web.Response:
    """Return a response with an object as JSON."""
    return web.Response(body=encode(obj), status=status, content_type="application/json")


class ResourceHandler:
    """Serves the stored resources."""

    def __init__(
        self,
        storage: Storage,
        registry: ObjectRegistry,
        reviews: Reviews,
        *,
        bookmark_seconds: float,
        now: Callable[[], datetime.datetime],
    ) -> None:
        self._storage = storage
        self._registry = registry
        self._reviews = reviews
        self._bookmark_seconds = bookmark_seconds
        self._now = now

    async def handle(self, call: Call) -> web.StreamResponse:
        """Return the response; a watch is streamed until its end. Raises StatusError."""
        info = call.info
        kind = find_resource_type(info.group, info.version, info.resource)
        if (info.resource, info.subresource) in _OF_CONTAINERS:
            raise not_in_the_demo("its pods have no containers, so there are no logs, commands and ports of them")
        _refuse_dry_run(call.query)
        if kind is None or (info.subresource and info.subresource not in kind.subresources):
            raise no_such_resource()
        if kind.verbs == CREATE_ONLY:
            return await self._review(kind, call)
        if info.subresource == "token":
            return await self._token(call)
        if kind.namespaced and not info.namespace and info.verb not in ("list", "watch", "create"):
            raise unsupported_method()
        match info.verb:
            case "list":
                return self._list(kind, call)
            case "watch":
                return await self._watch(kind, call)
            case "get":
                return self._get(kind, call)
            case "create":
                return await self._create(kind, call)
            case "update":
                return await self._update(kind, call)
            case "patch":
                return await self._patch(kind, call)
            case "delete":
                return await self._delete(kind, call)
        raise unsupported_method()

    def _list(self, kind: ResourceType, call: Call) -> web.Response:
        selection = Selection.parse(call.query)
        page = page_of(self._storage, kind.group_resource, _scope(kind, call), selection, call.query)
        objects, metadata = [to_version(kind, obj) for obj in page.objects], page.metadata
        if call.form.kind == "Table":
            return json_response(self._table(kind, objects, call, metadata))
        if call.form.kind:
            items = [partial_metadata(obj, call.form) for obj in objects]
            return json_response(
                {
                    "kind": "PartialObjectMetadataList",
                    "apiVersion": call.form.api_version,
                    "metadata": metadata,
                    "items": items,
                }
            )
        # The items of a typed list have no kind and apiVersion.
        items = [{key: obj[key] for key in obj if key not in ("kind", "apiVersion")} for obj in objects]
        return json_response(
            {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata, "items": items}
        )

    async def _watch(self, kind: ResourceType, call: Call) -> web.StreamResponse:
        query = call.query
        selection = Selection.parse(query, name="" if "fieldSelector" in query else call.info.name)
        options = _watch_options(query, self._bookmark_seconds)
        render = self._event_renderer(kind, call)
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
        )
        await response.prepare(call.request)
        async with aclosing(watch(self._storage, kind, _scope(kind, call), selection, options)) as events:
            async for event in events:
                obj = event.object if event.type in ("ERROR", "BOOKMARK") else to_version(kind, event.object)
                if event.type != "ERROR":
                    obj = render(obj)
                await response.write(encode({"type": event.type, "object": obj}) + b"\n")
        await response.write_eof()
        return response

    def _get(self, kind: ResourceType, call: Call) -> web.Response:
        found = self._registry.get(kind, call.info.namespace, call.info.name)
        if call.info.subresource == "scale":
            return json_response(scale_of(found))
        return self._respond(kind, call, found)

    async def _create(self, kind: ResourceType, call: Call) -> web.Response:
        if call.info.name or call.info.subresource:
            raise unsupported_method()
        body = from_version(kind, await call.object_body(), None)
        created = self._registry.create(storage_type(kind), _scope(kind, call), body)
        return self._respond(kind, call, created, 201)

    async def _update(self, kind: ResourceType, call: Call) -> web.Response:
        body = await call.object_body()
        old = self._registry.get(kind, call.info.namespace, call.info.name)
        return self._replace(kind, call, old, body)

    async def _patch(self, kind: ResourceType, call: Call) -> web.Response:
        content_type = call.request.headers.get("Content-Type", "")
        patch = await call.request.read()
        old = self._registry.get(kind, call.info.namespace, call.info.name)
        current = scale_of(old) if call.info.subresource == "scale" else to_version(kind, old)
        return self._replace(kind, call, old, patched(kind, current, patch, content_type))

    def _replace(self, kind: ResourceType, call: Call, old: Object, new: Object) -> web.Response:
        info = call.info
        if info.subresource == "scale":
            scaled = apply_scale(old, new)
            updated = self._registry.update(storage_type(kind), _scope(kind, call), info.name, scaled)
            return json_response(scale_of(updated))
        updated = self._registry.update(
            storage_type(kind),
            _scope(kind, call),
            info.name,
            from_version(kind, copy_of(new), old),
            subresource=info.subresource,
        )
        return self._respond(kind, call, updated)

    async def _delete(self, kind: ResourceType, call: Call) -> web.Response:
        options = await call.body() if call.request.can_read_body else {}
        if not isinstance(options, dict):
            raise bad_request("the body of a deletion must be DeleteOptions")
        _refuse_dry_run(options)
        if "gracePeriodSeconds" in call.query:
            options = {**options, "gracePeriodSeconds": _integer(call.query, "gracePeriodSeconds", 0)}
        last, gone = self._registry.delete(kind, _scope(kind, call), call.info.name, options)
        return self._respond(kind, call, last) if not gone else json_response(_deleted(kind, last))

    async def _review(self, kind: ResourceType, call: Call) -> web.Response:
        if call.info.verb != "create":
            raise unsupported_method()
        review = await call.object_body()
        return json_response(self._reviews.review(kind, review), 201)

    async def _token(self, call: Call) -> web.Response:
        if call.info.verb != "create":
            raise unsupported_method()
        request = await call.object_body()
        return json_response(self._reviews.issue_token(call.info.namespace, call.info.name, request), 201)

    def _respond(self, kind: ResourceType, call: Call, obj: Object, status: int = 200) -> web.Response:
        obj = to_version(kind, obj)
        if call.form.kind == "Table":
            return json_response(self._table(kind, [obj], call, _metadata_of(obj)), status)
        return json_response(partial_metadata(obj, call.form) if call.form.kind else obj, status)

    def _table(self, kind: ResourceType, objects: list[Object], call: Call, metadata: Object) -> Object:
        return table_of(
            kind,
            objects,
            call.form,
            metadata=metadata,
            include=call.query.get("includeObject", ""),
            now=self._now(),
        )

    def _event_renderer(self, kind: ResourceType, call: Call) -> Callable[[Object], Object]:
        """Return what renders the objects of events. Only the first table of a watch defines its columns."""
        if call.form.kind != "Table":
            return lambda obj: partial_metadata(obj, call.form) if call.form.kind else obj
        first = True

        def as_table(obj: Object) -> Object:
            nonlocal first
            table = self._table(kind, [obj], call, _metadata_of(obj))
            if not first:
                table["columnDefinitions"] = None
            first = False
            return table

        return as_table


def _refuse_dry_run(options: Mapping[str, Any]) -> None:
    if options.get("dryRun"):
        raise not_in_the_demo("it has no dry runs; use --dry-run=client")


def _metadata_of(obj: Object) -> Object:
    """Return the metadata of a table with one object."""
    return {"resourceVersion": str(obj["metadata"].get("resourceVersion", ""))}


def _scope(kind: ResourceType, call: Call) -> str:
    """Return the namespace of a request; "" for all, and for cluster-scoped objects."""
    return call.info.namespace if kind.namespaced else ""


def _deleted(kind: ResourceType, obj: Object) -> Object:
    details = {"name": name_of(obj), "group": kind.group, "kind": kind.plural, "uid": uid_of(obj)}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }


def _watch_options(query: Mapping[str, str], bookmark_seconds: float) -> WatchOptions:
    version = query.get("resourceVersion", "")
    since = None if version in ("", "0") else _integer(query, "resourceVersion", 0)
    return WatchOptions(
        since=since,
        bookmarks=_flag(query, "allowWatchBookmarks"),
        seconds=float(_integer(query, "timeoutSeconds", 0) or _DEFAULT_WATCH_SECONDS),
        bookmark_seconds=bookmark_seconds,
    )


def _flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name) in ("true", "1")


def _integer(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if not text.isdecimal():
        raise bad_request(f'{name}: Invalid value: "{text}": must be a whole number')
    return int(text)
