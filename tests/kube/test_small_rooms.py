"""Backoff, Status errors, certificates and log lines."""

from __future__ import annotations

import io
import logging
import sys

import pytest
from cryptography import x509

from kube import status
from kube.certs import CertificateAuthority, self_signed
from kube.process import setup_logging
from kube.retries import Backoff
from kube.status import StatusError


def test_backoff_grows_to_its_maximum_and_starts_over() -> None:
    backoff = Backoff(1, 10, jitter=0.5, random=lambda: 0.5)
    assert [backoff.next() for _ in range(5)] == [1.25, 2.5, 5.0, 10.0, 10.0]
    backoff.reset()
    assert backoff.next() == 1.25


def test_a_status_survives_the_wire() -> None:
    import json

    error = status.too_many_requests("busy", 7)
    back = StatusError.from_body(429, json.dumps(error.body()).encode())
    assert (back.code, back.reason, back.message, back.retry_after) == (429, "TooManyRequests", "busy", 7)
    assert error.body()["details"] == {"retryAfterSeconds": 7}


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'{"kind": "Pod"}', b"\xff\xfe", b"[" * 100_000])
def test_any_body_makes_a_status(body: bytes) -> None:
    error = StatusError.from_body(503, body)
    assert (error.code, error.reason) == (503, "ServiceUnavailable")
    assert len(error.message) <= 600
    assert error.message


def test_internal_errors_are_worded_as_kubernetes_words_them() -> None:
    assert status.internal_error("disk on fire").body() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Internal error occurred: disk on fire",
        "reason": "InternalError",
        "details": {"causes": [{"message": "disk on fire"}]},
        "code": 500,
    }


def test_an_issued_certificate_names_user_and_groups_and_is_signed_by_its_authority() -> None:
    authority = CertificateAuthority.create("test-ca")
    pair = authority.issue("alice", organizations=["devs", "ops"], client=True)
    certificate = x509.load_pem_x509_certificate(pair.cert_pem)
    assert certificate.subject.rfc4514_string() == "CN=alice,O=ops,O=devs"
    certificate.verify_directly_issued_by(authority.certificate)
    with pytest.raises(ValueError):
        certificate.verify_directly_issued_by(CertificateAuthority.create("other-ca").certificate)


def test_a_self_signed_pair_carries_its_hosts() -> None:
    leaf, _ = x509.load_pem_x509_certificates(self_signed("adapter", ["localhost", "127.0.0.1", "::1"]).cert_pem)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]


def test_a_record_is_one_line_whatever_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    root = logging.getLogger()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    setup_logging(0)
    logging.getLogger("adapter.test").warning("rule %s", "a\nERROR forged\r")
    logging.getLogger("adapter.test").debug("hidden")
    assert stderr.getvalue().count("\n") == 1
    assert stderr.getvalue().endswith("WARNING adapter.test: rule a\\nERROR forged\\r\n")
