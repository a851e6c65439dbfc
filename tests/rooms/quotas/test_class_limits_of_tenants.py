"""Limits of classes at tenants: they count all below them, move with tenants, and the database holds them."""

import pytest
from django.db import IntegrityError, connection, transaction
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule, run_state_machine_as_test

from foundation.problems import Conflict, Invalid, NotFound
from quotas.models import ClassLimit
from quotas.operations import (
    delete_class_limit,
    end_holds,
    put_class_limit,
    put_class_limits,
    put_limit,
    take_holds,
)
from quotas.queries import class_limit_states, discrepancies, refusal_for_good
from tenancy.models import AuditEntry, Tenant
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM, NotAllowedHere
from tests.builders import actor_for, bind, hold_request, make_tenant, make_user
from tests.laws import examples
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db
GPU = 1000


def put(path, most, name="urgent", resource="gpu"):
    make_tenant(path)
    return put_class_limit(SYSTEM, path, name, resource, most=most * (GPU if resource == "gpu" else 1))[0]


def take(path, gpus=1, name="urgent"):
    asked = hold_request(path, {"gpu": gpus * GPU, "jobs": 1}, class_name=name)
    return take_holds([asked])[asked.holder_id] or asked.holder_id


def held(name="urgent"):
    return {(one.tenant_path, one.resource): one.held for one in class_limit_states([name])}


def move(path, to):
    return change_tenant(SYSTEM, make_tenant(path).id, parent_id=make_tenant(to).id)


def test_a_limit_counts_all_below_its_tenant_and_the_nearest_to_the_root_refuses():
    put("acme", 4)
    put("acme/a", 2)
    put_class_limits("urgent", {"jobs": 9})
    first = take("acme/a/x", 2)
    refused = take("acme/a/y")
    assert (refused.code, refused.tenant_path, refused.cap, refused.held) == (
        "class_limit_exceeded",
        "acme/a",
        2000,
        2000,
    )
    assert refused.message == "the class urgent has a limit of 2 gpu in acme/a: 2 held by its jobs, 1 requested"
    take("acme/b", 2)
    take("other", 7)
    take("acme/a", 5, name="low")
    assert take("acme/b").tenant_path == "acme"
    assert held() == {("", "jobs"): 3, ("acme", "gpu"): 4000, ("acme/a", "gpu"): 2000}
    end_holds({first: "posted"})
    end_holds({first: "posted"})
    assert held() == {("", "jobs"): 2, ("acme", "gpu"): 2000, ("acme/a", "gpu"): 0}
    assert discrepancies() == ()


def test_the_limit_of_the_installation_applies_beside_those_of_tenants():
    put_class_limits("urgent", {"gpu": 3 * GPU})
    put("acme", 9)
    take("other", 3)
    assert take("acme").tenant_path == ""
    put_class_limits("urgent", {"gpu": None})
    take("acme", 9)
    assert take("acme").tenant_path == "acme"
    assert held() == {("acme", "gpu"): 9 * GPU}


def test_quota_of_a_tenant_with_a_limit_of_a_class_counts_as_before():
    """Both are limits of one tenant and resource, and never one chain."""
    make_tenant("acme/a")
    put_limit(SYSTEM, "acme", "gpu", nominal=4 * GPU)
    put("acme", 2)
    put("acme/a", 1)
    assert refusal_for_good("acme/a", [("north", {"gpu": GPU})], "urgent") is None
    assert refusal_for_good("acme", [("north", {"gpu": 4 * GPU})], "low") is None
    (refused,) = refusal_for_good("acme/a", [("north", {"gpu": 2 * GPU})], "urgent")
    assert refused.message == "the class urgent has a limit of 1 gpu in acme/a, 2 requested"
    take("acme", 2)
    assert take("acme", 3, name="low").code == "quota_exceeded"
    take("acme/a", 2, name="low")
    assert discrepancies() == ()


