"""After everything has ended, a month passes, and two accountants post, close, invoice, credit, dispute, correct and reopen
it beside each other. They work in processes that are killed now and then.
"""

import random
from collections.abc import Callable, Collection
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import close_old_connections, transaction

from billing.engine.invoices import Terms
from billing.engine.ledger import Entry, Line
from billing.models import Invoice, InvoiceRemark, LedgerPeriod, PostingConflict, Price
from billing.operations import disputes, invoices, periods, posting
from billing.operations.conflicts import resolve_conflict
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.exports import note_export
from foundation.problems import Problem
from foundation.transactions import retried
from tenancy.models import Tenant
from tenancy.queries import Actor

from .processes import Process
from .scheduler import MICROSECONDS
from .stage import BEGINS_AT, TEAMS, user

if TYPE_CHECKING:
    from .world import World

KEPT_IN = 0.15
"""The share of the worlds whose month is closed."""
MONTH = date(2026, 6, 1)
CLOSES_AT = datetime(2026, 7, 3, 9, tzinfo=UTC)
WISHES = 30
"""How much each accountant does at least."""
OFTEN = 0.4
"""The share of it that brings the month on."""
DEATHS = 2
LONGEST_UNTIL_DEATH = 0.1
PATIENCE_SECONDS = 600.0
ADJUSTMENTS = ("adjustment/first", "adjustment/second")
"""Few keys: two accountants often offer two amounts under one."""
CLOSING = ("period_not_ready", "period_closed", "period_not_closed", "period_is_invoiced", "permission_denied")
ISSUING = ("period_not_closed", "already_invoiced", "nothing_to_invoice")
CREDITING = ("not_an_invoice", "nothing_to_credit", "validation_failed")
RESOLVING = ("conflict_resolved", "conflict_needs_a_correction")
DISPUTING = ("remark_not_open", "remark_not_answered", "too_many_remarks", "permission_denied", "validation_failed")


