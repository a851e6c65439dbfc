"""Closes and reopens the months of an organisation's ledger."""

import logging
from datetime import date
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Now

from billing import locks
from billing.models import LedgerPeriod, PeriodReopening
from billing.queries.exchange import unconverted
from billing.queries.invoices import uncredited_numbers
from billing.queries.periods import checklist, checksum_of, period_by_id
from foundation.crash import crash_point
from foundation.outbox import announce
from foundation.problems import Conflict, PermissionDenied
from foundation.transactions import retried
from foundation.turns import Turn
from tenancy.operations import record_audit
from tenancy.queries import Actor

from .commitment_days import split_commitments
from .conversion import convert_days
from .failures import FirstFailure
from .posting import post_days
from .reconciliation import reconciled, record_reconciliation
from .sharing import share_month

State = LedgerPeriod.State
logger = logging.getLogger(__name__)


def keep_ledger(turn: Turn | None = None) -> None:
    """Posts ended days, and closes the periods that are closing and ready. Errors of one organisation keep no other from
    closing; the first one is raised at the end.
    """
    failure = FirstFailure()
    with failure.kept("days were not posted"):
        post_days(turn)
    with failure.kept("commitments were not split"):
        split_commitments(turn)
    with failure.kept("charges were not converted"):
        convert_days(turn)
    for period_id in (
        LedgerPeriod.objects.filter(state=State.CLOSING).order_by("month", "id").values_list("id", flat=True)
    ):
        with failure.kept(f"the period {period_id} was not closed"):
            finish_closing(period_id)
    failure.raise_it()


def begin_closing(actor: Actor, period_id: UUID, *, accepts_unpriced: bool = False) -> LedgerPeriod:
    """The period, which closes as soon as its checklist is fulfilled. One that is closed or closing stays as it is.

    Raises NotFound, NotAllowedHere, Conflict `period_not_ready` if it cannot be closed now.
    """
    with transaction.atomic():
        period_by_id(actor, period_id, may_close=True)
        period = locks.lock_period(period_id)
        if period.state != State.OPEN:
            return period
        missing = [item for item in checklist(period, accepts_unpriced=accepts_unpriced) if item.keeps_open]
        if missing:
            raise Conflict(" ".join(item.detail for item in missing), code="period_not_ready")
        LedgerPeriod.objects.filter(id=period.id).update(
            state=State.CLOSING, closing_by_id=actor.user_id, closing_by_name=actor.name, closing_at=Now(),
            accepts_unpriced=accepts_unpriced,
        )  # fmt: skip
        _record(actor, "period.close", period, {"accepts_unpriced": accepts_unpriced})
        announce("post")
    return LedgerPeriod.objects.select_related("organisation").get(id=period_id)


@retried
def finish_closing(period_id: UUID) -> bool:
    """Whether it is closed now: one transaction writes the state and the checksum, so a kill leaves it closing."""
    try:
        with transaction.atomic():
            locks.read_price_book()
            period = locks.lock_period(period_id)
            if period.state != State.CLOSING or not _is_ready(period):
                return period.state == State.CLOSED
            compared = reconciled(period)
            if compared is not None and compared.unsettled:
                return False
            if not share_month(period):
                return False  # people have to decide; what they need to see is committed
            if missing := unconverted(period.id, period.organisation_id, period.month):
                # The balances are recorded once: the month is shared again when there is a rate.
                transaction.set_rollback(True)
                logger.warning("the period %s stays closing: %s", period_id, " ".join(missing))
                return False
            if compared is not None:
                record_reconciliation(period, compared)
            LedgerPeriod.objects.filter(id=period.id).update(
                state=State.CLOSED, closed_at=Now(), checksum=checksum_of(period.id), revision=F("revision") + 1
            )
            crash_point("period_closed")
            return True
    except IntegrityError as error:
        if getattr(getattr(error.__cause__, "diag", None), "constraint_name", "") != "period_closes_whole":
            raise
        return False  # time was metered after the checklist was read


