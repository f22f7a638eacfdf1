"""Flags of HTTPS servers: certificates, authentication and authorization.

Names and defaults are mostly those of Kubernetes' library for API servers. See kube.process.flags.option_group for
groups, which have the names of the fields of AuthOptions.

Upstream: options.DelegatingAuthenticationOptions, options.DelegatingAuthorizationOptions
"""

from __future__ import annotations

from pathlib import Path

import click

from kube.process.flags import DURATION, FILE, Parsed, bool_option, list_option, option_group
from kube.security.authorization import AuthorizationOptions
from kube.security.tls import CIPHER_SUITES, MINIMUM_VERSIONS, CertificateFiles, NamedCertificate, TLSOptions
from kube.security.trust import TrustOptions

_TLS, _TRUST, _AUTHORIZATION = TLSOptions(), TrustOptions(), AuthorizationOptions()


def _named_certificate(text: str) -> NamedCertificate:
    """Parse a certificate, its key, and the names that it is for: CERT,KEY or CERT,KEY:NAME,NAME."""
    files, _, names = text.partition(":")
    cert, _, key = files.partition(",")
    for path in (cert, key):
        if not Path(path).is_file():
            raise ValueError(f"{text!r}: there is no file {path!r}; write CERT,KEY or CERT,KEY:NAME,NAME")
    given = tuple(name.strip() for name in names.split(",") if name.strip())
    return NamedCertificate(CertificateFiles(Path(cert), Path(key)), given)


def _tls_options(
    *,
    cert_dir: Path,
    tls_cert_file: Path | None,
    tls_private_key_file: Path | None,
    tls_sni_cert_keys: tuple[NamedCertificate, ...],
    tls_min_version: str,
    tls_cipher_suites: tuple[str, ...],
) -> TLSOptions:
    certificate = None
    if tls_cert_file is not None and tls_private_key_file is not None:
        certificate = CertificateFiles(tls_cert_file, tls_private_key_file)
    elif tls_cert_file is not None or tls_private_key_file is not None:
        raise click.UsageError("--tls-cert-file and --tls-private-key-file must be given together")
    unknown = [name for name in tls_cipher_suites if name not in CIPHER_SUITES]
    if unknown:
        raise click.UsageError(f"--tls-cipher-suites: unknown {unknown[0]}; known: {', '.join(CIPHER_SUITES)}")
    return TLSOptions(
        cert_dir=cert_dir,
        certificate=certificate,
        named_certificates=tls_sni_cert_keys,
        minimum_tls=MINIMUM_VERSIONS[tls_min_version],
        ciphers=tuple(CIPHER_SUITES[name] for name in tls_cipher_suites),
    )


tls_flags = option_group(
    "tls",
    _tls_options,
    click.option(
        "--cert-dir",
        type=click.Path(path_type=Path),
        default=_TLS.cert_dir,
        help="Directory of the self-signed certificate; ignored with --tls-cert-file.",
    ),
    click.option("--tls-cert-file", type=FILE, help="Serving certificate; reloaded when it changes."),
    click.option("--tls-private-key-file", type=FILE, help="Private key of the serving certificate."),
    click.option(
        "--tls-sni-cert-key",
        "tls_sni_cert_keys",
        type=Parsed("cert,key[:names]", _named_certificate),
        multiple=True,
        help="Certificate and key for certain server names, such as a.crt,a.key:*.example.com,example.com; without "
        "names for those in the certificate. Can be repeated.",
    ),
    click.option(
        "--tls-min-version",
        type=click.Choice(list(MINIMUM_VERSIONS)),
        default="VersionTLS12",
        help="Minimum TLS version.",
    ),
    list_option(
        "--tls-cipher-suites",
        show_default="OpenSSL's",
        help="Comma-separated TLS 1.2 cipher suites, by IANA name.",
    ),
)

trust_flags = option_group(
    "trust",
    TrustOptions,
    click.option(
        "--requestheader-client-ca-file",
        type=FILE,
        show_default="from the cluster",
        help="CA bundle that verifies the front proxy's client certificate.",
    ),
    list_option(
        "--requestheader-allowed-names",
        show_default="any",
        help="Common names allowed in the front proxy's client certificate.",
    ),
    list_option(
        "--requestheader-username-headers",
        default=_TRUST.requestheader_username_headers,
        help="Request headers to inspect for usernames.",
    ),
    list_option(
        "--requestheader-group-headers",
        default=_TRUST.requestheader_group_headers,
        help="Request headers to inspect for groups.",
    ),
    list_option("--requestheader-uid-headers", help="Request headers to inspect for UIDs."),
    list_option(
        "--requestheader-extra-headers-prefix",
        default=_TRUST.requestheader_extra_headers_prefix,
        help="Prefixes of request headers to inspect for extra attributes of the user.",
    ),
    click.option(
        "--client-ca-file",
        type=FILE,
        show_default="from the cluster",
        help="CA bundle that verifies the client certificates of users.",
    ),
    bool_option("--authentication-skip-lookup", "skip_lookup", help="Do not read missing CAs from the cluster."),
)

token_ttl_flag = click.option(
    "--authentication-token-webhook-cache-ttl",
    "token_ttl",
    type=DURATION,
    default="10s",
    help="Duration to cache the results of TokenReviews.",
)


_ALWAYS_ALLOW_PATHS = list_option(
    "--authorization-always-allow-paths",
    "always_allow_paths",
    default=_AUTHORIZATION.always_allow_paths,
    help="HTTP paths that need no authorization, also for unauthenticated clients. A trailing * is a wildcard.",
)
_REVIEW_TTLS = (
    click.option(
        "--authorization-webhook-cache-authorized-ttl",
        "authorized_ttl",
        type=DURATION,
        default="10s",
        help="Duration to cache 'authorized' results of SubjectAccessReviews.",
    ),
    click.option(
        "--authorization-webhook-cache-unauthorized-ttl",
        "unauthorized_ttl",
        type=DURATION,
        default="10s",
        help="Duration to cache 'unauthorized' results of SubjectAccessReviews.",
    ),
)

authorization_flags = option_group("authorization", AuthorizationOptions, _ALWAYS_ALLOW_PATHS, *_REVIEW_TTLS)
review_flags = option_group("authorization", AuthorizationOptions, *_REVIEW_TTLS)
"""Those of a server that has no health endpoints."""
