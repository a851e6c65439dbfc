"""SQL written by hand agrees with the models, and has its place in the room of its table.

PostgreSQL judges each statement on the migrated database: it plans it, or begins to copy. `make check` compares the
migrations with the models.
"""

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.apps import apps
from django.db import DatabaseError, connection, transaction

from billing.queries import carbon_use, ledger_proof, proof, recorded, utilisation
from federation.queries import metering, unit_costs
from foundation import proofs

from .source import ROOMS, files, name, tree
from .statements import GAP, Statement, Unreadable, calls_in, module_at, start_of, statements_in, texts_of

pytestmark = pytest.mark.django_db
STOREYS = ("foundation", *reversed(ROOMS))
"""The lowest room first."""
OTHER_DATABASES = {"clusters/drivers/simulated/store.py"}  # a file of the simulated cluster


def _reports(template: str, *, without: Collection[str] = ()) -> list[str]:
    words = [word for word in recorded.GROUPS if word not in without]
    return [recorded.stored_statement(grouped, template) for grouped in ([], words, *([word] for word in words))]


TEMPLATES: Mapping[str, Callable[[], list[str]]] = {
    "billing/queries/proof.py:PROOFS": lambda: [*texts_of(proof.FULL_PROOFS), *texts_of(proof.PROOFS_OF_CHANGES)],
    "billing/queries/recorded.py:DAYS": lambda: _reports(recorded.DAYS, without=recorded.OF_ONE_RUN),
    "billing/queries/recorded.py:METER_DAYS": lambda: _reports(recorded.METER_DAYS),
    "billing/queries/recorded.py:PARTS": lambda: _reports(recorded.PARTS),
    "billing/queries/recorded.py:LOST": lambda: _reports(recorded.LOST),
    "billing/queries/recorded.py:CREDITS": lambda: _reports(recorded.CREDITS),
    "billing/queries/carbon_use.py:EDGES": lambda: _reports(carbon_use.EDGES),
    "billing/queries/carbon_use.py:MEASURED": lambda: _reports(carbon_use.MEASURED),
    "billing/queries/utilisation.py:UTILISATION": lambda: _reports(utilisation.UTILISATION),
    "billing/queries/corrected.py:CORRECTED": lambda: [
        recorded.report_statement(words) for words in ([], list(recorded.GROUPS))
    ],
    "billing/queries/ledger_proof.py:SUM_OF_A_DAY": lambda: [
        query for _, query in (*ledger_proof.DAY_SUMS, *ledger_proof.DAY_SUMS_OF_CHANGES)
    ],
    "federation/queries/unit_costs.py:UNIT_COSTS": lambda: [
        unit_costs.unit_costs_statement(words, unit_costs.UNIT_COSTS)
        for words in ([], *([word] for word in unit_costs.GROUPS), [*unit_costs.GROUPS, "label:a", "label:b"])
    ],
    "federation/queries/metering.py:UNSETTLED": lambda: [metering.UNSETTLED_OF_JOBS, metering.UNSETTLED_OF_TENANTS],
}
"""What becomes of each statement with gaps."""
COMPOSED: Mapping[str, Callable[[], list[str]]] = {
    "foundation/proofs.py:_as_text": lambda: [proofs._as_text("SELECT 1 AS one")],
    "foundation/rows.py:insertion": list,  # each statement that it begins is a constant, or names the columns of a model
}
"""What functions make of statements that they are given."""
PASSED_ON = {
    "billing/queries/budget_rates.py:_found",  # RATES_NOW, KNOWN and KEPT_OR_KNOWN
    "billing/queries/carbon_use.py:footprints_of",  # EDGES and MEASURED
    "billing/queries/recorded.py:recorded",  # DAYS, METER_DAYS, PARTS, LOST, CREDITS and CORRECTED
    "billing/queries/utilisation.py:_sums",  # UTILISATION
    "federation/queries/advice.py:_rows",  # USES and LABELLED
    "federation/queries/claimed_attempts.py:_rows",
    "federation/queries/metering.py:_weighed",
    "federation/queries/metering.py:unsettled_runs",
    "federation/queries/unit_costs.py:_parts",  # UNIT_COSTS
    "foundation/bell.py:_states",
    "foundation/leases.py:_all",
    "foundation/leases.py:_one",
    "foundation/management/commands/migrate.py:Command.execute",  # the command's own
    "foundation/proofs.py:_found",
    "foundation/rights.py:give_triggers_their_owners_rights",  # ALTER FUNCTION; these three name no columns
    "foundation/rights.py:grant",
    "foundation/rights.py:make_role",
    "foundation/rows.py:_insert",
    "foundation/rows.py:insert_missing",
    "foundation/sessions.py:_value",
}
"""Functions that run a statement that they are given or choose: its text stands elsewhere in the source."""
EXAMPLES: Mapping[str, object] = {"patience": timedelta()}
"""Parameters whose type PostgreSQL cannot tell from a null."""
KEPT: Mapping[str, set[str]] = {
    "billing/operations/anomalies.py:RECORD": {
        *("id", "organisation_id", "tenant_path"),  # as they were when the day was found
        "decided_by_name",  # of a routine's row: empty
    },
    "billing/operations/recommendations.py:RECORD": {"id", "organisation_id", "found_on"},
    "federation/operations/learning.py:REMEMBER": {"tenant_id", "level"},
    "federation/operations/observation.py:UPSERT_PODS": {
        *("attempt_id", "remote_object_id", "position", "index", "place", "name"),  # its identity
        "is_gone",  # `_mark_gone` and `_bring_back` write it
    },
    "federation/operations/unseen.py:WRITE_DOWN": {
        *("attempt_id", "remote_object_id", "position", "index", "place", "name"),
        *("node", "phase", "disruption", "is_gone", "last_seen_at"),  # as far as an observer saw them
    },
}
"""What an upsert leaves as it was first written, besides the columns that it meets the old row by."""
CONFLICT = re.compile(
    r"ON\s+CONFLICT\s*\((?P<met_by>[^)]*)\)(?:\s*WHERE\s[^)]*?)?\s*DO\s+UPDATE\s+SET\s(?P<sets>.*)", re.DOTALL
)
INSERT = re.compile(r'(?:INSERT\s+INTO|COPY)\s+"?(?P<table>\w+)"?(?:\s+AS\s+\w+)?\s*(?:\((?P<columns>[^)]*)\))?')
VERB = re.compile(r"\s*[A-Z]{3,}\b")
FUNCTION = re.compile(rf"\b(?:{'|'.join(ROOMS)})_\w+(?=\()")
WRITE = re.compile(r'(?:INSERT\s+INTO|COPY|UPDATE|DELETE\s+FROM)\s+"?(\w+)')


