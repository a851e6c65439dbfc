"""A process that is killed with SIGKILL anywhere in the move of a tenant leaves the move wholly there or not at all."""

import itertools
import os
import signal
from contextlib import suppress

import pytest
from django.db import connection

from foundation.processes import die_with_parent
from quotas.engine.holds import Borrowing
from quotas.models import HoldMovement
from quotas.operations import end_holds, put_class_limit, put_class_limits, put_limit, put_user_limit, take_holds
from quotas.queries import discrepancies
from tenancy.models import AuditEntry, Tenant
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM
from tests import kept_sessions
from tests.builders import hold_request, make_tenant, make_user
from tests.rooms.federation.test_killed_moves import CURSOR, LEFT, SESSION

pytestmark = pytest.mark.django_db(transaction=True)
MOST_STATEMENTS = 200
COUNTED = """
WITH held AS (
    SELECT t.path, h.user_id, h.class_name, one.key AS resource, one.value::bigint AS amount
      FROM quotas_hold AS h JOIN tenancy_tenant AS t ON t.id = h.tenant_id
     CROSS JOIN LATERAL jsonb_each_text(h.amounts) AS one WHERE h.state = 'pending'
), counted AS (
    SELECT 'quota' AS kind, tenant_id, resource, held, NULL::uuid AS user_id, NULL AS class_name FROM quotas_quotalimit
    UNION ALL SELECT 'class', tenant_id, resource, held, NULL, class_name FROM quotas_classlimit
    UNION ALL SELECT 'user', l.tenant_id, l.resource, own.held, own.user_id, NULL
      FROM quotas_userholding AS own JOIN quotas_userlimit AS l ON l.id = own.limit_id
)
SELECT counted.kind, coalesce(t.path, ''), counted.resource, counted.held, (
       SELECT coalesce(sum(held.amount), 0) FROM held
        WHERE held.resource = counted.resource AND (t.id IS NULL OR starts_with(held.path || '/', t.path || '/'))
          AND coalesce(held.user_id = counted.user_id, true) AND coalesce(held.class_name = counted.class_name, true))
  FROM counted LEFT JOIN tenancy_tenant AS t ON t.id = counted.tenant_id
"""
"""What each limit holds, and the sum of the pending holds at its tenant and below: a limit holds what its children hold, and its own."""
STRAYS = """
SELECT count(*) FROM tenancy_tenant AS t JOIN tenancy_tenant AS above ON above.id = t.parent_id
 WHERE t.path <> above.path || '/' || t.name OR t.depth <> above.depth + 1
"""


def rows(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def is_killed(work, number, *, after_commit=False):
    """Whether a process was killed before its statement or commit of this number, or right after its commit; else it did all."""
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, -signal.SIGKILL)
        return code != 0
    code = 1
    with suppress(BaseException):
        die_with_parent()
        LEFT.append(connection.connection)
        connection.connection = None
        SESSION.get_new_connection = kept_sessions._new
        numbers, execute, commit = itertools.count(1), CURSOR._execute, SESSION._commit

        def counted(step, *rest):
            if next(numbers) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return step(*rest)

        def commits(wrapper):
            counted(commit, wrapper)
            if after_commit:
                os.kill(os.getpid(), signal.SIGKILL)

        CURSOR._execute = lambda *rest: counted(execute, *rest)
        SESSION._commit = commits
        work()
        code = 0
    os._exit(code)


@pytest.fixture
def team():
    """A team with two projects and work of two users and two classes, below limits of every kind at the old and the new place."""
    for path in ("acme/x/team/p/deep", "acme/x/team/q", "acme/y/z"):
        make_tenant(path)
    for path in ("acme", "acme/x", "acme/x/team", "acme/y", "acme/y/z"):
        put_limit(SYSTEM, path, "gpu", nominal=20000, borrowing=Borrowing(None, None))
        put_class_limit(SYSTEM, path, "urgent", "gpu", most=9000)
        put_user_limit(SYSTEM, path, "jobs", most=5)
    put_limit(SYSTEM, "acme/y", "jobs", nominal=9)
    put_class_limits("urgent", {"gpu": 9000, "jobs": 9})
    users = [make_user().id for _ in range(2)]
    asked = [
        hold_request(path, {"gpu": 1000, "jobs": 1}, user_id=user, class_name=name)
        for path in ("acme/x/team", "acme/x/team/p/deep", "acme/x/team/q", "acme/y/z", "acme/x")
        for user, name in zip(users, ("urgent", "low"), strict=True)
    ]
    assert set(take_holds(asked).values()) == {None}
    return make_tenant("acme/x/team")


def test_a_move_that_is_killed_before_any_statement_or_around_its_commit_is_whole_or_not_there(team):
    target = make_tenant("acme/y/z").id
    held, lines = len(rows("SELECT FROM quotas_hold WHERE state = 'pending'")), HoldMovement.objects.count()

    def move():
        change_tenant(SYSTEM, team.id, parent_id=target)

    def judge(place):
        assert discrepancies() == ()
        assert [row for row in rows(COUNTED) if row[3] != row[4]] == []
        assert rows(STRAYS) == [(0,)]
        assert sorted(Tenant.objects.filter(path__contains="/team").values_list("path", flat=True)) == [
            f"{place}/team{below}" for below in ("", "/p", "/p/deep", "/q")
        ]
        is_moved = place == "acme/y/z"
        assert HoldMovement.objects.filter(kind="move").exists() is is_moved
        assert AuditEntry.objects.filter(action="tenant.change").count() == is_moved

    deaths = 0
    while is_killed(move, deaths + 1, after_commit=True) and Tenant.objects.get(id=team.id).path == team.path:
        deaths += 1
        assert deaths < MOST_STATEMENTS
        judge("acme/x")
        assert HoldMovement.objects.count() == lines
    assert deaths > 20  # every statement of the operation, and the moment before its commit
    judge("acme/y/z")  # killed right after the commit

    move()  # again: it is there already
    change_tenant(SYSTEM, team.id, parent_id=make_tenant("acme/x").id)
    move()
    assert [row for row in rows(COUNTED) if row[3] != row[4]] == []
    holders = [row[0] for row in rows("SELECT holder_id FROM quotas_hold WHERE state = 'pending'")]
    assert end_holds(dict.fromkeys(holders, "posted")) == held
    assert {row[3] for row in rows(COUNTED)} == {0}
    assert discrepancies() == ()
