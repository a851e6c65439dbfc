"""What administrators change while jobs run: tenants, limits, policies, reservations, maintenance, prices, and whole
clusters.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db.models import QuerySet

import clusters.operations
from billing.engine.budgets import Measure
from billing.models import Budget, EgressPrice
from billing.operations.budgets import WantedBudget, delete_budget, put_budget
from billing.operations.egress import NewEgressPrice, create_egress_price, end_egress_price
from clusters.models import Cluster, Flavor, MaintenanceWindow, Node
from clusters.operations.windows import WantedWindow, cancel_window, make_window
from devtools.simulation.setting.stage import CLUSTERS, GPU_LIMIT, TEAMS
from federation import operations
from federation.models import LIVE_ATTEMPT_STATES, Attempt, PlacementPolicy
from foundation import clock
from foundation.problems import Conflict, NotFound
from quotas.engine.holds import Borrowing
from quotas.models import ClassLimit, QuotaLimit, UserLimit
from quotas.operations import delete_class_limit, delete_limit, delete_user_limit, put_limit, put_user_limit
from tenancy.models import Tenant
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM

from .operators import later_after_a_conflict
from .reservations import cancel_all
from .standstills import close_dispatch

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

TEAM_NAMES = tuple(path.rpartition("/")[2] for path in TEAMS)
SCARCE = (("cpu", 3_000), ("memory", 4 * 2**10), ("gpu:H100-80GB", 6_000), ("gpu", 5_000))
"""Limits that bind some jobs, in base units."""
NOTE = {"note": "the fire brigade said so"}
LOOK_SECONDS = 120.0
"""How often operators look for clusters that wait for their word."""


def move_tenant(world: "World") -> None:
    """A team joins the other department, or a department gets another name."""
    name = TEAM_NAMES[world.faults.choose(TEAM_NAMES)]
    if world.faults.between(0, 1) < 0.6:
        world.wish(f"moves {name}", lambda: _move(name), "tenant.change")
    else:
        world.wish("renames a department", _rename, "tenant.change")


def change_limits(world: "World") -> None:
    """A limit of another resource, perhaps for one cluster, or on each user, or the removal of one."""
    if world.faults.between(0, 1) < 0.3:
        _change_user_limits(world)
        return
    resource, nominal = SCARCE[world.faults.choose(SCARCE)]
    scope = ((), (CLUSTERS[0],), CLUSTERS)[world.faults.choose(range(3))]
    team = TEAM_NAMES[world.faults.choose(TEAM_NAMES)]
    if world.faults.between(0, 1) < 0.3:
        world.wish(f"removes a limit of {team}", lambda: _remove_limit(team), "quota.delete")
        return
    world.wish(
        f"limits {resource} of {team} to {nominal} on {scope or 'all clusters'}",
        lambda: put_limit(
            SYSTEM, path_of(team), resource, nominal=nominal, clusters=scope, borrowing=Borrowing(None, nominal - 1000)
        ),
        "quota.put",
    )


def _change_user_limits(world: "World") -> None:
    resource, most = (("jobs", 2), ("gpu", 4000), ("jobs", 1))[world.faults.choose(range(3))]
    team = TEAM_NAMES[world.faults.choose(TEAM_NAMES)]
    if world.faults.between(0, 1) < 0.3:
        world.wish(f"removes a limit on users of {team}", lambda: _remove_user_limit(team), "user_limit.delete")
        return
    told = f"limits {resource} of each user of {team} to {most}"
    world.wish(told, lambda: put_user_limit(SYSTEM, path_of(team), resource, most=most), "user_limit.put")


def change_policy(world: "World") -> None:
    """A policy that allows a team one cluster only, or weighs strategies otherwise; or none any more."""
    team = TEAM_NAMES[world.faults.choose(TEAM_NAMES)]
    bodies: tuple[dict[str, Any], ...] = (
        {"clusters": [CLUSTERS[0]]},
        {"default_strategy": "cheapest", "weights": {"balanced": {"price": "1.5", "free": "0.2"}}},
        {"regions": ["nowhere"]},
    )
    which = world.faults.choose(range(len(bodies) + 1))
    if which == len(bodies):
        world.wish(
            f"removes the policy of {team}", lambda: operations.remove_policy(SYSTEM, _team(team).id), "policy.remove"
        )
        return
    body = bodies[which]
    world.wish(
        f"gives {team} the policy {body}", lambda: operations.put_policy(SYSTEM, _team(team).id, body), "policy.put"
    )


def maintain(world: "World") -> None:
    """Maintenance of a cluster, a node or a flavor, from now on or soon; perhaps cancelled before or while it lasts."""
    name, faults = CLUSTERS[world.faults.choose(CLUSTERS)], world.faults
    what = ("cluster", "nodes", "flavor")[faults.choose(range(3))]
    begins, lasts = (0.0, 20.0, 60.0, 450.0)[faults.choose(range(4))], faults.between(20, 120)
    drains = bool(faults.choose(range(2)))
    reason = f"maintenance {world.scheduler.steps}"

    def make() -> None:
        now, here = clock.database_now(), Cluster.objects.filter(name=name)
        starts_at = now + timedelta(seconds=begins)
        nodes = Node.objects.filter(cluster__in=here).order_by("name").values_list("name", flat=True)[:1]
        flavor = Flavor.objects.filter(cluster__in=here).order_by("name").values_list("name", flat=True).first()
        wanted = WantedWindow(
            starts_at=starts_at if begins else None,
            ends_at=starts_at + timedelta(seconds=lasts),
            reason=reason,
            nodes=tuple(nodes) if what == "nodes" else (),
            flavor=flavor or "" if what == "flavor" else "",
            drain=drains,
        )
        world.planned[make_window(SYSTEM, cluster_id(name), wanted).id] = world.scheduler.now_us

    how = "with" if drains else "without"
    world.wish(f"plans {reason} of {name} ({what}), {how} drain", make, "maintenance.create")
    if faults.choose(range(3)) == 0:
        delay = faults.between(10, 200)
        world.scheduler.after(delay, lambda: world.wish(f"cancels {reason}", lambda: _cancel_windows(reason=reason)))


def change_egress(world: "World") -> None:
    """A price of moving data, or the end of one."""
    price = Decimal(round(world.faults.between(1, 9))) / 100
    wanted = NewEgressPrice("eu-*", "us-*", price, organisation="acme")
    if world.faults.between(0, 1) < 0.3:
        world.wish("ends the prices of moving data", _end_egress)
    else:
        world.wish(f"prices moved data at {price}", lambda: create_egress_price(SYSTEM, wanted), "egress_price.create")


def change_budget(world: "World") -> None:
    """A budget of a team or of the organisation, of money or GPU-hours, perhaps lower than what runs; or none any more."""
    team = ("", *TEAM_NAMES)[world.faults.choose(range(3))]
    measure: Measure = "money" if world.faults.choose(range(2)) else "gpu_hours"
    period = ("month", "year")[world.faults.choose(range(2))]
    if world.faults.between(0, 1) < 0.2:
        world.wish(f"removes a budget of {team or 'acme'}", lambda: _remove_budget(team), "budget.delete")
        return
    amount = Decimal(round(world.faults.between(1, 400))) / 4
    stops = world.faults.between(0, 1) < 0.8

    def put() -> None:
        currency = "USD" if measure == "money" else ""
        path = path_of(team) if team else "acme"
        put_budget(SYSTEM, WantedBudget(path, measure, amount, currency, period, stops_admission=stops))

    world.wish(f"sets {amount} {measure} per {period} for {team or 'acme'}", put, "budget.put")


def prove(world: "World") -> None:
    """The nightly proof, of everything or of what changed."""
    is_full = world.faults.between(0, 1) < 0.5
    world.wish("proves the ledger", lambda: operations.prove_books(full=is_full))


def remove_cluster(world: "World") -> None:
    """A cluster is drained, and removed when nothing lives there any more."""
    name = CLUSTERS[world.faults.choose(CLUSTERS)]
    if world.lost_cluster:
        return
    world.lost_cluster = name
    world.wish(f"drains {name}", lambda: clusters.operations.drain_cluster(SYSTEM, cluster_id(name)))
    world.wish(f"removes {name}", lambda: _remove(name), "cluster.remove")


def destroy_cluster(world: "World") -> None:
    """A cluster burns down. When it has been silent for a while, an administrator attests that, and removes it."""
    name = CLUSTERS[world.faults.choose(CLUSTERS)]
    if world.lost_cluster or world.links[name].cluster is not world.clusters[name]:
        return
    world.lost_cluster = name
    world.links[name].is_destroyed = True
    for node in sorted(world.clusters[name].nodes):
        world.clusters[name].kill_node(node)
    world.tell(name, "is destroyed")
    if world.faults.between(0, 1) < 0.5:
        world.scheduler.after(20, lambda: world.wish(f"attests a run on {name}", lambda: _attest_run(name)))
    world.scheduler.after(30, lambda: give_up_destroyed(world))


def give_up_destroyed(world: "World") -> None:
    """The destroyed cluster, if there is one, is attested and removed, also if the database has forgotten that."""
    name = world.lost_cluster
    if name and world.links[name].is_destroyed:
        world.wish(f"attests that {name} is destroyed", lambda: _attest(name))
        world.wish(f"removes {name}", lambda: _remove(name), "cluster.remove")


def attest_vanished(world: "World", name: str) -> None:
    """Operators attest that the runs which a cluster no longer shows are gone."""
    body = {"what": "vanished", **NOTE}
    world.wish(
        f"attests that the missing runs of {name} are gone",
        lambda: operations.attest_cluster(SYSTEM, cluster_id(name), body),
        "cluster.attest_vanished",
    )


def answer_for_brakes(world: "World") -> None:
    """Operators look for clusters that lack many released objects, and answer for what is missing, again and again."""
    for (name,) in world.watch.rows(BRAKED):
        world.vanished.add(name)
        attest_vanished(world, name)
    world.scheduler.after(LOOK_SECONDS, lambda: answer_for_brakes(world))


BRAKED = """
SELECT name FROM clusters_cluster WHERE reasons @> '[{"code": "too_many_vanished"}]' AND removed_at IS NULL ORDER BY name
"""


def heal(world: "World") -> None:
    """What administrators undo so that every job can end."""
    world.wish("removes all policies", _remove_policies)
    world.wish("cancels all reservations", cancel_all)
    world.wish("cancels all maintenance", _cancel_windows)
    world.wish("restores the limits", _restore_limits)
    world.wish("removes budgets that stop jobs", _end_stops)
    for name in CLUSTERS:
        world.wish(f"opens {name}", lambda name=name: clusters.operations.uncordon_cluster(SYSTEM, cluster_id(name)))  # type: ignore[misc]
    answer_for_brakes(world)


def cluster_id(name: str) -> UUID:
    """The registered cluster's id; NotFound if it was removed."""
    return _id_of_first(Cluster.objects.filter(name=name))


