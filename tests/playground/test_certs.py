"""The playground's CA."""

import pytest
from cryptography import x509

from playground.certs import CertificateAuthority


def test_issued_certificate_names_user_and_groups_and_is_signed_by_the_ca() -> None:
    authority = CertificateAuthority.create("test-ca")
    pair = authority.issue("alice", organizations=["devs", "ops"], client=True)
    certificate = x509.load_pem_x509_certificate(pair.cert_pem)
    assert certificate.subject.rfc4514_string() == "CN=alice,O=ops,O=devs"
    certificate.verify_directly_issued_by(authority.certificate)
    with pytest.raises(ValueError):
        certificate.verify_directly_issued_by(CertificateAuthority.create("other-ca").certificate)
