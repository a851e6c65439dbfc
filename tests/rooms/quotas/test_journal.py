"""Raw SQL against every promise of the quota journal: each attack must be refused by the database itself."""

import pytest
from django.db import IntegrityError, connection, transaction

from foundation.ids import new_id
from quotas.operations import delete_limit, end_holds, take_holds
from quotas.queries import discrepancies
from tenancy.queries import SYSTEM
from tests.builders import hold_request, make_limit, make_tenant
from tests.kept_rows import once_a_module
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db


@once_a_module
def books():
    """A limit of 4 GPUs on acme with one of them held, and one of 2 on its neighbour."""
    limit, neighbour = make_limit("acme", nominal="4"), make_limit("other", nominal="2")
    make_tenant("acme/sales")
    asked = hold_request("acme/research")
    take_holds([asked])
    settle_pending_checks()
    return {
        "limit": limit.id,
        "neighbour": neighbour.id,
        "hold": asked.holder_id,
        "tenant": asked.tenant_id,
        "fresh": new_id(),
    }


def settle_pending_checks():
    """What commit would do; the surrounding test transaction never gets there."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


def attack(statements, values):
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in statements.split(";"):
            cursor.execute(statement, values)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


BARE_HOLD = (
    "INSERT INTO quotas_hold (holder_id, tenant_id, cluster_name, amounts, state)"
    " VALUES (%(fresh)s, %(tenant)s, 'north', '{0}', 'pending')"
)
NEW_HOLD = "WITH held AS (" + BARE_HOLD.format('{{"gpu": {0}}}') + ") "
"""To be followed by its takes: a hold and its takes come in one statement."""
TAKE = "INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, amount) VALUES (%(fresh)s, %(limit)s, 'take', {0})"
END = "INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, amount) VALUES (%(hold)s, %(limit)s, 'end', {0})"
ALSO_AT = ", (%(fresh)s, %({1})s, 'take', {0})"
FINISH = "; UPDATE quotas_hold SET state = '{0}', ended_at = statement_timestamp() WHERE holder_id = %(hold)s"
ATTACKS = {
    "held written by hand": (
        "UPDATE quotas_quotalimit SET held = 0 WHERE id = %(limit)s",
        "quota_held_moves_by_journal",
    ),
    "cap raised by hand": (
        "UPDATE quotas_quotalimit SET cap = 9000 WHERE id = %(limit)s",
        "quota_held_moves_by_journal",
    ),
    "cap below what is held": (
        "UPDATE quotas_quotalimit SET cap = 0 WHERE id = %(limit)s",
        "quota_held_moves_by_journal",
    ),
    "negative nominal": ("UPDATE quotas_quotalimit SET nominal = -1 WHERE id = %(limit)s", "quota_nominal_is_in_range"),
    "limit moved to another tenant": (
        (
            "UPDATE quotas_quotalimit SET tenant_id = (SELECT tenant_id FROM quotas_quotalimit WHERE id = %(neighbour)s)"
            " WHERE id = %(limit)s"
        ),
        "quota_identity_is_fixed",
    ),
    "limit for another resource": (
        "UPDATE quotas_quotalimit SET resource = 'cpu' WHERE id = %(limit)s",
        "quota_identity_is_fixed",
    ),
    "limit begun with something held": (
        (
            "INSERT INTO quotas_quotalimit (id, tenant_id, resource, clusters, nominal, cap, held, updated_at)"
            " VALUES (%(fresh)s, %(tenant)s, 'cpu', '{}', 5, 5, 3, now())"
        ),
        "quota_begins_empty",
    ),
    "limit begun with a wider cap": (
        (
            "INSERT INTO quotas_quotalimit (id, tenant_id, resource, clusters, nominal, cap, held, updated_at)"
            " VALUES (%(fresh)s, %(tenant)s, 'cpu', '{}', 5, 50, 0, now())"
        ),
        "quota_begins_empty",
    ),
    "unsorted scope": (
        (
            "INSERT INTO quotas_quotalimit (id, tenant_id, resource, clusters, nominal, cap, held, updated_at)"
            " VALUES (%(fresh)s, %(tenant)s, 'cpu', '{south,north}', 5, 5, 0, now())"
        ),
        "quota_scope_is_sorted",
    ),
    "second limit of one scope": (
        (
            "INSERT INTO quotas_quotalimit (id, tenant_id, resource, clusters, nominal, cap, held, updated_at)"
            " SELECT %(fresh)s, tenant_id, resource, clusters, 9, 9, 0, now() FROM quotas_quotalimit WHERE id = %(limit)s"
        ),
        "one_limit_per_tenant_resource_and_scope",
    ),
    "limit on an unknown resource": (
        (
            "INSERT INTO quotas_quotalimit (id, tenant_id, resource, clusters, nominal, cap, held, updated_at)"
            " VALUES (%(fresh)s, %(tenant)s, 'disk', '{}', 5, 5, 0, now())"
        ),
        "quota_resource_is_known",
    ),
    "take beyond the cap": (NEW_HOLD.format(3001) + TAKE.format(3001), "quota_is_never_exceeded"),
    "take of more than was asked": (NEW_HOLD.format(1) + TAKE.format(2), "take_is_what_was_asked"),
    "take of nothing": (NEW_HOLD.format(0) + TAKE.format(0), "takes_add_and_ends_subtract"),
    "negative take": (NEW_HOLD.format(5) + TAKE.format(-5), "takes_add_and_ends_subtract"),
    "take at a stranger's limit": (
        NEW_HOLD.format(5) + TAKE.format(5) + ALSO_AT.format(5, "neighbour"),
        "take_is_what_was_asked",
    ),
    "hold that takes nowhere": (BARE_HOLD.format('{"gpu": 1}'), "pending_hold_is_counted"),
    "hold that takes afterwards": (
        BARE_HOLD.format('{"gpu": 1}') + ";" + TAKE.format(1),
        "pending_hold_is_counted",
    ),
    "fraction of a unit": (BARE_HOLD.format('{"cpu": 0.5}'), "hold_amounts_are_whole"),
    "negative amount": (BARE_HOLD.format('{"cpu": -1}'), "hold_amounts_are_whole"),
    "amount as text": (BARE_HOLD.format('{"cpu": "1"}'), "hold_amounts_are_whole"),
    "amount beyond any fleet": (BARE_HOLD.format('{"cpu": 1e300}'), "hold_amounts_are_whole"),
    "amount of nothing": (BARE_HOLD.format('{"cpu": null}'), "hold_amounts_are_whole"),
    "amount of an unknown resource": (BARE_HOLD.format('{"disk": 1}'), "hold_amounts_are_whole"),
    "amounts in a list": (BARE_HOLD.format('[{"cpu": 1}]'), "hold_amounts_are_whole"),
    "amounts that are a number": (BARE_HOLD.format("3"), "hold_amounts_are_whole"),
    "hold begun in 1970": (
        BARE_HOLD.format("{}").replace("state)", "state, created_at)").replace("'pending')", "'pending', 'epoch')"),
        "hold_begins_now",
    ),
    "hold begun tomorrow": (
        BARE_HOLD.format("{}")
        .replace("state)", "state, created_at)")
        .replace("'pending')", "'pending', now() + '1d')"),
        "hold_begins_now",
    ),
    "line dated 1970": (
        NEW_HOLD.format(1) + TAKE.format(1).replace("amount)", "amount, at)").replace(", 1)", ", 1, 'epoch')"),
        "journal_line_is_dated_now",
    ),
    "limit that starts empty over held work": (
        (
            "INSERT INTO quotas_quotalimit (id, tenant_id, resource, clusters, nominal, cap, held, updated_at)"
            " VALUES (%(fresh)s, %(tenant)s, 'gpu', '{}', 5, 5, 0, now())"
        ),
        "limit_counts_what_is_held",
    ),
    "hold ended in 1970": (
        END.format(-1000) + FINISH.format("posted").replace("statement_timestamp()", "'epoch'"),
        "hold_ends_now",
    ),
    "hold ended tomorrow": (
        END.format(-1000) + FINISH.format("posted").replace("statement_timestamp()", "now() + '1d'"),
        "hold_ends_now",
    ),
    "second take of one hold": (
        "INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, amount) VALUES (%(hold)s, %(limit)s, 'take', 1000)",
        "each_hold_is_taken_and_ended_once_per_limit",
    ),
    "hold begun as ended": (
        (
            "INSERT INTO quotas_hold (holder_id, tenant_id, cluster_name, amounts, state, ended_at)"
            " VALUES (%(fresh)s, %(tenant)s, 'north', '{}', 'posted', now())"
        ),
        "hold_begins_pending",
    ),
    "hold ended without giving back": ("SELECT 1" + FINISH.format("posted"), "ended_hold_gave_back_all"),
    "giving back without ending": (END.format(-1000), "pending_hold_gave_nothing_back"),
    "giving back too little": (END.format(-1) + FINISH.format("posted"), "end_is_minus_its_take"),
    "giving back too much": (END.format(-2000) + FINISH.format("posted"), "end_is_minus_its_take"),
    "giving back what was never taken": (
        END.format(-1000).replace("%(limit)s", "%(neighbour)s") + FINISH.format("posted"),
        "end_is_minus_its_take",
    ),
    "ending without a time": (
        "UPDATE quotas_hold SET state = 'posted' WHERE holder_id = %(hold)s",
        "hold_ends_with_a_time",
    ),
    "ending as something else": (END.format(-1000) + FINISH.format("lost"), "hold_ends_once"),
    "asking for more afterwards": (
        "UPDATE quotas_hold SET amounts = '{\"gpu\": 9}' WHERE holder_id = %(hold)s",
        "hold_ends_once",
    ),
    "line rewritten": ("UPDATE quotas_holdmovement SET amount = 1", "journal_is_append_only"),
    "line struck out": ("DELETE FROM quotas_holdmovement", "journal_is_append_only"),
    "journal emptied": ("TRUNCATE quotas_holdmovement", "journal_is_append_only"),
    "hold forgotten": ("DELETE FROM quotas_hold", "journal_is_append_only"),
    "everything emptied": ("TRUNCATE quotas_quotalimit, quotas_hold, quotas_holdmovement", "journal_is_append_only"),
    "limit with a journal deleted": (
        "DELETE FROM quotas_quotalimit WHERE id = %(limit)s",
        "quotas_holdmovement_limit_id",
    ),
}


@pytest.mark.parametrize(("statements", "constraint"), ATTACKS.values(), ids=ATTACKS.keys())
def test_the_database_refuses(books, statements, constraint):
    with pytest.raises(IntegrityError) as refused:
        attack(statements, books)
    named = constraint_of(refused.value) or str(refused.value)
    assert named.startswith(constraint)
    assert discrepancies() == ()


def test_an_ended_hold_never_moves_again(books):
    end_holds({books["hold"]: "posted"})
    for statements, constraint in (
        ("UPDATE quotas_hold SET state = 'pending', ended_at = NULL WHERE holder_id = %(hold)s", "hold_ends_once"),
        ("UPDATE quotas_hold SET state = 'voided' WHERE holder_id = %(hold)s", "hold_ends_once"),
        (END.format(-1000), "each_hold_is_taken_and_ended_once_per_limit"),
    ):
        with pytest.raises(IntegrityError) as refused:
            attack(statements, books)
        assert constraint_of(refused.value) == constraint


def test_a_hold_that_never_took_there_cannot_begin_to_once_ended(books):
    end_holds({books["hold"]: "posted"})
    later = make_limit("acme", "gpu", "4", clusters=("north",))
    with pytest.raises(IntegrityError) as refused:
        attack(
            "INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, amount) VALUES (%(hold)s, %(limit)s, 'take', 1000)",
            books | {"limit": later.id},
        )
    assert constraint_of(refused.value) == "ended_hold_moves_nothing"


def test_a_removed_limit_takes_nothing_and_does_not_return(books):
    delete_limit(SYSTEM, books["limit"])
    for statements, constraint in (
        (NEW_HOLD.format(5) + TAKE.format(5), "take_is_what_was_asked"),
        ("UPDATE quotas_quotalimit SET removed_at = NULL WHERE id = %(limit)s", "quota_identity_is_fixed"),
    ):
        with pytest.raises(IntegrityError) as refused:
            attack(statements, books)
        assert constraint_of(refused.value) == constraint


def test_a_scoped_limit_takes_nothing_from_other_clusters(books):
    scoped = make_limit("acme", "gpu", "4", clusters=("south",))
    with pytest.raises(IntegrityError) as refused:
        attack(NEW_HOLD.format(5) + TAKE.format(5) + ALSO_AT.format(5, "scoped"), books | {"scoped": scoped.id})
    assert constraint_of(refused.value) == "take_is_what_was_asked"


def test_a_tenant_without_pending_holds_may_move(books):
    end_holds({books["hold"]: "voided"})
    research = make_tenant("acme/research")
    research.parent = make_tenant("acme/sales")
    research.save()
    assert make_tenant("acme/sales/research").id == research.id


def test_a_forged_counter_would_be_found(books):
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE quotas_quotalimit SET held = 2000 WHERE id = %s", [books["limit"]])
        cursor.execute("SET LOCAL session_replication_role = origin")
    assert discrepancies() == (
        f"limit {books['limit']} counts 2000 held, but its journal and the claims of limits below it have 1000",
    )
