"""Signature Version 4 of Amazon Web Services, with botocore."""

from __future__ import annotations

import time
from typing import Any, Final
from urllib.parse import quote, urlencode

import aiohttp
from botocore.auth import SigV4Auth as Signer
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.session import Session
from yarl import URL

from adapter.upstream.access import CredentialsError, SigV4Auth
from adapter.upstream.credential_cache import Issued

# botocore refreshes the pod's credentials itself when it is asked for them, which blocks. What it returns is valid for
# ten minutes or more; otherwise it raises an error.
_VALID_SECONDS: Final = 10 * 60.0
_SESSION_NAME: Final = "milliscale-adapter"
# Those of botocore would wait for two minutes and more.
_CLIENTS: Final = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2})
_UNRESERVED: Final = "-_.~"


async def sign(auth: SigV4Auth, request: aiohttp.ClientRequest, credentials: Any) -> None:
    """Sign the method, URL, Host, Content-Type and body of a request. Other headers may be changed by proxies."""
    body = await request.body.as_bytes() if request.body else b""
    aws = AWSRequest(method=request.method, url=str(request.url), data=body)
    for name in ("Host", "Content-Type"):
        if name in request.headers:
            aws.headers[name] = request.headers[name]
    Signer(credentials, auth.service, auth.region).add_auth(aws)
    request.headers.update(aws.headers.items())


class AwsCredentials:
    """Finds the credentials that botocore finds, or those of a role that they may assume."""

    def __init__(self, auth: SigV4Auth) -> None:
        self._auth = auth
        self._session: Any = None

    def issue(self, renew: bool) -> Issued[Any]:
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
        return Issued(found.get_frozen_credentials(), time.time() + _VALID_SECONDS)

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


def encoded(url: URL) -> URL:
    """Return a URL whose query is encoded as AWS encodes it before it verifies the signature."""
    query = urlencode(list(url.query.items()), quote_via=quote, safe=_UNRESERVED)
    return URL(f"{url.with_query(None)}?{query}" if query else str(url), encoded=True)
