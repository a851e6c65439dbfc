"""The ledger against an independent model in fractions: late, duplicate and contradicting reports, ends that were assumed and
are reported later, corrections, closes.
"""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from billing.models import LedgerPeriod, Price
from billing.operations import TrueEnd, correct_ends, periods, posting, record_runs
from billing.operations.corrections import NewCorrection, correct_price
from billing.queries import discrepancies, usage_report
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bind, make_run, make_user
from tests.laws import examples

from .ledgers import OCTOBER, at, expense, priced_cluster, settle_pending_checks

pytestmark = [pytest.mark.django_db, pytest.mark.law]
HOURS = 72
PRICE = Fraction("2.333333")
hours = st.integers(0, HOURS - 1)
spans = st.tuples(hours, st.integers(1, 30))
moves = st.one_of(
    st.tuples(st.just("run"), spans, st.integers(1, 5)),
    st.tuples(st.just("again"), spans, st.integers(1, 5)),
    st.tuples(st.just("assume"), spans, st.integers(0, 30)),
    st.tuples(st.sampled_from(["report", "report"]), spans, st.integers(-3, 40)),
    st.tuples(st.just("correct"), spans, st.integers(0, 9_999_999)),
    st.tuples(st.sampled_from(["post", "close", "reopen"]), spans, st.just(0)),
)


class Model:
    """What each hour costs, and which hours were used by how many GPUs."""

    def __init__(self):
        self.prices = [PRICE] * (HOURS + 40)
        self.used: list[tuple[int, int]] = []
        self.assumed: list[tuple[int, int, int]] = []
        """The start, the end and the last certain hour of runs on one GPU; a reported end makes the end certain."""

    @property
    def cost(self):
        assumed = [(hour, 1) for start, end, _ in self.assumed for hour in range(start, end)]
        return sum((self.prices[hour] * gpus for hour, gpus in [*self.used, *assumed]), Fraction(0))

    def report(self, number, end):
        """Only an earlier end than the assumed one counts, and only as far back as the run is certain."""
        start, assumed, certain = self.assumed[number]
        if max(certain, end) < assumed:
            self.assumed[number] = start, max(certain, end), max(certain, end)


def hour(number):
    return OCTOBER + timedelta(hours=number)


def play(steps, model):  # noqa: C901 - one branch for each move
    north, price = priced_cluster(amount="2.333333"), Price.objects.get()
    people = [make_user() for _ in range(2)]
    for person in people:
        bind(person, "acme", "finance")
    runs, guesses, checksum = [], [], ""
    for kind, (start, length), number in steps:
        october = LedgerPeriod.objects.filter(month=OCTOBER.date()).first()
        if kind == "run":
            runs.append(make_run(north, started_at=hour(start), until_at=hour(start + length), gpu_units=number))
            record_runs(runs[-1:])
            model.used += [(each, number) for each in range(start, start + length)]
        elif kind == "again" and runs:
            record_runs([runs[start % len(runs)], replace(runs[-1], gpu_units=number, until_at=hour(start))])
        elif kind == "assume":
            certain = start + min(number, length)
            guesses.append(
                make_run(
                    north,
                    started_at=hour(start),
                    until_at=hour(start + length),
                    certain_until=hour(certain),
                    is_estimated=True,
                )
            )
            record_runs(guesses[-1:])
            model.assumed.append((start, start + length, certain))
        elif kind == "report" and guesses:
            which = start % len(guesses)
            end = model.assumed[which][0] + number
            correct_ends([TrueEnd(guesses[which].key, hour(end))])
            model.report(which, end)
        elif kind == "correct":
            amount = Decimal(number).scaleb(-6)
            correct_price(SYSTEM, NewCorrection(price.id, amount, "USD", hour(start), hour(start + length), "typo"))
            for each in range(start, start + length):
                model.prices[each] = Fraction(amount)
        elif kind == "reopen" and october and october.state == "closed":
            periods.request_reopening(actor_for(people[0]), october.id, "late")
            periods.approve_reopening(actor_for(people[1]), october.id)
            checksum = ""
        elif kind in {"post", "close"}:
            posting.post_days()
            settle_pending_checks()
            if kind == "close" and october and october.state == "open":
                periods.begin_closing(SYSTEM, october.id)
                periods.keep_ledger()
                checksum = LedgerPeriod.objects.get(id=october.id).checksum
                assert checksum
        if checksum:
            assert LedgerPeriod.objects.get(month=OCTOBER.date()).checksum == checksum


@examples(25, suppressed=list(HealthCheck))
@given(steps=st.lists(moves, min_size=3, max_size=9))
def test_the_ledger_is_what_the_model_says_whatever_happens_in_whatever_order(steps):
    model = Model()
    with transaction.atomic():
        play([*steps, ("post", (0, 1), 0)], model)
        assert Fraction(expense()) == model.cost
        total = usage_report(SYSTEM, "acme", OCTOBER, at(1, month=11)).total
        assert total.cost == round(Decimal(model.cost.numerator) / model.cost.denominator, 6)
        assert discrepancies() == ()
        transaction.set_rollback(True)
