"""Limits of every form, one after the other, on all levels of the tree: those that guarantee more than there is are refused,
as are moves of tenants to where what they guarantee is not free.
"""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import UUID

from billing.models import Budget
from billing.operations.budgets import WantedBudget, put_budget
from billing.operations.egress import NewEgressPrice, create_egress_price
from billing.operations.overrides import request_override
from clusters.models import Cluster
from devtools.simulation.setting.stage import GPU_LIMIT, VIEWER, user
from federation.operations.class_limits import put_tenant_class_limit
from federation.operations.tree import apply_tree
from quotas.engine.holds import Borrowing
from quotas.models import ClassLimit, QuotaLimit, SubmissionLimit, UserLimit
from quotas.operations import (
    delete_class_limit,
    delete_limit,
    delete_user_limit,
    put_limit,
    put_user_limit,
)
from quotas.operations.limits import MAX_SCOPE
from tenancy.models import Tenant
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM, Actor

from . import submission_limits
from .catalogue import be_refused

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

MANY = 1_000_000
PUTS = 4
FILE = "{apiVersion: switchyard/v1, kind: TenantTree, tenants: [{path: acme, kind: organisation, labels: {a: b}}]}"
GPUS = tuple(number * 1000 for number in (0, 1, 2, 4, 6, 8, GPU_LIMIT))
RESOURCES = ("gpu", "gpu", "gpu", "cpu", "jobs")


class Quotas:
    """What one administrator does with limits."""

    def __init__(self, world: "World", actor: Actor, chance: random.Random) -> None:
        self._world = world
        self._actor = actor
        self._chance = chance

    def put(self) -> None:
        """A limit of any form on any tenant of the organisation."""
        chance = self._chance
        nominal, resource = chance.choice(GPUS), chance.choice(RESOURCES)
        borrowing = Borrowing(
            chance.choice((None, 0, 1000)), chance.choice((None, 0, 1000, 4000)), reclaims=chance.random() < 0.3
        )
        after = chance.choice((None, None, 0, 20, 90 * 24 * 3600))
        names = tuple(Cluster.objects.order_by("name").values_list("name", flat=True))
        scope = chance.choice(((), (), names, names[:1], tuple(f"none-{number}" for number in range(MAX_SCOPE + 1))))
        path = self._tenant().path
        if chance.random() < 0.1:
            path, resource, scope = path.partition("/")[0], "gpu", ()  # the one that all others are below
        put_limit(
            self._actor, path, resource, nominal=nominal, clusters=scope, borrowing=borrowing, reclaim_after=after
        )

    def put_on_users(self) -> None:
        """A limit on users, or on what they submit; or the removal of one."""
        tenant, most = self._tenant(), self._chance.choice((0, 1, 3, 2000))
        if self._chance.random() < 0.5:
            put_user_limit(self._actor, tenant.path, self._chance.choice(("jobs", "gpu", "luck")), most=most)
        else:
            rate = self._chance.choice((None, 0, 1))
            submission_limits.put_on(self._world, self._actor, tenant, most, rate)

    def put_on_class(self) -> None:
        """A limit of a class at any tenant, most often of the class of most jobs, which some of those limits bind."""
        chance = self._chance
        name, resource = chance.choice(("normal", "normal", "low", "high")), chance.choice(("jobs", "jobs", "gpu"))
        most = chance.choice((0, 1, 2, 4)) * (1000 if resource == "gpu" else 1)
        put_tenant_class_limit(self._actor, self._tenant().path, name, resource, most=most)

    def remove_from_class(self) -> None:
        """A limit of a class at a tenant, if there is one."""
        found = ClassLimit.objects.exclude(tenant=None).order_by("id").values_list("id", flat=True)
        if ids := list(found):
            delete_class_limit(self._actor, self._chance.choice(ids))

    def remove(self) -> None:
        """A limit, from the middle of a chain or at its end; the second removal of one finds none."""
        kinds = ((QuotaLimit, delete_limit), (UserLimit, delete_user_limit), (SubmissionLimit, self._remove_submission))
        model, delete = self._chance.choice(kinds)
        ids = list(model.objects.order_by("id").values_list("id", flat=True))
        if ids:
            delete(self._actor, self._chance.choice(ids))

    def _remove_submission(self, actor: Actor, limit_id: UUID) -> None:
        submission_limits.delete(self._world, actor, SubmissionLimit.objects.get(id=limit_id))

    def move(self) -> None:
        """A team joins another department, if what it holds and what it guarantees is free there."""
        teams = Tenant.objects.filter(kind="team", path__startswith="acme/").order_by("id")
        team = self._chance.choice(list(teams))
        above = team.path.rpartition("/")[0]
        other = Tenant.objects.filter(kind="department").exclude(path=above).order_by("id").first()
        if other is not None:
            change_tenant(self._actor, team.id, parent_id=other.id)

    def _tenant(self) -> Tenant:
        return self._chance.choice(list(Tenant.objects.filter(path__startswith="acme").order_by("id")))


def forbidden() -> tuple[tuple[str, Callable[[], object]], ...]:
    """What one who may only look asks for in vain."""
    eve, soon = user(VIEWER), datetime(2026, 8, 1, tzinfo=UTC)
    budget = WantedBudget("acme", "money", Decimal(1), "USD", "month")
    some = Budget.objects.order_by("id").values_list("id", flat=True).first() or UUID(int=99)
    return (
        ("limits as a viewer", lambda: put_limit(eve, "acme", "gpu", nominal=1)),
        ("limits users as a viewer", lambda: put_user_limit(eve, "acme", "gpu", most=1)),
        ("limits a class as a viewer", lambda: put_tenant_class_limit(eve, "acme", "normal", "gpu", most=1)),
        ("sets a budget as a viewer", lambda: put_budget(eve, budget)),
        ("prices traffic as a viewer", lambda: create_egress_price(eve, NewEgressPrice("a", "b", Decimal(1)))),
        ("asks for an override as a viewer", lambda: request_override(
            eve, some, amount=Decimal(1), reason="more", expires_at=soon)),
        ("applies a file as a viewer", lambda: apply_tree(eve, FILE)),
        ("takes back late", lambda: put_limit(SYSTEM, "acme", "gpu", nominal=1, reclaim_after=10**9)),
    )  # fmt: skip


def shape(world: "World") -> None:
    """A few limits of any form, a removal and a move, as an operator or an administrator of the organisation."""
    chance = random.Random(f"{world.seed}/limits/{world.faults.choose(range(MANY))}")
    quotas = Quotas(world, SYSTEM if chance.random() < 0.7 else user("ben"), chance)
    doings: list[tuple[str, Callable[[], None]]] = [("puts a limit of any form", quotas.put)] * PUTS
    doings += [("limits users", quotas.put_on_users), ("removes a limit", quotas.remove), ("moves a team", quotas.move)]
    of_classes: list[tuple[str, Callable[[], None]]] = [("limits a class", quotas.put_on_class)] * PUTS
    of_classes.append(("frees a class", quotas.remove_from_class))
    # Alone, they bind jobs that other limits would hold back.
    doings = [*doings, *of_classes] if chance.random() < 0.5 else of_classes
    for what, act in doings:
        world.wish(what, act)
    number = chance.randrange(MANY)
    world.wish("asks what they may not", lambda: be_refused(world, *forbidden()[number % len(forbidden())]))


EVENTS: dict[str, Callable[["World"], None]] = {"limits_shaped": shape}
"""By the kind of fault."""
