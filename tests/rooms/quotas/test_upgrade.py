"""The step from lines at every limit of a path to one line for each resource and scope, on rows as they were before."""

from pathlib import Path

import pytest
from django.db import connection

import quotas.migrations
from foundation.ids import new_id
from quotas.models import QuotaLimit
from quotas.operations import end_holds, put_limit, take_holds
from quotas.queries import discrepancies
from tenancy.queries import SYSTEM
from tests.builders import hold_request, make_limit, make_tenant

pytestmark = pytest.mark.django_db
UPGRADE = (Path(quotas.migrations.__file__).parent / "0002_upgrade.sql").read_text(encoding="utf-8")
PLACES = ("acme", "acme/b", "acme/b/c")


def run(statement, values=None):
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def hold_as_before(path, amount, limits, *, state="pending"):
    """A hold with its lines at all these limits, as the version before wrote them."""
    holder, tenant = new_id(), make_tenant(path)
    run(
        "INSERT INTO quotas_hold (holder_id, tenant_id, cluster_name, amounts, state, ended_at) VALUES"
        " (%s, %s, 'north', jsonb_build_object('gpu', %s::int), %s, CASE %s WHEN 'pending' THEN NULL ELSE clock_timestamp() + interval '1s' END)",
        [holder, tenant.id, amount, state, state],
    )
    for limit in limits:
        run(
            "INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, amount) VALUES (%s, %s, 'take', %s)",
            [holder, limit.id, amount],
        )
        if state == "pending":
            run("UPDATE quotas_quotalimit SET held = held + %s WHERE id = %s", [amount, limit.id])
        else:
            run(
                "INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, amount) VALUES (%s, %s, 'end', %s)",
                [holder, limit.id, -amount],
            )
    return holder


@pytest.fixture
def before():
    """Three limits in force and a removed one, with their counters as lines at each level made them. Rules are off while the
    rows are written.
    """
    limits = {path: make_limit(path, nominal="8") for path in PLACES}
    limits["scoped"] = make_limit("acme", nominal="8", clusters=("north",))
    limits["gone"] = make_limit("acme/x", nominal="4")
    limits["gone below nothing"] = make_limit("other", nominal="4")
    run("SET CONSTRAINTS ALL IMMEDIATE")
    run("SET LOCAL session_replication_role = replica")
    run("UPDATE quotas_quotalimit SET parent_id = NULL")
    run(
        "UPDATE quotas_quotalimit SET removed_at = now() WHERE id = ANY(%s)",
        [[limits["gone"].id, limits["gone below nothing"].id]],
    )
    root, middle, leaf, scoped, gone, alone = (
        limits[name] for name in (*PLACES, "scoped", "gone", "gone below nothing")
    )
    holders = [
        hold_as_before("acme/b/c/d", 3000, [root, middle, leaf, scoped]),
        hold_as_before("acme/b", 1000, [root, middle, scoped]),
        hold_as_before("acme", 1000, [root, scoped]),
        hold_as_before("acme/x", 2000, [root, gone, scoped]),
        hold_as_before("other", 2000, [alone]),
    ]
    hold_as_before("acme/b/c", 4000, [root, middle, leaf], state="posted")
    run("UPDATE quotas_quotalimit SET nominal = 6000, cap = greatest(6000, held) WHERE id = %s", [root.id])
    run("SET LOCAL session_replication_role = origin")
    run("UPDATE quotas_pasthalflife SET half_life_seconds = half_life_seconds")  # past use is counted anew
    return limits, holders


def upgrade():
    """The migration, and what the commit after it does."""
    run(UPGRADE)
    run("SET CONSTRAINTS ALL DEFERRED")


def held():
    return {limit.id: (limit.held, limit.cap) for limit in QuotaLimit.objects.all()}


def test_pending_holds_count_once_and_no_limit_in_force_changes(before):
    limits, holders = before
    was = held()
    assert discrepancies() != ()

    upgrade()

    now = held()
    assert {name: now[limits[name].id] for name in limits} == {
        **{name: was[limits[name].id] for name in limits},
        "gone": (0, 4000),
    }
    assert now[limits["acme"].id] == (7000, 7000)
    assert discrepancies() == ()
    assert QuotaLimit.objects.get(id=limits["acme/b/c"].id).parent_id == limits["acme/b"].id
    assert end_holds(dict.fromkeys(holders, "posted")) == 5
    assert not QuotaLimit.objects.exclude(held=0).exists()
    assert discrepancies() == ()


def test_after_it_limits_are_ceilings_as_before(before):
    _, holders = before
    upgrade()
    assert set(QuotaLimit.objects.values_list("borrowing_limit", "lending_limit")) == {(0, None)}
    refused = hold_request("acme/b/c")
    assert take_holds([refused])[refused.holder_id].tenant_path == "acme"
    end_holds({holders[0]: "posted"})
    asked = hold_request("acme/b/c", {"gpu": 2000})
    assert take_holds([asked]) == {asked.holder_id: None}
    put_limit(SYSTEM, "acme/x", "gpu", nominal=9000)
    assert QuotaLimit.objects.get(tenant__path="acme/x", removed_at=None).held == 2000
    assert discrepancies() == ()


def test_it_runs_on_a_database_without_limits():
    upgrade()
    assert not QuotaLimit.objects.exists()
