"""Limits on the number of jobs and on what each user holds: set, counted, shown, and enforced by the database."""

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from foundation.ids import new_id
from foundation.problems import Invalid, NotFound
from quotas.models import UserHolding, UserLimit
from quotas.operations import delete_user_limit, end_holds, put_limit, put_user_limit, take_holds
from quotas.queries import discrepancies, refusal_for_good, user_limit_states
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM, NotAllowedHere
from tests.builders import actor_for, bearer, bind, hold_request, make_tenant, make_user
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db
ADA, BOB = new_id(), new_id()


def take(path="acme/a", gpus=1, user=ADA):
    asked = hold_request(path, {"gpu": gpus * 1000, "jobs": 1}, user_id=user)
    return take_holds([asked])[asked.holder_id] or asked.holder_id


def each(most=2, path="acme", resource="gpu"):
    make_tenant(path)
    return put_user_limit(SYSTEM, path, resource, most=most * (1000 if resource == "gpu" else 1))[0]


def held(limit):
    return {row.user_id: row.held for row in UserHolding.objects.filter(limit=limit, held__gt=0)}


def test_a_tenant_runs_as_many_jobs_as_its_limit_and_those_above_it_allow():
    make_tenant("acme/a/b")
    put_limit(SYSTEM, "acme", "jobs", nominal=3)
    put_limit(SYSTEM, "acme/a", "jobs", nominal=2)
    first = take("acme/a/b", gpus=0)
    take("acme/a", gpus=0)
    refused = take("acme/a/b", gpus=0)
    assert (refused.code, refused.tenant_path) == ("quota_exceeded", "acme/a")
    assert refused.message.startswith("acme/a has a limit of 2 jobs: 2 held, 1 requested")
    take("acme", gpus=0)
    assert take("acme", gpus=0).tenant_path == "acme"
    end_holds({first: "posted"})
    assert not hasattr(take("acme/a", gpus=0), "code")
    assert discrepancies() == ()


def test_what_users_hold_is_counted_below_the_tenant_and_given_back_once():
    limit = each(2)
    first = take("acme/a")
    take("acme/b/c")
    assert take("acme").code == "user_limit_exceeded"
    take("acme", user=BOB)
    take("acme", user=None)
    take("other", gpus=9)
    assert held(limit) == {ADA: 2000, BOB: 1000}
    end_holds({first: "voided"})
    end_holds({first: "voided"})
    assert held(limit) == {ADA: 1000, BOB: 1000}
    assert discrepancies() == ()


def test_a_new_limit_counts_pending_holds_and_one_that_is_cut_lets_them_run():
    first = take("acme/a", gpus=3)
    limit = each(1)
    assert held(limit) == {ADA: 3000}
    assert take("acme/a").code == "user_limit_exceeded"
    put_user_limit(SYSTEM, "acme", "gpu", most=4000)
    second = take("acme/a")
    put_user_limit(SYSTEM, "acme", "gpu", most=1000)
    end_holds({first: "posted"})
    assert take("acme/a").code == "user_limit_exceeded"
    end_holds({second: "posted"})
    assert held(limit) == {}
    take("acme/a")
    assert discrepancies() == ()


def test_holds_of_a_batch_are_judged_together_in_their_order():
    each(2)
    asked = [hold_request("acme/a", {"gpu": 1000}, user_id=user) for user in (ADA, ADA, ADA, BOB)]
    outcomes = take_holds(asked)
    assert [outcomes[one.holder_id] is None for one in asked] == [True, True, False, True]


def test_work_without_such_limits_takes_no_lock_for_them():
    make_tenant("acme/a")
    take("acme/a")
    with CaptureQueriesContext(
        connection,
    ) as seen:
        take("acme/a")
    assert not [one["sql"] for one in seen if "quotas_userholding" in one["sql"]]


def test_a_limit_larger_than_any_user_may_hold_is_known_at_submission():
    each(2)
    assert refusal_for_good("acme/a", [("north", {"gpu": 2000})]) is None
    (refused,) = refusal_for_good("acme/a", [("north", {"gpu": 3000})])
    assert refused.message == "acme has a limit of 2 gpu for each user, 3 requested"


def test_a_removed_limit_binds_no_user():
    limit = each(1)
    take("acme/a")
    delete_user_limit(SYSTEM, limit.id)
    take("acme/a")
    assert not UserHolding.objects.exists()
    with pytest.raises(NotFound):
        delete_user_limit(SYSTEM, limit.id)
    assert discrepancies() == ()


def test_only_who_manages_quotas_one_level_up_limits_users():
    make_tenant("acme/a")
    manager = make_user()
    bind(manager, "acme/a", "manager")
    with pytest.raises(NotAllowedHere):
        put_user_limit(actor_for(manager), "acme/a", "gpu", most=1)
    limit = each(1, "acme/a")
    with pytest.raises(NotAllowedHere):
        delete_user_limit(actor_for(manager), limit.id)
    with pytest.raises(NotFound):
        delete_user_limit(actor_for(make_user()), limit.id)


@pytest.mark.parametrize(("resource", "most"), [("disk", 1), ("gpu", -1), ("jobs", 10**15 + 1)])
def test_what_is_no_limit_is_refused(resource, most):
    make_tenant("acme")
    with pytest.raises(Invalid):
        put_user_limit(SYSTEM, "acme", resource, most=most)


