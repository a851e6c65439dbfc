"""Rekeying moves every credential to the current key, whatever happens meanwhile."""

import base64
from datetime import UTC, datetime

import pytest
from django.core.management import CommandError, call_command

from clusters.drivers.resolve import key_ring, unsealed_credential
from clusters.engine import sealing
from clusters.engine.connection import Secret
from clusters.models import Cluster, ClusterCredential
from clusters.operations import rekey_credentials, rekeying
from clusters.operations.registration import store_credential
from tests.builders import make_tenant

pytestmark = pytest.mark.django_db
OLD = "old:" + base64.b64encode(b"o" * 32).decode()
NEW = "new:" + base64.b64encode(b"n" * 32).decode()


@pytest.fixture
def three(settings):
    """Three clusters whose credentials are sealed under the old key; the new key is first in the ring by now."""
    settings.KEY_RING = OLD
    clusters = [
        Cluster.objects.create(owner=make_tenant("acme"), name=f"c{n}", server="https://203.0.113.1", identity=f"u{n}")
        for n in range(3)
    ]
    for cluster in clusters:
        store_credential(cluster.id, Secret("token", f"token of {cluster.name}".encode()))
    settings.KEY_RING = f"{NEW},{OLD}"
    return clusters


def keys():
    return sorted(ClusterCredential.objects.values_list("key_id", flat=True))


def test_every_credential_moves_and_opens_without_the_old_key(three, settings):
    done = rekey_credentials()
    assert (done.moved, done.already_current, done.failed) == (3, 0, ())
    assert keys() == ["new"] * 3
    settings.KEY_RING = NEW
    assert [unsealed_credential(cluster.id).secret.decode() for cluster in three] == [
        f"token of c{n}" for n in range(3)
    ]


def test_a_second_run_has_nothing_to_do(three):
    rekey_credentials()
    done = rekey_credentials()
    assert (done.moved, done.already_current) == (0, 3)


def test_a_run_that_was_stopped_goes_on_where_it_stood(three, monkeypatch):
    real, calls = sealing.seal, []

    def dies_at_the_second(*args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(rekeying, "seal", dies_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        rekey_credentials()
    assert keys() == ["new", "old", "old"]
    monkeypatch.setattr(rekeying, "seal", real)
    assert rekey_credentials().moved == 2


def test_a_credential_replaced_meanwhile_is_left_alone(three, monkeypatch):
    real = sealing.unseal

    def replaced_while_at_work(ring, cluster_id, sealed):
        store_credential(cluster_id, Secret("token", b"fresh"))
        return real(ring, cluster_id, sealed)

    monkeypatch.setattr(rekeying, "unseal", replaced_while_at_work)
    assert rekey_credentials().moved == 0
    assert {unsealed_credential(cluster.id).secret for cluster in three} == {b"fresh"}


def test_a_credential_that_cannot_be_opened_is_named_and_the_rest_move(three, settings, capsys):
    ClusterCredential.objects.filter(cluster=three[0]).update(sealed=b"spoilt" * 10)
    with pytest.raises(CommandError, match="1 credentials and secrets could not be decrypted") as caught:
        call_command("rekey_credentials")
    assert "c0: it cannot be decrypted with key old" in str(caught.value)
    assert "2 credentials and secrets moved" in capsys.readouterr().out
    assert key_ring().current == "new"


def test_a_cluster_knows_when_its_credential_expires_and_a_new_one_replaces_that(three):
    claims = base64.urlsafe_b64encode(b'{"exp": 1900000000}').decode().rstrip("=")
    for value, expected in ((f"h.{claims}.s", datetime.fromtimestamp(1900000000, UTC)), ("opaque", None)):
        store_credential(three[0].id, Secret("token", value.encode()))
        assert Cluster.objects.get(id=three[0].id).credential_expires_at == expected
