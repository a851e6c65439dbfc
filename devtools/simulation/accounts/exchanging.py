"""Accountants who bill an organisation in another currency than that of its prices, import and correct reference rates, and agree on
rates by hand. What was charged is converted at the rates that count, in any order of all that.
"""

import random
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from billing.operations.exchange import NewRate, import_reference_rates, set_billing_currency, set_exchange_rate
from devtools.simulation.judges.promises import judging
from tenancy.queries import SYSTEM, Actor

from .finance import MONTHS, Doing

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "exchanged"
DOINGS = 4
"""How much each accountant does of it, on the next day and a month later."""
PLACES, TWELVE = Decimal("1e-18"), Decimal("1e-12")
PRECISE = 60
WEEK = timedelta(days=7)
EXCHANGING = (
    "rate_differs", "month_is_closed", "month_is_converted", "validation_failed", "not_found", "permission_denied",
    "in_the_future", "bad_format",
)  # fmt: skip


class Exchange:
    """What one accountant does with currencies."""

    def __init__(self, actor: Actor, world: "World") -> None:
        self._actor = actor
        self._is_drawn = KIND in world.faults.rates
        self._chance = random.Random(f"{world.seed}/exchange/{actor.name}")
        self._first = world.begins_at.date()

    def added_to(self, doings: list[Doing]) -> list[Doing]:
        """The things to do, with some of these among them."""
        for _ in range(DOINGS if self._is_drawn else 0):
            doings.insert(self._chance.randrange(len(doings) + 1), self._any())
        return doings

    def _any(self) -> Doing:
        chance = self._chance
        currency, month = chance.choice(("EUR", "CHF", "USD", "XYZ")), chance.choice(MONTHS)
        rate = Decimal(chance.randrange(1, 400)) / 100
        first = self._first + timedelta(days=chance.choice((-3, 0, 0, 1)))
        base, quote = chance.choice((("USD", "EUR"), ("EUR", "USD"), ("USD", "CHF"), ("EUR", "EUR")))
        wanted = NewRate("acme", base, quote, rate, first, first + timedelta(days=chance.choice((0, 1, 5))), "agreed")
        text, corrects = self._rates(), chance.random() < 0.5
        actor, path = chance.choice(((self._actor, "acme"), (SYSTEM, "")))
        return chance.choice((
            (f"bills in {currency} from {month:%B} on", lambda: set_billing_currency(self._actor, "acme", month, currency), EXCHANGING),
            (f"agrees on {rate} {quote} for {base}", lambda: set_exchange_rate(self._actor, wanted), EXCHANGING),
            ("imports reference rates", lambda: import_reference_rates(
                actor, path, text, "ECB", corrects=corrects), EXCHANGING),
            ("imports reference rates", lambda: import_reference_rates(
                actor, path, text, "ECB", corrects=corrects), EXCHANGING),
        ))  # fmt: skip

    def _rates(self) -> str:
        """A file of three days, one of which the world's charges are of, or are a week after."""
        chance, lines = self._chance, ["Date,USD,CHF,"]
        for days in chance.sample(range(-9, 3), 3):
            values = (f"{chance.randrange(80, 140) / 100:.4f}", f"{chance.randrange(80, 140) / 100:.4f}")
            lines.append(f"{self._first + timedelta(days=days)},{values[0]},{chance.choice((values[1], 'N/A'))},")
        return "\n".join(lines) + "\n"


class _Rates(NamedTuple):
    overrides: list[Any]
    references: list[Any]

    def of(self, organisation: object, base: str, quote: str, day: date) -> Decimal | None:
        """What counts on that day: what was agreed last for it, or else the last rates of the week, through the euro."""
        for own, has_base, has_quote, rate, start, until in self.overrides:
            if own == organisation and {has_base, has_quote} == {base, quote} and start <= day < until:
                agreed: Decimal = rate if has_base == base else 1 / rate
                return agreed.quantize(PLACES, ROUND_HALF_UP)
        legs = [self._of_euro(organisation, one, day) for one in (base, quote)]
        return None if legs[0] is None or legs[1] is None else (legs[1] / legs[0]).quantize(PLACES, ROUND_HALF_UP)

    def _of_euro(self, organisation: object, currency: str, day: date) -> Decimal | None:
        if currency == "EUR":
            return Decimal(1)
        known = [
            (start, own is not None, id_, rate)
            for id_, own, quote, rate, start in self.references
            if quote == currency and own in (None, organisation) and day - WEEK < start <= day
        ]
        found: Decimal | None = max(known)[3] if known else None
        return found


