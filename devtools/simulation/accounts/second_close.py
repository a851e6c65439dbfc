"""A month that closes twice: it is closed, two people reopen it, prices are corrected, and it closes again with other shares."""

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from django.db import close_old_connections

from billing.models import Invoice, InvoiceRemark, LedgerPeriod, NegativeIdle, PostingConflict, Price
from billing.operations import disputes, invoices, periods
from billing.operations.conflicts import resolve_conflict
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.sharing import NewPolicy, accept_negative_idle, set_policy
from billing.queries.invoices import uncredited_numbers
from devtools.simulation.core.processes import Process
from devtools.simulation.setting.stage import user
from foundation.problems import Conflict

from .adjustments import adjust, key_of_a_day
from .bad_days import LONGEST_SECONDS
from .finance import expect

if TYPE_CHECKING:
    from datetime import date
    from uuid import UUID

    from django.db.models import QuerySet

    from devtools.simulation.worlds.world import World

ROUNDS = 60
"""How often the accountant decides on one of the things that keep a month from being closed."""
SPLITS = (("proportional", "even"), ("reservations", "proportional"))
COST, TOO_MUCH = Decimal(10), Decimal(10**9)
ADJUSTMENT = "adjustment/last"
ISSUED = ("already_invoiced", "nothing_to_invoice", "too_many_lines")
HOURS = 12


