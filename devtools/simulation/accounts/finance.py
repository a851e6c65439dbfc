"""What finance does beside closing months: it explains unusual days and forecasts, sets budgets and raises them, decides who
bears idle capacity, and sets prices from now on and later.
"""

import random
from collections.abc import Callable, Collection
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

from billing.engine.credits import LossCause
from billing.models import (
    Budget,
    BudgetOverride,
    EgressPrice,
    NegativeIdle,
    NegativeNodeHour,
    Price,
    SharingPolicy,
    SpendAnomaly,
)
from billing.operations.anomalies import decide_anomaly, inspect_spending
from billing.operations.budgets import WantedBudget, delete_budget, put_budget
from billing.operations.corrections import NewCorrection, preview_correction
from billing.operations.credits import NewCreditPolicy, set_credit_policy
from billing.operations.egress import NewEgressPrice, create_egress_price, end_egress_price
from billing.operations.forecasts import foresee_budgets
from billing.operations.node_hours import accept_node_hour, judge_node_hours
from billing.operations.overrides import approve_override, request_override
from billing.operations.periods import keep_ledger
from billing.operations.prices import NewPrice, create_price
from billing.operations.sharing import NewPolicy, accept_negative_idle, set_policy
from clusters.models import Flavor
from devtools.simulation.requests.tree_files import OTHER_ORGANISATION
from devtools.simulation.setting.stage import BEGINS_AT, CLUSTERS, TEAMS, user
from foundation import clock
from foundation.problems import Problem
from tenancy.queries import SYSTEM, Actor

Doing: TypeAlias = tuple[str, Callable[[], object], Collection[str]]
"""What an accountant does, in words and as a function, and the codes of the problems that may be answered."""
MONTHS = (date(2026, 5, 1), date(2026, 6, 1), date(2026, 7, 1))
HOUR = timedelta(hours=1)
IDLE = (*SharingPolicy.Idle.values, SharingPolicy.Idle.PROPORTIONAL, SharingPolicy.Idle.RESERVATIONS)
"""Who bears idle capacity: seldom the organisation, since then tenants have no share."""
IN_A_MOMENT = timedelta(milliseconds=40)
"""An override that expires so soon has often expired when somebody approves it."""
DAY = timedelta(days=1)
BUDGETING = ("validation_failed", "not_found")
OVERRIDING = ("not_found", "validation_failed", "budget_not_in_force", "needs_a_user", "same_person", "already_approved",
              "override_expired")  # fmt: skip
PRICING = ("validation_failed", "price_already_used", "not_found")
SHARING = ("validation_failed", "month_is_closed", "not_found")


