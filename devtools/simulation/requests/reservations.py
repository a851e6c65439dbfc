"""Administrators reserve nodes, with or without a recall time, and jobs run in what is reserved."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

from devtools.simulation.clusters.cluster import EXIT_CODE, RUN_SECONDS
from devtools.simulation.judges.promises import judging
from devtools.simulation.setting.stage import GPUS_PER_NODE, TEAMS, user
from federation import operations
from federation.models import Job, Reservation
from foundation import clock
from foundation.problems import NotFound
from tenancy.models import Tenant

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

RECALLS = (None, 200, 600)
DEADLINE_SECONDS = 60


def reserve(world: "World") -> None:
    """Nodes are reserved for some minutes, from now on or later; perhaps shortened or cancelled then. Jobs come to every
    second one.
    """
    faults = world.faults
    begins, lasts = faults.choose((0, 30, 100)) * 40.0, faults.between(200, 600)
    name = f"evaluation-{world.scheduler.steps}-{lasts * 1000:.0f}"  # two at the same step are two reservations
    gpus = faults.choose(range(3)) + 2
    key, kind = f"reserve-{name}", int(lasts * 1000)
    count, each = (2, GPUS_PER_NODE) if kind % 5 == 0 else (1, gpus)  # every fifth wants more than most limits have

    def make() -> None:
        at = clock.database_now().timestamp()
        body = {
            "tenant": _path(), "name": name, "ends_at": _text(at + begins + lasts),
            "pod_sets": [{"count": count, "cpu": "1", "memory": "1Gi", "gpu": {"count": each}}],
            "recall_seconds": RECALLS[kind % 3],
        }  # fmt: skip
        if begins:
            body["starts_at"] = _text(at + begins)
        operations.make_reservation(user("ada"), body, show=lambda row: {"id": str(row.id)}, key=key, raw=key.encode())

    world.wish(f"reserves nodes as {name}", make, "reservation.create")
    if kind % 2:
        world.wish(f"submits a job in {name}", lambda: _submit_in(name))
    how = faults.choose(range(3))
    if how:
        act = _shorten if how == 1 else _cancel
        world.scheduler.after(faults.between(10, 60), lambda: world.wish(f"{act.__name__}s {name}", lambda: act(name)))


def _submit_in(name: str) -> None:
    pod = {
        "count": 1, "image": "registry.example/train:1", "cpu": "1", "memory": "1Gi", "gpu": {"count": 1},
    }  # fmt: skip
    body = {
        "tenant": _path(), "name": f"in-{name}", "pod_sets": [pod], "deadline_seconds": DEADLINE_SECONDS,
        "constraints": {"reservation": name}, "labels": {RUN_SECONDS: "2", EXIT_CODE: "0"},
    }  # fmt: skip
    key = f"job-in-{name}"
    operations.submit_job(user("ada"), body, show=lambda row: {"id": str(row.id)}, key=key, raw=key.encode())


def _reservation(name: str) -> UUID:
    row = Reservation.objects.filter(name=name).order_by("id").first()
    if row is None:
        raise NotFound
    return row.id


def _path() -> str:
    """The first team's path, as it is now."""
    return Tenant.objects.get(name=TEAMS[0].rpartition("/")[2], kind="team").path


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(round(seconds), UTC).isoformat().replace("+00:00", "Z")


def _shorten(name: str) -> None:
    ends_at = _text(clock.database_now().timestamp() + 60)
    operations.shorten_reservation(user("ada"), _reservation(name), {"ends_at": ends_at})


def _cancel(name: str) -> None:
    operations.cancel_reservation(user("ada"), _reservation(name))


def cancel_all() -> None:
    """Cancels all reservations, and the jobs that wait for one."""
    still = Reservation.objects.filter(until_at__gt=clock.database_now(), cancelled_at=None).order_by("id")
    for reservation_id in still.values_list("id", flat=True):
        operations.cancel_reservation(user("ada"), reservation_id)
    waiting = Job.objects.filter(state="queued").exclude(spec__constraints__reservation="").order_by("id")
    for job_id in waiting.values_list("id", flat=True):
        operations.request_cancellation(user("ada"), job_id)


