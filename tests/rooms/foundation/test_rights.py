"""The role that the processes run as, attacked in raw SQL by whoever took one of them over."""

import ast
import os
import re

import psycopg
import pytest
from django.conf import settings
from django.core.checks import Tags, run_checks
from django.db import connection

from foundation import rights
from tests.builders import make_tenant, make_user
from tests.house.source import ROOMS, ROOT, files, tree
from tests.house.source import name as path_of

ROLE, PASSWORD = f"processes_{os.getpid()}", "canary-role-51f0"


@pytest.fixture(scope="module")
def role(django_db_setup, django_db_blocker):
    """The role, made as `migrate` makes it; twice, for it must not mind."""
    with django_db_blocker.unblock():
        for _ in range(2):
            rights.make_role(connection, ROLE, PASSWORD)
            rights.grant(connection, ROLE)
        yield ROLE
        with connection.cursor() as cursor:
            cursor.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")
        connection.close()


@pytest.fixture
def link(role, db):
    """A session of the role's own."""
    parameters = connection.get_connection_params()
    address = {name: parameters[name] for name in ("dbname", "host", "port")}
    with psycopg.connect(**address, user=role, password=PASSWORD, autocommit=True) as session:
        yield session


ATTACKS = (
    "ALTER TABLE tenancy_auditentry DISABLE TRIGGER ALL",
    "ALTER TABLE quotas_quotalimit DISABLE TRIGGER quotas_guard_limit",
    "DROP TRIGGER tenancy_audit_chain ON tenancy_auditentry",
    "CREATE TRIGGER x BEFORE INSERT ON tenancy_tenant FOR EACH ROW EXECUTE FUNCTION tenancy_tenant_place()",
    "ALTER TABLE federation_job DROP CONSTRAINT federation_job_pkey",
    "ALTER TABLE federation_job ADD COLUMN x int",
    "ALTER TABLE federation_job OWNER TO CURRENT_USER",
    "DROP TABLE federation_jobevent",
    "CREATE RULE x AS ON INSERT TO tenancy_auditentry DO INSTEAD NOTHING",
    "CREATE POLICY x ON tenancy_auditentry",
    "CREATE TABLE x (id int)",
    "CREATE TEMP TABLE x (id int)",
    "CREATE SCHEMA x",
    "CREATE VIEW x AS SELECT 1",
    "CREATE FUNCTION x() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE FUNCTION pg_temp.x() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE OR REPLACE FUNCTION tenancy_append_only() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "ALTER FUNCTION tenancy_audit_chain() SECURITY INVOKER",
    "ALTER FUNCTION tenancy_audit_chain() SET search_path = pg_temp",
    "CREATE EXTENSION vector",
    "CREATE DATABASE x",
    "CREATE ROLE x",
    "ALTER ROLE CURRENT_USER SUPERUSER",
    "ALTER ROLE CURRENT_USER BYPASSRLS",
    "GRANT pg_read_server_files TO CURRENT_USER",
    "GRANT {owner} TO CURRENT_USER",
    "SET ROLE {owner}",
    "SET SESSION AUTHORIZATION {owner}",
    "SET session_replication_role = replica",
    "ALTER SYSTEM SET log_statement = 'all'",
    "ALTER DATABASE {database} SET search_path = pg_temp",
    "COPY (SELECT 1) TO PROGRAM 'true'",
    "COPY tenancy_auditentry TO '/tmp/x'",
    "COPY tenancy_tenant FROM '/etc/passwd'",
    "SELECT * FROM pg_authid",
    "SELECT * FROM pg_shadow",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_ls_dir('.')",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_export(1, '/tmp/x')",
    "SELECT pg_reload_conf()",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{owner}'",
    "SELECT setval('federation_claim_token', 1)",
    "SELECT * FROM pg_create_physical_replication_slot('x')",
    "BEGIN; LOCK TABLE tenancy_auditentry IN ACCESS EXCLUSIVE MODE",
    "INSERT INTO tenancy_auditlink (position, entry_id, hash) SELECT 99, id, sha256('') FROM tenancy_auditentry LIMIT 1",
    "INSERT INTO django_migrations (app, name, applied) VALUES ('tenancy', '9999_x', now())",
    "UPDATE django_content_type SET model = 'x'",
    "UPDATE tenancy_auditentry SET action = 'x'",
    "UPDATE tenancy_auditlink SET hash = sha256('')",
    "UPDATE quotas_holdmovement SET amount = 0",
    "UPDATE billing_usagesegment SET cost = 0",
    "UPDATE federation_jobevent SET message = 'x'",
    "MERGE INTO tenancy_auditentry AS t USING (SELECT 1) AS s ON true WHEN MATCHED THEN DELETE",
    "WITH gone AS (DELETE FROM tenancy_auditentry RETURNING 1) SELECT * FROM gone",
)


