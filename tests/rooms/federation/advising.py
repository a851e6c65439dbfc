"""What the tests of standing recommendations share: priced flavors with nodes, and jobs that ran on them."""

from datetime import UTC, timedelta
from decimal import Decimal

from billing.models import Meter, Recommendation, UtilisationHour
from billing.operations import create_price, record_runs
from billing.operations.prices import NewPrice
from clusters.models import Cluster
from federation.models import Job
from federation.operations import find_recommendations
from foundation.clock import now
from foundation.ids import new_id
from tenancy.queries import SYSTEM
from tests.builders import (
    bind,
    make_cluster,
    make_flavor,
    make_node,
    make_run,
    make_tenant,
    make_user,
    stored_spec,
)
from tests.rooms.billing.ledgers import SEPTEMBER

HOUR = timedelta(hours=1)
TODAY = now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
A_WEEK_AGO = TODAY - timedelta(days=7) + 9 * HOUR


def priced(name, flavor, price, *, owner="acme", units=8, currency="USD", **fields):
    """A flavor of a cluster with a node, at a price."""
    cluster = Cluster.objects.filter(name=name).first() or make_cluster(owner, name=name)
    made = make_flavor(cluster, flavor, **fields)
    make_node(cluster, devices=[{"flavor": flavor, "units": units}])
    create_price(SYSTEM, NewPrice(name, flavor, Decimal(price), currency=currency, effective_from=SEPTEMBER))
    return cluster, made


def ran(cluster, name="train-1", *, at=A_WEEK_AGO, hours=1, path="acme/one", state="succeeded", flavor="h100", model="H100-80GB",
        peak=None, active=None, used="0.9", labels=None, pod=None, **spec):  # fmt: skip
    """A job of one pod that ended; with `peak` and `active`, a Prometheus saw all of it."""
    gpu = {"count": 1, "models": [model]}
    stored = stored_spec(pod={"gpu": gpu, **(pod or {})}, **spec)
    job = Job.objects.create(
        id=new_id(), tenant=make_tenant(path), created_by=make_user(), name=name, spec=stored, shape="s", state=state,
        labels=labels or {}, created_at=at - HOUR, started_at=at, finished_at=at + hours * HOUR,
    )  # fmt: skip
    run = make_run(
        cluster, path, started_at=at, until_at=at + hours * HOUR, gpu_model=model, sharing="whole", flavor=flavor, workload_id=job.id,
        workload_name=name,
    )  # fmt: skip
    record_runs([run])
    if peak is not None:
        meter = Meter.objects.get(source_uid=run.source_uid)
        for number in range(hours):
            UtilisationHour.objects.create(
                meter=meter, hour=at + number * HOUR, coverage_seconds=3600, utilisation=Decimal(used), sm_active=active,
                peak_memory_mib=peak,
            )  # fmt: skip
    return job


def found():
    find_recommendations()
    return {(row.kind, row.subject): row for row in Recommendation.objects.order_by("kind", "subject")}


def only(kind):
    [row] = [row for (one, _), row in found().items() if one == kind]
    return row


def only_of(name):
    return next(row for (kind, subject), row in found().items() if kind == "cheaper" and subject.startswith(name))


def reader(path="acme", role="finance"):
    user = make_user()
    bind(user, path, role)
    return user