class SecondClose:
    """What one accountant does in the end, alone but for the second person who approves."""

    def __init__(self, world: "World", months: "tuple[date, ...]") -> None:
        self._world = world
        self._months = months
        self._is_done = False

    def befall(self) -> None:
        """Runs to its end."""
        world = self._world
        world.machine.start(Process("books-second-close"), "main", self._work)
        world.scheduler.after(LONGEST_SECONDS, self._give_up)
        world.scheduler.run(lambda: self._is_done)

    def _give_up(self) -> None:
        if not self._is_done:
            self._object("the accountant is not done")
            self._is_done = True

    def _work(self) -> None:
        close_old_connections()
        self._share(0)
        self._close("closes the months")
        self._dispute()
        # Accountants may have closed the month before there was a policy: then its first shares are those of the next close.
        for which in range(len(SPLITS)):
            if period := self._reopen():
                self._correct(Decimal(11 + which))
                self._share(which)
                if not which:
                    self._adjust()
                    self._think_again(period)
                self._close("closes the last month again")
        self._is_done = True

    def _share(self, which: int) -> None:
        """Idle capacity and the platform are borne by tenants, unless the last month is closed already."""
        idle, platform = SPLITS[which]
        try:
            set_policy(user("ada"), NewPolicy("acme", self._months[-1], idle, platform, COST, "USD"))
        except Conflict as conflict:
            if conflict.code != "month_is_closed":
                raise

    def _close(self, what: str) -> None:
        self._world.tell("ada", what)
        for _ in range(ROUNDS):
            periods.keep_ledger()
            period = self._periods().filter(month__in=self._months).exclude(state="closed").first()
            if period is None:
                return
            if not self._decide():
                periods.begin_closing(user("ada"), period.id, accepts_unpriced=True)
        self._object("the months do not close")

    def _decide(self) -> bool:
        """Decides on one thing that keeps a month from being closed; False if there is none."""
        ada = user("ada")
        conflict = PostingConflict.objects.filter(resolved_at=None).order_by("id").first()
        dispute = InvoiceRemark.objects.filter(kind="dispute").exclude(state="resolved").order_by("id").first()
        idle = NegativeIdle.objects.filter(state="open", period__organisation__path="acme").order_by("id").first()
        if conflict is not None:
            resolve_conflict(ada, conflict.id, "posted", "checked on paper")
        elif dispute is not None and dispute.state == "open":
            disputes.answer_remark(ada, dispute.id, "It is as metered.")
        elif dispute is not None:
            disputes.resolve_remark(ada, dispute.id, "rejected")
        elif idle is not None:
            accept_negative_idle(ada, idle.id, "The node was renamed.")
        else:
            return False
        return True

    def _dispute(self) -> None:
        """An invoice is disputed, and what was accepted is credited, with all that is refused on the way."""
        ada, ben = user("ada"), user("ben")
        wanted = invoices.WantedInvoice("acme", self._months[-1], "USD")
        try:
            invoices.issue_invoice(ada, wanted)
        except Conflict as conflict:
            if conflict.code not in ISSUED:
                raise
        issued = Invoice.objects.filter(
            kind="invoice", tenant_path="acme", currency="USD", period__month=self._months[-1]
        )
        invoice = issued.order_by("-id").first()
        if invoice is None:
            return
        if InvoiceRemark.objects.filter(line__invoice=invoice).exclude(state="resolved").exists():
            return  # there may be as many as are allowed
        self._world.tell("ada", f"disputes {invoice.number}")
        dispute = disputes.open_remark(ada, invoice.id, 1, "dispute", "That was not ours.").id
        expect("remark_not_answered", lambda: disputes.resolve_remark(ben, dispute, "rejected"))
        disputes.answer_remark(ben, dispute, "It is as metered.")
        expect("remark_not_open", lambda: disputes.answer_remark(ben, dispute, "Really."))
        expect("permission_denied", lambda: disputes.resolve_remark(ada, dispute, "accepted"))
        expect("validation_failed", lambda: invoices.credit_invoice(ben, invoice.id, "too much", {1: TOO_MUCH}))
        disputes.resolve_remark(ben, dispute, "accepted")
        if invoice.number in uncredited_numbers(invoice.period_id):
            expect("already_invoiced", lambda: invoices.issue_invoice(ada, wanted))
            note = invoices.credit_invoice(ben, invoice.id, "accepted", None)
            expect("not_an_invoice", lambda: invoices.credit_invoice(ben, note.id, "again", None))
        expect("nothing_to_credit", lambda: invoices.credit_invoice(ben, invoice.id, "again", None))

    def _adjust(self) -> None:
        """Two contents under one key, of which the second one is to stand; and one for a day of usage, which never stands."""
        ada, ben = user("ada"), user("ben")
        for amount in (Decimal(1), Decimal(2)):
            adjust(ADJUSTMENT, amount)
        second = self._conflict_of(ADJUSTMENT)
        resolve_conflict(ben, second, "offered", "checked on paper")
        resolve_conflict(ben, second, "offered", "checked on paper")
        expect("conflict_resolved", lambda: resolve_conflict(ada, second, "posted", "checked again"))
        if key := key_of_a_day():
            adjust(key, Decimal(3))
            day = self._conflict_of(key)
            expect("conflict_needs_a_correction", lambda: resolve_conflict(ben, day, "offered", "so be it"))
            resolve_conflict(ben, day, "posted", "checked on paper")

    def _conflict_of(self, key: str) -> "UUID":
        """The latest one: accountants may have offered other contents before."""
        return PostingConflict.objects.filter(key=key, resolved_at=None).order_by("-id").values_list("id", flat=True)[0]

    def _think_again(self, period: "UUID") -> None:
        """Closing begins, and is cancelled before it is done."""
        while self._decide():
            pass
        periods.keep_ledger()
        periods.begin_closing(user("ada"), period, accepts_unpriced=True)
        periods.begin_closing(user("ben"), period, accepts_unpriced=True)
        periods.cancel_closing(user("ben"), period)
        if LedgerPeriod.objects.get(id=period).state != "open":
            self._object("a close that was cancelled goes on")

    def _reopen(self) -> "UUID | None":
        """The last month, open again; None if there is none. Documents of it are credited first."""
        period = self._periods().filter(month=self._months[-1]).first()
        if period is None:
            return None
        self._world.tell("ada", "has the last month reopened")
        for number in uncredited_numbers(period.id):
            invoice = Invoice.objects.get(number=number, kind="invoice")
            invoices.credit_invoice(user("ada"), invoice.id, "to be reopened", None)
        request = periods.request_reopening(user("ada"), period.id, "a price was wrong")  # or an earlier one of either
        other = "ben" if request.requested_by_id == user("ada").user_id else "ada"
        periods.approve_reopening(user(other), period.id)
        found: UUID = period.id
        return found

    def _periods(self) -> "QuerySet[LedgerPeriod]":
        return LedgerPeriod.objects.filter(organisation__path="acme").order_by("month", "id")

    def _correct(self, amount: Decimal) -> None:
        start = self._world.begins_at
        until = start + timedelta(hours=HOURS)
        for number, price in enumerate(Price.objects.order_by("id")):
            agreed = amount + number
            correct_price(user("ada"), NewCorrection(price.id, agreed, price.currency, start, until, "agreed again"))

    def _object(self, words: str) -> None:
        self._world.machine.unexpected.append(f"second close: {words}")
