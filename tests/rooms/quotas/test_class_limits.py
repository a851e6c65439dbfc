"""Limits of classes of work: set, counted, and enforced by the database."""

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from foundation.ids import new_id
from quotas.models import ClassLimit
from quotas.operations import end_holds, put_class_limits, put_limit, put_user_limit, take_holds
from quotas.queries import class_limit_states, discrepancies, refusal_for_good
from tenancy.queries import SYSTEM
from tests.builders import hold_request, make_tenant
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db
ADA = new_id()


def take(path="acme/a", gpus=1, name="urgent", user=ADA):
    asked = hold_request(path, {"gpu": gpus * 1000, "jobs": 1}, user_id=user, class_name=name)
    return take_holds([asked])[asked.holder_id] or asked.holder_id


def held(name="urgent"):
    return {one.resource: one.held for one in class_limit_states([name])}


def test_what_a_class_holds_is_counted_in_all_tenants_and_given_back_once():
    put_class_limits("urgent", {"jobs": 2, "gpu": 4000})
    first = take("acme/a", gpus=3)
    take("other/b", gpus=0)
    assert take("acme").code == "class_limit_exceeded"
    take("acme", name="normal", gpus=9)
    take("acme", name="", gpus=9)
    assert held() == {"gpu": 3000, "jobs": 2}
    end_holds({first: "voided"})
    end_holds({first: "voided"})
    assert held() == {"gpu": 0, "jobs": 1}
    assert take("acme", gpus=5).message == "the class urgent has a limit of 4 gpu: 0 held by its jobs, 5 requested"
    assert discrepancies() == ()


def test_limits_of_tenants_and_users_apply_as_well():
    make_tenant("acme/a")
    put_class_limits("urgent", {"jobs": 3})
    put_limit(SYSTEM, "acme", "gpu", nominal=2000)
    put_user_limit(SYSTEM, "acme", "jobs", most=1)
    take("acme/a")
    assert take("acme/a").code == "user_limit_exceeded"
    assert take("acme/a", gpus=2, user=new_id()).code == "quota_exceeded"
    take("other")
    assert held() == {"jobs": 2}
    assert discrepancies() == ()


def test_a_new_limit_counts_pending_holds_and_one_that_is_cut_lets_them_run():
    first = take(gpus=3)
    put_class_limits("urgent", {"gpu": 1000})
    assert held() == {"gpu": 3000}
    assert take().code == "class_limit_exceeded"
    put_class_limits("urgent", {"gpu": 4000})
    second = take()
    put_class_limits("urgent", {"gpu": 1000})
    end_holds({first: "posted"})
    assert take().code == "class_limit_exceeded"
    end_holds({second: "posted"})
    assert held() == {"gpu": 0}
    take()
    assert discrepancies() == ()


def test_a_limit_of_zero_lets_nothing_of_the_class_start():
    put_class_limits("urgent", {"jobs": 0})
    assert take(gpus=0).code == "class_limit_exceeded"


def test_a_change_touches_only_what_differs():
    put_class_limits("urgent", {"jobs": 2, "gpu": None})
    (before,) = ClassLimit.objects.values_list("id", "updated_at")
    put_class_limits("urgent", {"jobs": 2, "gpu": 1000})
    assert before in set(ClassLimit.objects.values_list("id", "updated_at"))
    put_class_limits("urgent", {"jobs": None, "gpu": 1000})
    put_class_limits("nightly", {"jobs": 1})
    assert [(one.class_name, one.resource, one.nominal) for one in class_limit_states()] == [
        ("nightly", "jobs", 1),
        ("urgent", "gpu", 1000),
    ]


def test_holds_of_a_batch_are_judged_together_in_their_order():
    put_class_limits("urgent", {"gpu": 2000})
    asked = [hold_request("acme/a", {"gpu": 1000}, class_name=name) for name in ("urgent", "urgent", "urgent", "low")]
    outcomes = take_holds(asked)
    assert [outcomes[one.holder_id] is None for one in asked] == [True, True, False, True]


