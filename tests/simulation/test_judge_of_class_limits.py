"""The simulation's own count of what classes hold objects to a hold, or a move, that exceeds a limit, and to nothing else."""

import pytest
from django.db import connection

from quotas.operations import put_class_limit, put_class_limits, take_holds
from tenancy.models import Tenant
from tenancy.queries import SYSTEM
from tests.builders import hold_request, make_tenant
from tests.house.source import ROOT

pytestmark = pytest.mark.django_db
RULES = (ROOT / "devtools/simulation/core/database_rules.sql").read_text()
SETTING = """
CREATE SCHEMA simulation;
CREATE TABLE simulation.changes (number bigserial, at timestamptz, what text, id text, before text, after text);
CREATE FUNCTION simulation.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.clock_timestamp()';
"""


def found(*statements):
    """What was noted since the last time; the first statements are executed before."""
    with connection.cursor() as cursor:
        for statement in (*statements, "SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS ALL DEFERRED"):
            cursor.execute(statement)
        cursor.execute("DELETE FROM simulation.changes RETURNING what, id, before, after")
        return sorted(cursor.fetchall())


def take(path, name="urgent"):
    asked = hold_request(path, {"jobs": 1}, class_name=name)
    return take_holds([asked])[asked.holder_id]


def move(to):
    Tenant.objects.filter(name="team").update(parent=make_tenant(to))


def test_only_what_exceeds_a_limit_is_noted():
    for path in ("acme/x/team", "acme/y"):
        make_tenant(path)
    for path, most in (("acme", 3), ("acme/x", 2), ("acme/y", 0)):
        put_class_limit(SYSTEM, path, "urgent", "jobs", most=most)
    put_class_limits("urgent", {"jobs": 4})
    assert take("acme/x/team") is None
    assert found(SETTING, RULES[RULES.index("-- Limits of classes that were exceeded") :]) == []
    assert take("acme/x/team") is None
    assert take("acme/y", "low") is None
    assert found() == []
    put_class_limit(SYSTEM, "acme", "urgent", "jobs", most=1)
    assert found() == []  # a limit that is cut below use is no fault of a hold
    put_class_limit(SYSTEM, "acme", "urgent", "jobs", most=9)
    triggers = (
        "quotas_hold DISABLE TRIGGER quotas_work_of_class_takes",
        "tenancy_tenant DISABLE TRIGGER quotas_work_of_class_follows_tenant",
    )
    assert found(*(f"ALTER TABLE {trigger}" for trigger in triggers)) == []
    put_class_limits("urgent", {"jobs": None})
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO quotas_hold (holder_id, tenant_id, class_name, cluster_name, amounts, state)"
            " SELECT gen_random_uuid(), id, 'urgent', 'n', '{\"jobs\": 1}', 'pending' FROM tenancy_tenant WHERE path = 'acme/x/team'"
        )
    assert found() == [("class_limit", "urgent jobs in acme/x", "2", "3")]
    move("acme/y")
    assert found() == [("class_limit", "urgent jobs in acme/y", "0", "3")]
    move("acme/x")
    assert found() == [("class_limit", "urgent jobs in acme/x", "2", "3")]
    move("acme")
    assert found() == []
