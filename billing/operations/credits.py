"""Sets which lost work is not charged, and records what infrastructure lost of runs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from django.db import transaction

from billing import locks
from billing.engine.credits import LossCause
from billing.engine.rating import whole_milliseconds
from billing.models import CreditPolicy, LostWork
from billing.queries.charges import losses_of
from billing.queries.credits import LostWorkReport, lost_work_report
from billing.queries.sharing import organisation_at
from foundation.problems import Invalid
from foundation.rows import insert_rows
from foundation.transactions import retried
from tenancy.operations import record_audit
from tenancy.queries import Actor

from .dated_policies import in_open_months


@dataclass(frozen=True, slots=True)
class NewCreditPolicy:
    """From a month on, work that is lost for one of these causes is not charged."""

    organisation: str
    effective_from: date
    causes: Collection[str]


@retried
def set_credit_policy(actor: Actor, wanted: NewCreditPolicy) -> CreditPolicy:
    """The policy. Raises NotFound, NotAllowedHere, Invalid (`unknown_value`), Conflict `month_is_closed`."""
    organisation = organisation_at(actor, wanted.organisation, may_close=True)
    causes = _known(wanted.causes)
    with in_open_months(), transaction.atomic():
        locks.rewrite_price_book()
        policy = CreditPolicy.objects.create(
            organisation=organisation, effective_from=wanted.effective_from, causes=causes,
            made_by_id=actor.user_id, made_by_name=actor.name,
        )  # fmt: skip
        record_audit(
            actor, "credit_policy.set", object_kind="credit_policy", object_id=str(policy.id), tenant_id=organisation.id,
            detail={"from": f"{wanted.effective_from:%Y-%m}", "causes": ", ".join(causes)},
        )  # fmt: skip
    policy.refresh_from_db()
    return policy


def preview_credit_policy(actor: Actor, wanted: NewCreditPolicy, month: date) -> tuple[LostWorkReport, LostWorkReport]:
    """The lost work of a month as it is, and as if the policy applied to all of it, from everything recorded. Writes nothing.

    Raises what setting the policy would raise but `month_is_closed`, and Invalid `in_the_future` for the month.
    """
    organisation = organisation_at(actor, wanted.organisation, may_close=True)
    causes = _known(wanted.causes)
    before = lost_work_report(actor, organisation.path, month)
    return before, before.under(causes)


def _known(wanted: Collection[str]) -> list[str]:
    causes = sorted(set(wanted))
    if unknown := [cause for cause in causes if cause not in set(LossCause)]:
        known = ", ".join(LossCause)
        raise Invalid.field("causes", "unknown_value", f"{unknown[0][:50]} is not one of {known}")
    return causes


def record_lost_work(found: Mapping[UUID, tuple[str, datetime | None]]) -> int:
    """Records what is known now of these runs: the cause and the time from which on their work is lost, or an empty cause. The
    number of runs of which that is news; the ledger counts their days again. In the caller's transaction, which excludes others
    that record the same runs.
    """
    known = losses_of(found)
    rows = []
    for run_id, (cause, lost_from) in sorted(found.items()):
        before = known.get(run_id)
        is_lost = bool(cause) and lost_from is not None
        now = (cause, whole_milliseconds(lost_from)) if is_lost and lost_from is not None else ("", None)
        if now != ((before.cause, before.lost_from) if before else ("", None)):
            rows.append(LostWork(run_id=run_id, cause=now[0], lost_from=now[1]))
    insert_rows(rows)
    return len(rows)
