"""After everything has ended, two accountants work on what it cost, on the next day. Then a month passes, and they post,
close, invoice, credit, dispute, correct and reopen it beside each other. They work in processes that are killed now and then,
and lose the database at times.
"""

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import Error, OperationalError, close_old_connections

from billing.engine.invoices import Terms
from billing.models import Invoice, InvoiceRemark, LedgerPeriod, NegativeIdle, PostingConflict, Price
from billing.operations import disputes, invoices, periods
from billing.operations.conflicts import resolve_conflict
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.exports import note_export
from billing.operations.sharing import accept_negative_idle
from devtools.simulation.core.backend.base import DatabaseWrapper
from devtools.simulation.core.processes import Process
from devtools.simulation.core.scheduler import MICROSECONDS
from devtools.simulation.core.swarm import ANY
from devtools.simulation.setting.stage import BEGINS_AT, TEAMS, user
from foundation.problems import Problem
from tenancy.queries import SYSTEM, Actor

from . import exchanging
from .adjustments import MONTH, adjust, key_of_a_day
from .bad_days import BadDay
from .committing import Commit
from .emitting import Emit
from .exchanging import Exchange
from .finance import Doing, Finance
from .second_close import SecondClose

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KEPT_IN = 0.15
"""The share of the worlds whose month is closed."""
CLOSED_TWICE = 0.5
"""The share of these whose month one of them has reopened and closes again, twice."""
EARLIER = date(2026, 5, 1)
"""The month before that of the world, of which there is some usage."""
CLOSES_AT = datetime(2026, 7, 3, 9, tzinfo=UTC)
FIRST_WISHES, WISHES = 9, 26
"""How much each accountant does at least, on the next day and a month later."""
TRIES = 20
"""How often the last posting is tried while the database is lost at times."""
LOSSES = (0.0, 0.003, 0.01)
"""How often a statement or a commit of an accountant loses its connection."""
LOST_COMMITS = ("done", "not_done")
FEW_LINES = (2000, 2000, 1)
"""The most lines of a document in a world: where it is one, some have too many."""
MANY_REMARKS = 4
"""One more than a line may have in a simulated world."""
CREDITED = ("invoice", "invoice", "invoice", "statement")
"""What accountants try to credit: a statement cannot be."""
OFTEN = 0.5
"""The share of it that brings the month on."""
CLOSES = 0.75
"""The share of it that concerns the ledger of the month."""
DEATHS = 2
LONGEST_UNTIL_DEATH = 0.1
PATIENCE_SECONDS = 600.0
ADJUSTMENTS = ("adjustment/first", "adjustment/second")
"""Few keys: two accountants often offer two amounts under one."""
CLOSING = ("period_not_ready", "period_closed", "period_not_closed", "period_is_invoiced", "permission_denied")
ISSUING = ("period_not_closed", "already_invoiced", "nothing_to_invoice", "too_many_lines", "validation_failed")
CREDITING = ("not_an_invoice", "nothing_to_credit", "validation_failed")
RESOLVING = ("conflict_resolved", "conflict_needs_a_correction")
DISPUTING = ("remark_not_open", "remark_not_answered", "too_many_remarks", "permission_denied", "validation_failed")
BRINGING_ON = (*CLOSING, *ISSUING, *CREDITING, *RESOLVING, *DISPUTING, "negative_idle_decided", "not_found")


