"""Datasets that are copied from one storage of a simulated cluster to another, and jobs that wait for them."""

from datetime import timedelta

import pytest

from clusters.drivers.simulated import SimulatedDriver
from clusters.operations.datasets import Location, create_dataset
from clusters.operations.staging import Spot, WantedPlan, make_staging_plan
from clusters.operations.storages import WantedStorage, create_storage
from federation import operations
from federation.engine.names import LABEL_PREPARATION
from federation.engine.objects import stage_jobs
from federation.models import Job, StageIn
from federation.operations import stage_calls
from foundation.clock import now
from quotas.models import Hold
from tenancy.queries import SYSTEM
from tests.builders import make_tenant, submit
from tests.live import call, gpu_job

TENANT = "acme/research"
IMAGE = "registry.example/busybox:1"
SIZE = 100 * 2**30
SUM = "ab" * 32


def make_storages(cluster):
    make_tenant(TENANT)
    for name, mode in (("archive", "read_only"), ("fast", "read_write")):
        create_storage(SYSTEM, cluster.id, WantedStorage(name=name, claim=name, tenant=TENANT, mode=mode))


def make_plan(cluster, name="imagenet", actor=SYSTEM, **fields):
    """A dataset in another region, with its plan for the cluster."""
    dataset = create_dataset(SYSTEM, TENANT, name, size_bytes=SIZE, locations=[Location("eu-1")])
    given = {"cluster": cluster.name, "source": Spot("archive", f"in/{name}"), "target": Spot("fast", f"out/{name}")}
    return make_staging_plan(actor, dataset.id, WantedPlan(**(given | fields)))


def staged_job(submitter, *names, **fields):
    body = gpu_job(**{key: fields.pop(key) for key in ("name", "count") if key in fields})
    return submit(
        submitter, body | {"data": [{"name": name, "stage": True} for name in names or ("imagenet",)]} | fields
    )


def copies(cluster):
    return [job for job in call(cluster, "list_jobs") if LABEL_PREPARATION in job.labels]


def rounds(times=1):
    for _ in range(times):
        operations.stage_data()


def until_idle(most=8):
    """Rounds until no copy is under way."""
    for _ in range(most):
        if not StageIn.objects.exclude(slot=None).exists():
            return
        rounds()


def again(job):
    return Job.objects.get(id=job.id)


def later(**columns):
    """As if the pauses of failures were over."""
    StageIn.objects.exclude(ended_at=None).update(ended_at=now() - timedelta(hours=2), **columns)


def cycle():
    operations.run_scheduling_cycle()


def held():
    return set(Hold.objects.filter(state="pending").values_list("holder_id", flat=True))


@pytest.fixture
def storages(cluster, settings):
    settings.STAGE_IMAGE = IMAGE
    make_storages(cluster)


@pytest.fixture
def plan(storages, cluster):
    return make_plan(cluster)


@pytest.fixture
def copying(monkeypatch):
    """What simulated copies do, by annotation; they end at once unless it says otherwise."""
    notes = {"sim.switchyard.dev/run-seconds": "0"}
    render, sent = stage_jobs.render_stage_in, []

    def rendered(*arguments):
        manifest = render(*arguments)
        manifest["spec"]["template"]["metadata"]["annotations"] = dict(notes)
        sent.append(manifest)
        return manifest

    async def log(self, *_, **__):
        return notes.get("log", f"switchyard-stage 0 {SIZE}\nswitchyard-staged {SIZE} {SUM}\n")

    monkeypatch.setattr(stage_calls, "render_stage_in", rendered)
    monkeypatch.setattr(SimulatedDriver, "read_log", log)
    return _Notes(notes, sent)


class _Notes:
    """The annotations of copies, and what was sent."""

    def __init__(self, notes, sent):
        self.sent = sent
        self._notes = notes

    def runs_for_ever(self, log=""):
        self._notes |= {"sim.switchyard.dev/run-seconds": "never"}
        if log:
            self._notes["log"] = log

    def says(self, log):
        self._notes["log"] = log

    def fails(self, code=1, log="cp: cannot read\n"):
        self._notes |= {"sim.switchyard.dev/exit-code": str(code), "log": log}

    def ends_well(self):
        self._notes.pop("sim.switchyard.dev/exit-code", None)
        self._notes.pop("log", None)
        self._notes["sim.switchyard.dev/run-seconds"] = "0"
