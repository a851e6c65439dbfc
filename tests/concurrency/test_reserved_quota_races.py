"""Many who reserve and take the last quota at the same time, with real commits: what is reserved never exceeds a limit, and
work that leaves room for it leaves all of it.
"""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError

from foundation import clock
from foundation.ids import new_id
from quotas.models import QuotaLimit, ReservedQuota
from quotas.operations import end_holds, put_limit, reserve_quota, take_holds
from quotas.operations.reserved import ReservedBeyondQuota
from quotas.queries import discrepancies
from tenancy.queries import SYSTEM
from tests.builders import hold_request, make_limit, make_tenant
from tests.concurrency.test_quota_races import at_once
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db(transaction=True)
GPU = 1000


def reserve(tenant, gpus=1, *, starts=60, minutes=60):
    begins = clock.now() + timedelta(minutes=starts)
    try:
        reserve_quota(tenant, "north", {"gpu": gpus * GPU}, begins, begins + timedelta(minutes=minutes), new=new_id())
    except ReservedBeyondQuota:
        return "refused"
    return "reserved"


def test_of_200_who_reserve_the_last_gpu_at_five_levels_exactly_one_gets_it():
    tenants = [make_tenant("/".join(["acme", "a", "b", "c", "d"][:depth])) for depth in range(1, 6)]
    for tenant in tenants[1:]:
        make_limit(tenant.path, nominal="8")
    make_limit("acme", nominal="4")
    assert reserve(tenants[2], 3) == "reserved"
    outcomes = at_once([lambda tenant=tenants[n % 5], n=n: reserve(tenant, starts=60 + n % 7) for n in range(200)])
    assert Counter(outcomes) == {"reserved": 1, "refused": 199}
    assert sum(amounts["gpu"] for amounts in ReservedQuota.objects.values_list("amounts", flat=True)) == 4 * GPU


def test_the_trigger_alone_lets_no_two_have_the_last_gpu():
    make_limit("acme", nominal="8")
    tenant, begins = make_tenant("acme/ml"), clock.now()

    def write():
        try:
            ReservedQuota.objects.create(
                tenant=tenant, cluster_name="north", amounts={"gpu": 5 * GPU},
                starts_at=begins, until_at=begins + timedelta(hours=1),
            )  # fmt: skip
        except IntegrityError as refusal:
            return constraint_of(refusal)
        return "reserved"

    assert Counter(at_once([write] * 12)) == {"reserved": 1, "reserved_quota_stays_within_limits": 11}


def test_reserving_taking_and_changing_limits_at_once_never_waits_in_a_ring_and_leaves_all_that_is_reserved():
    make_limit("acme", nominal="12")
    QuotaLimit.objects.filter(tenant__path="acme").update(lending_limit=None)
    put_limit(SYSTEM, make_tenant("acme/ml").path, "gpu", nominal=8 * GPU)
    put_limit(SYSTEM, make_tenant("acme/ops").path, "gpu", nominal=12 * GPU)
    begins = clock.now() - timedelta(minutes=1)
    kept = reserve_quota(
        make_tenant("acme/ml"), "north", {"gpu": 6 * GPU}, begins, begins + timedelta(hours=1), new=new_id()
    )
    inside = [replace(hold_request("acme/ml"), within_id=kept.id) for _ in range(6)]
    outside = [replace(hold_request("acme/ops"), beside=(kept.id,)) for _ in range(16)]

    def take(request):
        refusal = take_holds([request])[request.holder_id]
        return refusal.code if refusal else "held"

    works: list[Any] = [lambda one=one: take(one) for one in (*inside, *outside)]
    works += [lambda: put_limit(SYSTEM, "acme/ml", "gpu", nominal=8 * GPU)] * 3
    works += [lambda n=n: reserve(make_tenant("acme/ops"), 4, starts=200 + n, minutes=1) for n in range(3)]
    outcomes = at_once(works)
    assert Counter(outcomes[:6]) == {"held": 6}
    assert Counter(outcomes[6:22]) == {"held": 6, "quota_exceeded": 10}
    assert discrepancies() == ()
    end_holds({inside[0].holder_id: "posted"})
    assert take(replace(hold_request("acme/ops"), beside=(kept.id,))) == "quota_exceeded", "it stays reserved"
