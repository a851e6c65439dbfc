"""Raw SQL against every promise of commitments, as the role that the processes run as."""

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from billing.engine.ledger import Entry, Line, ShareOf, reversal_of
from billing.models import CommitmentVersion, LedgerEntry
from billing.operations import record_runs
from billing.operations.entries import write
from billing.queries import discrepancies
from billing.queries.charges import entry_of
from billing.queries.commitments import terms_of_version
from billing.queries.ledger_proof import money_discrepancies
from tests.builders import make_cluster, make_run
from tests.kept_rows import written_once
from tests.processes_role import as_processes
from tests.refusals import constraint_of

from .committing import committed
from .ledgers import at, priced_cluster, settle_pending_checks

pytestmark = pytest.mark.django_db
NO_RIGHT = "no right"
COLUMNS = "commitment_id, number, kind, clusters, flavor, capacity_type, units, start, until, upfront, recurring, total, currency, made_by_name"


def version(**changes):
    """A statement that writes the next version with these expressions."""
    given = {name: name for name in COLUMNS.split(", ")} | {"number": "number + 1"} | changes
    return f"INSERT INTO billing_commitmentversion ({', '.join(given)}) SELECT {', '.join(given.values())} FROM billing_commitmentversion LIMIT 1"


DAY = (
    "INSERT INTO billing_commitmentday (commitment_id, version_id, day, revision, quantity, used_quantity, amortised, used, unused)"
    " SELECT commitment_id, version_id, day, {} FROM billing_commitmentday WHERE day = '2026-10-05'"
)
HOUR = (
    "INSERT INTO billing_commitmenthour (day_id, hour, quantity, used_quantity, amortised, used, unused)"
    " SELECT day_id, {} FROM billing_commitmenthour AS h WHERE hour = '2026-10-05 03:00Z'"
)
ATTACKS = {
    "commitment rewritten": ("UPDATE billing_commitment SET name = 'x'", NO_RIGHT),
    "commitment struck out": ("DELETE FROM billing_commitment", NO_RIGHT),
    "version rewritten": ("UPDATE billing_commitmentversion SET upfront = 1", NO_RIGHT),
    "version struck out": ("DELETE FROM billing_commitmentversion", NO_RIGHT),
    "split rewritten": ("UPDATE billing_commitmentday SET used = 0", NO_RIGHT),
    "split struck out": ("DELETE FROM billing_commitmentday", NO_RIGHT),
    "hour rewritten": ("UPDATE billing_commitmenthour SET used = 0", NO_RIGHT),
    "hour struck out": ("DELETE FROM billing_commitmenthour", NO_RIGHT),
    "two commitments of a name": (
        "INSERT INTO billing_commitment (id, organisation_id, name) SELECT gen_random_uuid(), organisation_id, name FROM billing_commitment",
        "one_commitment_of_a_name",
    ),
    "commitment of a strange name": (
        "INSERT INTO billing_commitment (id, organisation_id, name) SELECT gen_random_uuid(), organisation_id, 'a/b' FROM billing_commitment",
        "commitment_has_a_plain_name",
    ),
    "commitment of a team": (
        "INSERT INTO billing_commitment (id, organisation_id, name) SELECT gen_random_uuid(), id, 'two' FROM tenancy_tenant WHERE path = 'acme/one'",
        "commitment_is_of_an_organisation",
    ),
    "version that skips one": (version(number="number + 2"), "commitment_versions_follow"),
    "version for the second time": (version(number="number"), "commitment_versions_follow"),
    "version in another currency": (version(currency="'EUR'"), "commitment_versions_follow"),
    "version of no kind": (version(kind="'gift'"), "commitment_kind_is_known"),
    "version of nothing": (version(units="0"), "commitment_has_units"),
    "version of too much": (version(units="1000001"), "commitment_has_units"),
    "version without a term": (version(until="start", total="upfront"), "commitment_has_a_term"),
    "version of part of an hour": (version(start="start + interval '30 minutes'"), "commitment_term_is_of_whole_hours"),
    "version for ever": (version(until="start + interval '21 years'"), "commitment_term_is_of_whole_hours"),
    "version that costs nothing": (version(upfront="0", total="0"), "commitment_is_paid"),
    "version that earns": (version(upfront="-1", recurring="upfront + 1", total="upfront"), "commitment_is_paid"),
    "total that is not paid": (version(total="total + 1"), "commitment_total_is_paid"),
    "recurring that is not counted": (version(recurring="1"), "commitment_total_is_paid"),
    "version of no flavor": (version(flavor="''"), "commitment_names_its_flavor"),
    "version of no cluster": (version(clusters="'{}'"), "commitment_names_own_clusters"),
    "cluster twice": (version(clusters="clusters || clusters"), "commitment_names_own_clusters"),
    "cluster that does not exist": (version(clusters="ARRAY[gen_random_uuid()]"), "commitment_names_own_clusters"),
    "cluster of another organisation": (
        version(clusters="(SELECT array_agg(id) FROM clusters_cluster WHERE name = 'foreign')"), "commitment_names_own_clusters",
    ),
    "day that does not add up": (DAY.format("2, quantity, used_quantity, amortised, used, unused + 1"), "day_is_used_or_unused"),
    "day that uses more than there is": (DAY.format("2, quantity, quantity + 1, amortised, used, unused"), "day_is_used_or_unused"),
    "revision again": (DAY.format("1, quantity, used_quantity, amortised, used, unused"), "day_is_split_by_the_newest_version"),
    "revision without its hours": (DAY.format("2, quantity, used_quantity, amortised, used, unused"), "commitment_is_used_or_unused"),
    "day that uses more than its tenants pay": (
        DAY.format("2, quantity, used_quantity, amortised, used + 1, unused - 1"), "commitment_is_used_or_unused",
    ),
    "day that costs less": (
        DAY.format("2, quantity, used_quantity, amortised - 1, used, unused - 1"), "commitment_is_used_or_unused",
    ),
    "hour that does not add up": (
        HOUR.format("hour - interval '1 day', quantity, used_quantity, amortised, used, unused - 1"), "hour_is_used_or_unused",
    ),
    "hour twice": (HOUR.format("hour, quantity, used_quantity, amortised, used, unused"), "one_row_a_commitment_hour"),
    "hour of another day": (
        HOUR.format("hour + interval '1 day', quantity, used_quantity, amortised, used, unused"), "commitment_is_used_or_unused",
    ),
    "month closed over a day that waits": (
        ("INSERT INTO billing_commitmentdueday (organisation_id, day) SELECT organisation_id, '2026-10-09' FROM billing_commitment;"
        " UPDATE billing_ledgerperiod SET state = 'closing', closing_at = now() WHERE month = '2026-10-01';"
        " UPDATE billing_ledgerperiod SET state = 'closed', closed_at = now(), revision = 1, checksum = billing_period_checksum(id)"
        " WHERE month = '2026-10-01'"),
        "closed_period_splits_commitments",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def split_days(processes_role, django_db_setup, django_db_blocker):
    """A commitment whose days are split, with two used hours."""
    with written_once(django_db_blocker, _split_days):
        yield


def _split_days():
    make_cluster("other", name="foreign")
    north = priced_cluster()
    record_runs([make_run(north, "acme/one", started_at=at(5, 2), until_at=at(5, 4))])
    committed()


@pytest.fixture
def usage(split_days, db):
    """They, and the session as the processes' role."""
    with as_processes():
        yield


def tried(attack):
    """Does what an attacker would, up to the checks of commit."""
    with transaction.atomic(), connection.cursor() as cursor:
        if callable(attack):
            attack()
        else:
            cursor.execute(attack)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def refusal_of(attack):
    """The constraint that refuses a statement, or what a function writes."""
    with pytest.raises(DatabaseError) as refused:
        tried(attack)
    cause: Any = refused.value.__cause__
    return NO_RIGHT if cause.sqlstate == "42501" else constraint_of(refused.value)


@pytest.mark.parametrize("name", ATTACKS)
def test_the_database_refuses_the_processes_role(usage, name):
    statement, constraint = ATTACKS[name]
    assert refusal_of(statement) == constraint


def own(flavor):
    row = LedgerEntry.objects.filter(flavor=flavor).select_related("reverses").order_by("charge_day", "id").last()
    return entry_of(row, ShareOf(row.cluster_id, row.flavor, row.tenant_path))


def forged(like, lines, key="", **changes):
    """An entry like another one, with other lines."""
    return Entry(
        key or f"{like.key}1", changes.get("kind", like.kind), like.organisation_id, changes.get("day", like.charge_day),
        tuple(Line(account, "USD", amount) for account, amount in lines), changes.get("of", like.day), reason="x",
    )  # fmt: skip


def test_no_entry_hides_or_adds_a_part(usage):
    for flavor in ("used commitment", "unused commitment", "purchased commitment"):
        its = own(flavor)
        assert refusal_of(lambda its=its: write(reversal_of(its))) == "commitment_is_used_or_unused"
        more = forged(its, [(line.account, line.amount) for line in its.lines])
        assert refusal_of(lambda more=more: write(more)) == "commitment_is_used_or_unused"


def test_entries_are_of_their_commitment_and_move_only_its_accounts(usage):
    used, unused = own("used commitment"), own("unused commitment")
    stray = forged(
        used, [("commitment", 1), ("commitment_unused", -1)], key=f"commitment/{'0' * 32}/2026-10-05/unused/1"
    )
    assert refusal_of(lambda: write(stray)) == "entry_is_of_its_commitment"
    moved = forged(unused, [("commitment_covered", 1), ("commitment", -1)])
    assert refusal_of(lambda: write(moved)) == "line_is_of_its_entrys_accounts"
    disguised = forged(used, [("commitment", 1), ("adjustments", -1)], key="adjustment/x", kind="adjustment", of=None)
    assert refusal_of(lambda: write(disguised)) == "only_commitments_amortise"


def test_the_proof_finds_what_was_forged_past_the_triggers(usage):
    with connection.cursor() as cursor:
        cursor.execute("RESET ROLE")
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE billing_commitmentday SET used = used + 1, unused = unused - 1 WHERE day = '2026-10-05'")
        cursor.execute("SET LOCAL session_replication_role = origin")
    settle_pending_checks()
    (found,) = money_discrepancies()
    assert "the commitment one of acme has" in found
    assert "on 2026-10-05" in found


def test_the_full_proof_splits_again_from_the_segments(usage):
    with connection.cursor() as cursor:
        cursor.execute("RESET ROLE")
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE billing_commitmentday SET used_quantity = used_quantity + 1 WHERE day = '2026-10-05'")
        cursor.execute("SET LOCAL session_replication_role = origin")
    settle_pending_checks()
    (found,) = discrepancies()
    assert found == "on 2026-10-05, 7200000001 of the commitment one was used, but its usage says 7200000000"


def test_totals_in_the_database_are_those_of_the_engine(usage):
    row = CommitmentVersion.objects.select_related("commitment").get()
    with connection.cursor() as cursor:
        for upfront, recurring, start, until in (
            ("0.000001", "3.333333", "2024-01-31 05:00Z", "2027-03-01 06:00Z"), ("7", "0", "2028-02-29 00:00Z", "2028-03-01 00:00Z"),
            ("0", "0.1", "2026-10-31 23:00Z", "2026-11-30 23:00Z"), ("1", "1", "2026-10-31 23:00Z", "2026-11-30 22:00Z"),
        ):  # fmt: skip
            cursor.execute("RESET ROLE")
            cursor.execute("SET LOCAL session_replication_role = replica")
            cursor.execute(
                "UPDATE billing_commitmentversion SET upfront = %s, recurring = %s, start = %s, until = %s",
                [upfront, recurring, start, until],
            )
            cursor.execute("SELECT count(*) FROM billing_commitmentversion AS v, billing_commitment_payments(v)")
            count = cursor.fetchone()[0]
            cursor.execute("UPDATE billing_commitmentversion SET total = upfront + recurring * %s", [count])
            cursor.execute("SET LOCAL session_replication_role = origin")
            row.refresh_from_db()
            terms = terms_of_version(row)
            assert terms.total == int(row.total * 10**12)
            for hour in (
                terms.start,
                terms.start.replace(day=1, month=terms.start.month % 12 + 1, year=terms.start.year + 1),
                terms.until,
            ):
                cursor.execute("SELECT billing_commitment_reading(v, %s) FROM billing_commitmentversion AS v", [hour])
                assert int(cursor.fetchone()[0] * 10**12) == terms.amortised(terms.start, hour)
            for day, amount in terms.payments:
                cursor.execute("SELECT billing_commitment_paid(v, %s) FROM billing_commitmentversion AS v", [day])
                assert int(cursor.fetchone()[0] * 10**12) == amount


def test_an_entry_whose_key_only_begins_like_those_of_its_day_is_refused(usage):
    used = own("used commitment")
    day = used.key.rsplit("/used/", 1)[0]
    hidden = forged(used, [(line.account, line.amount) for line in used.lines], key=day)
    assert refusal_of(lambda: write(hidden)) == "entry_is_of_its_commitment"


def test_the_last_entry_of_a_day_is_judged_for_all_before_it_in_any_order(usage):
    used = own("used commitment")
    lines = [(line.account, line.amount) for line in used.lines]
    for keys in (("0", "1", "2"), ("2", "1", "0"), ("1", "2", "0")):
        several = [forged(used, lines, key=f"{used.key}/{key}") for key in keys]
        assert refusal_of(lambda several=several: [write(one) for one in several]) == "commitment_is_used_or_unused"


def test_an_entry_relies_on_no_later_one_that_is_rolled_back(usage):
    used = own("used commitment")
    lines = [(line.account, line.amount) for line in used.lines]

    def attack():
        write(forged(used, lines, key=f"{used.key}/0"))
        with transaction.atomic():
            write(forged(used, lines, key=f"{used.key}/1"))
            transaction.set_rollback(True)

    assert refusal_of(attack) == "commitment_is_used_or_unused"


def test_an_entry_that_comes_after_a_judgement_is_judged(usage):
    used = own("used commitment")
    lines = [(line.account, line.amount) for line in used.lines]
    last, first = forged(used, lines, key=f"{used.key}/9"), forged(used, lines, key=f"{used.key}/0")

    def attack():
        write(last)
        write(reversal_of(last))
        settle_pending_checks()
        write(first)

    assert refusal_of(attack) == "commitment_is_used_or_unused"


def test_a_reversal_relies_on_no_entry_and_no_entry_on_a_reversal(usage):
    used, unused = own("used commitment"), own("unused commitment")
    again = forged(used, [(line.account, line.amount) for line in used.lines])
    for entries in (
        (again, reversal_of(unused)),
        (reversal_of(unused), again),
        (reversal_of(used), reversal_of(unused)),
    ):
        assert refusal_of(lambda entries=entries: [write(one) for one in entries]) == "commitment_is_used_or_unused"


def test_no_entry_is_judged_before_it_has_its_lines(usage):
    used = own("used commitment")
    more = forged(used, [(line.account, line.amount) for line in used.lines])

    def attack():
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS billing_judge_commitment_entry IMMEDIATE")
        write(more)

    assert refusal_of(attack) == "commitment_is_used_or_unused"


@pytest.mark.parametrize("style", ["German", "SQL, DMY", "Postgres"])
def test_no_second_set_of_entries_counts_under_dates_written_in_another_way(usage, style):
    """Judged by keys with the session's dates, they would be the only ones of their day, and right."""

    day = own("used commitment").charge_day
    rows = LedgerEntry.objects.filter(charge_day=day, kind__in=["commitment", "purchase"], reversed_by=None)
    likes = [entry_of(row, ShareOf(row.cluster_id, row.flavor, row.tenant_path)) for row in rows]
    assert likes

    def attack():
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL DateStyle = '{style}'")
            cursor.execute("SELECT %s::date::text", [day])
            written = cursor.fetchone()[0]
        for like in likes:
            lines = [(line.account, line.amount) for line in like.lines]
            write(forged(like, lines, key=like.key.replace(day.isoformat(), written)))

    assert refusal_of(attack) == "entry_is_of_its_commitment"
