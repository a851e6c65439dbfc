"""Certificates for connections on loopback. Their keys are on a curve: components that found none would make RSA keys, which takes a
control plane half a second of a core at its start.
"""

import ipaddress
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS = 30


def write_certificate(certificate: Path, key: Path) -> None:
    """Writes a self-signed certificate for this host, for servers and clients, and its key, which only we can read."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "local fleet")])
    now = datetime.fromtimestamp(time.time(), UTC)
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    own = x509.SubjectKeyIdentifier.from_public_key(private.public_key())
    signs = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign", "encipher_only",
         "decipher_only"), False,
    )  # fmt: skip
    extensions = (
        x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]),
        x509.BasicConstraints(ca=True, path_length=0),
        x509.KeyUsage(digital_signature=True, key_cert_sign=True, **signs),
        x509.ExtendedKeyUsage(uses),
        own,
        x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own),
    )
    builder = x509.CertificateBuilder(name, name, private.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1))
    builder = builder.not_valid_after(now + timedelta(days=VALID_DAYS))
    for extension in extensions:
        builder = builder.add_extension(
            extension, critical=isinstance(extension, (x509.BasicConstraints, x509.KeyUsage))
        )
    certificate.write_bytes(builder.sign(private, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    _write(private, key)


def write_key(key: Path) -> None:
    """Writes a new private key, which only we can read."""
    _write(ec.generate_private_key(ec.SECP256R1()), key)


def _write(private: ec.EllipticCurvePrivateKey, key: Path) -> None:
    key.touch(mode=0o600)
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