def path_of(team: str) -> str:
    """Where the team is now."""
    return _team(team).path


def _id_of_first(rows: QuerySet[Any]) -> UUID:
    found: UUID | None = rows.order_by("id").values_list("id", flat=True).first()
    if found is None:
        raise NotFound
    return found


def _team(name: str) -> Tenant:
    return Tenant.objects.get(name=name, kind="team")


def _move(name: str) -> None:
    team = _team(name)
    other = Tenant.objects.filter(kind="department").exclude(path=team.path.rpartition("/")[0]).order_by("id")[0]
    change_tenant(SYSTEM, team.id, parent_id=other.id)


def _rename() -> None:
    department = Tenant.objects.filter(kind="department").order_by("id")[0]
    change_tenant(SYSTEM, department.id, name="science" if department.name == "research" else "research")


def _remove_limit(team: str) -> None:
    delete_limit(SYSTEM, _id_of_first(QuotaLimit.objects.filter(tenant=_team(team), removed_at=None)))


def _remove_user_limit(team: str) -> None:
    delete_user_limit(SYSTEM, _id_of_first(UserLimit.objects.filter(tenant=_team(team))))


def _restore_limits() -> None:
    """The organisation's limit of the beginning; no others below it."""
    for one in UserLimit.objects.order_by("id"):
        delete_user_limit(SYSTEM, one.id)
    for of_class in ClassLimit.objects.exclude(tenant=None).order_by("id"):
        delete_class_limit(SYSTEM, of_class.id)
    for limit in QuotaLimit.objects.filter(removed_at=None, tenant__kind="team").order_by("id"):
        delete_limit(SYSTEM, limit.id)
    put_limit(SYSTEM, "acme", "gpu", nominal=GPU_LIMIT * 1000)