def test_a_new_limit_counts_what_is_held_below_it_and_one_that_is_cut_stops_nothing():
    first, _ = take("acme/a", 3), take("other", 5)
    put("acme", 1)
    assert held() == {("acme", "gpu"): 3 * GPU}
    assert take("acme/b").code == "class_limit_exceeded"
    put("acme", 4)
    second = take("acme/b")
    put("acme", 2)
    end_holds({first: "posted"})
    take("acme/b")
    assert take("acme").code == "class_limit_exceeded"
    end_holds({second: "voided"})
    assert held() == {("acme", "gpu"): GPU}
    assert discrepancies() == ()


def test_limits_are_set_from_above_for_tenants_that_the_actor_sees_and_audited():
    manager = make_user()
    bind(manager, "acme/a", "manager")
    make_tenant("acme/b")
    limit = put("acme/a", 2)
    with pytest.raises(NotAllowedHere):
        put_class_limit(actor_for(manager), "acme/a", "urgent", "gpu", most=1)
    with pytest.raises(NotAllowedHere):
        delete_class_limit(actor_for(manager), limit.id)
    with pytest.raises(NotFound):
        put_class_limit(actor_for(manager), "acme/b", "urgent", "gpu", most=1)
    with pytest.raises(NotFound):
        delete_class_limit(actor_for(make_user()), limit.id)
    put_class_limits("urgent", {"gpu": 1})
    with pytest.raises(NotFound):
        delete_class_limit(SYSTEM, ClassLimit.objects.get(tenant=None).id)
    for resource, most in (("luck", 1), ("gpu", -1), ("gpu", 10**15 + 1)):
        with pytest.raises(Invalid):
            put_class_limit(SYSTEM, "acme/a", "urgent", resource, most=most)
    put("acme/a", 3)
    delete_class_limit(SYSTEM, limit.id)
    with pytest.raises(NotFound):
        delete_class_limit(SYSTEM, limit.id)
    trail = AuditEntry.objects.filter(object_kind="class_limit").order_by("id")
    assert [(one.action, one.detail.get("most"), one.detail["was"]) for one in trail] == [
        ("class_limit.put", "2", None),
        ("class_limit.put", "3", "2"),
        ("class_limit.delete", None, "3"),
    ]


def test_what_a_class_holds_moves_with_its_tenant_there_and_back_and_ends_once():
    for path, most in (("acme", 9), ("acme/x", 5), ("acme/y", 5), ("acme/x/team", 4)):
        put(path, most)
    running = take("acme/x/team/p", 3)
    take("acme/x", 1)
    for to, from_ in (("acme/y", "acme/x"), ("acme/x", "acme/y"), ("acme/y", "acme/x")):
        move(f"{from_}/team", to)
        assert discrepancies() == ()
    expected = {"acme": 4, "acme/x": 1, "acme/y": 3, "acme/y/team": 3}
    assert held() == {(path, "gpu"): gpus * GPU for path, gpus in expected.items()}
    end_holds({running: "posted"})
    assert held()["acme/y", "gpu"] == 0
    assert discrepancies() == ()


def test_work_that_its_class_may_not_hold_at_the_new_place_keeps_its_tenant_where_it_is():
    put("acme", 1)
    put("acme/y", 5)
    put("acme", 9)
    take("acme/y", 3)
    take("acme/x/team", 3)
    take("acme/x/team", 8, name="low")
    with pytest.raises(Conflict) as refused:
        move("acme/x/team", "acme/y")
    assert refused.value.code == "moved_work_does_not_fit"
    assert refused.value.detail == (
        "The work of acme/x/team does not fit at its new place: the class urgent may hold 5 gpu in acme/y, holds 3, and would hold 3"
        " more. Raise that limit, or move the tenant when enough work has ended."
    )
    put("acme", 2)  # above both places, and cut below use: no obstacle
    put("acme/y", 6)
    move("acme/x/team", "acme/y")
    assert held() == {("acme", "gpu"): 6 * GPU, ("acme/y", "gpu"): 6 * GPU}
    assert discrepancies() == ()


