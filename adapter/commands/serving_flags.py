"""The flags of `serve` about its clients: where it listens for them, who is believed to be who, and who may what.

As in adapter.commands.flags each group is a decorator. Names and defaults are mostly those of Kubernetes' library of
API servers, which prometheus-adapter has them from.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import click

from adapter.commands.flags import FILE, Command
from adapter.commands.options import ServingOptions
from adapter.security.authorization import AuthorizationOptions
from adapter.security.tls import CIPHER_SUITES, MINIMUM_VERSIONS, CertificateFiles, NamedCertificate
from adapter.security.trust import TrustOptions
from adapter.serving.server import ServerLimits
from kube.durations import DURATION, POSITIVE_DURATION
from kube.flags import bool_option, list_option

_PATH = click.Path(path_type=Path)


class _NamedCertificate(click.ParamType[NamedCertificate]):
    """A certificate, its key, and the names that it is for: CERT,KEY or CERT,KEY:NAME,NAME."""

    name = "cert,key[:names]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NamedCertificate:
        """Split the flag's text."""
        if isinstance(value, NamedCertificate):
            return value
        files, _, names = str(value).partition(":")
        cert, _, key = files.partition(",")
        for path in (cert, key):
            if not Path(path).is_file():
                self.fail(f"{value!r}: there is no file {path!r}; write CERT,KEY or CERT,KEY:NAME,NAME", param, ctx)
        given = tuple(name.strip() for name in names.split(",") if name.strip())
        return NamedCertificate(CertificateFiles(Path(cert), Path(key)), given)


def serving_flags(command: Command) -> Command:
    """The listener: passed on as `serving`."""
    defaults, limits = ServingOptions(), ServerLimits()

    @click.option(
        "--bind-address",
        default=defaults.bind_address,
        show_default=True,
        help="The address to listen on; 0.0.0.0 and :: mean all addresses, of both families.",
    )
    @click.option(
        "--secure-port",
        type=click.IntRange(0, 65535),
        default=defaults.port,
        show_default=True,
        help="The port to listen on; 0 is any free one, which the log tells.",
    )
    @click.option(
        "--cert-dir",
        type=_PATH,
        default=defaults.cert_dir,
        show_default=True,
        help="Where a self-signed certificate is kept, if no certificate is given.",
    )
    @click.option("--tls-cert-file", type=FILE, help="The serving certificate; read again when the file changes.")
    @click.option("--tls-private-key-file", type=FILE, help="The key of the serving certificate.")
    @click.option(
        "--tls-sni-cert-key",
        "tls_sni_cert_keys",
        type=_NamedCertificate(),
        multiple=True,
        help="Another certificate, its key, and after a colon the names for which clients get it instead, such as "
        "a.crt,a.key:*.example.com,example.com; without names those in the certificate. May be given several times.",
    )
    @click.option(
        "--tls-min-version",
        type=click.Choice(list(MINIMUM_VERSIONS)),
        default="VersionTLS12",
        show_default=True,
        help="The oldest TLS version that is spoken.",
    )
    @list_option("--tls-cipher-suites", help="The TLS 1.2 cipher suites that are spoken, by their IANA names.")
    @click.option(
        "--max-connections",
        type=click.IntRange(min=1),
        default=limits.connections,
        show_default=True,
        help="Open connections, a quarter of which may be in their TLS handshake; beyond that one that does no work "
        "ends for each new one.",
    )
    @click.option(
        "--max-requests-inflight",
        type=click.IntRange(min=1),
        default=limits.in_flight,
        show_default=True,
        help="Requests that are worked on at a time; of each namespace a quarter as many may wait, more get 429.",
    )
    @click.option(
        "--request-timeout",
        type=POSITIVE_DURATION,
        default="1m",
        show_default=True,
        help="How long a request may take; its timeout parameter can only shorten it.",
    )
    @click.option(
        "--shutdown-delay-duration",
        type=DURATION,
        default="5s",
        show_default=True,
        help="How long requests are still answered after SIGTERM, while readyz fails, so that the Service's endpoints "
        "can move; a second signal ends it.",
    )
    @functools.wraps(command)
    def wrapper(
        *arguments: Any,
        bind_address: str,
        secure_port: int,
        cert_dir: Path,
        tls_cert_file: Path | None,
        tls_private_key_file: Path | None,
        tls_sni_cert_keys: tuple[NamedCertificate, ...],
        tls_min_version: str,
        tls_cipher_suites: tuple[str, ...],
        max_connections: int,
        max_requests_inflight: int,
        request_timeout: float,
        shutdown_delay_duration: float,
        **others: Any,
    ) -> None:
        if (tls_cert_file is None) != (tls_private_key_file is None):
            raise click.UsageError("--tls-cert-file and --tls-private-key-file must be given together")
        unknown = [name for name in tls_cipher_suites if name not in CIPHER_SUITES]
        if unknown:
            raise click.UsageError(f"--tls-cipher-suites: unknown {unknown[0]}; known: {', '.join(CIPHER_SUITES)}")
        options = ServingOptions(
            bind_address=bind_address,
            port=secure_port,
            cert_dir=cert_dir,
            certificate=CertificateFiles(tls_cert_file, tls_private_key_file)
            if tls_cert_file and tls_private_key_file
            else None,
            named_certificates=tls_sni_cert_keys,
            minimum_tls=MINIMUM_VERSIONS[tls_min_version],
            ciphers=tuple(CIPHER_SUITES[name] for name in tls_cipher_suites),
            limits=ServerLimits(
                connections=max_connections, in_flight=max_requests_inflight, request_seconds=request_timeout
            ),
            shutdown_delay=shutdown_delay_duration,
        )
        command(*arguments, serving=options, **others)

    return wrapper