@judging
def no_more_is_reserved_than_limits_allow(world: "World") -> list[str]:
    """When a reservation was made, a limit on its tenant itself had at least what it reserves, unless limits or the tree changed."""
    if any(world.faults.rates.get(kind) for kind in CHANGING_LIMITS) or world.lost_commits.spans:
        return []
    return [
        f"{path} reserved {amount} of its {nominal} {resource}"
        for path, resource, amount, nominal in world.watch.rows(RESERVED_BEYOND)
    ]


CHANGING_LIMITS = ("limit_cut", "limits_changed", "limits_shaped", "pressed", "tree_applied", "previewed")
RESERVED_BEYOND = """
SELECT tenant.path, quota.resource, own.value::bigint, quota.nominal
  FROM quotas_reservedquota AS reserved
 CROSS JOIN LATERAL jsonb_each_text(reserved.amounts) AS own
  JOIN quotas_quotalimit AS quota ON quota.tenant_id = reserved.tenant_id AND quota.resource = own.key
   AND quota.clusters = '{}'
  JOIN tenancy_tenant AS tenant ON tenant.id = reserved.tenant_id
 WHERE own.value::bigint > quota.nominal ORDER BY 1, 2, 3
"""


@judging
def reserved_nodes_are_given_to_no_other_job(world: "World") -> list[str]:
    """While a reservation is in force, no job that does not name it is placed on its nodes, unless it lends them."""
    return [
        f"attempt {attempt} was placed on {node}, which was reserved"
        for attempt, node in world.watch.rows(PLACED_ON_RESERVED)
    ]


PLACED_ON_RESERVED = """
SELECT attempt.id, reserved.node
  FROM federation_attempt AS attempt
  JOIN federation_job AS job ON job.id = attempt.job_id
  JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id
  JOIN federation_reservednode AS reserved ON reserved.cluster_id = attempt.cluster_id
  JOIN federation_reservation AS reservation ON reservation.id = reserved.reservation_id
 WHERE object.assumed_nodes ? reserved.node
   AND attempt.reserved_at > reservation.created_at
   AND attempt.reserved_at BETWEEN reserved.starts_at AND reserved.until_at - interval '1 second'
   AND job.spec -> 'constraints' ->> 'reservation' IS DISTINCT FROM reservation.id::text
   AND (reservation.recall_seconds IS NULL OR reservation.recall_seconds < (job.spec ->> 'deadline_seconds')::int + 120)
 ORDER BY 1, 2
"""


@judging
def holds_are_within_what_their_jobs_reserved(world: "World") -> list[str]:
    """The hold of an attempt is within the quota of the reservation that its job names, and of no other; and a reservation, its
    quota and its nodes have the same times. None is released in which a job ran.
    """
    if world.lost_commits.spans:
        return []
    found = [
        f"the hold of attempt {attempt} is within {within}, and its job names {named}"
        for attempt, within, named in world.watch.rows(HELD_ELSEWHERE)
    ]
    found += [f"{one} was released, and a job ran in it" for (one,) in world.watch.rows(RELEASED_IN_USE)]
    return found + [f"{one} has other times than its quota" for (one,) in world.watch.rows(OTHER_TIMES)]


HELD_ELSEWHERE = """
SELECT hold.holder_id, hold.within_id, job.spec -> 'constraints' ->> 'reservation'
  FROM quotas_hold AS hold
  JOIN federation_attempt AS attempt ON attempt.id = hold.holder_id
  JOIN federation_job AS job ON job.id = attempt.job_id
 WHERE coalesce(hold.within_id::text, '') <> coalesce(job.spec -> 'constraints' ->> 'reservation', '')
 ORDER BY 1
"""
RELEASED_IN_USE = """
SELECT name FROM federation_reservation AS reservation
 WHERE released_at IS NOT NULL AND EXISTS (SELECT FROM quotas_hold AS hold WHERE hold.within_id = reservation.quota_id)
 ORDER BY 1
"""
OTHER_TIMES = """
SELECT reservation.name
  FROM federation_reservation AS reservation
  LEFT JOIN quotas_reservedquota AS quota
    ON quota.id = reservation.quota_id AND (quota.starts_at, quota.until_at) = (reservation.starts_at, reservation.until_at)
 WHERE quota.id IS NULL
    OR EXISTS (SELECT FROM federation_reservednode AS node WHERE node.reservation_id = reservation.id
                  AND (node.starts_at, node.until_at) <> (quota.starts_at, quota.until_at))
 ORDER BY 1
"""
EVENTS: dict[str, Callable[["World"], None]] = {"reserved": reserve}
"""By the kind of fault."""
