"""The data needed to reach a cluster: server, authorities, and one credential. Each is validated strictly."""

import re
from dataclasses import dataclass, field
from typing import Literal

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from foundation.problems import FieldError, Invalid

from .egress import Server, read_server

MAX_PEM_CHARACTERS = 64 * 1024
MAX_TOKEN_CHARACTERS = 16 * 1024
_TOKEN = re.compile(r"[\x21-\x7e]+")
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_KEY = re.compile(r"-----BEGIN (?:RSA |EC )?PRIVATE KEY-----[A-Za-z0-9+/=\s]+-----END (?:RSA |EC )?PRIVATE KEY-----")


@dataclass(frozen=True, slots=True)
class ConnectionFields:
    """The fields as given, all text; empty means not given."""

    server: str = ""
    ca_pem: str = ""
    token: str = field(default="", repr=False)
    client_certificate_pem: str = field(default="", repr=False)
    client_key_pem: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class FieldNames:
    """The user's names of the fields, so that a refusal uses the names that they wrote."""

    server: str = "server"
    ca_pem: str = "ca_pem"
    token: str = "token"  # noqa: S105 - a field's name
    client_certificate_pem: str = "client_certificate_pem"
    client_key_pem: str = "client_key_pem"


@dataclass(frozen=True, slots=True)
class Secret:
    """A checked credential: `token` in ASCII, or `certificate` chain and key as one PEM text."""

    kind: Literal["token", "certificate"]
    value: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Connection:
    """A checked way to connect to a cluster. `ca_pem` contains only certificates; empty means the system's
    authorities.
    """

    server: Server
    ca_pem: str
    secret: Secret


PLAIN_NAMES = FieldNames()


def read_connection(given: ConnectionFields, names: FieldNames = PLAIN_NAMES) -> Connection:
    """The connection; Invalid names the first wrong field."""
    if not given.server:
        raise Invalid.field(names.server, "required", "give the API server's address as https://host[:port]")
    server = read_server(given.server, names.server)
    return Connection(server=server, ca_pem=read_authorities(given.ca_pem, names), secret=read_secret(given, names))


def read_authorities(text: str, names: FieldNames = PLAIN_NAMES) -> str:
    """The certificates of `text` in normal form, without any other content."""
    if not text.strip():
        return ""
    return _pem(_certificates(text, names.ca_pem))


def read_secret(given: ConnectionFields, names: FieldNames = PLAIN_NAMES) -> Secret:
    """The one credential among the fields; Invalid for none or two."""
    has_certificate = bool(given.client_certificate_pem or given.client_key_pem)
    if given.token and has_certificate:
        raise Invalid.field(names.token, "two_credentials", "give a token or a client certificate, not both")
    if has_certificate:
        return _certificate_and_key(given, names)
    if not given.token:
        raise Invalid(
            "Give a token, or a client certificate with its key.",
            errors=[FieldError(names.token, "required", "a token, or a client certificate with its key, is needed")],
        )
    if len(given.token) > MAX_TOKEN_CHARACTERS or not _TOKEN.fullmatch(given.token):
        raise Invalid.field(names.token, "bad_token", "a token is one line of printable ASCII without spaces")
    return Secret("token", given.token.encode("ascii"))


def _certificate_and_key(given: ConnectionFields, names: FieldNames) -> Secret:
    for text, name in (
        (given.client_certificate_pem, names.client_certificate_pem),
        (given.client_key_pem, names.client_key_pem),
    ):
        if not text:
            raise Invalid.field(name, "required", "give a client certificate together with its key")
    chain = _certificates(given.client_certificate_pem, names.client_certificate_pem)
    key_pem = _private_key(given.client_key_pem, chain[0], names.client_key_pem)
    return Secret("certificate", (_pem(chain) + key_pem).encode("ascii"))


def _certificates(text: str, field_name: str) -> list[x509.Certificate]:
    if len(text) > MAX_PEM_CHARACTERS:
        raise Invalid.field(field_name, "too_long", f"at most {MAX_PEM_CHARACTERS} characters")
    if "PRIVATE KEY" in text:
        raise Invalid.field(
            field_name, "private_key_here", "a private key does not belong here; give certificates only"
        )
    blocks = _CERTIFICATE.findall(text)
    try:
        found = [x509.load_pem_x509_certificate(block.encode("ascii")) for block in blocks]
    except (ValueError, UnsupportedAlgorithm):
        found = []
    if not found:
        raise Invalid.field(field_name, "bad_certificate", "this is not a certificate in PEM form")
    return found


def _private_key(text: str, certificate: x509.Certificate, field_name: str) -> str:
    if len(text) > MAX_PEM_CHARACTERS:
        raise Invalid.field(field_name, "too_long", f"at most {MAX_PEM_CHARACTERS} characters")
    if "ENCRYPTED" in text:
        raise Invalid.field(field_name, "encrypted_key", "give the key without a pass phrase; it is sealed when stored")
    blocks = _KEY.findall(text)
    try:
        key = serialization.load_pem_private_key(blocks[0].encode("ascii"), password=None) if len(blocks) == 1 else None
        matches = key is not None and _public(key.public_key()) == _public(certificate.public_key())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key, matches = None, False
    if key is None:
        raise Invalid.field(field_name, "bad_key", "this is not one private key in PEM form")
    if not matches:
        raise Invalid.field(field_name, "key_mismatch", "the key does not belong to the certificate")
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode("ascii")


def _public(key: object) -> bytes:
    public: bytes = key.public_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return public


def _pem(certificates: list[x509.Certificate]) -> str:
    return "".join(one.public_bytes(serialization.Encoding.PEM).decode("ascii") for one in certificates)
