"""Signature Version 4 of Amazon Web Services, with botocore."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Final
from urllib.parse import quote, urlencode

from botocore.auth import SigV4Auth as Signer
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.session import Session
from yarl import URL

from adapter.upstream.access import CredentialsError
from adapter.upstream.auth import SigV4Auth
from adapter.upstream.authenticators import OutgoingRequest, in_thread
from adapter.upstream.credential_cache import CredentialCache, Issued

# botocore refreshes the pod's credentials itself when it is asked for them, which blocks. What it returns is valid for
# ten minutes or more; otherwise it raises an error.
_VALID_SECONDS: Final = 10 * 60.0
_SESSION_NAME: Final = "milliscale-adapter"
# Those of botocore would wait for two minutes and more.
_CLIENTS: Final = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2})
_UNRESERVED: Final = "-_.~"


class SigV4Authenticator:
    """Signs requests with the credentials that botocore finds, or with those of a role that they may assume."""

    # AWS refuses expired credentials with 403, too.
    refusals: ClassVar = frozenset({401, 403})

    def __init__(self, auth: SigV4Auth, *, what: str, clock: Callable[[], float] = time.time) -> None:
        self._auth = auth
        self._clock = clock
        self._session: Any = None
        self._cache: CredentialCache[Any] = CredentialCache(
            in_thread(self._issue, "AWS", what), what=f"AWS credentials for {what}"
        )

    async def authenticate(self, request: OutgoingRequest) -> OutgoingRequest:
        """Sign the method, URL, Host, Content-Type and body. Other headers may be changed by proxies."""
        credentials = await self._cache.get()
        url = _encoded(request.url)
        headers = request.headers.copy()
        headers["Host"] = _host(url)
        signed = AWSRequest(method=request.method, url=str(url), data=request.body)
        for name in ("Host", "Content-Type"):
            if name in headers:
                signed.headers[name] = headers[name]
        Signer(credentials, self._auth.service, self._auth.region).add_auth(signed)
        for name, value in signed.headers.items():
            headers[name] = value
        return replace(request, url=url, headers=headers, credential=credentials)

    async def renew(self, request: OutgoingRequest) -> bool:
        """See Authenticator."""
        return await self._cache.renew(request.credential)

    async def close(self) -> None:
        """See Authenticator."""
        await self._cache.close()

    def _issue(self, renew: bool) -> Issued[Any]:
        """Return credentials. Blocks: it reads files, and sends requests to the metadata service and to STS."""
        if self._session is None or renew:
            self._session = Session()
            self._session.set_default_client_config(_CLIENTS)
            if not self._session.get_config_variable("region"):
                self._session.set_config_variable("region", self._auth.region)
        if self._auth.role_arn:
            return self._assume_role()
        found = self._session.get_credentials()
        if found is None:
            raise CredentialsError(
                "AWS gives no credentials: none are in the environment, the pod's service account, or the node's"
                " metadata; see docs/clouds.md"
            )
        return Issued(found.get_frozen_credentials(), self._clock() + _VALID_SECONDS)

    def _assume_role(self) -> Issued[Any]:
        from botocore.credentials import ReadOnlyCredentials

        arguments = {"RoleArn": self._auth.role_arn, "RoleSessionName": _SESSION_NAME}
        if self._auth.external_id:
            arguments["ExternalId"] = self._auth.external_id
        client = self._session.create_client("sts")
        try:
            assumed = client.assume_role(**arguments)["Credentials"]
        finally:
            client.close()
        keys = (assumed["AccessKeyId"], assumed["SecretAccessKey"], assumed["SessionToken"])
        return Issued(ReadOnlyCredentials(*keys), assumed["Expiration"].timestamp())


def _encoded(url: URL) -> URL:
    """Return a URL whose query is encoded as AWS encodes it before it verifies the signature."""
    query = urlencode(list(url.query.items()), quote_via=quote, safe=_UNRESERVED)
    return URL(f"{url.with_query(None)}?{query}" if query else str(url), encoded=True)


def _host(url: URL) -> str:
    host = url.host_subcomponent or ""
    return host if url.is_default_port() else f"{host}:{url.port}"
