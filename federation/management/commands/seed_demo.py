"""`manage.py seed_demo`: the demo's organisation, fleet, prices, quotas and months of work. Run again, it changes
nothing.
"""

import json
import os
import random
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings

from billing.models import BillingCurrency, Budget, Commitment, Price, Rate
from billing.operations.budgets import put_budget
from billing.operations.commitments import apply_commitments
from billing.operations.exchange import import_reference_rates, set_billing_currency
from billing.operations.prices import NewPrice, create_price
from clusters.drivers.simulated import Node, add_foreign_pod, begin_trouble, path_of
from clusters.engine.inventory import NOTHING, ForeignUse
from clusters.models import AvoidedNode, Cluster, Dataset, Flavor
from clusters.operations import avoid_node, cordon_cluster, record_inventory, register_simulated
from clusters.operations.datasets import Location, create_dataset
from federation.management.demo import (
    ADMIN,
    BILLED_IN,
    BORROWING,
    BUDGETS,
    CLAIMED,
    COMMITMENTS,
    DATASETS,
    DOLLARS_A_EURO,
    FAILING_NODE,
    FAILS_SINCE,
    FLEET,
    LIMITS,
    LIVE,
    MIG_SHARE,
    ORGANISATION,
    PASSWORD,
    PEOPLE,
    PREPULLS,
    PRICED_IN_EUROS,
    PRICES,
    RESERVED,
    RESERVED_FOR,
    SICK,
    STALE,
    STRANDED,
    TENANTS,
    WAITING,
    WORK,
    ClusterPlan,
    nodes_of,
)
from federation.management.past_telemetry import recommend, record_past_telemetry
from federation.management.past_work import count_rows, record_past_work
from federation.models import Diagnosis, Job, PodRun, PrepullPolicy, Reservation
from federation.operations.prepull_policies import WantedPolicy, make_prepull_policy
from federation.operations.reservations import make_reservation
from federation.operations.submission import submit_job
from federation.operations.weighing import AVOIDED_FOR
from foundation.clock import now
from foundation.commands import GatewayCommand
from quotas.engine.holds import CEILING
from quotas.models import QuotaLimit
from quotas.operations import put_limit
from tenancy.engine.roles import Role
from tenancy.models import Tenant, User
from tenancy.operations import bootstrap, create_tenant, ensure_user, give_role
from tenancy.queries import SYSTEM, actor_for

HISTORY_DAYS = 90
PRICED_SINCE = timedelta(days=120)
SOON = timedelta(seconds=90)
"""Until this time the failing cluster is healthy, so that something runs there when it stops answering."""
STALE_SINCE = timedelta(minutes=40)
STRANGER_CPU, STRANGER_GIB = 4, 16
NODE_UID = "00000000-0000-4000-8000-{:012x}"


