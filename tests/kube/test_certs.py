"""Issued and self-signed certificates."""

import pytest
from cryptography import x509

from kube.security.certs import CertificateAuthority, self_signed


def test_issued_certificate_names_user_and_groups_and_is_signed_by_the_ca() -> None:
    authority = CertificateAuthority.create("test-ca")
    pair = authority.issue("alice", organizations=["devs", "ops"], client=True)
    certificate = x509.load_pem_x509_certificate(pair.cert_pem)
    assert certificate.subject.rfc4514_string() == "CN=alice,O=ops,O=devs"
    certificate.verify_directly_issued_by(authority.certificate)
    with pytest.raises(ValueError):
        certificate.verify_directly_issued_by(CertificateAuthority.create("other-ca").certificate)


def test_self_signed_certificate_names_its_hosts() -> None:
    leaf, _ = x509.load_pem_x509_certificates(self_signed("adapter", ["localhost", "127.0.0.1", "::1"]).cert_pem)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
