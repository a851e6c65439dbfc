"""`manage.py seed_demo`: the demo's organisation, fleet, prices, quotas and a day of work. Run again, it changes nothing."""

import json
import os
import random
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import transaction

from billing.models import Rate
from billing.operations.prices import NewPrice, create_price
from billing.queries import price_book
from clusters.drivers.simulated import Node, add_foreign_pod, path_of
from clusters.models import Cluster, Flavor
from clusters.operations import cordon_cluster, record_inventory, register_simulated
from federation.engine.spec import Rules
from federation.engine.spec_reading import read_spec
from federation.management.demo import (
    ADMIN,
    FLEET,
    LIMITS,
    LIVE,
    MIG_SHARE,
    ORGANISATION,
    PASSWORD,
    PEOPLE,
    PRICES,
    TENANTS,
    WAITING,
    WORK,
    ClusterPlan,
    NodeGroup,
    Work,
    nodes_of,
)
from federation.models import Job
from federation.operations.past_traffic import PastJob, record_past_job
from federation.operations.submission import submit_job
from foundation.clock import now
from quotas.models import QuotaLimit
from quotas.operations import put_limit
from tenancy.engine.roles import Role
from tenancy.models import Tenant, User
from tenancy.operations import bootstrap, create_tenant, ensure_user, give_role
from tenancy.queries import SYSTEM, actor_for

PAST_JOBS = 170
DAY_SECONDS = 23.5 * 3600
PRICED_SINCE = timedelta(days=45)
NODE_UID = "00000000-0000-4000-8000-{:012x}"


class Command(BaseCommand):
    help = "Seeds the demo: organisation, simulated fleet, prices, quotas, a day of past jobs and some live ones."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--address", default=f"http://127.0.0.1:{os.environ.get('SWITCHYARD_PORT', '8000')}")
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")

    def handle(self, *_: Any, address: str, json: bool, **__: Any) -> None:
        organisation = bootstrap(ORGANISATION, ADMIN, password=PASSWORD).organisation
        tenants = _tenants(organisation)
        people = _people(tenants)
        clusters = [_cluster(organisation, plan) for plan in FLEET]
        for cluster in clusters:
            _prices(cluster)
        _limits()
        past = _past_day(tenants, people)
        live = _live_jobs(people)
        self.stdout.write(_report(address, past, live, as_json=json))


def _tenants(organisation: Tenant) -> Mapping[str, Tenant]:
    found = {"": organisation}
    for path, kind in TENANTS:
        above, _, name = path.rpartition("/")
        tenant = Tenant.objects.filter(path=f"{ORGANISATION}/{path}").first()
        found[path] = tenant or create_tenant(SYSTEM, name=name, kind=kind, parent_id=found[above].id)
    return found


def _people(tenants: Mapping[str, Tenant]) -> Mapping[str, User]:
    found = {}
    for name, shown, path, role in PEOPLE:
        user = ensure_user(f"{name}@{ORGANISATION}.example", display_name=shown, password=PASSWORD)
        give_role(user, tenants[path], Role(role))
        found[name] = user
    return found


def _cluster(organisation: Tenant, plan: ClusterPlan) -> Cluster:
    """The simulated cluster, its nodes already known, so that prices can name their flavors."""
    known = Cluster.objects.filter(owner=organisation, name=plan.name).first()
    if known is not None:
        return known
    nodes = [
        Node(name=name, uid=NODE_UID.format(random.getrandbits(48)), labels=labels, allocatable=allocatable)
        for name, labels, allocatable in nodes_of(plan)
    ]
    cluster = register_simulated(organisation, plan.name, region=plan.region, provider=plan.provider, nodes=nodes)
    record_inventory(cluster.id, [node.seen() for node in nodes], {})
    _strangers(plan, nodes, cluster.server)
    if plan.is_cordoned:
        cordon_cluster(SYSTEM, cluster.id)
    return cluster


def _strangers(plan: ClusterPlan, nodes: Sequence[Node], server: str) -> None:
    for number in range(plan.strangers):
        node = nodes[(number * 3) % len(nodes)]
        devices = [resource for resource, units in node.allocatable.items() if "/" in resource and units != "0"]
        requests = {"cpu": "4", "memory": "16Gi", **dict.fromkeys(devices[:1], "1")}
        add_foreign_pod(path_of(settings.HOME, server), node.name, requests)


def _prices(cluster: Cluster) -> None:
    for flavor in Flavor.objects.filter(cluster=cluster).order_by("name"):
        price = PRICES.get((flavor.gpu_model, flavor.capacity_type))
        if price is None or Rate.objects.filter(cluster=cluster, flavor=flavor.name).exists():
            continue
        if flavor.sharing.startswith("mig:"):
            price = MIG_SHARE
        wanted = NewPrice(cluster.name, flavor.name, price, effective_from=now() - PRICED_SINCE)
        create_price(SYSTEM, wanted)


