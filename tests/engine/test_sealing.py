"""A seal opens for its cluster, under its key, unchanged; and for nothing else."""

import base64
from uuid import uuid4

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from clusters.drivers.resolve import key_ring
from clusters.engine.sealing import BadKeyRing, CannotUnseal, Sealed, read_key_ring, seal, unseal

SECRET = b"canary-token"


def key(letter):
    return base64.b64encode(letter.encode() * 32).decode()


RING = read_key_ring(f"new:{key('n')},old:{key('o')}")


def test_what_was_sealed_opens_again():
    cluster_id = uuid4()
    sealed = seal(RING, cluster_id, SECRET)
    assert sealed.key_id == "new"
    assert SECRET not in sealed.box
    assert unseal(RING, cluster_id, sealed) == SECRET


def test_two_seals_of_one_secret_differ():
    cluster_id = uuid4()
    assert seal(RING, cluster_id, SECRET).box != seal(RING, cluster_id, SECRET).box


def test_a_seal_does_not_open_for_another_cluster():
    sealed = seal(RING, uuid4(), SECRET)
    with pytest.raises(CannotUnseal, match="cannot be decrypted"):
        unseal(RING, uuid4(), sealed)


def test_a_seal_does_not_open_under_another_keys_name():
    cluster_id = uuid4()
    sealed = seal(RING, cluster_id, SECRET)
    same_key_renamed = read_key_ring(f"old:{key('n')}")
    with pytest.raises(CannotUnseal):
        unseal(same_key_renamed, cluster_id, Sealed("old", sealed.box))


@pytest.mark.parametrize("position", [0, 11, 12, -1])
def test_a_changed_seal_does_not_open(position):
    cluster_id = uuid4()
    sealed = seal(RING, cluster_id, SECRET)
    box = bytearray(sealed.box)
    box[position] ^= 1
    with pytest.raises(CannotUnseal):
        unseal(RING, cluster_id, Sealed(sealed.key_id, bytes(box)))


@pytest.mark.parametrize("box", [b"", b"short", b"x" * 12])
def test_a_cut_seal_does_not_open(box):
    with pytest.raises(CannotUnseal):
        unseal(RING, uuid4(), Sealed("new", box))


def test_a_seal_whose_key_left_the_ring_says_which():
    with pytest.raises(CannotUnseal, match="the key gone is no longer in the key ring"):
        unseal(RING, uuid4(), Sealed("gone", b"x" * 40))


def test_keys_and_secrets_do_not_show_in_repr():
    assert "nnnn" not in repr(RING)
    assert key("n") not in repr(RING)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "entry 1 is not written as id:key"),
        ("justakey", "entry 1 is not written as id:key"),
        (f"a:{key('a')},", "entry 2 is not written as id:key"),
        (f"a b:{key('a')}", "entry 1 is not written as id:key"),
        ("a:not base64!", "the key of a is not base64"),
        (f"a:{key('a')[:9]}!{key('a')[9:]}", "the key of a is not base64"),
        ("a:" + base64.b64encode(b"short").decode(), "the key of a has 5 bytes and must have 32"),
        (f"a:{key('a')},a:{key('b')}", "the id a appears twice"),
    ],
)
def test_a_bad_ring_says_what_is_wrong_without_the_key(text, told):
    with pytest.raises(BadKeyRing, match=told) as caught:
        read_key_ring(text)
    assert key("a") not in str(caught.value)


def test_a_bad_ring_stops_the_boot_and_names_the_setting(settings):
    settings.KEY_RING = "a:b"
    with pytest.raises(SystemCheckError) as caught:
        call_command("check", "--tag", "security")  # as every command does first
    assert "SWITCHYARD_KEY_RING: the key of a is not base64" in str(caught.value)
    assert "openssl rand -base64 32" in str(caught.value)


def test_the_ring_of_this_run_is_fine():
    call_command("check", "--tag", "security")


def test_without_a_key_ring_nothing_is_checked_and_work_with_credentials_names_what_is_missing(settings):
    settings.KEY_RING = ""
    call_command("check", "--tag", "security")
    with pytest.raises(ImproperlyConfigured, match="SWITCHYARD_KEY_RING must be set for work with cluster credentials"):
        key_ring()
