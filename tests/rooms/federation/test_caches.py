"""What a process keeps of the queue and of the fleet follows every row that it is made from."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from billing.models import Price
from billing.operations import create_price
from billing.operations.prices import NewPrice
from clusters.models import Cluster, Flavor, Node
from federation.models import Job
from federation.queries import feasibility, queue
from federation.queries.feasibility import NeverFits, refuse_hopeless
from federation.queries.queue import load_queue, refuse_when_full
from federation.queries.snapshot import load_fleet
from foundation import caches, clock
from foundation.caches import reset_all
from foundation.problems import RateLimited
from placement.values.model import Constraints
from tenancy.models import Tenant
from tenancy.queries import SYSTEM
from tests.builders import (
    actor_for,
    bind,
    make_cluster,
    make_flavor,
    make_node,
    make_spec,
    make_tenant,
    make_user,
    submit,
)

pytestmark = pytest.mark.django_db
AT = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def east():
    cluster = make_cluster(name="east")
    make_flavor(cluster, capacity_type="spot")
    make_node(cluster, "n1")
    return cluster


@pytest.fixture
def job(east):
    user = make_user()
    bind(user, "acme")
    make_tenant("acme/research/team")
    make_tenant("acme/shop")
    return submit(actor_for(user), {"tenant": "acme/research/team", **make_spec(pod={"gpu": {"count": 1}})})


def asked():
    return load_queue(clock.now(), 10)


def fleet(at=None):
    return load_fleet(at or clock.now())


def kept_and_read(ask):
    """The answer of this process, and that of one that has just started."""
    kept = ask()
    reset_all()
    return kept, ask()


JOB: dict[str, Callable[[], dict[str, Any]]] = {
    "tenant": lambda: {"tenant": Tenant.objects.get(path="acme/shop")},
    "created_by": lambda: {"created_by": make_user()},
    "name": lambda: {"name": "other"},
    "shape": lambda: {"shape": "0" * 32},
    "labels": lambda: {"labels": {"a": "b"}},
    "priority": lambda: {"priority": 7},
    "priority_class": lambda: {"priority_class": None},
    "state": lambda: {"state": "running"},
    "reason_code": lambda: {"reason_code": "other"},
    "reason_message": lambda: {"reason_message": "Other."},
    "reason_at": lambda: {"reason_at": AT},
    "explanation": lambda: {"explanation": {"east": {"code": "full"}}},
    "attempts_made": lambda: {"attempts_made": 3},
    "retry_at": lambda: {"retry_at": clock.now() + timedelta(hours=1)},
    "suspend_requested_at": lambda: {"suspend_requested_at": AT, "state": "suspended"},
    "exit_code": lambda: {"exit_code": 1},
    "created_at": lambda: {"created_at": AT},
    "started_at": lambda: {"started_at": AT},
    "finished_at": lambda: {"finished_at": clock.now(), "state": "cancelled"},
    "spec": lambda: {"spec": {**Job.objects.get().spec, "deadline_seconds": 77}},
}
IN_REQUEST = {
    *("tenant", "shape", "priority", "state", "retry_at", "suspend_requested_at", "created_at", "finished_at"),
    *("spec", "created_by"),
}
OF_RUNNING_JOBS = {"stop_wish", "stop_wished_at", "stop_latest_at"}
"""A constraint keeps these from jobs that wait."""


def test_every_column_of_a_job_is_tried():
    assert {field.name for field in Job._meta.concrete_fields} == {*JOB, *OF_RUNNING_JOBS, "id"}


@pytest.mark.parametrize("column", JOB)
def test_the_queue_follows_each_column_of_a_job(job, column):
    before = asked()
    assert [request.id for request in before] == [job.id]
    Job.objects.update(**JOB[column]())
    kept, read = kept_and_read(asked)
    assert kept == read
    assert (kept != before) == (column in IN_REQUEST)


@pytest.mark.parametrize("path", ["acme/research/team", "acme/research", "acme"])
def test_waiting_jobs_follow_their_tenant_when_it_or_one_above_it_is_renamed(job, path):
    assert [request.tenant_path for request in asked()] == ["acme/research/team"]
    Tenant.objects.filter(path=path).update(name="new")
    [request] = asked()
    assert request.tenant_path == Tenant.objects.get(id=job.tenant_id).path != "acme/research/team"


def test_waiting_jobs_follow_a_tenant_that_moves(job):
    asked()
    Tenant.objects.filter(id=job.tenant_id).update(parent=Tenant.objects.get(path="acme/shop"))
    assert [request.tenant_path for request in asked()] == ["acme/shop/team"]


PRICE: dict[str, dict[str, Any]] = {
    "unit_price": {"unit_price": Decimal(3)},
    "cpu_price": {"cpu_price": Decimal("0.5")},
    "memory_price": {"memory_price": Decimal("0.5")},
    "currency": {"currency": "EUR"},
    "interruptions_per_hour": {"interruptions_per_hour": Decimal("0.25")},
}


@pytest.mark.parametrize("field", PRICE)
@pytest.mark.parametrize("begins", [-DAY, DAY], ids=["now", "announced"])
def test_the_fleet_follows_each_part_of_a_price(east, field, begins):
    """A price is never changed: another one begins."""
    at = clock.now()
    if field != "currency":  # of which an organisation has one
        create_price(SYSTEM, NewPrice("east", "h100", Decimal(2), effective_from=at - 9 * DAY))
    before = fleet()
    beside = {"id", "rate", "valid", "created_at", "own_costs"}  # the last is how the price was found
    assert {one.name for one in Price._meta.concrete_fields} == {*PRICE, *beside}
    given: dict[str, Any] = {"unit_price": Decimal(2), **PRICE[field]}
    create_price(SYSTEM, NewPrice("east", "h100", effective_from=at + begins, **given))
    kept, read = kept_and_read(fleet)
    assert kept == read
    assert kept[0].flavors != before[0].flavors
    assert fleet(at + 2 * DAY) == kept_and_read(lambda: fleet(at + 2 * DAY))[1]


def test_the_fleet_follows_the_setting_of_usual_interruptions(east, settings):
    settings.SPOT_INTERRUPTIONS_PER_HOUR = 0.125
    fleet()
    settings.SPOT_INTERRUPTIONS_PER_HOUR = 0.5
    assert [one.interruptions_per_hour for one in fleet()[0].flavors.values()] == [0.5]


def test_the_fleet_follows_the_freshness_of_a_cluster(east):
    Cluster.objects.update(last_seen_at=clock.now(), observed_at=clock.now())
    assert fleet()[0].state == "ready"
    Cluster.objects.update(observed_at=clock.now() - DAY)
    assert fleet()[0].state == "stale"


def test_the_fleet_forgets_clusters_that_are_gone(east):
    assert len(fleet()) == len(feasibility.wholes()) == 1
    Cluster.objects.update(removed_at=AT)
    assert (fleet(), feasibility.wholes()) == ((), [])


def test_an_empty_cluster_follows_its_inventory(east):
    [before] = feasibility.wholes()
    assert feasibility.wholes()[0] is before
    Node.objects.update(cpu_millicores=1)
    Cluster.objects.update(inventory_version=99)
    kept, read = kept_and_read(feasibility.wholes)
    assert kept == read != [before]


def request_of(job, **constraints):
    [request] = asked()
    return replace(request, constraints=Constraints(**constraints))


def test_a_possible_job_is_checked_again_when_anything_of_it_differs_whatever_its_shape_says(job, monkeypatch):
    monkeypatch.setattr(caches, "monotonic", float)  # time stands still: what is remembered does not expire
    refuse_hopeless(request_of(job), job.tenant_id)
    with pytest.raises(NeverFits):
        refuse_hopeless(request_of(job, regions=("nowhere",)), job.tenant_id)
    Node.objects.all().delete()
    Flavor.objects.all().delete()
    Cluster.objects.update(inventory_version=99)
    refuse_hopeless(request_of(job), job.tenant_id)


def test_the_number_of_waiting_jobs_follows_the_bound(job, settings):
    settings.MOST_QUEUED = 1
    with pytest.raises(RateLimited):
        refuse_when_full(job.tenant)
    settings.MOST_QUEUED = 5
    refuse_when_full(job.tenant)


def test_a_request_is_read_once(job, monkeypatch):
    reads = []
    real = queue._request
    monkeypatch.setattr(queue, "_request", lambda *given: reads.append(given) or real(*given))
    assert asked()[0] is asked()[0]
    assert len(reads) == 1
