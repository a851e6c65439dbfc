"""What the database itself keeps true, attacked with raw SQL."""

import threading

import pytest
from django.db import DatabaseError, connection, transaction
from psycopg import errors

from foundation.ids import new_id
from tenancy.models import AuditEntry, AuditLink, IdempotencyRecord, Tenant
from tenancy.operations import record_audit
from tenancy.queries import SYSTEM
from tests.builders import bind, make_tenant, make_token, make_user
from tests.kept_sessions import end_sessions


def execute(statement, *params):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, params)


def paths():
    return sorted(Tenant.objects.values_list("path", "depth"))


@pytest.mark.django_db
def test_a_new_tenants_path_follows_from_its_parent():
    root = Tenant.objects.create(name="acme", kind="organisation")
    Tenant.objects.create(name="research", kind="team", parent=root)
    assert paths() == [("acme", 0), ("acme/research", 1)]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "attack",
    [
        "UPDATE tenancy_tenant SET path = 'other/b' WHERE path = 'acme/b'",
        "UPDATE tenancy_tenant SET depth = 0 WHERE path = 'acme/b'",
        "UPDATE tenancy_tenant SET path = 'acme/b/x', depth = 2 WHERE path = 'acme/b'",
        "UPDATE tenancy_tenant SET name = 'UPPER' WHERE path = 'acme/b'",
        "UPDATE tenancy_tenant SET name = 'a/b' WHERE path = 'acme/b'",
        "UPDATE tenancy_tenant SET name = 'c' WHERE path = 'acme/b'",
        "UPDATE tenancy_tenant SET parent_id = id WHERE path = 'acme/b'",
        "UPDATE tenancy_tenant SET parent_id = (SELECT id FROM tenancy_tenant WHERE path = 'acme/b/d') WHERE path = 'acme/b'",
        "UPDATE tenancy_tenant SET parent_id = (SELECT id FROM tenancy_tenant WHERE path = 'acme/b/d/e') WHERE path = 'acme/b'",
        "UPDATE tenancy_tenant SET parent_id = '00000000-0000-0000-0000-000000000000' WHERE path = 'acme/b'",
        "UPDATE tenancy_tenant SET parent_id = NULL WHERE path = 'acme/b'",
        "UPDATE tenancy_tenant SET kind = 'organisation' WHERE path = 'acme/b'",
        """UPDATE tenancy_tenant AS t SET parent_id = below.id FROM tenancy_tenant AS below
           WHERE (t.path, below.path) IN (('acme/b', 'acme/c/f'), ('acme/c', 'acme/b/d'))""",
        "DELETE FROM tenancy_tenant WHERE path = 'acme/b'",
        "INSERT INTO tenancy_tenant (id, name, kind, path, depth, labels) VALUES (gen_random_uuid(), 'x', 'organisation', 'y', 0, '{}')",
        "INSERT INTO tenancy_tenant (id, name, kind, path, depth, labels) VALUES (gen_random_uuid(), 'x', 'organisation', 'x', 3, '{}')",
        """INSERT INTO tenancy_tenant (id, name, kind, path, depth, labels, parent_id)
           SELECT gen_random_uuid(), 'x', 'team', 'x', 0, '{}', id FROM tenancy_tenant WHERE path = 'acme/b'""",
    ],
)
def test_the_tree_refuses_what_would_make_a_path_false(attack):
    for path in ("acme/b/d/e", "acme/c/f"):
        make_tenant(path)
    before = paths()
    with pytest.raises(DatabaseError) as refused:
        execute(f"{attack}; SET CONSTRAINTS ALL IMMEDIATE")
    assert not isinstance(refused.value.__cause__, errors.QueryCanceled), "refused only since it never ended"
    assert paths() == before


@pytest.mark.django_db
def test_moving_and_renaming_a_tenant_carries_everything_below_it():
    for path in ("acme/b/d/e", "acme/c", "acme/bb"):
        make_tenant(path)
    execute(
        "UPDATE tenancy_tenant SET name = 'moved', parent_id = (SELECT id FROM tenancy_tenant WHERE path = 'acme/c') WHERE path = 'acme/b'"
    )
    assert paths() == [
        ("acme", 0), ("acme/bb", 1), ("acme/c", 1), ("acme/c/moved", 2), ("acme/c/moved/d", 3), ("acme/c/moved/d/e", 4),
    ]  # fmt: skip


