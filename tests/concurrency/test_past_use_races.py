"""Holds of many tenants end together while the half-life changes: nobody waits in a ring, and no use is lost or counted twice."""

import pytest

from quotas.models import PastUse
from quotas.operations import end_holds, keep_half_life, take_holds
from quotas.queries import discrepancies
from tests.builders import hold_request

from .test_quota_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)
TENANTS = [f"acme/t{number}" for number in range(6)]


def test_ends_of_holds_and_changes_of_the_half_life_count_each_use_once():
    keep_half_life(3600)
    requests = [[hold_request(path, {"gpu": 1000, "cpu": 7}) for path in TENANTS] for _ in range(12)]
    for batch in requests:
        assert set(take_holds(batch).values()) == {None}
    works = []
    for number, batch in enumerate(requests):
        states = ["posted", "voided"][:: 1 if number % 2 else -1]
        ordered = batch[:: 1 if number % 3 else -1]
        endings = {one.holder_id: states[place % 2] for place, one in enumerate(ordered)}
        works += [lambda endings=endings: end_holds(endings)] * 2
        works.append(lambda seconds=600 + number: keep_half_life(seconds))

    ended = at_once(works)

    assert sum(number for number in ended if number) == len(requests) * len(TENANTS)
    assert PastUse.objects.count() == 2 * len(TENANTS)
    assert discrepancies() == ()