class Finance:
    """What one accountant may do. `decided` gets what was acknowledged of unusual days: the day's row, and its outcome."""

    def __init__(self, actor: Actor, chance: random.Random, decided: list[tuple[UUID, str]]) -> None:
        self._actor = actor
        self._chance = chance
        self._decided = decided

    def routine(self) -> Doing:
        """A routine of the gateway, when its time has come."""
        return self._chance.choice((
            ("keeps the ledger", keep_ledger, ()),
            ("looks for unusual days", inspect_spending, ()),
            ("forecasts budgets", foresee_budgets, ()),
        ))  # fmt: skip

    def first_budget(self) -> Doing:
        """A budget that the world exceeds, and is expected to exceed."""
        period = self._chance.choice(("month", "year"))
        wanted = WantedBudget(
            "acme",
            "money",
            Decimal(self._chance.choice(("0.01", "0.2", "1", "5"))),
            "USD",
            period,
            notify_forecast_at=(50, 100),
        )
        return (f"sets a small budget per {period}", lambda: put_budget(self._actor, wanted), BUDGETING)

    def first_policy(self) -> Doing:
        """Who bears the idle capacity of the world's month, if anybody does."""
        how = self._chance.choice(IDLE)
        wanted = NewPolicy(
            "acme", MONTHS[1], how, "even", Decimal(self._chance.choice((0, 10))), self._chance.choice(("USD", "EUR"))
        )
        return (f"lets idle capacity be borne: {how}", lambda: set_policy(self._actor, wanted), SHARING)

    def credit(self) -> Doing:
        """Which lost work of a month and of those after it is not charged."""
        chance = self._chance
        causes = chance.choice(((), tuple(LossCause), tuple(LossCause), tuple(chance.sample(list(LossCause), 3))))
        wanted = NewCreditPolicy("acme", chance.choice(MONTHS), causes)
        told = f"does not charge work lost to {' or '.join(causes) or 'nothing'}"
        return (told, lambda: set_credit_policy(self._actor, wanted), SHARING)

    def node_hours(self) -> tuple[Doing, Doing]:
        """Hours of nodes for which jobs paid more than they cost are set aside, and one of them is accepted."""

        def accept() -> None:
            self._on(NegativeNodeHour, lambda id_: accept_node_hour(self._actor, id_, "The node was seen late."))

        return (
            ("judges the hours of nodes", judge_node_hours, ()),
            ("accepts an hour of a node", accept, ("node_hour_decided",)),
        )

    def any(self) -> Doing:
        """Something to do, from all of it."""
        return self._chance.choice(
            (self._look, self._budget, self._override, self._override, self._share, self._price, self.credit)
        )()

    # -- kinds of doings --------------------------------------------------------------------------------------------

    def _look(self) -> Doing:
        return self._chance.choice((
            ("explains an unusual day", lambda: self._decide("explained"), ("anomaly_not_open",)),
            ("dismisses an unusual day", lambda: self._decide("dismissed"), ("anomaly_not_open",)),
            ("previews a correction", self._preview, ("not_found", "validation_failed")),
        ))  # fmt: skip

    def _budget(self) -> Doing:
        chance = self._chance
        amount = Decimal(chance.randrange(1, 2000)) / 10_000
        period = chance.choice(("month", "quarter", "year", "dates"))
        first = BEGINS_AT.replace(hour=0) + chance.choice((-3, 60)) * DAY
        dates: dict[str, Any] = {"starts_at": first, "ends_at": first + 9 * DAY} if period == "dates" else {}
        wanted = WantedBudget(
            chance.choice(("acme", *TEAMS)), "money", amount, "USD", period, **dates, stops_admission=chance.random() < 0.5,
            notify_forecast_at=chance.choice((None, (), (50, 100), (1, 500))),
        )  # fmt: skip
        hours = WantedBudget("acme", "gpu_hours", amount, "", "month", notify_forecast_at=(10, 100))
        return chance.choice((
            (f"sets a budget of {amount} per {period}", lambda: put_budget(self._actor, wanted), BUDGETING),
            (f"sets a budget of {amount} GPU hours", lambda: put_budget(self._actor, hours), BUDGETING),
            ("removes a budget", lambda: self._on(Budget, lambda id_: delete_budget(self._actor, id_)), BUDGETING),
        ))  # fmt: skip

    def _override(self) -> Doing:
        more, until = Decimal(self._chance.randrange(1, 50)) / 10, self._chance.choice((IN_A_MOMENT, HOUR, HOUR))
        actor = self._chance.choice((self._actor, self._actor, self._actor, SYSTEM))

        def request(budget_id: UUID) -> None:
            expires_at = clock.database_now() + until
            request_override(actor, budget_id, amount=more, reason="agreed", expires_at=expires_at)

        return self._chance.choice((
            (f"asks for {more} more", lambda: self._on(Budget, request), OVERRIDING),
            ("approves an override", self._approve, OVERRIDING),
            ("approves an override of another budget", lambda: self._approve(of_another=True), OVERRIDING),
        ))  # fmt: skip

    def two_people(self) -> Doing:
        """An override from its request to its approval, with all that is refused on the way, by two people and the platform."""
        ada, ben = user("ada"), user("ben")
        soon = clock.database_now
        future = WantedBudget(
            "acme",
            "money",
            Decimal(5),
            "USD",
            "dates",
            BEGINS_AT.replace(hour=0) + 60 * DAY,
            BEGINS_AT.replace(hour=0) + 70 * DAY,
        )

        def ask(actor: Actor, budget: UUID, within: timedelta = HOUR) -> UUID:
            more = Decimal("0.5")
            return request_override(actor, budget, amount=more, reason="agreed", expires_at=soon() + within).id

        def act() -> None:
            later, _ = put_budget(ada, future)
            expect("budget_not_in_force", lambda: ask(ada, later.id))
            now, _ = put_budget(ada, WantedBudget("acme", "money", Decimal(5), "USD", "quarter"))
            expect("needs_a_user", lambda: ask(SYSTEM, now.id))
            override = ask(ada, now.id)
            expect("same_person", lambda: approve_override(ada, now.id, override))
            expect("not_found", lambda: approve_override(ben, later.id, override))
            approve_override(ben, now.id, override)
            expect("already_approved", lambda: approve_override(ben, now.id, override))
            late = ask(ben, now.id, IN_A_MOMENT)
            clock.sleep(IN_A_MOMENT.total_seconds())
            expect("override_expired", lambda: approve_override(ada, now.id, late))

        return ("raises a budget with another person", act, OVERRIDING)

    def _share(self) -> Doing:
        chance = self._chance
        how = chance.choice(SharingPolicy.Platform.values)
        cost = Decimal(chance.choice((0, 1, 100)))
        weights = {path: chance.randrange(1, 9) for path in chance.choice((TEAMS, TEAMS[:1], (), ("acme/none",)))}
        wanted = NewPolicy(
            "acme", chance.choice(MONTHS), chance.choice(IDLE), how, cost, chance.choice(("USD", "EUR")),
            weights if how == "fixed" or chance.random() < 0.2 else {},
        )  # fmt: skip
        return chance.choice((
            (f"lets {how} shares of {cost} be borne", lambda: set_policy(self._actor, wanted), SHARING),
            ("accepts negative idle", self._accept, ("negative_idle_decided",)),
        ))  # fmt: skip

    def _price(self) -> Doing:
        chance = self._chance
        amount = Decimal(chance.randrange(1, 400)) / 100
        later = chance.choice((None, 60 * DAY, 90 * DAY, -DAY))
        at = None if later is None else BEGINS_AT + later
        more: dict[str, Any] = chance.choice(({}, {}, {"cpu_price": amount}, {"interruptions_per_hour": amount}))
        route = (chance.choice(("eu-*", "us-1")), "us-*")
        owner = chance.choice(("acme", "", OTHER_ORGANISATION))
        traffic = NewEgressPrice(*route, amount, organisation=owner, effective_from=at)
        return chance.choice((
            (f"prices a flavor at {amount}", lambda: self._set_price(amount, at, more), PRICING),
            (f"prices traffic at {amount}", lambda: create_egress_price(chance.choice((self._actor, SYSTEM)), traffic),
             (*PRICING, "permission_denied")),
            ("ends a price of traffic", self._end_traffic, ("state_conflict", "not_found")),
        ))  # fmt: skip

    # -- how --------------------------------------------------------------------------------------------------------

    def _on(self, model: Any, act: Callable[[UUID], object]) -> None:
        """Acts on one of the rows, which another may have removed or decided."""
        ids = list(model.objects.order_by("id").values_list("id", flat=True))
        if ids:
            act(self._chance.choice(ids))

    def _decide(self, outcome: str) -> None:
        def decide(id_: UUID) -> None:
            decide_anomaly(self._actor, id_, outcome, "It was the conference.")
            self._decided.append((id_, outcome))

        self._on(SpendAnomaly, decide)

    def _preview(self) -> None:
        hours = self._chance.choice((1, 30, 10_000))
        price = Price.objects.order_by("id").first()
        if price is not None:
            until = BEGINS_AT + hours * HOUR
            preview_correction(
                self._actor,
                NewCorrection(price.id, Decimal(1), self._chance.choice(("USD", "EUR")), BEGINS_AT, until, ""),
            )

    def _approve(self, *, of_another: bool = False) -> None:
        override = BudgetOverride.objects.select_related("period").order_by("-id").first()
        other = Budget.objects.order_by("id").values_list("id", flat=True).first()
        if override is not None and other is not None:
            approve_override(self._actor, other if of_another else override.period.budget_id, override.id)

    def _accept(self) -> None:
        self._on(NegativeIdle, lambda id_: accept_negative_idle(self._actor, id_, "The node was renamed."))

    def _set_price(self, amount: Decimal, at: datetime | None, more: dict[str, Any]) -> None:
        flavors = list(
            Flavor.objects.filter(cluster__name__in=CLUSTERS).order_by("id").values_list("cluster__name", "name")
        )
        if flavors:
            cluster, flavor = self._chance.choice(flavors)
            create_price(self._actor, NewPrice(cluster, flavor, amount, effective_from=at, **more))

    def _end_traffic(self) -> None:
        self._on(EgressPrice, lambda id_: end_egress_price(self._actor, id_))


def expect(code: str, act: Callable[[], object]) -> None:
    """It must be refused as this; or a budget is gone, because another accountant has removed it."""
    try:
        act()
    except Problem as problem:
        if problem.code not in {code, "not_found"}:
            raise
        return
    raise AssertionError(f"not refused as {code}")
