"""What administrators change of classes, rules, limits on submission and overrides of budgets, and what they ask wrongly."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from billing.models import Budget, BudgetOverride
from billing.operations.budgets import WantedBudget, put_budget
from billing.operations.egress import NewEgressPrice, create_egress_price
from billing.operations.overrides import approve_override, request_override
from billing.operations.prices import NewPrice, create_price
from clusters.models import Flavor
from devtools.simulation.setting.stage import BEGINS_AT, CLUSTERS, TEAMS, user
from federation import operations
from federation.models import PriorityClass, TenantFailureRules
from federation.operations.failure_rules import put_failure_rules, remove_failure_rules
from federation.operations.priority_classes import put_class, remove_class
from foundation import clock
from foundation.problems import NotFound, Problem
from quotas.engine.holds import Borrowing
from quotas.operations import put_limit, put_user_limit
from quotas.operations.submission_limits import put_submission_limit
from tenancy.models import Tenant
from tenancy.queries import SYSTEM

from . import submission_limits

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

RULES = {"rules": [{"name": "once", "then": "again", "retries": 1}]}
OTHER_RULES = {"rules": [{"name": "no-images", "when": {"seen": ["image"]}, "then": "stop"}]}
CLASS = {"name": "rush", "value": 50, "description": "before the others", "is_open": True, "shield_seconds": 30}
NOBODY = UUID(int=99)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
MANY = 1000
"""More than there are wrong requests."""


def change_catalogue(world: "World") -> None:
    """A priority class, failure rules of a team, a limit on submission, or an override of a budget."""
    team = TEAMS[world.faults.choose(TEAMS)].rpartition("/")[2]
    amount = Decimal(round(world.faults.between(1, 200))) / 4
    most = round(world.faults.between(0, 3))
    who, other = (("ada", "ben"), ("ben", "ada"))[world.faults.choose(range(2))]
    found: tuple[tuple[str, Callable[[], object], str], ...] = (
        ("sets a class", lambda: put_class(SYSTEM, CLASS | {"value": most * 10}), "priority_class.put"),
        ("sets a granted class", lambda: put_class(SYSTEM, _granted(team)), "priority_class.put"),
        ("removes a class", lambda: remove_class(SYSTEM, _first(PriorityClass.objects.filter(name="rush"))),
         "priority_class.remove"),
        (f"sets rules of {team}", lambda: put_failure_rules(user(who), _team(team).id, RULES), ""),
        (f"sets other rules of {team}", lambda: put_failure_rules(user(who), _team(team).id, OTHER_RULES), ""),
        (f"removes the rules of {team}", lambda: remove_failure_rules(user(who), _team(team).id), "failure_rules.remove"),
        (f"limits what {team} submits", lambda: submission_limits.put(world, team, most, None), "submission_limit.put"),
        (f"limits how fast {team} submits", lambda: submission_limits.put(world, team, None, most + 1), "submission_limit.put"),
        ("removes limits on submission", lambda: submission_limits.delete_all(world), ""),
        (f"sets a budget of {amount}", lambda: put_budget(
            SYSTEM, WantedBudget("acme", "money", amount, "USD", "month", stops_admission=True)), "budget.put"),
    )  # fmt: skip
    for what, act, action in (found[world.faults.choose(found)], found[world.faults.choose(found)]):
        world.wish(what, act, action)
    if world.faults.choose(range(2)):
        world.wish(f"{who} asks for {amount} more", lambda: _override(who, amount), "budget.request_override")
        world.wish(f"{other} approves it", lambda: _approve(other), "budget.approve_override")


def ask_wrongly(world: "World") -> None:
    """Requests that cannot be fulfilled: each must be refused, for a reason that its asker can mend."""
    for number in (world.faults.choose(range(MANY)) for _ in range(4)):
        world.wish("asks wrongly", lambda number=number: _ask_wrongly(world, number))  # type: ignore[misc]


def remove_rules() -> None:
    """The failure rules of all tenants."""
    for tenant_id in TenantFailureRules.objects.order_by("tenant_id").values_list("tenant_id", flat=True):
        remove_failure_rules(SYSTEM, tenant_id)


def _ask_wrongly(world: "World", number: int) -> None:
    requests = _wrong_requests()
    be_refused(world, *requests[number % len(requests)])


def be_refused(world: "World", what: str, act: Callable[[], object]) -> None:
    """Asks for what must be refused, for a reason that the asker can mend."""
    world.tell("operator", what)
    try:
        act()
    except Problem as problem:
        if problem.status >= 500:
            world.machine.unexpected.append(f"the operator {what}, and is answered {problem.status}: {problem}")
        return
    world.machine.unexpected.append(f"the operator {what}, which is not refused")


def _wrong_requests() -> tuple[tuple[str, Callable[[], object]], ...]:
    return (*_wrong_limits(), *_wrong_prices(), *_wrong_rules())


def _wrong_limits() -> tuple[tuple[str, Callable[[], object]], ...]:
    later = BEGINS_AT + timedelta(days=9)

    def budget(**more: Any) -> object:
        given: dict[str, Any] = {
            "tenant_path": "acme",
            "measure": "money",
            "amount": Decimal(1),
            "currency": "USD",
            "period": "month",
        }
        return put_budget(SYSTEM, WantedBudget(**given | more))

    return (
        ("limits an unknown resource", lambda: put_limit(SYSTEM, "acme", "luck", nominal=1)),
        ("sets a negative limit", lambda: put_limit(SYSTEM, "acme", "gpu", nominal=-1)),
        ("lends more than there is", lambda: put_limit(
            SYSTEM, "acme", "cpu", nominal=1, borrowing=Borrowing(-1, 5))),
        ("limits on no cluster", lambda: put_limit(SYSTEM, "acme", "gpu", nominal=1, clusters=("nowhere",))),
        ("limits users of an unknown resource", lambda: put_user_limit(SYSTEM, "acme", "luck", most=1)),
        ("limits users below zero", lambda: put_user_limit(SYSTEM, "acme", "gpu", most=-1)),
        ("limits no submission", lambda: put_submission_limit(SYSTEM, "acme", most_waiting=None, jobs_per_minute=None)),
        ("limits submission below zero", lambda: put_submission_limit(SYSTEM, "acme", most_waiting=-1, jobs_per_minute=0)),
        ("sets a negative budget", lambda: budget(amount=Decimal(-1), period="week", notify_at=(0,))),
        ("sets a budget in gold", lambda: budget(currency="XAU")),
        ("sets a budget without dates", lambda: budget(period="dates")),
        ("sets a budget of past dates", lambda: budget(period="dates", starts_at=LONG_AGO, ends_at=LONG_AGO + timedelta(1))),
        ("sets a budget of no days", lambda: budget(period="dates", starts_at=later, ends_at=later)),
        ("sets a monthly budget with dates", lambda: budget(starts_at=LONG_AGO)),
    )  # fmt: skip


def _wrong_prices() -> tuple[tuple[str, Callable[[], object]], ...]:
    flavor = Flavor.objects.order_by("id").values_list("name", flat=True).first() or ""
    return (
        ("prices in gold", lambda: create_price(SYSTEM, NewPrice(CLUSTERS[0], flavor, Decimal(1), "XAU"))),
        ("prices an unknown flavor", lambda: create_price(SYSTEM, NewPrice(CLUSTERS[0], "none", Decimal(1)))),
        ("prices an unknown kind", lambda: create_price(
            SYSTEM, NewPrice(CLUSTERS[0], flavor, Decimal(1), capacity_type="luck"))),
        ("prices past traffic", lambda: create_egress_price(
            SYSTEM, NewEgressPrice("a", "b", Decimal(1), organisation="acme", effective_from=LONG_AGO))),
        ("prices traffic in gold", lambda: create_egress_price(
            SYSTEM, NewEgressPrice("a", "b", Decimal(1), "XAU", organisation="acme"))),
        ("prices traffic of a team", lambda: create_egress_price(
            SYSTEM, NewEgressPrice("a", "b", Decimal(1), organisation=_team("vision").path))),
    )  # fmt: skip


def _wrong_rules() -> tuple[tuple[str, Callable[[], object]], ...]:
    later = BEGINS_AT + timedelta(days=9)

    def reserve(**more: Any) -> object:
        body = {"tenant": TEAMS[0], "name": "wrong", "pod_sets": [{"count": 99, "cpu": "1", "memory": "1Gi", "gpu": {"count": 4}}],
                "ends_at": "2026-06-02T00:00:00Z"}  # fmt: skip
        return operations.make_reservation(user("ada"), body | more, show=lambda row: {"id": str(row.id)}, key="")

    return (
        ("reserves too much", reserve),
        ("reserves nothing", lambda: reserve(pod_sets=[], ends_at="yesterday")),
        ("sets a policy without sense", lambda: operations.put_policy(SYSTEM, _team("vision").id, {"clusters": "all"})),
        ("removes a policy of no tenant", lambda: operations.remove_policy(SYSTEM, NOBODY)),
        ("sets a class without sense", lambda: put_class(SYSTEM, {"name": "No", "value": "much"})),
        ("sets a class for no tenant", lambda: put_class(
            SYSTEM, {"name": "rare", "value": 1, "grants": [{"tenant": "acme/nobody"}]})),
        ("takes the default away", lambda: put_class(SYSTEM, {"name": "normal", "value": 0, "is_default": False})),
        ("removes the default class", lambda: remove_class(SYSTEM, _first(PriorityClass.objects.filter(is_default=True)))),
        ("sets rules without sense", lambda: put_failure_rules(SYSTEM, _team("vision").id, {"rules": [{"then": "hope"}]})),
        ("sets rules of another version", lambda: put_failure_rules(SYSTEM, _team("vision").id, RULES, version="none")),
        ("asks for an override of nothing", lambda: request_override(
            user("ada"), NOBODY, amount=Decimal(1), reason="more", expires_at=later)),
        ("asks for a negative override", lambda: request_override(
            user("ada"), _first(Budget.objects.filter(removed_at=None)), amount=Decimal(-1), reason="more", expires_at=later)),
        ("asks for an override without a reason", lambda: request_override(
            user("ada"), _first(Budget.objects.filter(removed_at=None)), amount=Decimal(1), reason=" ", expires_at=later)),
        ("asks for a past override", lambda: request_override(
            user("ada"), _first(Budget.objects.filter(removed_at=None)), amount=Decimal(1), reason="x", expires_at=LONG_AGO)),
        ("attests without a word", lambda: operations.attest_cluster(SYSTEM, NOBODY, {})),
        ("attests no run", lambda: operations.attest_run(SYSTEM, NOBODY, {"note": "gone"})),
        ("cancels nothing", lambda: operations.request_cancellation(user("ada"), NOBODY)),
        ("suspends nothing", lambda: operations.request_suspension(user("ada"), NOBODY)),
    )  # fmt: skip


def _granted(team: str) -> dict[str, Any]:
    return {"name": "granted", "value": 20, "grants": [{"tenant": _team(team).path}, {"role": "admin"}]}


def _override(who: str, amount: Decimal) -> None:
    budget_id = _first(Budget.objects.filter(removed_at=None, tenant__depth=0))
    at = clock.database_now() + timedelta(minutes=5)
    request_override(user(who), budget_id, amount=amount, reason="the fire brigade said so", expires_at=at)


def _approve(who: str) -> None:
    override = BudgetOverride.objects.select_related("period").order_by("-id").first()
    if override is None:
        raise NotFound
    approve_override(user(who), override.period.budget_id, override.id)


def _first(rows: Any) -> UUID:
    found: UUID | None = rows.order_by("id").values_list("id", flat=True).first()
    if found is None:
        raise NotFound
    return found


def _team(name: str) -> Tenant:
    return Tenant.objects.get(name=name, kind="team")


EVENTS: dict[str, Callable[["World"], None]] = {"catalogue_changed": change_catalogue, "asked_wrongly": ask_wrongly}
"""By the kind of fault."""