def _limits() -> None:
    for path, resource, nominal, clusters in LIMITS:
        tenant = f"{ORGANISATION}/{path}".rstrip("/")
        if not QuotaLimit.objects.filter(tenant__path=tenant, resource=resource).exists():
            put_limit(SYSTEM, tenant, resource, nominal=nominal, clusters=clusters)


def _past_day(tenants: Mapping[str, Tenant], people: Mapping[str, User]) -> int:
    """Jobs of the last day, the same ones each time it is seeded; written only if there are none yet."""
    if Job.objects.filter(labels__has_key="demo").exists():
        return 0
    chance = random.Random(20)  # noqa: S311 - a made-up day, the same for everyone
    prices = price_book(now())
    with transaction.atomic():
        for number in range(PAST_JOBS):
            work = chance.choices(WORK, [work.weight for work in WORK])[0]
            record_past_job(_past_job(work, number, chance, tenants, people, prices))
    return PAST_JOBS


def _past_job(
    work: Work,
    number: int,
    chance: random.Random,
    tenants: Mapping[str, Tenant],
    people: Mapping[str, User],
    prices: Mapping[Any, Any],
) -> PastJob:
    name = chance.choice(work.clusters)
    plan = next(plan for plan in FLEET if plan.name == name)
    cluster = Cluster.objects.get(name=plan.name, owner=tenants[""])
    flavor, group = _flavor_for(work, cluster, plan)
    ended_at = now() - timedelta(seconds=60 + chance.random() * DAY_SECONDS)
    ran = timedelta(minutes=chance.uniform(*work.minutes))
    roll = chance.random()
    spec = read_spec(work.spec(number + 100, {"demo": "day"}), Rules())
    price = prices.get((cluster.id, flavor.name))
    first = chance.randrange(group.count)
    return PastJob(
        tenant=tenants[work.tenant],
        user=people[work.who],
        spec=spec,
        cluster=cluster,
        flavor=flavor,
        nodes=[f"{group.name}-{(first + pod) % group.count + 1:02d}" for pod in range(work.pods)],
        unit_price=price.unit_price if price else None,
        gpu_units=1 if work.mig else work.gpus,
        submitted_at=ended_at - ran - timedelta(seconds=chance.expovariate(1 / 90) + 3),
        started_at=ended_at - ran,
        ended_at=ended_at,
        exit_code=1 if roll < 0.08 else 137 if roll < 0.1 else 0,  # noqa: PLR2004 - how often work fails here
        is_cancelled=roll > 0.97,  # noqa: PLR2004 - or is cancelled
    )


def _flavor_for(work: Work, cluster: Cluster, plan: ClusterPlan) -> tuple[Flavor, NodeGroup]:
    """The flavor that fits this kind of work on the cluster, and the nodes that offer it."""
    flavors = Flavor.objects.filter(cluster=cluster)
    if work.mig:
        flavors = flavors.filter(sharing=f"mig:{work.mig}")
    elif work.gpus:
        flavors = flavors.filter(gpu_model__in=work.models, sharing="whole", capacity_type="on_demand")
    else:
        flavors = flavors.filter(vendor="")
    flavor = flavors.order_by("name")[0]
    words = {"CPU only": "cpu"}.get(flavor.gpu_model, flavor.gpu_model.split("-")[0].lower())
    wanted = "mig" if work.mig else words or "cpu"
    return flavor, next(group for group in plan.groups if group.name == wanted)


def _live_jobs(people: Mapping[str, User]) -> int:
    """Jobs that run now, each submitted once however often the demo is seeded."""
    wanted = [(WORK[index], minutes) for index, minutes in LIVE] + [(work, 120) for work in WAITING]
    submitted = 0
    for number, (work, minutes) in enumerate(wanted, start=1):
        simulated = {"sim.switchyard.dev/run-seconds": str(minutes * 60)} if settings.ALLOW_SIMULATION else {}
        body = {"tenant": f"{ORGANISATION}/{work.tenant}", **work.spec(number, simulated)}
        raw = json.dumps(body, sort_keys=True).encode()
        answer = submit_job(
            actor_for(people[work.who]), body, show=lambda job: {"id": str(job.id)}, key=f"demo-{number}", raw=raw
        )
        submitted += not answer.replayed
    return submitted


def _report(address: str, past: int, live: int, *, as_json: bool) -> str:
    shown = {"address": address, "email": ADMIN, "password": PASSWORD, "past_jobs": past, "live_jobs": live}
    if as_json:
        return json.dumps(shown)
    return f"demo data: {past} past jobs, {live} live jobs\nopen     {address}\nsign in  {ADMIN}\npassword {PASSWORD}"