BEGINS = (
    "INSERT INTO quotas_hold (holder_id, tenant_id, class_name, cluster_name, amounts, state)"
    " SELECT gen_random_uuid(), id, 'urgent', 'n', '{\"gpu\": %s}', 'pending' FROM tenancy_tenant WHERE path = 'acme/a/x'"
)
NEW = (
    "INSERT INTO quotas_classlimit (id, tenant_id, class_name, resource, most, held, updated_at)"
    " SELECT gen_random_uuid(), id, 'urgent', 'gpu', 9, 0, now() FROM tenancy_tenant WHERE path = 'acme/a'"
)
TO = "(SELECT id FROM tenancy_tenant WHERE path = '{}')"
ATTACKS = {
    "more than the team may hold": (BEGINS.replace("%s", "1001"), "class_limit_is_never_exceeded"),
    "more in two holds of one statement": (
        BEGINS.replace("%s", "501").replace(" WHERE path = 'acme/a/x'", ", generate_series(1, 2) WHERE path = 'acme/a/x'"),
        "class_limit_is_never_exceeded",
    ),
    "more than the organisation may hold": (BEGINS.replace("%s", "1001").replace("acme/a/x", "acme/b"), "class_limit_is_never_exceeded"),
    "a move to where it does not fit": (
        f"UPDATE tenancy_tenant SET parent_id = {TO.format('acme/c')} WHERE path = 'acme/a/x'",
        "class_limit_is_never_exceeded",
    ),
    "a count by hand": ("UPDATE quotas_classlimit SET held = 0", "class_limit_moves_with_holds"),
    "another tenant": (f"UPDATE quotas_classlimit SET tenant_id = {TO.format('acme/b')}", "class_limit_identity_is_fixed"),
    "no tenant": ("UPDATE quotas_classlimit SET tenant_id = NULL", "class_limit_identity_is_fixed"),
    "two limits": (NEW, "one_limit_per_class_and_resource"),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_the_database_refuses(attack):
    for path, most in (("acme", 2), ("acme/a", 2), ("acme/c", 0)):
        put(path, most)
    make_tenant("acme/b")
    take("acme/a/x")
    sql, constraint = attack
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)
    assert constraint_of(refused.value) == constraint
    assert discrepancies() == ()


def test_a_limit_written_by_hand_counts_what_is_held_below_whatever_it_says():
    take("acme/a", 2)
    take("acme", 1)
    with connection.cursor() as cursor:
        cursor.execute(NEW.replace("9, 0,", "1, 77,"))
    assert held() == {("acme/a", "gpu"): 2 * GPU}
    assert discrepancies() == ()


def test_a_wrong_count_is_found():
    put("acme", 2)
    take("acme/a")
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE quotas_classlimit DISABLE TRIGGER USER")
        cursor.execute("UPDATE quotas_classlimit SET held = 500")
    assert discrepancies() == ("class urgent in acme holds 500 gpu, but its pending holds are 1000",)


NAMES = ("urgent", "nightly")
PLACES = ("acme", "acme/a", "acme/a/x", "acme/a/x/p", "acme/b", "acme/b/y", "zeta", "zeta/z")


