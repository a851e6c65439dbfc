"""The database judges diagnoses and rules of failures, whoever writes them."""

from typing import Any

import pytest
from django.db import IntegrityError, InternalError, connection, transaction

from tests.rooms.federation.test_failure_diagnoses import fail
from tests.rooms.federation.test_retries import TAKEN, make_attempt

pytestmark = pytest.mark.django_db


def attack(statement: str, *values: Any) -> None:
    with pytest.raises((IntegrityError, InternalError)), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, values)


def test_what_is_judged_stands_and_no_diagnosis_breaks_its_rules():
    attempt = make_attempt()
    fail(attempt, disruption=TAKEN)
    attack("UPDATE federation_diagnosis SET step = 'stop', retry = 0")
    attack("UPDATE federation_diagnosis SET failure_class = 'program'")
    attack("DELETE FROM federation_diagnosis")
    other = make_attempt()
    insert = (
        "INSERT INTO federation_diagnosis (attempt_id, failure_class, own_class, text, rule, step, next_step, retry, most, wait_seconds,"
        " avoid, node, memory, judged_at) VALUES (%s, %s, 'program', '', 'r', %s, '', %s, 3, %s, %s, '', %s, {})"
    )
    for values, judged in [
        (("bad_luck", "stop", 0, 0, "", "{}"), "now()"),
        (("program", "explode", 1, 0, "", "{}"), "now()"),
        (("program", "again", 4, 0, "", "{}"), "now()"),
        (("program", "again", 0, 0, "", "{}"), "now()"),
        (("program", "again", 1, 86_401, "", "{}"), "now()"),
        (("program", "again", 1, 0, "node", "{}"), "now()"),
        (("program", "again", 1, 0, "", '{"main": 1}'), "now()"),
        (("program", "stop", 0, 0, "", "{}"), "NULL"),
        (("", "", 0, 0, "", "{}"), "now()"),
    ]:
        attack(insert.format(judged), other.id, *values)
    attack("INSERT INTO federation_tenantfailurerules (tenant_id, rules) VALUES (%s, '{}')", attempt.job.tenant_id)
    attack("INSERT INTO federation_tenantfailurerules (tenant_id, rules) VALUES (%s, '[]')", attempt.job.tenant_id)