class Books:
    """The month of one world."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed}/books")
        self.is_kept = self._chance.random() < KEPT_IN
        self._at_work: set[str] = set()

    def keep(self) -> None:
        """Lets the accountants work until both are done. Nothing else runs any more."""
        world, scheduler = self._world, self._world.scheduler
        for process in world.processes.values():
            world.machine.kill(process)
        scheduler.skip_to(round(CLOSES_AT.timestamp() * MICROSECONDS))
        world.tell("world", "is a month older")
        for name in ("ada", "ben"):
            self._at_work.add(name)
            self._launch(name, WISHES)
        for _ in range(DEATHS if self._chance.random() < 0.5 else 0):
            scheduler.after(self._chance.uniform(0, LONGEST_UNTIL_DEATH), self._kill)
        scheduler.after(PATIENCE_SECONDS, self._give_up)
        scheduler.run(lambda: not self._at_work)

    def _launch(self, name: str, left: int) -> None:
        process = Process(f"books-{name}")
        self._world.processes[process.name] = process
        self._world.machine.start(process, "main", lambda: self._work(name, left))

    def _kill(self) -> None:
        name = self._chance.choice(sorted(self._at_work)) if self._at_work else ""
        process = self._world.processes.get(f"books-{name}")
        if process is not None and not process.is_dead:
            self._world.machine.kill(process)
            self._launch(name, WISHES // 2)

    def _give_up(self) -> None:
        if self._at_work:
            self._world.machine.unexpected.append(
                f"the accountants {sorted(self._at_work)} are not done {self._world.scheduler.position()}"
            )
            self._at_work.clear()

    def _work(self, name: str, left: int) -> None:
        clerk = Clerk(user(name), self._chance)
        for what, act, refusals in [*clerk.wishes(left), *clerk.last()]:
            close_old_connections()
            self._world.tell(name, what)
            try:
                act()
            except Problem as problem:
                self._world.tell(name, f"is refused: {problem.code}: {problem}")
                if problem.code not in refusals:
                    self._world.machine.unexpected.append(f"{name} {what}, and is refused as {problem.code}: {problem}")
        self._at_work.discard(name)


Doing = tuple[str, Callable[[], object], Collection[str]]
"""What an accountant does, in words and as a function, and the codes of the problems that may be answered."""


class Clerk:
    """What one accountant may do."""

    def __init__(self, actor: Actor, chance: random.Random) -> None:
        self._actor = actor
        self._chance = chance

    def wishes(self, count: int) -> list[Doing]:
        """Things to do, in any order."""
        return [self._any() for _ in range(count)]

    def last(self) -> list[Doing]:
        """What is left is posted."""
        return [("posts the rest", periods.keep_ledger, ())]

    def _any(self) -> Doing:
        actor, choose = self._actor, self._chance.choice
        amount = Decimal(self._chance.randrange(1, 400)) / 100
        tenant = choose(("acme", "acme", TEAMS[0]))
        hours = self._chance.randrange(1, 60)
        if self._chance.random() < OFTEN:
            return choose((
                ("keeps the ledger", periods.keep_ledger, ()),
                ("closes the month", lambda: self._with_period(self._close), CLOSING),
                ("invoices acme", lambda: invoices.issue_invoice(actor, invoices.WantedInvoice("acme", MONTH)), ISSUING),
            ))  # fmt: skip
        found: tuple[Doing, ...] = (
            ("cancels the closing", lambda: self._with_period(periods.cancel_closing), CLOSING),
            ("asks to reopen", lambda: self._with_period(lambda a, p: periods.request_reopening(a, p, "late")), CLOSING),
            ("approves a reopening", lambda: self._with_period(periods.approve_reopening), CLOSING),
            ("sets terms", lambda: invoices.put_terms(actor, tenant, Terms("Acme", Decimal(19), "VAT", 14)), ("not_found",)),
            ("sets impossible terms", lambda: invoices.put_terms(actor, tenant, Terms(tax_rate=amount / 7, payment_days=-1)),
             ("validation_failed", "not_found")),
            (f"invoices {tenant}", lambda: invoices.issue_invoice(actor, invoices.WantedInvoice(tenant, MONTH)),
             (*ISSUING, "not_found")),
            (f"invoices {tenant}", lambda: invoices.issue_invoice(actor, invoices.WantedInvoice(tenant, MONTH, "USD")),
             (*ISSUING, "not_found")),
            ("invoices in another currency", lambda: invoices.issue_invoice(actor, invoices.WantedInvoice("acme", MONTH, "EUR")),
             (*ISSUING, "validation_failed")),
            ("credits all", lambda: self._credit(None), CREDITING),
            (f"credits {amount}", lambda: self._credit({1: amount}), CREDITING),
            ("disputes a line", lambda: self._dispute(1, "dispute"), DISPUTING),
            ("remarks on a line", lambda: self._dispute(choose((1, 99)), "remark"), DISPUTING),
            ("answers", lambda: self._answer("It is as metered."), DISPUTING),
            ("accepts", lambda: self._resolve("accepted"), DISPUTING),
            ("resolves", lambda: self._resolve("rejected"), DISPUTING),
            (f"corrects a price to {amount}", lambda: self._correct(amount, hours), ("not_found",)),
            ("corrects the future", lambda: self._correct(amount, 10_000), ("validation_failed", "not_found")),
            ("corrects no time", lambda: self._correct(amount, 0), ("validation_failed", "not_found")),
            (f"adjusts by {amount}", lambda: adjust(choose(ADJUSTMENTS), amount), ()),
            ("decides on a conflict", lambda: self._decide(choose(("posted", "offered"))), RESOLVING),
            ("takes an export", lambda: note_export(actor, "usage", "acme", BEGINS_AT, CLOSES_AT), ()),
        )  # fmt: skip
        return choose(found)

    def _with_period(self, act: Callable[[Actor, UUID], object]) -> None:
        period = LedgerPeriod.objects.filter(month=MONTH).order_by("id").first()
        if period is not None:
            act(self._actor, period.id)

    def _close(self, actor: Actor, period_id: UUID) -> None:
        periods.begin_closing(actor, period_id, accepts_unpriced=True)

    def _credit(self, amounts: dict[int, Decimal] | None) -> None:
        invoice = Invoice.objects.exclude(kind="credit_note").order_by("-id").first()
        if invoice is not None:
            invoices.credit_invoice(self._actor, invoice.id, "accepted", amounts)

    def _dispute(self, line: int, kind: str) -> None:
        invoice = Invoice.objects.order_by("-id").first()
        if invoice is not None:
            disputes.open_remark(self._actor, invoice.id, line, kind, "That was not ours.")

    def _answer(self, text: str) -> None:
        remark = InvoiceRemark.objects.exclude(state="resolved").order_by("id").first()
        if remark is not None:
            disputes.answer_remark(self._actor, remark.id, text)

    def _resolve(self, outcome: str) -> None:
        remark = InvoiceRemark.objects.exclude(state="resolved").order_by("id").first()
        if remark is not None:
            disputes.resolve_remark(self._actor, remark.id, outcome)

    def _decide(self, decision: str) -> None:
        """On any conflict, also one that was decided before."""
        conflicts = list(PostingConflict.objects.order_by("id").values_list("id", flat=True))
        if conflicts:
            resolve_conflict(self._actor, self._chance.choice(conflicts), decision, "checked on paper")

    def _correct(self, unit_price: Decimal, hours: int) -> None:
        price = Price.objects.order_by("id").first()
        if price is not None:
            until = BEGINS_AT + timedelta(hours=hours)
            wanted = NewCorrection(price.id, unit_price, price.currency, BEGINS_AT, until, "agreed")
            correct_price(self._actor, wanted)


@retried
def adjust(key: str, amount: Decimal) -> None:
    """Posts an adjustment of the month under this key, or offers another content for it."""
    organisation = Tenant.objects.get(path="acme").id
    lines = (Line("rounding", "USD", amount), Line("adjustments", "USD", -amount))
    with transaction.atomic():
        posting.post(Entry(key, "adjustment", organisation, MONTH, lines, reason="agreed"))
