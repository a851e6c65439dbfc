"""Which connection data is accepted, and by which field and code anything else is refused."""

from dataclasses import replace

import pytest

from clusters.engine.connection import ConnectionFields, FieldNames, read_authorities, read_connection, read_secret
from foundation.problems import Invalid
from tests.apiserver import make_certificate

CERTIFICATE, KEY = make_certificate("one.example")
OTHER, OTHER_KEY = make_certificate("two.example")
SERVER = "https://k8s.example:6443"
BY_TOKEN = ConnectionFields(SERVER, CERTIFICATE, "token")
BY_CERTIFICATE = ConnectionFields(SERVER, "", "", CERTIFICATE, KEY)
NAMES = FieldNames("s", "c", "t", "cc", "k")


def test_a_token_and_a_certificate_are_read():
    found = read_connection(BY_TOKEN)
    assert (found.server.host, found.server.port, found.ca_pem) == ("k8s.example", 6443, CERTIFICATE)
    assert (found.secret.kind, found.secret.value) == ("token", b"token")
    found = read_connection(BY_CERTIFICATE)
    assert (found.ca_pem, found.secret.kind) == ("", "certificate")
    assert found.secret.value.decode().startswith(CERTIFICATE)
    assert found.secret.value.decode().count("PRIVATE KEY") == 2


def test_authorities_are_all_certificates_and_nothing_else():
    assert read_authorities(f"a comment\n{CERTIFICATE}between\n{OTHER}") == CERTIFICATE + OTHER
    assert read_authorities(" \n") == ""


@pytest.mark.parametrize(
    ("given", "field", "code"),
    [
        (replace(BY_TOKEN, server=""), "server", "required"),
        (replace(BY_TOKEN, server="http://a"), "server", "not_https"),
        (replace(BY_TOKEN, ca_pem="no"), "ca_pem", "bad_certificate"),
        (replace(BY_TOKEN, ca_pem=CERTIFICATE + KEY), "ca_pem", "private_key_here"),
        (replace(BY_TOKEN, ca_pem="x" * (64 * 1024 + 1)), "ca_pem", "too_long"),
        (replace(BY_TOKEN, ca_pem=CERTIFICATE[:60] + CERTIFICATE[70:]), "ca_pem", "bad_certificate"),
        (replace(BY_TOKEN, token=""), "token", "required"),
        (replace(BY_TOKEN, token="a b"), "token", "bad_token"),
        (replace(BY_TOKEN, token="ä"), "token", "bad_token"),
        (replace(BY_TOKEN, token="x" * (16 * 1024 + 1)), "token", "bad_token"),
        (replace(BY_TOKEN, client_certificate_pem=CERTIFICATE), "token", "two_credentials"),
        (replace(BY_TOKEN, client_key_pem=KEY), "token", "two_credentials"),
        (replace(BY_CERTIFICATE, client_key_pem=""), "client_key_pem", "required"),
        (replace(BY_CERTIFICATE, client_certificate_pem=""), "client_certificate_pem", "required"),
        (replace(BY_CERTIFICATE, client_certificate_pem="no"), "client_certificate_pem", "bad_certificate"),
        (replace(BY_CERTIFICATE, client_key_pem="no"), "client_key_pem", "bad_key"),
        (replace(BY_CERTIFICATE, client_key_pem=KEY + OTHER_KEY), "client_key_pem", "bad_key"),
        (replace(BY_CERTIFICATE, client_key_pem="ENCRYPTED"), "client_key_pem", "encrypted_key"),
        (replace(BY_CERTIFICATE, client_key_pem="x" * (64 * 1024 + 1)), "client_key_pem", "too_long"),
        (replace(BY_CERTIFICATE, client_key_pem=OTHER_KEY), "client_key_pem", "key_mismatch"),
    ],
)
def test_each_refusal_has_its_field_and_code(given, field, code):
    assert FieldNames() == FieldNames("server", "ca_pem", "token", "client_certificate_pem", "client_key_pem")
    for names in (FieldNames(), NAMES):
        with pytest.raises(Invalid) as caught:
            read_connection(given, names)
        (error,) = caught.value.errors
        assert (error.field, error.code) == (getattr(names, field), code)


def test_the_longest_token_and_the_longest_pem_are_read():
    assert len(read_secret(replace(BY_TOKEN, token="x" * 16 * 1024)).value) == 16 * 1024
    assert read_authorities(CERTIFICATE + "\n" * (64 * 1024 - len(CERTIFICATE))) == CERTIFICATE
    long_key = KEY + "\n" * (64 * 1024 - len(KEY))
    assert read_secret(replace(BY_CERTIFICATE, client_key_pem=long_key)).kind == "certificate"


def test_a_secret_is_not_shown():
    assert "token" not in repr(read_secret(BY_TOKEN)).replace("kind='token'", "")
    assert "value" not in repr(read_secret(BY_TOKEN))
    assert repr(BY_CERTIFICATE) == f"ConnectionFields(server='{SERVER}', ca_pem='')"
