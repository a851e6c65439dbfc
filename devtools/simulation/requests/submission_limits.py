"""Limits on what teams submit: operators set and remove them, and no more is submitted than they know to be allowed."""

from collections import defaultdict
from typing import TYPE_CHECKING
from uuid import UUID

from devtools.simulation.core.history import Asked
from devtools.simulation.judges.promises import judging
from quotas.models import SubmissionLimit
from quotas.operations.submission_limits import delete_submission_limit, put_submission_limit
from tenancy.models import Tenant
from tenancy.queries import SYSTEM, Actor

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

LIMIT = "limit submissions"
MINUTE_US = 60_000_000


def put(world: "World", team: str, most_waiting: int | None, jobs_per_minute: int | None) -> None:
    """Limits the team of this name."""
    put_on(world, SYSTEM, Tenant.objects.get(name=team, kind="team"), most_waiting, jobs_per_minute)


def put_on(world: "World", actor: Actor, tenant: Tenant, most_waiting: int | None, jobs_per_minute: int | None) -> None:
    """Limits the tenant, if the actor may."""
    asked = _asked(world, tenant.id)
    put_submission_limit(actor, tenant.path, most_waiting=most_waiting, jobs_per_minute=jobs_per_minute)
    asked.answer, asked.told, asked.to_us = "ok", (most_waiting, jobs_per_minute), world.scheduler.now_us


def delete_all(world: "World") -> None:
    """Removes all limits on submission."""
    for limit in SubmissionLimit.objects.order_by("id"):
        delete(world, SYSTEM, limit)


def delete(world: "World", actor: Actor, limit: SubmissionLimit) -> None:
    """Removes one, if the actor may."""
    _asked(world, limit.tenant_id)
    delete_submission_limit(actor, limit.id)


def forget(world: "World") -> None:
    """From now on operators do not know which limits apply: a file of the tree may change each, until they set one again."""
    for tenant_id in Tenant.objects.order_by("id").values_list("id", flat=True):
        _asked(world, tenant_id)


def _asked(world: "World", tenant_id: UUID) -> Asked:
    asked = Asked("operator", LIMIT, str(tenant_id), world.scheduler.now_us)
    world.history.asked.append(asked)
    return asked


@judging
def limits_on_submission_hold(world: "World") -> list[str]:
    """While operators know that a limit applies to a team, it submits no more jobs in any time than that allows, and none while
    as many wait.
    """
    if world.lost_commits.spans:
        return []
    found, changes = [], defaultdict[str, list[Asked]](list)
    for asked in world.history.asked:
        if asked.what == LIMIT:
            changes[asked.subject].append(asked)
    for team, own in changes.items():
        jobs = world.watch.rows(SUBMITTED, team)
        ends_us = [asked.from_us for asked in own[1:]] + [world.scheduler.now_us]
        for asked, until_us in zip(own, ends_us, strict=True):
            if asked.answer != "ok":
                continue
            waiting, rate = asked.told
            within = [at_us for at_us, _ in jobs if asked.to_us < at_us < until_us]
            found += [] if rate is None else _too_fast(team, rate, within)
            found += [] if waiting is None else _too_many(team, waiting, within, jobs)
    return found


def _too_fast(team: str, rate: int, within: list[int]) -> list[str]:
    """From each job on, no more than a minute's jobs at the same time, and then as many a minute."""
    return [
        f"team {team} submitted {number} jobs in {(last - first) / 1e6:.0f} s, and {rate} a minute were allowed"
        for at, first in enumerate(within)
        for number, last in enumerate(within[at:], 1)
        if number > rate * (1 + (last - first) / MINUTE_US) + ROUNDING
    ]


ROUNDING = 1e-3


def _too_many(team: str, most: int, within: list[int], jobs: list[tuple[int, int | None]]) -> list[str]:
    """Counts only jobs that were never placed before: one that is withdrawn waits again without being submitted."""
    counts = [(at_us, sum(one_us <= at_us < (left_us or at_us + 1) for one_us, left_us in jobs)) for at_us in within]
    return [
        f"team {team} submitted a job when {count - 1} of its jobs waited, and {most} were allowed"
        for _, count in counts
        if count > most
    ]


SUBMITTED = """
SELECT (extract(epoch FROM change.at) * 1000000)::bigint,
       (SELECT (extract(epoch FROM min(later.at)) * 1000000)::bigint FROM simulation.changes AS later
         WHERE later.what = 'job' AND later.id = change.id AND later.number > change.number AND later.after <> 'queued')
  FROM simulation.changes AS change
  JOIN federation_job AS job ON job.id::text = change.id
 WHERE change.what = 'job' AND change.before IS NULL AND job.tenant_id = %s::uuid ORDER BY change.number
"""
"""When each of its jobs was submitted, and when it stopped to wait for the first time."""