def _is_ready(period: LedgerPeriod) -> bool:
    return not any(item.keeps_open for item in checklist(period, accepts_unpriced=period.accepts_unpriced))


def cancel_closing(actor: Actor, period_id: UUID) -> LedgerPeriod:
    """The period, open again if it was closing; an open one stays as it is. Raises NotFound, NotAllowedHere, Conflict
    `period_closed`.
    """
    with transaction.atomic():
        period_by_id(actor, period_id, may_close=True)
        period = locks.lock_period(period_id)
        if period.state == State.CLOSED:
            raise Conflict("The month is already closed; ask to reopen it.", code="period_closed")
        if period.state == State.CLOSING:
            _open(period.id)
            _record(actor, "period.cancel_closing", period, {"asked_by": period.closing_by_name})
    return LedgerPeriod.objects.select_related("organisation").get(id=period_id)


def request_reopening(actor: Actor, period_id: UUID, reason: str) -> PeriodReopening:
    """The request to reopen a closed period; repeating it changes nothing. Raises NotFound, NotAllowedHere, Conflict
    (`period_not_closed`, `period_is_invoiced`), PermissionDenied for the platform itself.
    """
    with transaction.atomic():
        period_by_id(actor, period_id, may_close=True)
        if actor.user_id is None:
            raise PermissionDenied("Two people reopen a period.")
        period = locks.lock_period(period_id)
        if period.state != State.CLOSED or _has_closed_after(period.organisation_id, period.month):
            raise Conflict("Only the last closed period can be reopened.", code="period_not_closed")
        _refuse_invoiced(period)
        request, is_new = PeriodReopening.objects.get_or_create(
            period=period,
            revision=period.revision,
            defaults={"reason": reason, "requested_by_id": actor.user_id, "requested_by_name": actor.name},
        )
        if is_new:
            _record(actor, "period.request_reopening", period, {"reason": reason})
    return request


def approve_reopening(actor: Actor, period_id: UUID) -> LedgerPeriod:
    """The period, open again. Raises NotFound, NotAllowedHere, Conflict `period_not_closed` without a pending request,
    PermissionDenied for the person who requested it.
    """
    with transaction.atomic():
        period_by_id(actor, period_id, may_close=True)
        period = locks.lock_period(period_id)
        request = PeriodReopening.objects.filter(period=period, revision=period.revision, approved_at=None).first()
        if request is None or period.state != State.CLOSED or _has_closed_after(period.organisation_id, period.month):
            raise Conflict("No reopening of this period is requested.", code="period_not_closed")
        if actor.user_id in {None, request.requested_by_id}:
            raise PermissionDenied("Another person than the one who requested it approves a reopening.")
        _refuse_invoiced(period)
        PeriodReopening.objects.filter(id=request.id).update(
            approved_by_id=actor.user_id, approved_by_name=actor.name, approved_at=Now()
        )
        _open(period.id)
        _record(actor, "period.reopen", period, {"reason": request.reason, "requested_by": request.requested_by_name})
    return LedgerPeriod.objects.select_related("organisation").get(id=period_id)


def _refuse_invoiced(period: LedgerPeriod) -> None:
    if numbers := uncredited_numbers(period.id):
        raise Conflict(
            f"The month has the invoice {', '.join(numbers)}. Credit it in full first.", code="period_is_invoiced"
        )


def _open(period_id: UUID) -> None:
    LedgerPeriod.objects.filter(id=period_id).update(
        state=State.OPEN, closed_at=None, checksum="", closing_at=None, closing_by_id=None, closing_by_name="",
        accepts_unpriced=False,
    )  # fmt: skip


def _has_closed_after(organisation_id: UUID, month: date) -> bool:
    return LedgerPeriod.objects.filter(organisation_id=organisation_id, month__gt=month, state=State.CLOSED).exists()


def _record(actor: Actor, action: str, period: LedgerPeriod, more: dict[str, object]) -> None:
    detail = {"month": f"{period.month:%Y-%m}", **more}
    record_audit(
        actor, action, object_kind="period", object_id=period.id, tenant_id=period.organisation_id, detail=detail
    )