@pytest.mark.parametrize("statement", ATTACKS)
def test_nothing_that_the_work_does_not_need_is_allowed(link, statement):
    owner, database = connection.settings_dict["USER"], connection.settings_dict["NAME"]
    with pytest.raises(psycopg.Error) as refused:
        link.execute(statement.format(owner=owner, database=database))
    assert isinstance(refused.value, psycopg.errors.InsufficientPrivilege), refused.value


def test_no_table_can_be_emptied_and_those_that_are_kept_not_deleted_from(link):
    for table in rights.tables(connection):
        refused = ["TRUNCATE {} CASCADE"]
        refused += ["DELETE FROM {}"] * ("DELETE" not in rights.rights_on(table))
        refused += ["INSERT INTO {} DEFAULT VALUES"] * ("INSERT" not in rights.rights_on(table))
        for statement in refused:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                link.execute(statement.format(table))


def test_the_rights_are_those_of_the_list_on_every_table_of_the_models_and_on_no_other(link):
    held = """
        SELECT relname, array_agg(privilege ORDER BY privilege) FILTER (WHERE has_table_privilege(oid, privilege))
        FROM pg_class CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES',
                                              'TRIGGER', 'MAINTAIN']) AS privilege
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm') GROUP BY relname
    """
    found = {name: set(given or ()) for name, given in link.execute(held).fetchall()}
    assert found == {table: set(rights.rights_on(table)) for table in rights.tables(connection)}
    assert set(settings.TABLE_RIGHTS) <= set(found)


def test_a_table_whose_trigger_refuses_a_verb_gives_no_right_to_it(link):
    refusing = """
        SELECT c.relname, t.tgtype FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
        JOIN pg_proc AS p ON p.oid = t.tgfoid
        WHERE NOT t.tgisinternal AND t.tgqual IS NULL AND p.proname ~ '(append_only|keep$|refuse_rewrite|_kept|_keep_movements|_keep_holds)'
    """
    rows = link.execute(refusing).fetchall()
    assert {"tenancy_auditentry", "billing_usagesegment", "federation_jobevent"} <= {table for table, _ in rows}
    for table, kind in rows:
        denied = {verb for bit, verb in ((8, "DELETE"), (16, "UPDATE")) if kind & bit}
        assert not denied & set(rights.rights_on(table)), table


def test_what_the_source_does_to_a_table_is_in_its_rights():
    """Calls by a model's name and statements by its table's: what would fail only in a real process."""
    from django.apps import apps  # noqa: PLC0415 - models can be imported only when Django is set up

    tables = {model.__name__: model._meta.db_table for model in apps.get_models()}
    verbs = {
        "delete": "DELETE",
        "update": "UPDATE",
        "bulk_update": "UPDATE",
        "create": "INSERT",
        "bulk_create": "INSERT",
    }
    found = []
    for path in files((*ROOMS, "foundation")):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in verbs:
                match = re.match(r"(\w+)\.objects\b", ast.unparse(node.func))
                if match and match[1] in tables and verbs[node.func.attr] not in rights.rights_on(tables[match[1]]):
                    found.append(f"{path_of(path)}:{node.lineno} {node.func.attr}s {match[1]}")
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for verb, table in re.findall(r"\b(DELETE FROM|UPDATE|INSERT INTO) (\w+_\w+)", node.value):
                    if table in tables.values() and verb.split()[0] not in rights.rights_on(table):
                        found.append(f"{path_of(path)}:{node.lineno} {verb} {table}")
    assert not found, f"give the right in {path_of(ROOT / 'config' / 'table_rights.py')}, or do without: {found}"