def test_work_without_a_class_runs_no_query_for_their_limits():
    make_tenant("acme/a")
    with CaptureQueriesContext(connection) as seen:
        take("acme/a", name="")
    assert not [one["sql"] for one in seen if "quotas_classlimit" in one["sql"]]


def test_what_the_class_may_never_hold_is_known_at_submission():
    make_tenant("acme/a")
    put_class_limits("urgent", {"gpu": 2000})
    take(gpus=2)
    assert refusal_for_good("acme/a", [("north", {"gpu": 2000})], "urgent") is None
    assert refusal_for_good("acme/a", [("north", {"gpu": 3000})], "low") is None
    (refused,) = refusal_for_good("acme/a", [("north", {"gpu": 3000})], "urgent")
    assert refused.message == "the class urgent has a limit of 2 gpu, 3 requested"


BEGINS = (
    "INSERT INTO quotas_hold (holder_id, tenant_id, class_name, cluster_name, amounts, state)"
    " SELECT gen_random_uuid(), id, 'urgent', 'n', '{}', 'pending' FROM tenancy_tenant"
)
NEW = (
    "INSERT INTO quotas_classlimit (id, class_name, resource, most, held, updated_at)"
    " VALUES (gen_random_uuid(), '{}', '{}', {}, 0, now())"
)
ATTACKS = {
    "more than a class may hold": (BEGINS.replace("'{}'", "'{\"gpu\": 1001}'") + " WHERE path = 'acme/a'", "class_limit_is_never_exceeded"),
    "more in two holds of one statement": (BEGINS.replace("'{}'", "'{\"gpu\": 501}'"), "class_limit_is_never_exceeded"),
    "another class of a hold": ("UPDATE quotas_hold SET class_name = 'low'", "hold_ends_once"),
    "another class as it ends": (
        "UPDATE quotas_hold SET class_name = '', state = 'voided', ended_at = now()",
        "hold_ends_once",
    ),
    "a count by hand": ("UPDATE quotas_classlimit SET held = 0", "class_limit_moves_with_holds"),
    "a larger count by hand": ("UPDATE quotas_classlimit SET held = held + 1", "class_limit_moves_with_holds"),
    "another class's limit": ("UPDATE quotas_classlimit SET class_name = 'low'", "class_limit_identity_is_fixed"),
    "another resource": ("UPDATE quotas_classlimit SET resource = 'cpu'", "class_limit_identity_is_fixed"),
    "another id": ("UPDATE quotas_classlimit SET id = gen_random_uuid()", "class_limit_identity_is_fixed"),
    "less than nothing": ("UPDATE quotas_classlimit SET most = -1", "class_limit_is_in_range"),
    "more than there is": ("UPDATE quotas_classlimit SET most = 1000000000000001", "class_limit_is_in_range"),
    "two limits": (NEW.format("urgent", "gpu", 9), "one_limit_per_class_and_resource"),
    "a limit of no class": (NEW.format("", "gpu", 9), "class_limit_names_a_class"),
    "a limit on luck": (NEW.format("urgent", "luck", 9), "class_limit_resource_is_known"),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_the_database_refuses(attack):
    put_class_limits("urgent", {"gpu": 2000})
    take("acme/a")
    sql, constraint = attack
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)
    assert constraint_of(refused.value) == constraint
    assert discrepancies() == ()


def test_a_limit_written_by_hand_counts_what_is_held_whatever_it_says():
    take()
    take("other", gpus=2)
    with connection.cursor() as cursor:
        cursor.execute(NEW.replace(", 0, now", ", 77, now").format("urgent", "gpu", 500))
    assert held() == {"gpu": 3000}
    assert discrepancies() == ()


def test_a_wrong_count_is_found():
    put_class_limits("urgent", {"gpu": 2000})
    take()
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE quotas_classlimit DISABLE TRIGGER USER")
        cursor.execute("UPDATE quotas_classlimit SET held = 500")
        cursor.execute("ALTER TABLE quotas_classlimit ENABLE TRIGGER USER")
    assert discrepancies() == ("class urgent holds 500 gpu, but its pending holds are 1000",)
