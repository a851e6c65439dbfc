"""Requests of users and operators that come too late, twice, or make no sense: each is refused, for a reason that can be mended."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from clusters.models import Cluster
from devtools.simulation.setting.stage import CLUSTERS, TEAMS, user
from federation import operations
from federation.models import Attempt, Job, PlacementPolicy, PriorityClass, Reservation, TenantFailureRules
from federation.operations.failure_rules import remove_failure_rules
from federation.operations.priority_classes import put_class, remove_class
from federation.operations.restoration import close_on_request, open_on_request
from foundation import clock
from foundation.problems import NotFound, Problem
from tenancy.models import Tenant
from tenancy.queries import SYSTEM

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

NOTE = {"note": "seen with my own eyes"}
NOBODY = UUID(int=99)
ENDED = ("succeeded", "failed", "cancelled")
TOO_LONG = "x" * 600
MANY = 1000
"""More than there are mistakes."""
TOGETHER = 5


def ask_in_vain(world: "World") -> None:
    """Several of them, one after the other."""
    for number in (world.faults.choose(range(MANY)) for _ in range(TOGETHER)):
        world.wish("asks in vain", lambda number=number: _ask(world, number))  # type: ignore[misc]


def _ask(world: "World", number: int) -> None:
    found = (*_about_jobs(), *_about_submissions(), *_about_clusters(), *_about_rules(), *_about_reservations())
    what, act = found[number % len(found)]
    world.tell("operator", what)
    try:
        act()
    except Problem as problem:
        if problem.status >= 500:
            world.machine.unexpected.append(f"the operator {what}, and is answered {problem.status}: {problem}")
        return
    world.machine.unexpected.append(f"the operator {what}, which is not refused")


Mistakes = tuple[tuple[str, Callable[[], object]], ...]


def _about_jobs() -> Mistakes:
    ada = user("ada")
    return (
        ("cancels what has ended", lambda: operations.request_cancellation(ada, _first(Job.objects.filter(state__in=ENDED[:2])))),
        ("suspends what has ended", lambda: operations.request_suspension(ada, _first(Job.objects.filter(state__in=ENDED)))),
        ("suspends what is being cancelled", lambda: operations.request_suspension(ada, _first(Job.objects.filter(state__in=("cancelling", "cancelled"))))),
        ("resumes what has ended", lambda: operations.request_resumption(ada, _first(Job.objects.filter(state__in=ENDED)))),
        ("resumes nothing", lambda: operations.request_resumption(ada, NOBODY)),
        ("moves nothing", lambda: operations.request_migration(ada, NOBODY, {})),
        ("moves what has ended", lambda: operations.request_migration(ada, _first(Job.objects.filter(state__in=ENDED)), {})),
        ("moves without sense", lambda: operations.request_migration(
            ada, _first(Job.objects.filter(state="running")), {"clusters": ["Nowhere"], "lose_work": "yes"})),
        ("moves to no cluster", lambda: operations.request_migration(
            ada, _first(Job.objects.filter(state="running")), {"clusters": ["nowhere"]})),
        ("attests a run that has ended", lambda: operations.attest_run(
            SYSTEM, _first(Attempt.objects.filter(state__in=("succeeded", "failed", "cancelled"))), NOTE)),
        ("attests a run that was given up", lambda: operations.attest_run(
            SYSTEM, _first(Attempt.objects.filter(state="abandoned")), NOTE)),
    )  # fmt: skip


def _about_submissions() -> Mistakes:
    ada, pod = (
        user("ada"),
        {"count": 1, "image": "registry.example/train:1", "cpu": "1", "memory": "1Gi", "gpu": {"count": 1}},
    )

    def submit(who: Any = ada, key: str = "", **more: Any) -> object:
        body = {"tenant": _team().path, "name": "wrong", "pod_sets": [pod], "deadline_seconds": 300} | more
        return operations.submit_job(who, body, show=lambda row: {"id": str(row.id)}, key=key, raw=b"")

    def submit_many(jobs: object, who: Any = ada, key: str = "") -> object:
        body = {"tenant": _team().path, "jobs": jobs}
        return operations.submit_jobs(
            who, body, show=lambda row: {"id": str(row.id)}, tell=lambda problem: {"code": problem.code}, key=key
        )

    return (
        ("submits for no tenant", lambda: submit(tenant="acme/nobody")),
        ("submits what never fits", lambda: submit(pod_sets=[pod | {"gpu": {"count": 8}}])),
        ("submits nothing", lambda: submit(pod_sets=[])),
        ("submits as the platform", lambda: submit(SYSTEM)),
        ("submits with an unknown class", lambda: submit(priority_class="none-such")),
        ("submits with an unknown reservation", lambda: submit(constraints={"reservation": str(NOBODY)})),
        ("submits with a key that is none", lambda: submit(key="\n")),
        ("submits no list", lambda: submit_many("all")),
        ("submits an empty list", lambda: submit_many([])),
        ("submits many as the platform", lambda: submit_many([{"name": "wrong"}], SYSTEM)),
        ("submits many with a key that is none", lambda: submit_many([{"name": "wrong"}], key="\n")),
    )  # fmt: skip


def _about_clusters() -> Mistakes:
    return (
        ("closes dispatch without a reason", lambda: close_on_request(SYSTEM, {})),
        ("closes dispatch for blanks", lambda: close_on_request(SYSTEM, {"reason": "  "})),
        ("closes dispatch as a user", lambda: close_on_request(user("ada"), {"reason": "because"})),
        ("opens dispatch with a novel", lambda: open_on_request(SYSTEM, {"note": TOO_LONG})),
        ("opens dispatch as a user", lambda: open_on_request(user("ben"), {})),
        ("attests without sense", lambda: operations.attest_cluster(SYSTEM, _cluster(), {"what": "tired", "note": "so"})),
        ("attests the destruction of what answers", lambda: operations.attest_cluster(
            SYSTEM, _first(Cluster.objects.filter(silent_since=None)), {"what": "destroyed", "note": ""})),
    )  # fmt: skip


def _about_rules() -> Mistakes:
    team = _team()
    return (
        ("removes rules that are none", lambda: remove_failure_rules(
            SYSTEM, _first(Tenant.objects.exclude(id__in=TenantFailureRules.objects.values("tenant_id"))))),
        ("removes a policy that is none", lambda: operations.remove_policy(
            SYSTEM, _first(Tenant.objects.exclude(id__in=PlacementPolicy.objects.values("tenant_id"))))),
        ("makes an unknown class the default of a team", lambda: operations.put_policy(
            SYSTEM, team.id, {"default_priority_class": "none-such"})),
        ("changes classes as a user", lambda: put_class(user("ada"), {"name": "rush", "value": 1})),
        ("removes a class that has jobs", lambda: remove_class(
            SYSTEM, _first(PriorityClass.objects.filter(id__in=Job.objects.values("priority_class_id"))))),
        ("removes no class", lambda: remove_class(SYSTEM, NOBODY)),
    )  # fmt: skip


def _about_reservations() -> Mistakes:
    ada = user("ada")
    later = (clock.database_now() + timedelta(hours=2)).replace(microsecond=0).isoformat().replace("+00:00", "Z")

    def reserve(**more: Any) -> object:
        body = {
            "tenant": _team().path, "name": "wrong", "ends_at": later,
            "pod_sets": [{"count": 9, "cpu": "1", "memory": "1Gi", "gpu": {"count": 4}}],
        }  # fmt: skip
        return operations.make_reservation(ada, body | more, show=lambda row: {"id": str(row.id)}, key="")

    def again() -> object:
        named = Reservation.objects.filter(cancelled_at=None).order_by("id").values_list("name", "tenant__path").first()
        if named is None:
            raise NotFound
        small = [{"count": 1, "cpu": "1", "memory": "1Gi", "gpu": {"count": 1}}]
        return reserve(name=named[0], tenant=named[1], pod_sets=small)

    ended = Reservation.objects.filter(cancelled_at__isnull=False)
    return (
        ("reserves more than there is", reserve),
        ("reserves on no cluster", lambda: reserve(constraints={"clusters": ["nowhere"]})),
        ("reserves under a name that is taken", again),
        ("cancels a reservation twice", lambda: operations.cancel_reservation(ada, _first(ended))),
        ("shortens a reservation that was cancelled", lambda: operations.shorten_reservation(ada, _first(ended), {"ends_at": later})),
        ("shortens a reservation to no time", lambda: operations.shorten_reservation(ada, _first(Reservation.objects), {"ends_at": "soon"})),
        ("makes a reservation longer", lambda: operations.shorten_reservation(
            ada, _first(Reservation.objects), {"ends_at": "2027-01-01T00:00:00Z"})),
    )  # fmt: skip


def _first(rows: Any) -> UUID:
    found: UUID | None = rows.order_by("id").values_list("id", flat=True).first()
    if found is None:
        raise NotFound
    return found


def _cluster() -> UUID:
    return _first(Cluster.objects.filter(name__in=CLUSTERS))


def _team() -> Tenant:
    return Tenant.objects.get(name=TEAMS[0].rpartition("/")[2], kind="team")


EVENTS: dict[str, Callable[["World"], None]] = {"asked_in_vain": ask_in_vain}
"""By the kind of fault."""
