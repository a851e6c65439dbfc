"""The demo's past jobs: the same ones on each run, on nodes that were free."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from django.db import connection

from billing.queries import price_book
from clusters.models import Cluster, Flavor
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.management.demo import (
    CLAIMED,
    FAILED_TEXT,
    FAILING_DEVICE,
    FAILING_NODE,
    FAILS_SINCE,
    FLEET,
    WORK,
    NodeGroup,
    Work,
)
from federation.management.past_places import PastPlaces, Stay
from federation.models import Job
from federation.operations.past_traffic import PastFailure, PastJob, record_past_jobs
from foundation.clock import now
from tenancy.models import Tenant, User

JOBS_A_DAY, JOBS_A_WEEKEND_DAY = 40, 14
LAST_END = timedelta(seconds=60)
"""The age of the newest past job's end; later ends come from the simulation."""
NVIDIA = "gpu.nvidia.com"
WRITTEN_AT_ONCE = 100
"""Few enough that no statement reaches its time limit on a slow host."""
COUNTED_AFTER = frozenset({0, 7})
"""Batches after which PostgreSQL plans again: until then it reads whole tables, as is right while they are nearly empty."""


def record_past_work(tenants: Mapping[str, Tenant], people: Mapping[str, User], days: int) -> int:
    """Writes jobs of the last days, the same ones on each run, only if there are none yet."""
    if Job.objects.filter(labels__has_key="demo").exists():
        return 0
    chance = random.Random(20)  # noqa: S311 - a made-up history, the same for everyone
    offers = {work.name: _offers(work, tenants[""]) for work in WORK}
    places = PastPlaces()
    past = []
    for number, ended_at in enumerate(_ends(chance, days), start=100):
        work = chance.choices(WORK, [work.weight for work in WORK])[0]
        ran = timedelta(minutes=chance.uniform(*work.minutes))
        whose = (tenants[work.tenant], people[work.who])
        # Where its nodes are free: of a job that fits nowhere, the demo knows nothing.
        for offer in chance.sample(offers[work.name], len(offers[work.name])):
            nodes = places.take(_stay(work, offer, ended_at - ran, ended_at), chance)
            if nodes:
                past.append(_past_job(work, offer, whose, (number, ended_at - ran, ended_at), nodes, chance))
                break
    for first in range(0, len(past), WRITTEN_AT_ONCE):
        record_past_jobs(past[first : first + WRITTEN_AT_ONCE])
        if first // WRITTEN_AT_ONCE in COUNTED_AFTER:
            count_rows()
    return len(past)


def _ends(chance: random.Random, days: int) -> Iterator[datetime]:
    """When the past jobs ended, oldest first: fewer at weekends, most in the afternoon (UTC)."""
    latest = now() - LAST_END
    for ago in range(days, -1, -1):
        midnight = (latest - timedelta(days=ago)).replace(hour=0, minute=0, second=0, microsecond=0)
        jobs = JOBS_A_WEEKEND_DAY if midnight.isoweekday() > 5 else JOBS_A_DAY  # noqa: PLR2004 - Friday
        ends = sorted(midnight + timedelta(hours=chance.triangular(0, 24, 15)) for _ in range(jobs))
        yield from (end for end in ends if end <= latest)


@dataclass(frozen=True, slots=True)
class Offer:
    """Where a kind of work may have run: a flavor of a cluster, the nodes that offer it, and the hourly price of a
    unit.
    """

    cluster: Cluster
    flavor: Flavor
    group: NodeGroup
    unit_price: Decimal | None


def _stay(work: Work, offer: Offer, start: datetime, until: datetime) -> Stay:
    group = offer.group
    if work.mig:
        units, capacity = 1, max(group.resources.values())
    elif work.gpus:
        units, capacity = work.gpus, max(group.resources.values())
    else:
        units, capacity = int(work.cpu), group.cpu
    names = [f"{group.name}-{number + 1:02d}" for number in range(group.count)]
    return Stay(offer.cluster.name, names, work.pods, units, capacity, start, until)


def _past_job(
    work: Work,
    offer: Offer,
    whose: tuple[Tenant, User],
    numbered: tuple[int, datetime, datetime],
    nodes: Mapping[str, Sequence[int]],
    chance: random.Random,
) -> PastJob:
    (tenant, user), (number, started_at, ended_at) = whose, numbered
    roll = chance.random()
    is_claimed = offer.cluster.name == CLAIMED and work.gpus > 0
    fails = is_claimed and ended_at > now() - FAILS_SINCE and FAILING_DEVICE in nodes.get(FAILING_NODE, ())
    return PastJob(
        tenant=tenant,
        user=user,
        spec=read_spec(work.spec(number, {"demo": "history"}), Rules()),
        cluster=offer.cluster,
        flavor=offer.flavor,
        nodes=list(nodes),
        devices=[[f"{NVIDIA}/{node}/gpu-{one}" for one in units] for node, units in nodes.items()]
        if is_claimed
        else (),
        unit_price=offer.unit_price,
        gpu_units=1 if work.mig else work.gpus,
        submitted_at=started_at - timedelta(seconds=chance.expovariate(1 / 90) + 3),
        started_at=started_at,
        ended_at=ended_at,
        exit_code=1 if fails or roll < 0.08 else 137 if roll < 0.1 else 0,  # noqa: PLR2004 - how often work fails here
        is_cancelled=roll > 0.97 and not fails,  # noqa: PLR2004 - or is cancelled
        failed_device=PastFailure(FAILING_NODE, FAILED_TEXT) if fails else None,
    )


def _offers(work: Work, organisation: Tenant) -> list[Offer]:
    """Every offer that this kind of work fits on, by cluster: on-demand flavors, enough nodes."""
    flavors = Flavor.objects.filter(cluster__owner=organisation, capacity_type="on_demand").select_related("cluster")
    if work.mig:
        flavors = flavors.filter(sharing=f"mig:{work.mig}")
    elif work.gpus:
        flavors = flavors.filter(gpu_model__in=work.models, sharing="whole")
    else:
        flavors = flavors.filter(vendor="")
    plans, prices = {plan.name: plan for plan in FLEET}, price_book(now())
    offers = []
    for flavor in flavors.order_by("cluster__name", "name"):
        wanted = "mig" if work.mig else flavor.gpu_model.split("-")[0].lower() or "cpu"
        groups = (group for group in plans[flavor.cluster.name].groups if group.name == wanted)
        price = prices.get((flavor.cluster_id, flavor.name))
        unit_price = price.unit_price if price else None
        offers += [Offer(flavor.cluster, flavor, group, unit_price) for group in groups if group.count >= work.pods]
    return offers


def count_rows() -> None:
    """PostgreSQL plans sums of what was just written by its statistics, which autovacuum would collect later."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
