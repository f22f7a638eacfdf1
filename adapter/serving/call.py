"""What a route is given and what it gives back: a call that has been authorized, and an answer with a body.

With it is what most routes do with a call: refuse other methods than GET, read a label selector, write a document, in
a thread where that takes long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TypeVar

import msgspec

from adapter.content.encoding import Conversion, Encoded, Representation
from adapter.security.request_info import RequestInfo, Target
from kube import status
from kube.deadlines import Deadline
from kube.names import OLDER_LABEL_WORDS
from kube.selectors import LabelSelector, SelectorError
from kube.status import StatusError, bad_request

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_Value = TypeVar("_Value")
# Up to this length parsed selectors are kept: so many, a few kilobytes each.
_SHORT_SELECTOR = 256
_SELECTORS = 4_096
# To write so many values takes JSON a millisecond, protobuf five and YAML thirty; a thread costs a tenth of one.
_MANY = 500


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request that has been authorized.

    Attributes:
        method: the HTTP method.
        target: the path and query.
        info: what was authorized.
        accept: the Accept header.
        user_agent: the User-Agent header.
        deadline: when the response is due.
        known_tags: entity tags of answers that the client has already.
    """

    method: str
    target: Target
    info: RequestInfo
    accept: str
    user_agent: str
    deadline: Deadline
    known_tags: frozenset[str] = frozenset()

    def representation(self, offered: Collection[Conversion] = (), *, streamed: bool = True) -> Representation:
        """How the client wants its answer, which can also be converted to what is offered; raises 406.

        `streamed` is false for what is no resource.
        """
        return Representation.negotiate(
            self.accept,
            pretty=self.target.query.get("pretty"),
            user_agent=self.user_agent,
            offered=offered,
            streamed=streamed,
        )


class Answer(msgspec.Struct, frozen=True):
    """A status and a body.

    For some errors there are the seconds after which to ask again, for some documents there is an entity tag;
    `headers` are beside the usual ones, or replace them.
    """

    status: int
    content: Encoded
    retry_after: int | None = None
    tag: str | None = None
    gzip: bytes | None = None
    headers: Mapping[str, str] = _NO_HEADERS


def answer_with(call: Call, document: msgspec.Struct) -> Answer:
    """A document as the client wants it. Raises StatusError 405 for another method than GET, and 406."""
    require_get(call)
    return Answer(200, call.representation(streamed=False).encode(document))


async def written(
    representation: Representation, values: Sequence[_Value], document: Callable[[Sequence[_Value]], msgspec.Struct]
) -> Encoded:
    """A document as it goes out, in a thread where it has many values, so that the event loop goes on meanwhile.

    Args:
        representation: what it is wanted as.
        values: what is in it.
        document: makes it of these, which takes about as long as to write it.

    Raises:
        StatusError: 406, as Representation.encode.
    """
    if len(values) < _MANY:
        return representation.encode(document(values))
    return await asyncio.to_thread(lambda: representation.encode(document(values)))


def require_get(call: Call, *others: str) -> None:
    """Refuse other methods than GET and these. Raises StatusError 405."""
    if call.method != "GET" and call.method not in others:
        raise method_not_allowed()


def method_not_allowed() -> StatusError:
    """405, in the words that API servers use for every path."""
    return status.method_not_allowed("the server does not allow this method on the requested resource")


def no_such_resource() -> StatusError:
    """404, in the words that API servers use for paths inside an API."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def label_selector(call: Call, parameter: str) -> LabelSelector:
    """The label selector in a parameter. Raises StatusError 400 where it is none, in prometheus-adapter's words."""
    try:
        text = call.target.query.get(parameter)
        return _parsed(text) if len(text) <= _SHORT_SELECTOR else _parse(text)
    except SelectorError as error:
        raise bad_request(str(error)) from error


def _parse(text: str) -> LabelSelector:
    return LabelSelector.parse(text, words=OLDER_LABEL_WORDS)


# HPAs ask with few selectors, and with the same ones all the time.
_parsed = lru_cache(maxsize=_SELECTORS)(_parse)
