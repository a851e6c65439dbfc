"""Rows stored as one JSON text are the rows that Django would have stored."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django.db import IntegrityError, connection
from psycopg.types.range import TimestamptzRange

from billing.models import LedgerAccount
from federation.models import Attempt, JobEvent
from foundation.ids import new_id
from foundation.rows import as_parameters, columns_of, insert_like, insert_missing, insert_rows
from tests.builders import actor_for, bind, make_cluster, make_spec, make_tenant, make_user, submit

pytestmark = pytest.mark.django_db


@pytest.fixture
def job():
    user = make_user()
    bind(user, "acme")
    return submit(actor_for(user), {"tenant": "acme", **make_spec()})


def test_every_kind_of_value_comes_back_as_it_went_in(job):
    awkward = "snow ☃ \U0001f680 \"quoted\" back\\slash 'single' %s {brace}\nnew line"
    at = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
    made = [
        Attempt(
            job=job,
            number=number,
            cluster=make_cluster("acme"),
            state="lost" if number else "reserved",
            finished_at=at if number else None,
            flavor=awkward[:100],
            domain=awkward,
            unit_price=Decimal("123456789012.345678"),
            namespace="n",
            spec_hash="h",
            claim_token=2**62 + 1,
        )
        for number in range(2)
    ]
    state = next(iter({"lost", "failed"} & {choice for choice, _ in Attempt._meta.get_field("state").choices}))
    made[1].state = state
    insert_rows(made)
    for row in made:
        stored = Attempt.objects.get(id=row.id)
        for name in ("number", "state", "flavor", "domain", "unit_price", "claim_token", "finished_at", "job_id"):
            assert getattr(stored, name) == getattr(row, name), name
        assert stored.next_action_at is not None, "the database's own default"
        assert stored.reserved_at is not None


def test_the_database_gives_numbers_and_keeps_its_constraints(job):
    at = datetime(2026, 3, 1, tzinfo=UTC)
    before = JobEvent.objects.count()
    insert_rows([JobEvent(job=job, at=at, kind="placed", message=str(n)) for n in range(3)])
    assert JobEvent.objects.count() == before + 3
    twice = [
        Attempt(job=job, number=1, cluster=make_cluster("acme"), flavor="f", namespace="n", spec_hash="h")
        for _ in range(2)
    ]
    with pytest.raises(IntegrityError):
        insert_rows(twice)


def test_a_row_that_is_there_is_not_inserted_and_a_new_one_gives_its_key():
    whose, awkward = make_tenant("acme").id, 'snow ☃ "quoted" %s {brace}'
    account = LedgerAccount(organisation_id=whose, kind="rounding")
    key = insert_missing(account)
    assert LedgerAccount.objects.get(id=key).kind == "rounding"
    assert insert_missing(account) is None
    assert LedgerAccount.objects.filter(organisation=whose).count() == 1
    with pytest.raises(IntegrityError, match="account_is_of_what_its_kind_says"):
        insert_missing(LedgerAccount(organisation_id=whose, kind=awkward[:20]))


def test_rows_like_a_template_differ_from_it_only_where_they_say_so(job):
    at = datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)
    cluster, awkward = make_cluster("acme"), "snow ☃ %s \" \\ \n'"
    template = Attempt(number=7, cluster=cluster, flavor="template's", namespace="n", spec_hash="h", claim_token=9)
    first, second = new_id(), new_id()
    insert_like(
        template,
        [
            {"id": first, "job_id": job.id, "state": "lost", "finished_at": at, "number": 1, "flavor": awkward},
            {"id": second, "job_id": job.id, "state": "reserved", "finished_at": None, "number": 2, "flavor": ""},
        ],
    )
    stored = {row.number: row for row in Attempt.objects.filter(job=job)}
    assert [(row.id, row.state, row.flavor, row.finished_at) for _, row in sorted(stored.items())] == [
        (first, "lost", awkward, at),
        (second, "reserved", "", None),
    ]
    for row in stored.values():
        assert (row.cluster_id, row.namespace, row.claim_token, row.unit_price) == (cluster.id, "n", 9, None)
        assert row.reserved_at is not None, "the database's own default"
        assert row.next_action_at is not None
    with pytest.raises(IntegrityError):
        insert_like(template, [{"id": new_id(), "job_id": job.id}])


@pytest.mark.parametrize(
    "period",
    [
        TimestamptzRange(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 1, 0, 0, 0, 5, tzinfo=UTC), "[)"),
        TimestamptzRange(datetime(2026, 3, 1, tzinfo=UTC), None, "(]"),
        TimestamptzRange(None, None),
        TimestamptzRange(empty=True),
    ],
)
def test_a_range_travels_as_text(period):
    _, rows = as_parameters({}, [{"period": period}])
    with connection.cursor() as cursor:
        cursor.execute("SELECT period = %s FROM json_to_recordset(%s::json) AS row(period tstzrange)", [period, rows])
        assert cursor.fetchone() == (True,)


def test_a_value_without_a_form_in_json_is_refused():
    with pytest.raises(NotImplementedError, match="ModelBase"):
        as_parameters({}, [{"a": JobEvent}])


def test_columns_are_the_models_but_for_those_left_out():
    assert columns_of(JobEvent) == ("id", "job_id", "attempt_id", "at", "kind", "message")
    assert columns_of(JobEvent, without={"id", "at"}) == ("job_id", "attempt_id", "kind", "message")
    with pytest.raises(LookupError, match="told_at"):
        columns_of(JobEvent, without={"id", "told_at"})


def test_nothing_is_nothing():
    insert_rows([])
    insert_like(JobEvent(), [])
