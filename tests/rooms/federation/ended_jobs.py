"""What the tests of unit costs share: jobs that ended, what their pods used, and the same sums by walking over all segments."""

from collections import defaultdict
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from billing.models import UsageSegment
from billing.operations import record_runs
from federation.models import Job
from tenancy.models import User
from tests.builders import make_run, make_spec, make_tenant, make_user
from tests.rooms.billing.ledgers import at

MONTH = (at(1), at(1, month=11))
STATES = ("succeeded", "failed", "cancelled")
ZERO = Fraction(0)


def person(name):
    """The user of this name."""
    found = User.objects.filter(email=f"{name}@acme.example").first()
    return found or make_user(f"{name}@acme.example")


def ended_job(state="succeeded", ended=None, *runs, path="acme/one", user="ada", name="train", **labels):
    """A job that ended in this state. Each of its runs is (cluster, start, hours), or has the values of `make_run` too."""
    job = Job.objects.create(
        tenant=make_tenant(path), created_by=person(user), name=name, spec=make_spec(), shape="s", labels=labels, state=state,
        finished_at=(ended or at(5)) if state in STATES else None,
    )  # fmt: skip
    for cluster, start, hours, *more in runs:
        used(job, cluster, start, hours, path=path, **(more[0] if more else {}))
    return job


def used(job, cluster, start, hours, *, path="acme/one", **more):
    """The meter's row of a pod of the job."""
    run = make_run(
        cluster, path, started_at=start, until_at=start + timedelta(hours=hours), workload_id=job.id,
        user_id=job.created_by_id, user_name=job.created_by.email, workload_name=job.name, **more,
    )  # fmt: skip
    record_runs([run])
    return run


def walked(key_of, span=MONTH, keeps=lambda job: True):
    """{(key, currency): [jobs, succeeded, failed, cancelled, cost, unsuccessful cost, GPU-ms, unpriced GPU-ms]}, from each segment.

    Of a job without any price, the currency is empty.
    """
    found = defaultdict[Any, list[Any]](lambda: [0, 0, 0, 0, ZERO, ZERO, ZERO, ZERO])
    for job in Job.objects.select_related("tenant", "created_by"):
        if job.finished_at is None or not span[0] <= job.finished_at < span[1] or not keeps(job):
            continue
        spent = defaultdict(lambda: [ZERO, ZERO, ZERO])
        for segment in UsageSegment.objects.filter(meter__workload_id=job.id).select_related("meter"):
            gpu = segment.gpu_milliseconds * segment.meter.gpu_share
            sums = spent[segment.currency]
            sums[0] += Fraction(segment.cost)
            sums[1] += gpu
            sums[2] += ZERO if segment.currency else gpu
        unpriced = spent.pop("", [ZERO] * 3)
        first = min(spent, default="")
        spent[first] = [one + two for one, two in zip(spent[first], unpriced, strict=True)]
        for currency, (cost, gpu, without_price) in spent.items():
            row = found[key_of(job), currency]
            row[0] += 1
            row[1 + STATES.index(job.state)] += 1
            row[4] += cost
            row[5] += ZERO if job.state == "succeeded" else cost
            row[6] += gpu
            row[7] += without_price
    return dict(found)


def six(value):
    """The fraction rounded to six decimals, as a report shows it."""
    return Decimal(round(value * 10**6)).scaleb(-6)