@judging
def promise_16_charges_are_converted_at_the_rates_that_count(world: "World") -> list[str]:
    """In the end, what stands converted is what was charged at the rate that counts for its day, to the last decimal; and what an open
    month charges in another currency than the organisation's is converted, if there is a rate. Counted here from the rates alone.
    """
    if not world.are_books_kept or KIND not in world.faults.rates:
        return []
    rates = _Rates(world.watch.rows(OVERRIDES), world.watch.rows(REFERENCES))
    currencies: Mapping[Any, Any] = dict(world.watch.rows(CURRENCIES))
    found = []
    for row in map(_Charge._make, world.watch.rows(CONVERTED)):
        wanted = row.quote or currencies.get(row.month) or ""
        if not wanted or wanted == row.base or (row.is_settled and {*currencies.values()} != {wanted}):
            continue
        with localcontext(prec=PRECISE):
            rate = rates.of(row.organisation, row.base, wanted, row.day)
            due = None if rate is None else (row.amount * rate).quantize(TWELVE, ROUND_HALF_UP)
        if row.quote and due is not None and due != row.said:
            found.append(
                f"{row.entry} of {row.amount} {row.base} is {row.said} {wanted}, and at {rate} on {row.day} {due}"
            )
        elif not row.quote and due and row.is_open:
            found.append(f"{row.entry} of {row.amount} {row.base} on {row.day} is not converted to {wanted} at {rate}")
    return found


class _Charge(NamedTuple):
    """What an entry charges a tenant, and what stands for it in another currency. `is_settled`: the month of that is closed."""

    entry: str
    organisation: object
    month: date
    is_open: bool
    day: date
    base: str
    amount: Decimal
    quote: str | None
    said: Decimal | None
    is_settled: bool


OVERRIDES = """
SELECT organisation_id, base, quote, rate, valid_from, valid_until FROM billing_exchangerate
 WHERE kind = 'override' ORDER BY id DESC
"""
REFERENCES = """
SELECT id, organisation_id, quote, rate, valid_from FROM billing_exchangerate WHERE kind = 'reference' ORDER BY id
"""
CURRENCIES = """
SELECT month.month, (SELECT own.currency FROM billing_billingcurrency AS own
                      WHERE own.organisation_id = month.organisation_id AND own.effective_from <= month.month
                      ORDER BY own.effective_from DESC, own.id DESC LIMIT 1)
  FROM billing_ledgerperiod AS month JOIN tenancy_tenant AS organisation ON organisation.id = month.organisation_id
 WHERE organisation.path = 'acme' ORDER BY 1
"""
CONVERTED = """
SELECT entry.key, entry.organisation_id, period.month, period.state = 'open', entry.charge_day, line.currency, line.amount,
       into_line.currency, into_line.amount, coalesce(own.state = 'closed', false)
  FROM billing_ledgerentry AS entry JOIN billing_ledgerperiod AS period ON period.id = entry.period_id
  JOIN tenancy_tenant AS organisation ON organisation.id = entry.organisation_id AND organisation.path = 'acme'
  JOIN billing_ledgerline AS line ON line.entry_id = entry.id
  JOIN billing_ledgeraccount AS account ON account.id = line.account_id AND account.kind = 'tenant_expense'
  LEFT JOIN billing_ledgerentry AS conversion ON conversion.converts_id = entry.id
   AND NOT EXISTS (SELECT FROM billing_ledgerentry AS back WHERE back.reverses_id = conversion.id)
  LEFT JOIN billing_ledgerperiod AS own ON own.id = conversion.period_id
  LEFT JOIN billing_ledgerline AS into_line ON into_line.entry_id = conversion.id AND into_line.priced_amount = line.amount
   AND into_line.priced_currency = line.currency AND EXISTS (
       SELECT FROM billing_ledgeraccount AS one WHERE one.id = into_line.account_id AND one.kind = 'tenant_converted'
          AND one.tenant_id IS NOT DISTINCT FROM account.tenant_id)
 ORDER BY entry.id, line.id
"""
