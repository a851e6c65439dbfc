"""Sets hours of nodes aside whose idle is negative, and takes what people decide about them."""

from collections.abc import Collection
from datetime import date
from uuid import UUID

from django.db import DatabaseError, OperationalError, connection, transaction
from django.db.models.functions import Now

from billing.engine.ledger import money
from billing.engine.months import midnight
from billing.engine.rating import READINGS_AN_HOUR
from billing.models import NegativeNodeHour
from billing.queries.node_hours import A_DAY, NodeHour, days_to_judge, judge, node_hour_by_id, owners_of
from billing.queries.proof import START, Place
from foundation.plain_json import instant
from foundation.problems import Conflict
from tenancy.operations import record_audit
from tenancy.queries import Actor

State = NegativeNodeHour.State


def judge_node_hours(since: Place = START) -> tuple[str, ...]:
    """Sets aside the negative hours of all days that changed after a place, and ends what no longer applies.

    Returns errors as sentences: runs whose hours do not add up to what they are charged, and days with rows that cannot be read.
    """
    return tuple(error for day in days_to_judge(since) for error in _judge(day))


def _judge(day: date) -> tuple[str, ...]:
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL statement_timeout = 0")
            judged = judge(day)
            set_aside(day, [one for one in judged.hours if one.balance.is_negative])
            return judged.errors
    except OperationalError:
        raise  # the database is gone or busy, which is no error in its rows
    except (DatabaseError, ArithmeticError, ValueError) as error:
        first = (str(error).splitlines() or [""])[0]
        return (f"could not check the hours of nodes on {day}: a row makes it fail ({first})",)


def set_aside(day: date, negative: Collection[NodeHour]) -> None:
    """Makes these the negative hours of a day. Rows whose numbers no longer apply are superseded; a decision of the same numbers
    remains.
    """
    wanted = {_numbers(one): one for one in negative}
    with transaction.atomic():
        rows = NegativeNodeHour.objects.filter(hour__gte=midnight(day), hour__lt=midnight(day) + A_DAY)
        known = {
            (row.cluster_id, row.node, row.hour, row.currency, row.cost, row.charged): row
            for row in rows.order_by("id")
        }
        for numbers, row in known.items():
            if row.state == State.OPEN and numbers not in wanted:
                rows.filter(id=row.id, state=State.OPEN).update(state=State.SUPERSEDED, decided_at=Now())
            elif row.state == State.SUPERSEDED and numbers in wanted:
                rows.filter(id=row.id, state=State.SUPERSEDED).update(state=State.OPEN, decided_at=None)
        fresh = [one for numbers, one in wanted.items() if numbers not in known]
        owners = owners_of({one.cluster_id for one in fresh})
        NegativeNodeHour.objects.bulk_create(
            [_row(one, owners[one.cluster_id]) for one in fresh], ignore_conflicts=True
        )


def accept_node_hour(actor: Actor, id_: UUID, note: str) -> NegativeNodeHour:
    """The row, accepted as it is, with why. Raises NotFound, NotAllowedHere, Conflict `node_hour_decided`."""
    with transaction.atomic():
        row = node_hour_by_id(actor, id_, may_close=True)
        changed = NegativeNodeHour.objects.filter(id=id_, state=State.OPEN).update(
            state=State.ACCEPTED, note=note, decided_by_id=actor.user_id, decided_by_name=actor.name, decided_at=Now()
        )
        if not changed:
            raise Conflict("It was already decided, or its numbers no longer apply.", code="node_hour_decided")
        record_audit(
            actor, "node_hour.accept", object_kind="node_hour", object_id=id_, tenant_id=row.organisation_id,
            detail={"cluster": row.cluster.name, "node": row.node, "hour": instant(row.hour), "note": note},
        )  # fmt: skip
    row.refresh_from_db()
    return row


def _numbers(one: NodeHour) -> tuple[object, ...]:
    return one.cluster_id, one.node, one.hour, one.currency, _money(one.balance.cost), _money(one.balance.charged)


def _money(parts: int) -> object:
    return money(parts // READINGS_AN_HOUR)


def _row(one: NodeHour, organisation_id: UUID) -> NegativeNodeHour:
    assert one.cause is not None
    return NegativeNodeHour(
        organisation_id=organisation_id,
        cluster_id=one.cluster_id,
        node=one.node,
        hour=one.hour,
        currency=one.currency,
        cost=money(one.balance.cost // READINGS_AN_HOUR),
        charged=money(one.balance.charged // READINGS_AN_HOUR),
        cause=one.cause.value,
        runs=[
            {
                "meter": run.meter, "pod": run.pod, "job": str(run.job_id), "job_name": run.job_name, "tenant": run.tenant,
                "flavor": run.flavor, "from": instant(run.start), "until": instant(run.until),
                "charged": f"{money(run.charged):f}",
            }
            for run in one.runs
        ],
    )  # fmt: skip
