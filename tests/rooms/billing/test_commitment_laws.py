"""Commitments against an independent model in fractions: late, duplicate and reordered reports, prices, versions, closes."""

from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from billing.models import LedgerLine, LedgerPeriod, Price
from billing.operations import periods, record_runs
from billing.operations.corrections import NewCorrection, correct_price
from billing.queries import discrepancies
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bind, make_run, make_user
from tests.laws import HAS_ALL, examples

from .committing import MONTH, balances, committed, split
from .ledgers import OCTOBER, priced_cluster

pytestmark = [pytest.mark.django_db, pytest.mark.law]
HOURS = 72
LONGEST = 700 if HAS_ALL else 160
"""Hours of a term. Usage ends within 102, and to split each further day costs as much as most tests: only `make test-long` has these."""
TWO = [("commit", 3, LONGEST * 5 // 7, 2), ("commit", 10, 60, 3), ("run", 5, 20, 4)]
"""What each example begins with: a run that takes all of the first commitment and a part of the second."""
PRICE = Fraction("2.333333")
hours = st.integers(0, HOURS - 1)
moves = st.one_of(
    st.tuples(st.just("run"), hours, st.integers(1, 30), st.integers(1, 5)),
    st.tuples(st.just("again"), hours, st.integers(1, 30), st.integers(1, 5)),
    st.tuples(st.just("correct"), hours, st.integers(1, 30), st.integers(0, 9_999_999)),
    st.tuples(st.just("commit"), hours, st.integers(1, LONGEST), st.integers(1, 6)),
    st.tuples(st.sampled_from(["split", "close", "reopen"]), hours, st.just(1), st.just(0)),
)


def hour(number):
    return OCTOBER + timedelta(hours=number)


def clock(number):
    return f"{hour(number):%Y-%m-%dT%H:00:00Z}"


class Model:
    """Prices by hour, usage by hour and team, and the commitments that apply: no ledger, no rounding."""

    def __init__(self):
        self.prices = [PRICE] * 900
        self.used: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.commitments: dict[str, tuple[int, int, int, Fraction]] = {}

    def owed(self):
        """What each team owes, and what is unused."""
        owed, unused = defaultdict(Fraction), Fraction(0)
        for number, teams in self.used.items():
            for team, gpus in teams.items():
                owed[team] += gpus * self.prices[number]
        left = {number: {team: Fraction(gpus) for team, gpus in teams.items()} for number, teams in self.used.items()}
        for start, _, length, units, amount in sorted(
            (start, name, length, units, amount) for name, (start, length, units, amount) in self.commitments.items()
        ):
            for number in range(start, start + length):
                part, free = Fraction(amount, length), Fraction(units)
                asked = sum(left.get(number, {}).values(), Fraction(0))
                if asked:
                    taken = min(Fraction(1), units / asked)
                    for team, rest in left[number].items():
                        owed[team] += part * rest * taken / units - rest * taken * self.prices[number]
                        free -= rest * taken
                        left[number][team] = rest - rest * taken
                unused += part * free / units
        return owed, unused


def play(steps, model):  # noqa: C901 - one branch for each move
    north = priced_cluster(amount="2.333333")
    price = Price.objects.get()
    people = [make_user() for _ in range(2)]
    LedgerPeriod.objects.get_or_create(organisation=north.owner, month=MONTH)
    for person in people:
        bind(person, "acme", "finance")
    runs, checksum = [], ""
    for kind, start, length, number in steps:
        october = LedgerPeriod.objects.get(month=MONTH)
        if kind == "run":
            team = f"acme/{'abc'[number % 3]}"
            runs.append(make_run(north, team, started_at=hour(start), until_at=hour(start + length), gpu_units=number))
            record_runs(runs[-1:])
            for each in range(start, start + length):
                model.used[each][team] += number
        elif kind == "again" and runs:
            record_runs([runs[start % len(runs)], replace(runs[-1], until_at=hour(start))])
        elif kind == "correct":
            amount = Decimal(number).scaleb(-6)
            correct_price(SYSTEM, NewCorrection(price.id, amount, "USD", hour(start), hour(start + length), "typo"))
            model.prices[start : start + length] = [Fraction(amount)] * length
        elif kind == "commit":
            name = "xy"[number % 2]
            term = {"start": clock(start), "until": clock(min(start + length, 744))}
            committed({"name": name, "units": number, "upfront": f"{length}.000001", **term})
            model.commitments[name] = (start, min(start + length, 744) - start, number, Fraction(f"{length}.000001"))
        elif kind == "reopen" and october.state == "closed":
            periods.request_reopening(actor_for(people[0]), october.id, "late")
            periods.approve_reopening(actor_for(people[1]), october.id)
            checksum = ""
        elif kind in {"split", "close"}:
            split()
            if kind == "close" and october.state == "open":
                periods.begin_closing(SYSTEM, october.id)
                periods.keep_ledger()
                checksum = LedgerPeriod.objects.get(id=october.id).checksum
                assert checksum
        if checksum:
            assert LedgerPeriod.objects.get(month=MONTH).checksum == checksum


@examples(15, suppressed=list(HealthCheck))
@given(steps=st.lists(moves, min_size=3, max_size=9))
def test_teams_owe_what_the_model_says_whatever_happens_in_whatever_order(steps):
    model = Model()
    with transaction.atomic():
        play([*TWO, *steps, ("split", 0, 1, 0)], model)
        found, (owed, unused) = balances(), model.owed()
        # Each hour of each user and commitment is rounded to 10**-12, and so is each day's charge.
        allowed = Fraction(len(model.commitments) * 24 * 31 * 4, 10**12)
        for team in owed:
            assert abs(Fraction(found.get(team, 0)) - owed[team]) < allowed, team
        assert abs(Fraction(found.get("commitment_unused", 0)) - unused) < allowed
        paid = sum((amount for _, _, _, amount in model.commitments.values()), Fraction(0))
        assert Fraction(found.get("purchases", 0)) == -paid
        assert "commitment" not in found  # every term has ended: what was paid is amortised to the last digit
        used = LedgerLine.objects.filter(entry__flavor="used commitment", account__kind="tenant_expense")
        assert sum((Fraction(line.amount) for line in used), Fraction(found.get("commitment_unused", 0))) == paid
        assert discrepancies() == ()
        transaction.set_rollback(True)
