"""When credentials expire: read from what a stranger wrote, so nothing in it may break a registration."""

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from clusters.engine.connection import Secret
from clusters.engine.expiry import expiry_of

AT = datetime(2027, 3, 4, 5, 6, 7, tzinfo=UTC)


def token(claims: object) -> Secret:
    text = claims if isinstance(claims, str) else json.dumps(claims)
    return Secret("token", b"h." + base64.urlsafe_b64encode(text.encode()).rstrip(b"=") + b".s")


def certificate(key: ec.EllipticCurvePrivateKey, until: datetime) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "switchyard")])
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    built = built.serial_number(1).not_valid_before(AT - timedelta(days=9)).not_valid_after(until)
    return built.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def test_a_token_expires_when_its_claims_say():
    assert expiry_of(token({"exp": AT.timestamp()})) == AT


def test_a_chain_expires_with_its_first_certificate_whatever_its_place():
    key = ec.generate_private_key(ec.SECP256R1())
    pem = certificate(key, AT + timedelta(days=1)) + certificate(key, AT)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    assert expiry_of(Secret("certificate", pem + secret)) == AT


@pytest.mark.parametrize(
    "claims",
    [{}, {"exp": None}, {"exp": "soon"}, {"exp": 10**30}, {"exp": -(10**20)}, {"exp": [1]}, [], 7, "{", "[" * 100_000,
     '{"exp": NaN}', '{"exp": Infinity}'],
)  # fmt: skip
def test_a_token_that_does_not_say_it_has_no_known_end(claims):
    assert expiry_of(token(claims)) is None


@given(st.binary(max_size=200), st.sampled_from(["token", "certificate"]))
def test_no_credential_breaks_the_reading(value, kind):
    found = expiry_of(Secret(kind, value))
    assert found is None or found.tzinfo is not None