@pytest.mark.django_db(transaction=True)
def test_the_role_works_and_its_entries_are_chained_by_the_owners_trigger(link, django_user_model):
    tenant, user = make_tenant("acme"), make_user("ada@acme.example")
    count = "SELECT count(*) FROM tenancy_auditlink"
    before = link.execute(count).fetchone()[0]
    link.execute(
        "INSERT INTO tenancy_auditentry (at, actor_id, actor_name, action, outcome, object_kind, object_id, tenant_id,"
        " detail, request_id) VALUES (now(), %s, 'ada', 'x', 'done', 'user', '', %s, '{}', '')",
        [user.id, tenant.id],
    )
    assert link.execute(count).fetchone()[0] == before + 1
    link.execute("UPDATE tenancy_tenant SET name = 'other' WHERE id = %s", [tenant.id])
    assert link.execute("SELECT path FROM tenancy_tenant").fetchone() == ("other",)
    assert link.execute("SELECT nextval('foundation_lease_token') < nextval('foundation_lease_token')").fetchone()[0]


@pytest.mark.django_db
def test_the_owners_trigger_looks_up_names_where_nobody_else_can_put_any():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT prosecdef, proconfig FROM pg_proc WHERE proname = ANY(%s)", [list(settings.OWNERS_TRIGGERS)]
        )
        found = [
            (is_owners, [each for each in given if "enable_" not in each]) for is_owners, given in cursor.fetchall()
        ]
        assert found == [(True, ["search_path=pg_catalog, public, pg_temp"])] * len(settings.OWNERS_TRIGGERS)
        cursor.execute("SELECT proname FROM pg_proc WHERE prosecdef AND pronamespace = 'public'::regnamespace")
        assert sorted(name for (name,) in cursor.fetchall()) == sorted(settings.OWNERS_TRIGGERS)


@pytest.mark.django_db
def test_a_role_that_owns_the_tables_is_warned_of_and_the_processes_own_is_not(link):
    (warning,) = [
        found for found in run_checks(tags=[Tags.database], databases=["default"]) if found.id == "foundation.W001"
    ]
    assert "superuser" in warning.msg
    assert "owns the tables" in warning.msg
    assert "SWITCHYARD_OWNER_DATABASE_URL" in warning.hint
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {ROLE}")
        try:
            assert rights.excess(connection) == []
        finally:
            cursor.execute("RESET ROLE")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("GRANT TRUNCATE ON tenancy_tenant TO {}", "TRUNCATE on tenancy_tenant"),
        ("GRANT DELETE ON tenancy_auditentry TO {}", "DELETE on tenancy_auditentry"),
        ("ALTER ROLE {} CREATEROLE", "can create roles"),
        ("ALTER TABLE tenancy_tenant OWNER TO {}", "owns the tables"),
        ("GRANT CREATE ON SCHEMA public TO {}", "can create tables and functions"),
    ],
)
def test_each_right_too_many_is_seen(link, given, said):
    with connection.cursor() as cursor:
        cursor.execute(given.format(ROLE))
        cursor.execute(f"SET LOCAL ROLE {ROLE}")
        try:
            assert said in "; ".join(rights.excess(connection))
        finally:
            cursor.execute("RESET ROLE")


def test_the_password_reaches_the_server_as_a_verifier_alone(link, django_db_blocker):
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("SELECT rolpassword FROM pg_authid WHERE rolname = %s", [ROLE])
        assert cursor.fetchone()[0].startswith("SCRAM-SHA-256$")
