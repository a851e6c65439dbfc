"""Requests about prices, budgets, currencies, shares and commitments that cannot be fulfilled, with the codes of their refusals."""

from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from billing.engine.months import next_month
from billing.models import Budget, EgressPrice, Price
from billing.models.budgets import MOST_AMOUNT
from billing.operations.budgets import WantedBudget, delete_budget, put_budget
from billing.operations.carbon import Origin, apply_carbon, plan_carbon
from billing.operations.commitments import plan_commitments
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.credits import NewCreditPolicy, set_credit_policy
from billing.operations.egress import NewEgressPrice, create_egress_price, end_egress_price
from billing.operations.exchange import NewRate, import_reference_rates, set_billing_currency, set_exchange_rate
from billing.operations.overrides import approve_override, request_override
from billing.operations.prices import NewPrice, create_price
from billing.operations.sharing import NewPolicy, preview_policy, set_policy
from clusters.models import Flavor
from devtools.simulation.setting.stage import BEGINS_AT, TEAMS
from foundation import clock
from foundation.problems import NotFound

from .refusals import ADA, ASTRAY, EVE, PLATFORM, UNKNOWN, Request

NOWHERE = "nowhere"
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
JUNE = date(2026, 6, 1)
ONE = Decimal(1)
RATE: dict[str, Any] = {
    "organisation": "acme", "base": "USD", "quote": "EUR", "rate": ONE, "valid_from": JUNE, "valid_until": JUNE + 9 * DAY,
    "reason": ASTRAY,
}  # fmt: skip
COMMITMENT = {
    "name": ASTRAY, "kind": "own_purchase", "clusters": "[east]", "flavor": "none-such", "capacity_type": "on_demand", "units": "1", "recurring": "1",
    "start": "2026-06-01T00:00Z", "until": "2026-06-02T00:00Z", "currency": "USD",
}  # fmt: skip
INTENSITIES = "region,from,until,g_per_kwh\nFR,2026-06-01,,50\n"


def _price(**given: Any) -> object:
    """Of a flavor that some cluster offers."""
    found = Flavor.objects.filter(cluster__removed_at=None).order_by("id").values_list("cluster__name", "name").first()
    if found is None:
        raise NotFound
    wanted: dict[str, Any] = {"cluster_name": found[0], "flavor": found[1], "unit_price": ONE} | given
    return create_price(ADA, NewPrice(**wanted))


def _egress(actor: Any = ADA, **given: Any) -> object:
    wanted: dict[str, Any] = {
        "from_region": "eu-*",
        "to_region": "us-*",
        "price_per_gib": ONE,
        "organisation": "acme",
    } | given
    return create_egress_price(actor, NewEgressPrice(**wanted))


def _end_egress_twice() -> None:
    ended = EgressPrice.objects.filter(valid__endswith__lte=clock.database_now()).order_by("id").first()
    if ended is None:
        raise NotFound
    end_egress_price(ADA, ended.id)


def _budget(**given: Any) -> object:
    wanted: dict[str, Any] = {
        "tenant_path": "acme",
        "measure": "money",
        "amount": ONE,
        "currency": "USD",
        "period": "month",
    } | given
    return put_budget(given.get("actor", ADA), WantedBudget(**wanted))


def _dates(starts_in: int, ends_in: int) -> dict[str, Any]:
    first = clock.database_now().replace(hour=0, minute=0, second=0, microsecond=0)
    return {"period": "dates", "starts_at": first + starts_in * DAY, "ends_at": first + ends_in * DAY}


def _override(**given: Any) -> object:
    budget = Budget.objects.filter(removed_at=None).exclude(period="dates").order_by("id").first()
    if budget is None:
        raise NotFound
    wanted: dict[str, Any] = {"amount": ONE, "reason": ASTRAY, "expires_at": clock.database_now() + HOUR} | given
    return request_override(ADA, budget.id, **wanted)


def _correction(**given: Any) -> object:
    price = Price.objects.filter(valid__startswith__lt=BEGINS_AT).order_by("id").first()
    if price is None:
        raise NotFound
    wanted: dict[str, Any] = {
        "unit_price": ONE,
        "currency": price.currency,
        "start": BEGINS_AT,
        "until": BEGINS_AT,
        "reason": ASTRAY,
    } | given
    return correct_price(ADA, NewCorrection(price.id, **wanted))