def all_statements() -> Iterator[Statement]:
    """Every complete statement of the rooms."""
    for path in files((*ROOMS, "foundation")):
        if name(path) not in OTHER_DATABASES:
            for statement in statements_in(path, COMPOSED):
                if not GAP.search(statement.text):
                    yield statement
                elif statement.place not in TEMPLATES:
                    raise Unreadable(statement.place)
    for place, made in {**TEMPLATES, **COMPOSED}.items():
        where, owner = place.split(":")
        yield from (Statement(where, owner, text) for text in made())


@pytest.fixture(scope="module")
def written() -> list[Statement]:
    statements = list(all_statements())
    assert len(statements) > 100, "they are found"
    return statements


def tables_in(text: str) -> set[str]:
    """Tables of ours that a statement names."""
    return set(re.findall(r"\w+", text)) & {
        model._meta.db_table for model in apps.get_models(include_auto_created=True)
    }


def fault_in(text: str) -> str:
    """PostgreSQL's objection to a statement; empty if there is none."""
    named = re.findall(r"%\((\w+)\)s", text)
    given: Any = {each: EXAMPLES.get(each) for each in named} or [None] * text.replace("%%", "").count("%s") or None
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            if text.lstrip().startswith("COPY"):
                with cursor.copy(text):
                    pass
            else:
                cursor.execute(f"EXPLAIN {text}", given)
    except (DatabaseError, psycopg.Error) as error:  # Django translates no error of a copy
        return str(error)
    return ""


def test_every_statement_agrees_with_the_models(written):
    faults = {statement.place: fault for statement in written if (fault := fault_in(statement.text))}
    assert not faults, faults


@pytest.mark.parametrize(
    "text",
    [
        "SELECT pat FROM tenancy_tenant",
        "SELECT id FROM tenancy_tenants WHERE id = %s",
        "UPDATE foundation_routine SET sent = now() WHERE name = %(name)s",
        "WITH done AS (DELETE FROM foundation_lease RETURNING tokens) SELECT 1 FROM done",
        "SELECT 1 FROM tenancy_tenant WHERE depth = %s::uuid",
        "COPY federation_jobevent (job_id, told_at) FROM STDIN",
    ],
)
def test_a_misspelt_statement_is_found(text):
    assert fault_in(text)


STARS = re.compile(r"\A\s*SELECT (\w+\.)?\*|RETURNING (\w+\.)?\*")


def test_every_statement_names_the_columns_of_its_result(written):
    stars = [each.place for each in written if STARS.search(each.text)]
    assert not stars, f"these fail in running processes when the next version adds a column: {stars}"


def test_every_statement_has_its_place_in_the_room_of_its_table(written):
    strays = [f"{each.place}: {room_of(each.text)}" for each in written if room_of(each.text) not in {"", each.room}]
    assert not strays, (
        f"move the statement to the room of the table that it writes, or the highest that it reads: {strays}"
    )


