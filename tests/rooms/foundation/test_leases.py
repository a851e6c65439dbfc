import pytest
from django.db import IntegrityError, connection

from foundation import leases
from foundation.leases import LeaseLost, Tenure
from foundation.models import Lease

pytestmark = pytest.mark.django_db


def expire(name):
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE foundation_lease SET expires_at = clock_timestamp() - interval '1 s' WHERE name = %s", [name]
        )


def test_a_lease_has_one_holder_at_a_time():
    token = leases.acquire("east", "first", ttl_seconds=60)
    assert token is not None
    assert leases.acquire("east", "second", ttl_seconds=60) is None
    assert leases.acquire("east", "first", ttl_seconds=60) is None
    assert Lease.objects.get().holder == "first"


def test_the_next_holder_gets_a_larger_token_and_the_stale_one_cannot_renew_or_release():
    old = leases.acquire("east", "first", ttl_seconds=60)
    expire("east")
    assert not leases.renew("east", old, ttl_seconds=60)
    new = leases.acquire("east", "second", ttl_seconds=60)
    assert new > old
    assert not leases.renew("east", old, ttl_seconds=60)
    assert not leases.release("east", old)
    assert leases.renew("east", new, ttl_seconds=60)


def test_a_released_lease_is_free_at_once():
    token = leases.acquire("east", "first", ttl_seconds=60)
    assert leases.release("east", token)
    assert not leases.release("east", token)
    assert leases.acquire("east", "second", ttl_seconds=60) > token


def test_tokens_grow_across_leases():
    tokens = [leases.acquire(f"cluster-{number}", "me", ttl_seconds=60) for number in range(5)]
    assert tokens == sorted(set(tokens))


def test_the_database_refuses_an_older_token():
    leases.acquire("east", "first", ttl_seconds=60)
    with pytest.raises(IntegrityError, match="may not follow"), connection.cursor() as cursor:
        cursor.execute("UPDATE foundation_lease SET token = token - 1")


def test_the_database_refuses_a_new_holder_with_the_old_token():
    leases.acquire("east", "first", ttl_seconds=60)
    with pytest.raises(IntegrityError, match="may not follow"), connection.cursor() as cursor:
        cursor.execute("UPDATE foundation_lease SET holder = 'thief'")


def test_a_tenure_that_expired_goes_on_unless_somebody_took_the_lease_since():
    tokens = {name: leases.acquire(name, "first", ttl_seconds=60) for name in ("east", "west")}
    expire("east")
    expire("west")
    with pytest.raises(LeaseLost), Tenure("east", tokens["east"]).fence():
        pytest.fail("nothing is written under an expired lease")
    leases.acquire("west", "second", ttl_seconds=60)
    assert leases.renew_all(tokens, ttl_seconds=60) == {"east": tokens["east"]}
    with Tenure("east", tokens["east"]).fence():
        pass
