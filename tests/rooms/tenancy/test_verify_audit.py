"""Faults an insider could make with the triggers off; `verify_audit` says each."""

import io

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from tenancy.operations import record_audit
from tenancy.queries import SYSTEM, audit_head

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def trail():
    for number in range(1, 7):
        record_audit(
            SYSTEM, "thing.change", object_kind="thing", object_id=str(number), detail={"ü": [number, None, "a,b"]}
        )


def tamper(*statements):
    """Runs the statements as somebody with full rights, triggers skipped."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        for statement in statements:
            cursor.execute(statement)


def verdict(*arguments):
    out = io.StringIO()
    try:
        call_command("verify_audit", *arguments, stdout=out)
    except CommandError as error:
        return error.returncode, str(error)
    return 0, out.getvalue()


def entry(position):
    return f"(SELECT entry_id FROM tenancy_auditlink WHERE position = {position})"


def test_an_untouched_trail_is_whole_and_its_head_is_printed():
    position, digest = audit_head()
    assert position == 6
    assert verdict() == (0, f"intact, head 6:{digest.hex()}\n")
    assert verdict("--anchor", f"6:{digest.hex()}")[0] == 0


@pytest.mark.parametrize(
    "change",
    [
        "actor_name = 'somebody'", "at = at + interval '1 microsecond'", "detail = '{}'", "outcome = 'refused'", "object_id = '9'",
        "token_id = gen_random_uuid()", "tenant_id = gen_random_uuid()", "request_id = 'x'", "action = 'thing.chang', object_kind = 'ething'",
    ],
)  # fmt: skip
def test_an_edited_entry_is_found(change):
    tamper(f"UPDATE tenancy_auditentry SET {change} WHERE id = {entry(3)}")
    code, text = verdict()
    assert code == 1
    assert "position 3" in text
    assert "edited" in text
    assert text.count("position") == 1


def test_a_deleted_entry_is_found():
    tamper(f"DELETE FROM tenancy_auditentry WHERE id = {entry(3)}")
    code, text = verdict()
    assert code == 1
    assert "position 3" in text
    assert "deleted" in text


def test_an_entry_deleted_with_its_link_is_found():
    tamper(f"DELETE FROM tenancy_auditentry WHERE id = {entry(3)}", "DELETE FROM tenancy_auditlink WHERE position = 3")
    code, text = verdict()
    assert code == 1
    assert "position 3: 1 link was deleted" in text


def test_a_deleted_link_is_found():
    tamper("DELETE FROM tenancy_auditlink WHERE position = 6")
    code, text = verdict()
    assert code == 1
    assert "it has no link" in text


def test_entries_put_out_of_order_are_found():
    tamper(
        f"CREATE TEMP TABLE swapped ON COMMIT DROP AS SELECT {entry(2)} AS two, {entry(4)} AS four",
        "UPDATE tenancy_auditlink SET entry_id = -1 WHERE position = 2",
        "UPDATE tenancy_auditlink SET entry_id = (SELECT two FROM swapped) WHERE position = 4",
        "UPDATE tenancy_auditlink SET entry_id = (SELECT four FROM swapped) WHERE position = 2",
    )
    code, text = verdict()
    assert code == 1
    assert "position 2" in text
    assert "position 4" in text
    assert "out of order" in text


def test_a_cut_head_is_found():
    tamper(f"DELETE FROM tenancy_auditentry WHERE id = {entry(1)}", "DELETE FROM tenancy_auditlink WHERE position = 1")
    assert "position 1: 1 link was deleted" in verdict()[1]


def test_a_cut_tail_is_found_with_an_anchor():
    _, digest = audit_head()
    tamper(
        f"DELETE FROM tenancy_auditentry WHERE id IN ({entry(5)}, {entry(6)})",
        "DELETE FROM tenancy_auditlink WHERE position > 4",
    )
    assert verdict()[0] == 0
    code, text = verdict("--anchor", f"6:{digest.hex()}")
    assert code == 1
    assert "its tail was cut" in text


def test_a_rewritten_chain_is_found_with_an_anchor():
    _, digest = audit_head()
    tamper("TRUNCATE tenancy_auditentry, tenancy_auditlink")
    for _ in range(6):
        record_audit(SYSTEM, "thing.change", object_kind="thing")
    assert verdict()[0] == 0
    assert "the chain was rewritten" in verdict("--anchor", f"6:{digest.hex()}")[1]


def test_an_anchor_that_is_none_is_refused():
    assert verdict("--anchor", "six")[0] == 2
