"""Tokens of an OAuth 2.0 authorization server: client credentials (RFC 6749, section 4.4)."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import quote_plus

import aiohttp
import msgspec

from adapter.upstream.access import CredentialsError, OAuth2Auth, UpstreamConfigError
from adapter.upstream.credential_cache import Issued
from kube.aio.http import read_up_to

_SECONDS: Final = 10.0
_MAX_RESPONSE: Final = 64 * 1024
_LIFETIME_SECONDS: Final = 5 * 60.0  # if the response does not say
_MAX_LIFETIME_SECONDS: Final = 24 * 3600.0
_SHORTEST = 4
_SHOWN: Final = 200


class _Response(msgspec.Struct):
    access_token: str = ""
    token_type: str = ""
    expires_in: float | None = None
    error: str = ""
    error_description: str = ""


class OAuth2Tokens:
    """Requests tokens.

    The client authenticates with HTTP Basic, which every server must support. After a refusal it sends its secret in
    the form, as golang.org/x/oauth2 does, and goes on doing so if that works.
    """

    def __init__(self, auth: OAuth2Auth, *, what: str, clock: Callable[[], float] = time.time) -> None:
        """Read the CAs.

        Raises:
            UpstreamConfigError: `ca_file` cannot be used.
        """
        self._auth = auth
        self._what = what
        self._clock = clock
        self._secret_in_form = False
        try:
            self._tls = ssl.create_default_context(cafile=auth.ca_file)
        except (OSError, ssl.SSLError) as error:
            why = error.strerror or str(error)
            raise UpstreamConfigError(f"CA file for the token URL of {what} {auth.ca_file}: {why}") from error

    async def issue(self, renew: bool) -> Issued[tuple[tuple[str, str], ...]]:  # noqa: ARG002  (every token is a new one)
        """Return the header with a token.

        Raises:
            CredentialsError: there is none.
        """
        try:
            secret = (await asyncio.to_thread(self._auth.client_secret_file.read_text, encoding="utf-8")).strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise self._error(f"the file with the client's secret cannot be read: {why}") from error
        if not secret:
            raise self._error("the file with the client's secret is empty")
        try:
            async with asyncio.timeout(_SECONDS), aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
                status, body = await self._send(session, secret, in_form=self._secret_in_form)
                if status in (400, 401) and not self._secret_in_form:
                    second, second_body = await self._send(session, secret, in_form=True)
                    if second == 200:
                        self._secret_in_form = True
                        status, body = second, second_body
        except TimeoutError as error:
            raise self._error(f"no response within {_SECONDS:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._error(f"it cannot be reached ({type(error).__name__})") from None
        return self._read(status, body, secret)

    async def _send(self, session: aiohttp.ClientSession, secret: str, *, in_form: bool) -> tuple[int, bytes]:
        auth = self._auth
        form = [("grant_type", "client_credentials"), *auth.endpoint_params]
        if auth.scopes:
            form.append(("scope", " ".join(auth.scopes)))
        headers = {"Accept": "application/json"}
        if in_form:
            form += [("client_id", auth.client_id), ("client_secret", secret)]
        else:
            headers["Authorization"] = self._basic(secret)
        async with session.post(
            auth.token_url,
            data=form,
            headers=headers,
            ssl=self._tls,
            proxy=auth.proxy_url or None,
            allow_redirects=False,
        ) as response:
            body = await read_up_to(response, _MAX_RESPONSE)
            if len(body) > _MAX_RESPONSE:
                raise self._error(f"its response is longer than {_MAX_RESPONSE} bytes")
            return response.status, body

    def _read(self, status: int, body: bytes, secret: str) -> Issued[tuple[tuple[str, str], ...]]:
        try:
            found = msgspec.json.decode(body, type=_Response, strict=False)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = _Response()
        if status != 200:
            text = " ".join(f"{found.error} {found.error_description}".split())
            values = [value for _, value in self._auth.endpoint_params if len(value) >= _SHORTEST]  # such as a password
            secrets = (secret, *values, *map(quote_plus, [secret, *values]), self._basic(secret).removeprefix("Basic "))
            shown = f": {text[:_SHOWN]}" if text and not any(one in text for one in secrets) else ""
            raise self._error(f"it sent status {status}{shown}")
        if not found.access_token or not found.access_token.isascii() or not found.access_token.isprintable():
            raise self._error("its response has no usable access_token")
        if found.token_type.lower() not in ("", "bearer"):
            raise self._error("its token is no bearer token")
        lifetime = found.expires_in if found.expires_in is not None else _LIFETIME_SECONDS
        if not lifetime > 0:
            raise self._error("its token has expired already")
        headers = (("Authorization", f"Bearer {found.access_token}"),)
        return Issued(headers, self._clock() + min(lifetime, _MAX_LIFETIME_SECONDS))

    def _basic(self, secret: str) -> str:
        """Return the header Authorization. ID and secret are encoded as in a form first: RFC 6749, section 2.3.1."""
        return aiohttp.encode_basic_auth(quote_plus(self._auth.client_id), quote_plus(secret))

    def _error(self, why: str) -> CredentialsError:
        return CredentialsError(f"the token URL of {self._what} gives no token: {why}")