class Books:
    """The accounting of one world."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed}/books")
        self._losses = random.Random(f"{world.seed}/books/losses")
        is_drawn = self._chance.random() < KEPT_IN * world.scale.books
        self.is_kept = (is_drawn and world.swarm is ANY) or world.swarm.keeps_books
        self._is_closed_twice = random.Random(f"{world.seed}/books/twice").random() < CLOSED_TWICE
        self._at_work: set[str] = set()
        self.planned = 0
        """How much accountants have planned to do so far."""
        self._wishes: Callable[[Clerk, int], list[Doing]] = Clerk.wishes

    def keep(self, is_still: Callable[[], bool]) -> None:
        """Lets the accountants of this world, if it has some, work until both are done, when all is still. Nothing else runs."""
        if not self.is_kept or not is_still():
            return
        for process in self._world.processes.values():
            self._world.machine.kill(process)
        self._world.are_books_kept = True
        invoices.MOST_LINES, disputes.MOST_UNRESOLVED = self._losses.choice(FEW_LINES), MANY_REMARKS - 1
        self._lose_the_database(self._losses.choice(LOSSES))
        next_day = self._world.begins_at.replace(hour=9, minute=0, second=0) + timedelta(days=1)
        self._let_work(next_day, "is a day older", Clerk.first_wishes, FIRST_WISHES)
        self._let_work(CLOSES_AT, "is a month older", Clerk.wishes, WISHES)
        self._lose_the_database(0.0)
        BadDay(self._world).befall()
        # It closes in the currency of the prices, and knows no rate that is missing.
        is_exchanged = exchanging.KIND in self._world.faults.rates
        if not is_exchanged and (self._world.swarm.keeps_books or self._is_closed_twice):
            SecondClose(self._world, (EARLIER, MONTH)).befall()

    def _lose_the_database(self, rate: float) -> None:
        """From now on, statements and commits of accountants lose their connection at this rate."""
        stage, losses = DatabaseWrapper.stage, self._losses
        assert stage is not None
        stage.fault_at_statement = lambda: rate > 0 and losses.random() < rate
        stage.fault_at_commit = lambda: losses.choice(LOST_COMMITS) if rate > 0 and losses.random() < rate else ""

    def _let_work(self, at: datetime, told: str, wishes: "Callable[[Clerk, int], list[Doing]]", count: int) -> None:
        world, scheduler = self._world, self._world.scheduler
        self._wishes = wishes
        scheduler.skip_to(round(at.timestamp() * MICROSECONDS))
        world.tell("world", told)
        for name in ("ada", "ben"):
            self._at_work.add(name)
            self._launch(name, count)
        for _ in range(DEATHS if self._chance.random() < 0.5 else 0):
            scheduler.after(self._chance.uniform(0, LONGEST_UNTIL_DEATH), lambda: self._kill(count // 2))
        scheduler.after(PATIENCE_SECONDS, self._give_up)
        scheduler.run(lambda: not self._at_work)

    def _launch(self, name: str, left: int) -> None:
        process = Process(f"books-{name}")
        self._world.processes[process.name] = process
        self._world.machine.start(process, "main", lambda: self._work(name, left))

    def _kill(self, left: int) -> None:
        name = self._chance.choice(sorted(self._at_work)) if self._at_work else ""
        process = self._world.processes.get(f"books-{name}")
        if process is not None and not process.is_dead:
            self._world.machine.kill(process)
            self._launch(name, left)

    def _give_up(self) -> None:
        if self._at_work:
            self._world.machine.unexpected.append(
                f"the accountants {sorted(self._at_work)} are not done {self._world.scheduler.position()}"
            )
            self._at_work.clear()

    def _work(self, name: str, left: int) -> None:
        clerk = Clerk(user(name), self._chance, self._world)
        for doing in self._left(self._wishes(clerk, left)):
            self._do(name, doing)
        for _ in range(TRIES):
            if self._do(name, LAST):
                break
        self._at_work.discard(name)

    def _left(self, doings: list[Doing]) -> list[Doing]:
        """Without what is left undone in this world."""
        first, self.planned = self.planned, self.planned + len(doings)
        return [one for number, one in enumerate(doings, first) if number not in self._world.size.undone]

    def _do(self, name: str, doing: Doing) -> bool:
        """Whether the accountant knows what became of it."""
        what, act, refusals = doing
        close_old_connections()
        self._world.tell(name, what)
        try:
            act()
        except Problem as problem:
            self._world.tell(name, f"is refused: {problem.code}: {problem}")
            if problem.code not in refusals:
                self._world.machine.unexpected.append(f"{name} {what}, and is refused as {problem.code}: {problem}")
        except Error as error:
            self._world.tell(name, f"never learns: {type(error).__name__}: {str(error)[:100]}")
            if not isinstance(error, OperationalError):
                self._world.machine.unexpected.append(f"{name} {what}, and the database refuses that: {error}")
            return False
        return True


LAST: Doing = ("posts the rest", periods.keep_ledger, ())
"""What is left is posted."""


class Clerk:
    """What one accountant may do."""

    def __init__(self, actor: Actor, chance: random.Random, world: "World") -> None:
        self._actor = actor
        self._chance = chance
        self._begins_at = world.begins_at
        self._finance = Finance(actor, chance, world.decided)
        self._exchange = Exchange(actor, world)
        self._commit = Commit(actor, world)
        self._emit = Emit(actor, world)

    def first_wishes(self, count: int) -> list[Doing]:
        """Things to do on the next day. A budget is needed for much of it."""
        return self._with_others([
            self._finance.first_budget(),
            self._finance.first_policy(),
            self._finance.credit(),
            self._finance.two_people(),
            *self._finance.node_hours(),
            *(self._on_the_next_day() for _ in range(count)),
        ])  # fmt: skip

    def wishes(self, count: int) -> list[Doing]:
        """Things to do a month later, in any order."""
        return self._with_others(
            [self._any() if self._chance.random() < CLOSES else self._finance.any() for _ in range(count)]
        )

    def _with_others(self, doings: list[Doing]) -> list[Doing]:
        return self._emit.added_to(self._commit.added_to(self._exchange.added_to(doings)))

    def _on_the_next_day(self) -> Doing:
        if self._chance.random() < OFTEN:
            return self._finance.routine()
        amount = Decimal(self._chance.choice((0, 0, 1, 3)))
        correct: Doing = (f"corrects a price to {amount}", lambda: self._correct(amount, 8), ("not_found",))
        return correct if self._chance.random() < 0.2 else self._finance.any()

    def _any(self) -> Doing:
        actor, choose = self._actor, self._chance.choice
        amount = Decimal(self._chance.randrange(1, 400)) / 100
        tenant = choose(("acme", "acme", TEAMS[0]))
        hours = self._chance.randrange(1, 50)
        if self._chance.random() < OFTEN:
            return ("brings the month on", self._bring_on, BRINGING_ON)
        found: tuple[Doing, ...] = (
            ("closes the month", lambda: self._with_period(self._close), CLOSING),
            ("closes, and thinks again", lambda: self._with_period(self._close_and_cancel), CLOSING),
            ("asks to reopen as the platform", lambda: self._with_period(
                lambda _, p: periods.request_reopening(SYSTEM, p, "late")), CLOSING),
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
            ("remarks again and again", self._remark_often, DISPUTING),
            ("disputes a line", lambda: self._dispute(1, "dispute"), DISPUTING),
            ("remarks on a line", lambda: self._dispute(choose((1, 99)), "remark"), DISPUTING),
            ("answers", lambda: self._answer("It is as metered."), DISPUTING),
            ("accepts", lambda: self._resolve("accepted"), DISPUTING),
            ("resolves", lambda: self._resolve("rejected"), DISPUTING),
            (f"corrects a price to {amount}", lambda: self._correct(amount, hours), ("not_found",)),
            ("corrects the future", lambda: self._correct(amount, 10_000), ("validation_failed", "not_found")),
            ("corrects no time", lambda: self._correct(amount, 0), ("validation_failed", "not_found")),
            (f"adjusts by {amount}", lambda: adjust(choose(ADJUSTMENTS), amount), ()),
            ("adjusts a day", lambda: adjust(key_of_a_day() or ADJUSTMENTS[0], amount), ()),
            ("decides on a conflict", lambda: self._decide(choose(("posted", "offered"))), RESOLVING),
            ("takes an export", lambda: note_export(actor, "usage", "acme", BEGINS_AT, CLOSES_AT), ()),
        )  # fmt: skip
        return choose(found)

    def _bring_on(self) -> None:
        """What keeps a month from being closed is decided, the earliest one is closed, or what was closed is billed."""
        conflict = PostingConflict.objects.filter(resolved_at=None).order_by("id").first()
        dispute = InvoiceRemark.objects.filter(kind="dispute").exclude(state="resolved").order_by("id").first()
        idle = NegativeIdle.objects.filter(state="open").order_by("id").first()
        month = LedgerPeriod.objects.filter(month__lte=MONTH).exclude(state="closed").order_by("month", "id").first()
        if conflict is not None:
            decisions = ("posted", "offered") if conflict.key in ADJUSTMENTS else ("posted",)
            resolve_conflict(self._actor, conflict.id, self._chance.choice(decisions), "checked on paper")
        elif dispute is not None:
            self._answer("It is as metered.") if dispute.state == "open" else self._resolve("accepted")
        elif idle is not None:
            accept_negative_idle(self._actor, idle.id, "The node was renamed.")
        elif month is not None:
            periods.keep_ledger()
            self._close(self._actor, month.id)
        else:
            self._bill()

    def _bill(self) -> None:
        """Everything is closed: it is invoiced, credited, or opened again by two people."""
        choose = self._chance.choice
        tenant = choose(("acme", "acme", TEAMS[0]))
        wanted = invoices.WantedInvoice(tenant, MONTH, choose(("", "USD")))
        acts: tuple[Callable[[], object], ...] = (
            lambda: invoices.issue_invoice(self._actor, wanted),
            lambda: self._credit(None),
            lambda: self._credit(None),
            lambda: self._with_period(lambda a, p: periods.request_reopening(a, p, "late")),
            lambda: self._with_period(periods.approve_reopening),
            lambda: self._with_period(periods.approve_reopening),
        )
        choose(acts)()

    def _with_period(self, act: Callable[[Actor, UUID], object], month: date = MONTH) -> None:
        period = LedgerPeriod.objects.filter(month=month).order_by("id").first()
        if period is not None:
            act(self._actor, period.id)

    def _close(self, actor: Actor, period_id: UUID) -> None:
        periods.begin_closing(actor, period_id, accepts_unpriced=True)

    def _close_and_cancel(self, actor: Actor, period_id: UUID) -> None:
        self._close(actor, period_id)
        periods.cancel_closing(actor, period_id)

    def _credit(self, amounts: dict[int, Decimal] | None) -> None:
        invoice = Invoice.objects.filter(kind=self._chance.choice(CREDITED)).order_by("-id").first()
        if invoice is not None:
            invoices.credit_invoice(self._actor, invoice.id, "accepted", amounts)

    def _dispute(self, line: int, kind: str) -> None:
        invoice = Invoice.objects.order_by("-id").first()
        if invoice is not None:
            disputes.open_remark(self._actor, invoice.id, line, kind, "That was not ours.")

    def _remark_often(self) -> None:
        for _ in range(MANY_REMARKS):
            self._dispute(1, "remark")

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
            until = self._begins_at + timedelta(hours=hours)
            wanted = NewCorrection(price.id, unit_price, price.currency, self._begins_at, until, "agreed")
            correct_price(self._actor, wanted)
