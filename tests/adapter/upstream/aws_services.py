"""AWS for tests: a verifier of Signature Version 4, STS, and the credentials endpoint of pods.

The verifier follows "Create a signed AWS API request" in the user guide of AWS Identity and Access Management: it makes
the canonical request from what was received, without botocore.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote_to_bytes

from aiohttp import web

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/,]+)/(\d{8})/([^/,]+)/([^/,]+)/aws4_request, ?"
    r"SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})"
)
_SKEW = datetime.timedelta(minutes=5)


class RefusedError(Exception):
    """A request is not signed as it must be; the message says why."""


@dataclass(frozen=True)
class Key:
    """A secret key, and the session token that belongs to it; "" for none."""

    secret: str
    token: str = ""


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as it arrived."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]]
    body: bytes = b""

    @classmethod
    async def of(cls, request: web.Request) -> ReceivedRequest:
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers]
        return cls(request.method, request.raw_path, headers, await request.read())

    def header(self, name: str) -> str:
        """Return the values of a header as the canonical request has them."""
        values = [" ".join(value.split()) for one, value in self.headers if one.lower() == name]
        return ",".join(values)


@dataclass
class SignatureVerifier:
    """Verifies signatures for one service in one region."""

    region: str
    """What requests must be signed for."""
    service: str
    """What requests must be signed for."""
    keys: dict[str, Key] = field(default_factory=dict)
    """By access key."""
    now: datetime.datetime | None = None
    """None for the present."""

    def verify(self, request: ReceivedRequest) -> str:
        """Return the access key that signed a request. Raise RefusedError if none did."""
        found = _AUTHORIZATION.fullmatch(request.header("authorization"))
        if found is None:
            raise RefusedError("no signature")
        access_key, date, region, service, names, signature = found.groups()
        if (region, service) != (self.region, self.service):
            raise RefusedError(f"signed for {service} in {region}")
        key = self.keys.get(access_key)
        if key is None:
            raise RefusedError(f"unknown access key {access_key}")
        timestamp = request.header("x-amz-date")
        at = datetime.datetime.strptime(timestamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
        if abs(at - (self.now or datetime.datetime.now(datetime.UTC))) > _SKEW or not timestamp.startswith(date):
            raise RefusedError(f"signed at {timestamp}")
        signed = names.split(";")
        present = {name.lower() for name, _ in request.headers}
        must = {"host", *(name for name in present if name.startswith("x-amz-") or name == "content-type")}
        if signed != sorted(signed) or not must <= set(signed) <= present:
            raise RefusedError(f"signed headers {names}")
        if key.token != request.header("x-amz-security-token"):
            raise RefusedError("another session token")
        canonical = canonical_request(request, signed)
        scope = f"{date}/{region}/{service}/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        to_sign = f"AWS4-HMAC-SHA256\n{timestamp}\n{scope}\n{digest}"
        signing_key = f"AWS4{key.secret}".encode()
        for part in scope.split("/"):
            signing_key = hmac.digest(signing_key, part.encode(), "sha256")
        if not hmac.compare_digest(hmac.digest(signing_key, to_sign.encode(), "sha256").hex(), signature):
            raise RefusedError(f"another signature; the canonical request is\n{canonical}")
        return access_key


def canonical_request(request: ReceivedRequest, signed: Sequence[str]) -> str:
    """Return the canonical request."""
    path, _, query = request.target.partition("?")
    pairs = [part.partition("=") for part in query.split("&")] if query else []
    # A plus is no space for AWS.
    encoded = sorted(
        (_uri_encode(unquote_to_bytes(name)), _uri_encode(unquote_to_bytes(value))) for name, _, value in pairs
    )
    lines = [
        request.method,
        # Services other than S3 encode each segment of the path twice; it arrives encoded once.
        "/".join(_uri_encode(segment.encode()) for segment in path.split("/")),
        "&".join(f"{name}={value}" for name, value in encoded),
        *(f"{name}:{request.header(name)}" for name in signed),
        "",
        ";".join(signed),
        hashlib.sha256(request.body).hexdigest(),
    ]
    return "\n".join(lines)


def _uri_encode(text: bytes) -> str:
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in text)


@dataclass
class FakeAws:
    """STS, and the endpoint from which pods get their credentials."""

    verifier: SignatureVerifier
    """Gets the keys that are issued."""
    lifetime: float = 3600.0
    """The lifetime of issued keys, in seconds."""
    forms: list[Mapping[str, str]] = field(default_factory=list)
    """The forms of the requests to STS."""
    pod_tokens: list[str] = field(default_factory=list)
    """The tokens that requests for a pod's credentials had."""
    issued: int = 0
    """How many keys have been issued."""

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_post("/", self._sts)
        application.router.add_get("/v1/credentials", self._pod)
        return application

    def _issue(self) -> tuple[str, Key, str]:
        self.issued += 1
        access_key, key = f"ASIA{self.issued}", Key(f"issued-secret-{self.issued}", f"issued/token+{self.issued}==")
        self.verifier.keys[access_key] = key
        expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.lifetime)
        return access_key, key, expires.strftime("%Y-%m-%dT%H:%M:%SZ")

    async def _pod(self, request: web.Request) -> web.Response:
        self.pod_tokens.append(request.headers.get("Authorization", ""))
        access_key, key, expires = self._issue()
        names = {"AccessKeyId": access_key, "SecretAccessKey": key.secret, "Token": key.token, "Expiration": expires}
        return web.json_response(names)

    async def _sts(self, request: web.Request) -> web.Response:
        form = {name: values[0] for name, values in parse_qs((await request.read()).decode()).items()}
        action = form["Action"]
        if action == "AssumeRole":
            signers = SignatureVerifier(self.verifier.region, "sts", self.verifier.keys)
            form["signed by"] = signers.verify(await ReceivedRequest.of(request))
        self.forms.append(form)
        access_key, key, expires = self._issue()
        names = {"AccessKeyId": access_key, "SecretAccessKey": key.secret, "SessionToken": key.token}
        fields = "".join(f"<{name}>{value}</{name}>" for name, value in {**names, "Expiration": expires}.items())
        return web.Response(
            text=f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result>'
            f"<Credentials>{fields}</Credentials></{action}Result></{action}Response>",
            content_type="text/xml",
        )