ATTACKS = {
    "more than a user may hold": (
        (
            "INSERT INTO quotas_hold (holder_id, tenant_id, user_id, cluster_name, amounts, state)"
            " SELECT gen_random_uuid(), id, %(ada)s, 'n', '{\"gpu\": 1001}', 'pending' FROM tenancy_tenant WHERE path = 'acme/a'"
        ),
        "user_limit_is_never_exceeded",
    ),
    "another user's hold": ("UPDATE quotas_hold SET user_id = %(bob)s", "hold_ends_once"),
    "a count by hand": ("UPDATE quotas_userholding SET held = 0", "user_holding_moves_with_holds"),
    "no count": ("DELETE FROM quotas_userholding", "user_holding_moves_with_holds"),
    "a count from nowhere": (
        "INSERT INTO quotas_userholding (limit_id, user_id, held) SELECT id, %(bob)s, 5 FROM quotas_userlimit",
        "user_holding_moves_with_holds",
    ),
    "another tenant's limit": (
        "UPDATE quotas_userlimit SET tenant_id = (SELECT id FROM tenancy_tenant WHERE path = 'acme/a')",
        "user_limit_identity_is_fixed",
    ),
    "another resource": ("UPDATE quotas_userlimit SET resource = 'cpu'", "user_limit_identity_is_fixed"),
    "less than nothing": ("UPDATE quotas_userlimit SET most = -1", "user_limit_is_in_range"),
    "two limits": (
        (
            "INSERT INTO quotas_userlimit (id, tenant_id, resource, most, updated_at)"
            " SELECT gen_random_uuid(), tenant_id, resource, 9, now() FROM quotas_userlimit"
        ),
        "one_user_limit_per_tenant_and_resource",
    ),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_the_database_refuses(attack):
    each(2)
    take("acme/a")
    sql, constraint = attack
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql, {"ada": ADA, "bob": BOB})
    assert constraint_of(refused.value) == constraint


def test_a_limit_written_by_hand_counts_what_is_held():
    take("acme/a")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO quotas_userlimit (id, tenant_id, resource, most, updated_at)"
            " SELECT gen_random_uuid(), id, 'gpu', 500, now() FROM tenancy_tenant WHERE path = 'acme'"
        )
    (limit,) = user_limit_states()
    assert (limit.most, limit.held) == (500, {ADA: 1000})
    assert discrepancies() == ()


@pytest.fixture
def admin():
    user = make_user()
    bind(user, "acme", "admin")
    return bearer(user)


def put(client, headers, **fields):
    body = {"tenant": "acme", "resource": "gpu", "most": "4", **fields}
    return client.put("/api/v1/user-limits", body, content_type="application/json", headers=headers)


def test_the_api_sets_shows_and_removes_limits_on_users(client, admin):
    created, replaced = put(client, admin), put(client, admin, most="0.5")
    assert (created.status_code, replaced.status_code) == (201, 200)
    shown = replaced.json()
    assert (shown["tenant"], shown["resource"], shown["most"]) == ("acme", "gpu", "0.5")
    assert client.get("/api/v1/user-limits?tenant=acme&resource=gpu", headers=admin).json()["items"] == [shown]
    url = f"/api/v1/user-limits/{shown['id']}"
    assert client.get(url, headers=admin).json() == shown
    stranger = bearer(make_user())
    assert client.get(url, headers=stranger).status_code == client.delete(url, headers=stranger).status_code == 404
    assert client.delete(url, headers=admin).status_code == 204
    assert not UserLimit.objects.exists()
    actions = AuditEntry.objects.filter(object_kind="user_limit").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["user_limit.put", "user_limit.put", "user_limit.delete"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"most": "0.0001"}, "too_fine"),
        ({"most": "-1"}, "not_a_quantity"),
        ({"resource": "jobs", "most": "1.5"}, "too_fine"),
        ({"resource": "disk"}, "unknown_resource"),
        ({"most": None}, "null"),
        ({"more": 1}, "unknown_field"),
    ],
)
def test_the_api_names_the_field_at_fault(client, admin, fields, code):
    refused = put(client, admin, **fields)
    assert refused.status_code == 422
    assert [error["code"] for error in refused.json()["errors"]] == [code]


def test_the_pages_set_show_and_remove_limits_on_users(client):
    user = make_user()
    bind(user, "acme", "admin")
    client.force_login(user)

    def text(answer):
        return " ".join(answer.content.decode().split())

    assert "No limits per user are set here" in text(client.get("/quotas/"))
    typed = {"tenant": "acme", "resource": "gpu", "most": "2"}
    assert "is set" in text(client.post("/quotas/users/set/", typed, follow=True))
    take("acme/a", user=user.id)
    page = text(client.get("/quotas/"))
    assert "2 GPUs" in page
    assert "1 GPU" in page
    limit = UserLimit.objects.get()
    assert 'value="2"' in text(client.get(f"/quotas/users/set/?limit={limit.id}"))
    assert client.post("/quotas/users/set/", typed | {"most": "<b>"}).status_code == 422
    assert client.post("/quotas/users/set/", typed | {"tenant": ""}).status_code == 422
    assert "is removed" in text(client.post(f"/quotas/users/{limit.id}/remove/", follow=True))
    assert not UserLimit.objects.exists()