@pytest.mark.django_db
def test_no_move_makes_the_tree_deeper_than_sixteen():
    make_tenant("/".join(["a"] * 10))
    make_tenant("b/" + "/".join(["c"] * 7))
    with pytest.raises(DatabaseError), transaction.atomic():
        execute(
            "UPDATE tenancy_tenant SET kind = 'team', parent_id = (SELECT id FROM tenancy_tenant WHERE depth = 9) WHERE path = 'b'"
        )
    assert Tenant.objects.get(path="b/" + "/".join(["c"] * 7)).depth == 7


@pytest.mark.django_db(transaction=True)
def test_a_child_added_while_its_ancestors_move_ends_below_the_moved():
    top, deep = make_tenant("acme/b"), make_tenant("acme/b/d")
    moved = threading.Event()

    def add():
        try:
            moved.wait(10)
            Tenant.objects.create(parent=deep, name="late", kind="project")
        finally:
            end_sessions()

    adding = threading.Thread(target=add)
    adding.start()
    with transaction.atomic():
        execute("UPDATE tenancy_tenant SET name = 'z' WHERE id = %s", top.id)
        moved.set()
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        with connection.cursor() as cursor:
            for _ in range(100_000):
                cursor.execute(waiting)
                if cursor.fetchone()[0]:
                    break
            else:
                pytest.fail("the insert never waited")
    adding.join(10)
    assert ("acme/z/d/late", 3) in paths()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "attack",
    [
        "UPDATE tenancy_auditentry SET actor_name = 'nobody'",
        "DELETE FROM tenancy_auditentry",
        "TRUNCATE tenancy_auditentry CASCADE",
        "UPDATE tenancy_auditlink SET hash = sha256('x')",
        "DELETE FROM tenancy_auditlink",
        "TRUNCATE tenancy_auditlink",
        "INSERT INTO tenancy_auditlink (position, entry_id, hash) VALUES (9, 9, sha256('x'))",
    ],
)
def test_the_audit_trail_only_grows(attack):
    record_audit(SYSTEM, "thing.change", object_kind="thing")
    with pytest.raises(DatabaseError):
        execute(attack)
    assert AuditEntry.objects.count() == AuditLink.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_entries_of_many_transactions_at_once_make_one_chain_without_gaps():
    barrier = threading.Barrier(8)

    def write():
        try:
            barrier.wait(10)
            for _ in range(10):
                with transaction.atomic():
                    record_audit(SYSTEM, "thing.change", object_kind="thing", object_id=new_id())
                    record_audit(SYSTEM, "thing.change", object_kind="thing", object_id=new_id())
        finally:
            end_sessions()

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert list(AuditLink.objects.order_by("position").values_list("position", flat=True)) == list(range(1, 161))
    assert AuditEntry.objects.filter(link__isnull=True).count() == 0


@pytest.mark.django_db(transaction=True)
def test_an_entry_of_a_transaction_that_failed_leaves_no_link():
    with transaction.atomic():
        record_audit(SYSTEM, "thing.change", object_kind="thing")
        transaction.set_rollback(True)
    assert AuditLink.objects.count() == 0


@pytest.mark.django_db
@pytest.mark.parametrize(
    "attack",
    [
        "UPDATE tenancy_apitoken SET scopes = '[\"root\"]'",
        "UPDATE tenancy_apitoken SET digest = 'short'",
        "UPDATE tenancy_tenant SET kind = 'galaxy'",
        "UPDATE tenancy_rolebinding SET role = 'emperor'",
        "UPDATE tenancy_rolebinding SET user_id = NULL",
        "UPDATE tenancy_rolebinding SET group_id = 1",
        "INSERT INTO tenancy_rolebinding (id, tenant_id, user_id, role) SELECT gen_random_uuid(), tenant_id, user_id, role FROM tenancy_rolebinding",
        "UPDATE tenancy_user SET email = 'Upper@example.org'",
        "INSERT INTO tenancy_auditentry (at, actor_name, action, outcome, object_kind, object_id, detail, request_id) VALUES (now(), 'x', 'x', 'maybe', 'x', '', '{}', '')",
        "INSERT INTO tenancy_idempotencyrecord (user_id, route, key, body_digest, status, answer) SELECT user_id, route, key, body_digest, status, answer FROM tenancy_idempotencyrecord",
    ],
)
def test_a_row_that_breaks_a_rule_is_refused(attack):
    user = make_user()
    bind(user, "acme/a", "viewer")
    make_token(user, "read")
    IdempotencyRecord.objects.create(user=user, route="r", key="k", body_digest=b"x" * 32, status=201, answer="{}")
    with pytest.raises(DatabaseError):
        execute(f"{attack}; SET CONSTRAINTS ALL IMMEDIATE")