def authentication_flags(command: Command) -> Command:
    """Who is believed to be who: passed on as `trust` and `token_ttl`."""
    defaults = TrustOptions()

    @click.option(
        "--requestheader-client-ca-file",
        type=FILE,
        help="The authority of the front proxy's certificates.  [default: what the API server publishes]",
    )
    @list_option(
        "--requestheader-allowed-names", help="Names that the front proxy's certificate may have.  [default: any]"
    )
    @list_option(
        "--requestheader-username-headers",
        default=defaults.requestheader_username_headers,
        show_default=True,
        help="Headers in which the front proxy names the user.",
    )
    @list_option(
        "--requestheader-group-headers",
        default=defaults.requestheader_group_headers,
        show_default=True,
        help="Headers in which it names the user's groups.",
    )
    @list_option("--requestheader-uid-headers", help="Headers in which it gives the user's uid.")
    @list_option(
        "--requestheader-extra-headers-prefix",
        default=defaults.requestheader_extra_headers_prefix,
        show_default=True,
        help="Prefixes of headers with which it says more about the user.",
    )
    @click.option(
        "--client-ca-file",
        type=FILE,
        help="The authority of clients' certificates.  [default: what the API server publishes]",
    )
    @bool_option(
        "--authentication-skip-lookup", help="Trust no authorities but those of the flags; the API server is not asked."
    )
    @click.option(
        "--authentication-token-webhook-cache-ttl",
        type=DURATION,
        default="10s",
        show_default=True,
        help="How long the API server's answers about bearer tokens are remembered.",
    )
    @functools.wraps(command)
    def wrapper(
        *arguments: Any,
        requestheader_client_ca_file: Path | None,
        requestheader_allowed_names: tuple[str, ...],
        requestheader_username_headers: tuple[str, ...],
        requestheader_group_headers: tuple[str, ...],
        requestheader_uid_headers: tuple[str, ...],
        requestheader_extra_headers_prefix: tuple[str, ...],
        client_ca_file: Path | None,
        authentication_skip_lookup: bool,
        authentication_token_webhook_cache_ttl: float,
        **others: Any,
    ) -> None:
        trust = TrustOptions(
            requestheader_client_ca_file=requestheader_client_ca_file,
            requestheader_allowed_names=requestheader_allowed_names,
            requestheader_username_headers=requestheader_username_headers,
            requestheader_group_headers=requestheader_group_headers,
            requestheader_uid_headers=requestheader_uid_headers,
            requestheader_extra_headers_prefix=requestheader_extra_headers_prefix,
            client_ca_file=client_ca_file,
            skip_lookup=authentication_skip_lookup,
        )
        command(*arguments, trust=trust, token_ttl=authentication_token_webhook_cache_ttl, **others)

    return wrapper


def authorization_flags(command: Command) -> Command:
    """What they may: passed on as `authorization`."""
    defaults = AuthorizationOptions()

    @list_option(
        "--authorization-always-allow-paths",
        default=defaults.always_allow_paths,
        show_default=True,
        help="Paths that everybody may read, unknown or not; a * at the end stands for anything.",
    )
    @click.option(
        "--authorization-webhook-cache-authorized-ttl",
        type=DURATION,
        default="10s",
        show_default=True,
        help="How long the API server's permissions are remembered.",
    )
    @click.option(
        "--authorization-webhook-cache-unauthorized-ttl",
        type=DURATION,
        default="10s",
        show_default=True,
        help="How long its refusals are remembered.",
    )
    @functools.wraps(command)
    def wrapper(
        *arguments: Any,
        authorization_always_allow_paths: tuple[str, ...],
        authorization_webhook_cache_authorized_ttl: float,
        authorization_webhook_cache_unauthorized_ttl: float,
        **others: Any,
    ) -> None:
        for path in authorization_always_allow_paths:
            if "*" in path[:-1]:
                raise click.UsageError(
                    f'--authorization-always-allow-paths: only a * at the end stands for anything: "{path}"'
                )
        options = AuthorizationOptions(
            always_allow_paths=authorization_always_allow_paths,
            authorized_ttl=authorization_webhook_cache_authorized_ttl,
            unauthorized_ttl=authorization_webhook_cache_unauthorized_ttl,
        )
        command(*arguments, authorization=options, **others)

    return wrapper