def _rate(**given: Any) -> object:
    return set_exchange_rate(ADA, NewRate(**(RATE | given)))


def _shares(**given: Any) -> object:
    wanted: dict[str, Any] = {
        "organisation": "acme",
        "effective_from": next_month(JUNE),
        "idle": "none",
        "platform": "even",
    } | given
    return set_policy(ADA, NewPolicy(**wanted))


def _commit(**given: str) -> object:
    lines = (f"    {name}: {value}\n" for name, value in (COMMITMENT | given).items())
    return plan_commitments(ADA, "acme", "commitments:\n  -\n" + "".join(lines))


def _apply(text: str, **given: Any) -> Callable[[], object]:
    origin = Origin(given.pop("source", ASTRAY), given.pop("licence", ""))
    return lambda: apply_carbon(given.pop("actor", ADA), given.pop("path", "acme"), text, origin, **given)


def _about_prices() -> tuple[Request, ...]:
    return (
        ("prices no flavor", "unknown_flavor", lambda: _price(flavor="none-such")),
        ("prices no cluster", "not_found", lambda: _price(cluster_name=NOWHERE)),
        ("prices a capacity that is not there", "unknown_capacity_type", lambda: _price(capacity_type="spare")),
        ("prices interruptions of what is never taken away", "not_spot", lambda: _price(interruptions_per_hour=ONE)),
        ("prices in no currency", "unknown_currency", lambda: _price(currency="XXZ")),
        ("prices traffic in the past", "in_the_past", lambda: _egress(effective_from=BEGINS_AT - DAY)),
        ("prices the traffic of a team", "not_an_organisation", lambda: _egress(PLATFORM, organisation=TEAMS[0])),
        ("prices traffic without permission", "permission_denied", lambda: _egress(EVE)),
        ("prices traffic for no organisation without permission", "permission_denied", lambda: _egress(EVE, organisation="")),
        ("prices traffic in no currency", "unknown_currency", lambda: _egress(currency="XXZ")),
        ("ends no price of traffic", "not_found", lambda: end_egress_price(ADA, UNKNOWN)),
        ("ends a price of traffic twice", "state_conflict", _end_egress_twice),
        ("corrects no time", "empty_period", _correction),
        ("corrects the future", "in_the_future", lambda: _correction(until=BEGINS_AT + 9000 * DAY)),
        ("corrects in another currency", "mixed_currencies",
         lambda: _correction(start=BEGINS_AT - HOUR, currency="CHF")),
        ("corrects no price", "not_found", lambda: correct_price(
            ADA, NewCorrection(UNKNOWN, ONE, "USD", BEGINS_AT - HOUR, BEGINS_AT, ASTRAY))),
    )  # fmt: skip


def _about_budgets() -> tuple[Request, ...]:
    return (
        ("sets a budget below nothing", "out_of_range", lambda: _budget(amount=-ONE)),
        ("sets a budget for no period", "unknown_period", lambda: _budget(period="century")),
        ("sets a budget that notifies of nothing", "out_of_range", lambda: _budget(notify_at=(0,))),
        ("sets a budget with dates and a period", "not_for_this_period", lambda: _budget(starts_at=BEGINS_AT)),
        ("sets a budget without dates", "required", lambda: _budget(period="dates")),
        ("sets a budget of no time", "empty_period", lambda: _budget(**_dates(3, 3))),
        ("sets a budget of the past", "in_the_past", lambda: _budget(**_dates(-9, -8))),
        ("sets a budget in no currency", "unknown_currency", lambda: _budget(currency="XXZ", period="year")),
        ("sets a budget without a rate", "no_exchange_rate", lambda: _budget(currency="JPY", **_dates(1, 900))),
        ("sets a budget without permission", "permission_denied", lambda: put_budget(
            EVE, WantedBudget("acme", "money", ONE, "USD", "month"))),
        ("removes no budget", "not_found", lambda: delete_budget(ADA, UNKNOWN)),
        ("asks for nothing more", "out_of_range", lambda: _override(amount=Decimal(0))),
        ("asks for all there is", "out_of_range", lambda: _override(amount=MOST_AMOUNT + 1)),
        ("asks for more without a reason", "required", lambda: _override(reason=" ")),
        ("asks for more until yesterday", "in_the_past", lambda: _override(expires_at=clock.database_now() - DAY)),
        ("asks for more of no budget", "not_found", lambda: request_override(
            ADA, UNKNOWN, amount=ONE, reason=ASTRAY, expires_at=clock.database_now() + HOUR)),
        ("approves no override", "not_found", lambda: approve_override(ADA, UNKNOWN, UNKNOWN)),
    )  # fmt: skip