class ClassLimitTree(RuleBasedStateMachine):
    """Takes, ends, limits put, cut and removed, and tenants moved, in any order; all is counted in Python beside."""

    holders = Bundle("holders")

    def __init__(self):
        super().__init__()
        self.life = transaction.atomic()
        self.life.__enter__()
        self.tenants = {path: make_tenant(path).id for path in PLACES}
        self.above = {path: path.rpartition("/")[0] or None for path in PLACES}
        self.pending, self.limits = {}, {}

    def teardown(self):
        transaction.set_rollback(True)
        self.life.__exit__(None, None, None)

    def line(self, place):
        """The place and those above it, and the installation."""
        found = []
        while place is not None:
            found.append(place)
            place = self.above[place]
        return [*found, None]

    def path(self, place):
        return Tenant.objects.values_list("path", flat=True).get(id=self.tenants[place])

    def count(self, place, name, resource):
        return sum(
            amounts[resource]
            for where, class_name, amounts in self.pending.values()
            if class_name == name and place in self.line(where)
        )

    def exceeded(self, where, name, amounts):
        return any(
            amount and self.count(place, name, resource) + amount > self.limits.get((place, name, resource), 10**15)
            for resource, amount in amounts.items()
            for place in self.line(where)
        )

    @rule(
        target=holders,
        asked=st.lists(
            st.tuples(st.sampled_from(PLACES), st.sampled_from(NAMES), st.integers(0, 3)), min_size=1, max_size=3
        ),
    )
    def take(self, asked):
        requests = [
            hold_request(self.path(where), {"gpu": amount, "jobs": 1}, class_name=name) for where, name, amount in asked
        ]
        outcomes = take_holds(requests)
        for request, (where, name, _) in zip(requests, asked, strict=True):
            refused = outcomes[request.holder_id]
            assert (refused is not None) == self.exceeded(where, name, request.amounts)
            if refused is None:
                self.pending[request.holder_id] = where, name, request.amounts
        return multiple(*(request.holder_id for request in requests))

    @rule(holder=holders)
    def end(self, holder):
        end_holds({holder: "posted"})
        self.pending.pop(holder, None)

    @rule(
        place=st.sampled_from((None, *PLACES)),
        name=st.sampled_from(NAMES),
        resource=st.sampled_from(("gpu", "jobs")),
        most=st.integers(0, 5),
    )
    def put(self, place, name, resource, most):
        if place is None:
            put_class_limits(name, {resource: most})
        else:
            put_class_limit(SYSTEM, self.path(place), name, resource, most=most)
        self.limits[place, name, resource] = most

    @rule(number=st.integers(0, 30))
    def remove(self, number):
        of_tenants = sorted(key for key in self.limits if key[0] is not None)
        if of_tenants:
            place, name, resource = of_tenants[number % len(of_tenants)]
            delete_class_limit(
                SYSTEM, ClassLimit.objects.get(tenant=self.tenants[place], class_name=name, resource=resource).id
            )
            del self.limits[place, name, resource]

    @rule(moved=st.sampled_from([path for path in PLACES if "/" in path]), to=st.sampled_from(PLACES))
    def move(self, moved, to):
        before = self.line(moved)
        if moved in self.line(to) or self.above[moved] == to or self.line(to)[-2] != before[-2]:
            return
        new = [place for place in self.line(to) if place not in before]
        own = [(name, amounts) for where, name, amounts in self.pending.values() if moved in self.line(where)]
        fits = all(
            not (more := sum(amounts[resource] for class_name, amounts in own if class_name == name))
            or self.count(place, name, resource) + more <= self.limits.get((place, name, resource), 10**15)
            for place in new
            for name in NAMES
            for resource in ("gpu", "jobs")
        )
        try:
            with transaction.atomic():
                change_tenant(SYSTEM, self.tenants[moved], parent_id=self.tenants[to])
            outcome = "moved"
            self.above[moved] = to
        except Conflict as refused:
            outcome = refused.code
        assert outcome == ("moved" if fits else "moved_work_does_not_fit")

    @invariant()
    def counts_are_those_of_python(self):
        found = ClassLimit.objects.values_list("tenant_id", "class_name", "resource", "most", "held")
        assert {row[:3]: row[3:] for row in found} == {
            (self.tenants.get(place), name, resource): (most, self.count(place, name, resource))
            for (place, name, resource), most in self.limits.items()
        }
        assert discrepancies() == ()


@pytest.mark.law
def test_random_trees_are_counted_as_an_independent_count_does():
    run_state_machine_as_test(ClassLimitTree, settings=settings(examples(25), stateful_step_count=20))


def test_a_tenant_with_a_limit_is_not_removed():
    put("acme/a", 2)
    with pytest.raises(IntegrityError), transaction.atomic():
        Tenant.objects.filter(path="acme/a").delete()