class Command(GatewayCommand):
    help = (
        "Seeds the demo: organisation, simulated fleet, prices, quotas, three months of past jobs and some live ones."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--address", default=f"http://127.0.0.1:{os.environ.get('SWITCHYARD_PORT', '8000')}")
        parser.add_argument("--days", type=int, default=HISTORY_DAYS, help="of past jobs (default %(default)s)")
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")

    def handle(self, *_: Any, address: str, days: int, json: bool, **__: Any) -> None:
        organisation = bootstrap(ORGANISATION, ADMIN, password=PASSWORD).organisation
        tenants = _tenants(organisation)
        people = _people(tenants)
        clusters = [_cluster(organisation, plan) for plan in FLEET]
        for cluster in clusters:
            _prices(cluster)
        _currency(organisation)
        _euros()
        _limits()
        past = record_past_work(tenants, people, days)
        _failing_node()
        count_rows()
        _budgets()
        _commitments(organisation)
        _prepulls()
        _datasets()
        _reservation()
        record_past_telemetry()
        recommend()
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
    """The simulated cluster with its nodes, so that prices can name their flavors."""
    known = Cluster.objects.filter(owner=organisation, name=plan.name).first()
    if known is not None:
        return known
    nodes = [
        Node(name=name, uid=NODE_UID.format(random.getrandbits(48)), labels=labels, allocatable=allocatable)
        for name, labels, allocatable in nodes_of(plan)
    ]
    cluster = register_simulated(organisation, plan.name, region=plan.region, provider=plan.provider, nodes=nodes)
    # The strangers first: what is placed before an observer has come would be placed on their devices.
    used = _strangers(plan, nodes, cluster.server)
    record_inventory(
        cluster.id, [node.seen() for node in nodes], used, {name: use.devices for name, use in used.items()}
    )
    if plan.is_cordoned:
        cordon_cluster(SYSTEM, cluster.id)
    _trouble(cluster, plan)
    return cluster


def _failing_node() -> None:
    """Jobs avoid the node whose GPU failed runs."""
    cluster = Cluster.objects.get(name=CLAIMED)
    failed = Diagnosis.objects.filter(attempt__cluster=cluster, node=FAILING_NODE)
    if failed.exists() and not AvoidedNode.objects.filter(cluster=cluster).exists():
        runs = PodRun.objects.filter(cluster_id=cluster.id, node=FAILING_NODE, devices__len__gt=0)
        counts = {"failures": failed.count(), "runs": runs.filter(first_seen_at__gt=now() - FAILS_SINCE).count()}
        reason = "{failures} of its last {runs} runs failed.".format(**counts)
        avoid_node(cluster.id, FAILING_NODE, reason, counts, AVOIDED_FOR, most=1)


def _trouble(cluster: Cluster, plan: ClusterPlan) -> None:
    path = path_of(settings.HOME, cluster.server)
    if plan.trouble == "unreachable":
        begin_trouble(path, "unreachable", now() + SOON)
    elif plan.trouble == "unwatched":
        begin_trouble(path, "unwatched", now())
        Cluster.objects.filter(id=cluster.id).update(observed_at=now() - STALE_SINCE)


def _strangers(plan: ClusterPlan, nodes: Sequence[Node], server: str) -> Mapping[str, ForeignUse]:
    """Adds the foreign pods; what they use of each node."""
    used: dict[str, ForeignUse] = {}
    for number in range(plan.strangers):
        node = nodes[(number * 3) % len(nodes)]
        devices = [resource for resource, units in node.allocatable.items() if "/" in resource and units != "0"][:1]
        requests = {"cpu": f"{STRANGER_CPU}", "memory": f"{STRANGER_GIB}Gi", **dict.fromkeys(devices, "1")}
        add_foreign_pod(path_of(settings.HOME, server), node.name, requests)
        pods = used.get(node.name, NOTHING).pods + 1
        cpu, memory = pods * STRANGER_CPU * 1000, pods * STRANGER_GIB * 1024
        used[node.name] = ForeignUse(cpu, memory, pods, dict.fromkeys(devices, pods))
    return used


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
            borrowing = BORROWING.get(path, CEILING) if resource == "gpu" else CEILING
            put_limit(SYSTEM, tenant, resource, nominal=nominal, clusters=clusters, borrowing=borrowing)


def _budgets() -> None:
    for wanted in BUDGETS:
        if not Budget.objects.filter(tenant__path=wanted.tenant_path).exists():
            put_budget(SYSTEM, wanted)


def _currency(organisation: Tenant) -> None:
    """Prices are in dollars; this month's charges are converted at the rates of their days."""
    if BillingCurrency.objects.filter(organisation=organisation).exists():
        return
    days = [now().date() - timedelta(days=ago) for ago in range(HISTORY_DAYS, -1, -1)]
    weekdays = [day for day in days if day.isoweekday() <= 5]  # noqa: PLR2004 - Friday
    lines = [f"{day},{DOLLARS_A_EURO[day.weekday()]}" for day in weekdays]
    import_reference_rates(SYSTEM, ORGANISATION, "\n".join(["Date,USD", *lines]), "made up for the demo")
    set_billing_currency(SYSTEM, ORGANISATION, now().date().replace(day=1), BILLED_IN)


def _euros() -> None:
    """Prices of one cluster are in euros from this month on: reports of the month have two currencies."""
    if Job.objects.filter(labels__has_key="demo").exists():
        return
    begins = now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    for flavor in Flavor.objects.filter(cluster__name=PRICED_IN_EUROS).order_by("name"):
        rate = Rate.objects.filter(cluster=flavor.cluster_id, flavor=flavor.name).first()
        dollars = (
            None if rate is None else Price.objects.filter(rate=rate, currency="USD", valid__contains=begins).first()
        )
        if dollars is not None:
            euros = (dollars.unit_price / DOLLARS_A_EURO[0]).quantize(Decimal("0.01"))
            create_price(SYSTEM, NewPrice(PRICED_IN_EUROS, flavor.name, euros, BILLED_IN, effective_from=begins))


def _commitments(organisation: Tenant) -> None:
    if not Commitment.objects.filter(organisation=organisation).exists():
        start = now().date().replace(day=1)
        until = start.replace(year=start.year + 1)
        apply_commitments(SYSTEM, ORGANISATION, COMMITMENTS.format(start=start, until=until))


def _prepulls() -> None:
    for cluster, name, images in PREPULLS:
        known = PrepullPolicy.objects.filter(cluster__name=cluster, name=name)
        if not known.exists():
            make_prepull_policy(SYSTEM, Cluster.objects.get(name=cluster).id, WantedPolicy(name, images))


def _datasets() -> None:
    for path, name, size, regions in DATASETS:
        tenant = f"{ORGANISATION}/{path}"
        if not Dataset.objects.filter(tenant__path=tenant, name=name).exists():
            places = [Location(region=region) for region in regions]
            create_dataset(SYSTEM, tenant, name, size_bytes=size, locations=places)


def _reservation() -> None:
    """Nodes for an evaluation that begins tomorrow."""
    if not Reservation.objects.exists():
        begins = (now() + timedelta(days=1)).replace(hour=9, minute=0, second=0, microsecond=0)
        times = {"starts_at": begins.isoformat(), "ends_at": (begins + RESERVED_FOR).isoformat()}
        admin = actor_for(User.objects.get(email=ADMIN))
        make_reservation(admin, {**RESERVED, **times}, show=lambda row: {"id": str(row.id)})


def _live_jobs(people: Mapping[str, User]) -> int:
    """Submits jobs that run now, each once, whatever the number of runs of this command."""
    wanted = [(WORK[index], minutes) for index, minutes in LIVE] + [(work, 120) for work in (STRANDED, *WAITING)]
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
    return (
        f"open     {address}\nsign in  {ADMIN}\npassword {PASSWORD}\n"
        f"All data is made up: {len(FLEET)} simulated clusters (files in {settings.HOME / 'simulated'}), a history of past"
        f" jobs, and live jobs that run in the simulation. No real cluster is used."
        f"\n{SICK} stops answering after {SOON.seconds} s, and {STALE} has reported nothing for"
        f" {STALE_SINCE.seconds // 60} min, so that you can see how such clusters are handled."
        f"\nadded now: {past} past jobs, {live} live jobs"
    )
