"""Random lives of a quota tree: after every step counters are the journal's sums and the claims below, and no cap is
exceeded.
"""

import pytest
from django.db import connection, transaction
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from foundation.problems import Conflict, Invalid
from quotas.engine.amounts import MAX_AMOUNT
from quotas.engine.holds import Borrowing
from quotas.models import QuotaLimit
from quotas.operations import delete_limit, end_holds, put_limit, take_holds
from quotas.queries import discrepancies, standings
from tenancy.models import Tenant
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM
from tests.builders import hold_request, make_cluster, make_tenant
from tests.laws import examples

PATHS = ["acme", "acme/research", "acme/research/vision", "acme/sales"]
CLUSTERS = ["north", "south"]
amounts = st.dictionaries(st.sampled_from(["gpu", "cpu", "memory"]), st.integers(0, 8), min_size=1)


class QuotaTree(RuleBasedStateMachine):
    """Takes, ends, limits put, cut and removed, and tenants moved, in any order."""

    holders = Bundle("holders")

    def __init__(self):
        super().__init__()
        self.life = transaction.atomic()
        self.life.__enter__()
        self.tenants = {path: make_tenant(path).id for path in PATHS}
        """By the path at the beginning."""
        for name in CLUSTERS:
            make_cluster("acme", name)
        self.pending = {}

    def path_of(self, tenant):
        return Tenant.objects.values_list("path", flat=True).get(id=self.tenants[tenant])

    def teardown(self):
        transaction.set_rollback(True)
        self.life.__exit__(None, None, None)

    @rule(
        target=holders,
        asked=st.lists(st.tuples(st.sampled_from(PATHS), amounts, st.sampled_from(CLUSTERS)), min_size=1, max_size=4),
    )
    def take(self, asked):
        requests = [hold_request(self.path_of(tenant), *rest) for tenant, *rest in asked]
        outcomes = take_holds(requests)
        granted = [request for request in requests if outcomes[request.holder_id] is None]
        self.pending |= {request.holder_id: request for request in granted}
        return multiple(*(request.holder_id for request in granted))

    @rule(chosen=st.lists(holders, max_size=4), word=st.sampled_from(["posted", "voided"]))
    def end(self, chosen, word):
        due = set(chosen) & set(self.pending)
        assert end_holds(dict.fromkeys(chosen, word)) == len(due)
        for holder_id in due:
            del self.pending[holder_id]

    @rule(
        path=st.sampled_from(PATHS),
        resource=st.sampled_from(["gpu", "cpu"]),
        nominal=st.integers(0, 16),
        clusters=st.lists(st.sampled_from(CLUSTERS), unique=True, max_size=1),
        borrowing=st.builds(Borrowing, st.none() | st.integers(0, 8), st.none() | st.integers(0, 8)),
        after=st.none() | st.just(60),
    )
    def put(self, path, resource, nominal, clusters, borrowing, after):
        before = dict(QuotaLimit.objects.values_list("id", "held"))
        try:
            with transaction.atomic():
                limit, _ = put_limit(
                    SYSTEM, self.path_of(path), resource,
                    nominal=nominal, clusters=clusters, borrowing=borrowing, reclaim_after=after,
                )  # fmt: skip
        except (Conflict, Invalid):
            assert before == dict(QuotaLimit.objects.values_list("id", "held"))
            return
        most = 0 if limit.parent_id is None else MAX_AMOUNT if limit.borrowing_limit is None else limit.borrowing_limit
        assert limit.cap == max(limit.nominal + most, limit.held)

    @rule(number=st.integers(0, 20))
    def remove(self, number):
        standing = list(QuotaLimit.objects.filter(removed_at__isnull=True).order_by("id"))
        if standing:
            delete_limit(SYSTEM, standing[number % len(standing)].id)

    @rule(moved=st.sampled_from(PATHS[1:]), to=st.sampled_from(PATHS))
    def move(self, moved, to):
        """With all that it and those below it hold, or not at all."""
        before = dict(QuotaLimit.objects.values_list("id", "held"))
        try:
            with transaction.atomic():
                change_tenant(SYSTEM, self.tenants[moved], parent_id=self.tenants[to])
        except (Conflict, Invalid):
            assert before == dict(QuotaLimit.objects.values_list("id", "held"))

    @invariant()
    def books_are_right(self):
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute("SET CONSTRAINTS ALL DEFERRED")
        assert discrepancies() == ()

    @invariant()
    def counters_are_what_the_model_says(self):
        limits = list(QuotaLimit.objects.select_related("tenant").filter(removed_at__isnull=True))
        for limit in limits:
            assert limit.held == self.held_at(limit, limits) <= limit.cap

    def held_at(self, limit, limits):
        """Of all holds below the limit, those of no limit between; and what each next limit below claims."""
        below = [one for one in limits if is_alike(one, limit) and is_above(limit.tenant.path, one.tenant.path)]
        children = [one for one in below if not any(is_above(other.tenant.path, one.tenant.path) for other in below)]
        paths = dict(Tenant.objects.values_list("id", "path"))
        own = sum(
            request.amounts.get(limit.resource, 0)
            for request in self.pending.values()
            if is_above(limit.tenant.path, paths[request.tenant_id], or_equal=True)
            and (not limit.clusters or request.cluster_name in limit.clusters)
            and not any(is_above(child.tenant.path, paths[request.tenant_id], or_equal=True) for child in children)
        )
        return own + sum(max(self.held_at(child, limits), child.guaranteed) for child in children)

    @invariant()
    def nothing_guaranteed_is_missing(self):
        """Within its guarantee a tenant always gets what it asks for, unless its own limit was cut."""
        for limit in QuotaLimit.objects.select_related("tenant").filter(removed_at__isnull=True):
            if limit.held < limit.guaranteed and not limit.clusters:
                standing = standings([limit])[limit.id]
                assert standing.free >= limit.guaranteed - limit.held


def is_above(path, other, *, or_equal=False):
    return other.startswith(f"{path}/") or (or_equal and path == other)


def is_alike(one, other):
    return (one.resource, one.clusters) == (other.resource, other.clusters)


@pytest.mark.law
@pytest.mark.django_db
def test_counters_are_journal_sums_and_never_exceed_their_cap_in_any_order_of_events():
    run_state_machine_as_test(QuotaTree, settings=settings(examples(25), stateful_step_count=20))