def _remove_budget(team: str) -> None:
    tenant = _team(team) if team else Tenant.objects.get(path="acme")
    delete_budget(SYSTEM, _id_of_first(Budget.objects.filter(tenant=tenant, removed_at=None)))


def _end_stops() -> None:
    """Budgets that only count go on; what they count is judged."""
    for one in Budget.objects.filter(removed_at=None, stops_admission=True).order_by("id"):
        delete_budget(SYSTEM, one.id)


def _remove_policies() -> None:
    for tenant_id in PlacementPolicy.objects.order_by("tenant_id").values_list("tenant_id", flat=True):
        operations.remove_policy(SYSTEM, tenant_id)


def _cancel_windows(**which: str) -> None:
    still = MaintenanceWindow.objects.filter(ends_at__gt=clock.database_now(), cancelled_at=None, **which)
    still = still.filter(cluster__removed_at=None)
    for of_cluster, window_id in still.order_by("id").values_list("cluster_id", "id"):
        with suppress(Conflict):  # it has ended meanwhile
            cancel_window(SYSTEM, of_cluster, window_id)


def _end_egress() -> None:
    for price_id in EgressPrice.objects.filter(valid__endswith=None).order_by("id").values_list("id", flat=True):
        end_egress_price(SYSTEM, price_id)


def _remove(name: str) -> None:
    with later_after_a_conflict():
        clusters.operations.remove_cluster(SYSTEM, cluster_id(name))


def _attest(name: str) -> None:
    with later_after_a_conflict():
        operations.attest_cluster(SYSTEM, cluster_id(name), {"what": "destroyed", **NOTE})


def _attest_run(name: str) -> None:
    live = Attempt.objects.filter(cluster=cluster_id(name), state__in=LIVE_ATTEMPT_STATES).order_by("id").first()
    if live is not None:
        operations.attest_run(SYSTEM, live.id, NOTE)


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(round(seconds), UTC).isoformat().replace("+00:00", "Z")


EVENTS: dict[str, Callable[["World"], None]] = {
    "tenant_moved": move_tenant,
    "limits_changed": change_limits,
    "policy_changed": change_policy,
    "egress_changed": change_egress,
    "budget_changed": change_budget,
    "proved": prove,
    "cluster_removed": remove_cluster,
    "cluster_destroyed": destroy_cluster,
    "dispatch_closed": close_dispatch,
    "maintained": maintain,
}
"""By the kind of fault."""