def _about_currencies() -> tuple[Request, ...]:
    return (
        ("bills in no currency", "unknown_currency", lambda: set_billing_currency(ADA, "acme", JUNE, "XXZ")),
        ("bills without permission", "permission_denied", lambda: set_billing_currency(EVE, "acme", JUNE, "EUR")),
        ("agrees on a rate of no currency", "unknown_currency", lambda: _rate(quote="XXZ")),
        ("agrees on a rate of one currency", "same_currency", lambda: _rate(quote="USD")),
        ("agrees on a rate of no time", "empty_period", lambda: _rate(valid_until=JUNE)),
        ("agrees on no rate", "out_of_range", lambda: _rate(rate=Decimal(0))),
        ("imports rates that are none", "bad_format", lambda: import_reference_rates(ADA, "acme", "rates", ASTRAY)),
        ("imports rates of the future", "in_the_future", lambda: import_reference_rates(
            ADA, "acme", "Date,USD,\n2090-01-01,1.1,\n", ASTRAY)),
        ("imports rates without permission", "permission_denied", lambda: import_reference_rates(
            EVE, "acme", "Date,USD,\n2026-05-01,1.1,\n", ASTRAY)),
        ("does not charge an unknown loss", "unknown_value", lambda: set_credit_policy(
            ADA, NewCreditPolicy("acme", JUNE, ("bad-luck",)))),
        ("gives weights to no tenant", "unknown_tenant",
         lambda: _shares(platform="fixed", platform_weights={f"acme/{NOWHERE}": 1})),
        ("fixes shares without weights", "required", lambda: _shares(platform="fixed")),
        ("gives weights that do not count", "not_for_this_split", lambda: _shares(platform_weights={TEAMS[0]: 1})),
        ("shares the costs of no organisation", "not_found", lambda: _shares(organisation=NOWHERE)),
        ("previews the shares of the future", "in_the_future", lambda: preview_policy(
            ADA, NewPolicy("acme", JUNE, "proportional"), date(2090, 1, 1))),
    )  # fmt: skip


def _about_commitments() -> tuple[Request, ...]:
    return (
        ("commits to no flavor", "unknown_flavor", _commit),
        ("commits on no cluster", "unknown_cluster", lambda: _commit(clusters=f"[{NOWHERE}]")),
        ("commits to no time", "validation_failed", lambda: _commit(until="2026-06-01T00:00Z")),
        ("commits to a file that is none", "validation_failed", lambda: plan_commitments(ADA, "acme", "- no file")),
        ("commits without permission", "permission_denied", lambda: plan_commitments(EVE, "acme", "commitments: []\n")),
        ("imports intensities without a licence", "required", _apply(INTENSITIES)),
        ("imports from nowhere", "bad_format", _apply(INTENSITIES, source=" ")),
        ("imports another plan", "carbon_changed", _apply(INTENSITIES, licence="CC-BY-4.0", expected="another")),
        ("imports an empty file", "bad_format", lambda: plan_carbon(ADA, "acme", "region,from,until,g_per_kwh\n")),
        ("imports no file", "bad_format", lambda: plan_carbon(ADA, "acme", "")),
        ("imports sites for all", "required",
         lambda: plan_carbon(PLATFORM, "", "cluster,from,region,pue\neast,2026-06-01,FR,1.2\n")),
        ("imports the site of no cluster", "unknown_cluster",
         lambda: plan_carbon(ADA, "acme", "cluster,from,region,pue\nnone-such,2026-06-01,FR,1.2\n")),
        ("imports the energy of no pod", "unknown_pod",
         lambda: plan_carbon(ADA, "acme", "cluster,pod,hour,watt_hours\neast,none-such,2026-06-01T12:00Z,5\n")),
    )  # fmt: skip


REQUESTS: tuple[Request, ...] = (*_about_prices(), *_about_budgets(), *_about_currencies(), *_about_commitments())