def room_of(text: str) -> str:
    """The room of the tables that a statement writes; else the highest of those that it reads, or whose functions it calls; else
    empty.
    """
    tables = set(WRITE.findall(text)) & tables_in(text) or tables_in(text) | set(FUNCTION.findall(text))
    return max((table.split("_")[0] for table in tables), key=STOREYS.index, default="")


@pytest.mark.parametrize(
    ("text", "room"),
    [
        ("SELECT 1 FROM tenancy_tenant JOIN quotas_hold ON true FOR UPDATE", "quotas"),
        ("INSERT INTO tenancy_user (id) SELECT id FROM federation_job ON CONFLICT DO NOTHING", "tenancy"),
        ("WITH x AS (UPDATE quotas_hold SET state = 1 RETURNING 1) SELECT 1 FROM x, billing_meter", "quotas"),
        ("SELECT pg_advisory_xact_lock(1)", ""),
        ("SELECT billing_known_rate(id) FROM tenancy_tenant", "billing"),
    ],
)
def test_the_room_of_a_statement_is_that_of_its_table(text, room):
    assert room_of(text) == room


def test_every_insert_names_the_columns_that_must_have_a_value(written):
    faults = {each.place: missing for each in written if (missing := missing_columns(each.text))}
    assert not faults, f"these columns have no default: {faults}"


def missing_columns(text: str) -> set[str]:
    """The columns that inserts leave out although they have no default and accept no null."""
    missing: set[str] = set()
    for found in INSERT.finditer(text):
        if tables_in(found["table"]):
            required = required_columns(found["table"])
            missing |= required - columns_named(found["columns"] or "")
    return missing


def columns_named(text: str) -> set[str]:
    """The names in a list of columns."""
    return set(re.findall(r"\w+", text))


def required_columns(table: str) -> set[str]:
    """The columns of a table without a default that accept no null."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_name = %s AND table_schema = current_schema()"
            " AND is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO' AND is_generated = 'NEVER'",
            [table],
        )
        return {column for (column,) in cursor.fetchall()}


def test_an_insert_without_a_required_column_is_found():
    assert missing_columns("INSERT INTO foundation_lease (name, token) SELECT 1, 2") == {"holder", "expires_at"}
    assert missing_columns("COPY federation_jobevent (job_id, kind) FROM STDIN") == {"message"}


def test_every_upsert_decides_on_each_column_that_it_writes(written):
    undecided = {
        each.place: columns for each in written if (columns := kept_columns(each.text)) != KEPT.get(each.place, set())
    }
    assert not undecided, f"set the column on conflict, or list it in KEPT: {undecided}"
    assert KEPT.keys() <= {each.place for each in written}


def kept_columns(text: str) -> set[str]:
    """The columns that an upsert inserts and, where it meets an old row, leaves as they are."""
    insert, conflict = INSERT.search(text), CONFLICT.search(text)
    if insert is None or conflict is None:
        return set()
    return columns_named(insert["columns"] or "") - columns_named(conflict["met_by"]) - columns_set(conflict["sets"])


def columns_set(text: str) -> set[str]:
    """The columns that a text such as `a = 1, b = f(c, d) WHERE …` sets."""
    while (shorter := re.sub(r"\([^()]*\)", "", text)) != text:
        text = shorter
    assignments = re.split(r"\b(?:WHERE|RETURNING)\b", text)[0]
    return set(re.findall(r"(?:^|,)\s*(\w+)\s*=", assignments))


def test_a_column_that_an_upsert_leaves_is_found():
    upsert = (
        "INSERT INTO t (a, b, c, d) SELECT 1 ON CONFLICT (a) DO UPDATE SET b = f(excluded.c, x), c = CASE WHEN t.d = 1"
        " THEN 2 END WHERE t.d = 2"
    )
    assert kept_columns(upsert) == {"d"}
    assert kept_columns(upsert.replace("(a) DO", "(a) WHERE d IS NULL DO")) == {"d"}


def test_every_text_that_is_run_stands_in_the_source():
    unseen = [place for path in files((*ROOMS, "foundation")) for place in unseen_calls(path)]
    assert sorted(set(unseen)) == sorted(PASSED_ON), "make the statement a constant, or say here who passes it on"


def unseen_calls(path):
    """Functions that run something else than a literal that begins with a verb, or a constant."""
    if name(path) in OTHER_DATABASES:
        return
    for owner, argument in calls_in(tree(path)):
        if not VERB.match(start_of(argument)) and not is_constant(argument, path):
            yield f"{name(path)}:{owner}"


def is_constant(argument: ast.expr, path) -> bool:
    root = argument
    while isinstance(root, ast.Attribute | ast.Subscript):
        root = root.value
    return isinstance(root, ast.Name) and bool(list(texts_of(getattr(module_at(path), root.id, None))))
