"""Past runs, as a trace that can be replayed."""

from datetime import datetime

from django.db.models import F, OuterRef, Subquery

from federation.engine.intake.normal_form import request_of
from federation.models import Attempt, Job
from placement.ranking.runtimes import groups_of
from placement.values.model import JobRequest
from simulator.values import WHOLE, TraceJob


def past_jobs(since: datetime, until: datetime) -> tuple[tuple[TraceJob, ...], int]:
    """The jobs submitted in the period that ran and ended, the oldest first, and the number of jobs that a trace cannot
    express.

    A job's duration is that of its last run.
    """
    runs = Attempt.objects.filter(job=OuterRef("pk"), started_at__isnull=False, finished_at__isnull=False)
    last = runs.order_by("-number").annotate(took=F("finished_at") - F("started_at"))
    rows = (
        Job.objects.filter(created_at__gte=since, created_at__lt=until, finished_at__isnull=False)
        .annotate(took=Subquery(last.values("took")[:1]))
        .filter(took__isnull=False)
        .order_by("created_at", "id")
        .values_list("id", "tenant_id", "tenant__path", "priority", "spec", "created_at", "took")
    )
    found: list[TraceJob] = []
    untold = 0
    for job_id, tenant_id, path, priority, spec, created_at, took in rows.iterator(chunk_size=2000):
        kind = groups_of(tenant_id, spec).name
        request = request_of(
            spec, job_id=job_id, tenant_path=path, shape="", priority=priority, submitted_at=created_at, kind=kind
        )
        job = _trace_job(request, (created_at - since).total_seconds(), took.total_seconds())
        if job is None:
            untold += 1
        else:
            found.append(job)
    return tuple(found), untold


def _trace_job(request: JobRequest, submitted: float, seconds: float) -> TraceJob | None:
    """None for elastic jobs, and jobs of several pod sets and on slices of GPUs, which traces cannot express."""
    pod_set, gpu = request.pod_sets[0], request.pod_sets[0].gpu
    if request.elastic is not None or len(request.pod_sets) > 1 or (gpu is not None and gpu.mig):
        return None
    return TraceJob(
        name=str(request.id),
        submitted=submitted,
        seconds=max(0.0, seconds),
        pods=pod_set.count,
        gpus=0 if gpu is None else 1 if gpu.fraction_milli else gpu.count,
        gpu_milli=(gpu.fraction_milli if gpu is not None else 0) or WHOLE,
        cpu_millicores=pod_set.cpu_millicores,
        memory_mib=pod_set.memory_mib,
        models=() if gpu is None else tuple(sorted(gpu.models)),
        priority=request.priority,
        tenant=request.tenant_path,
        estimated_seconds=request.estimated_seconds,
        checkpoint_seconds=request.checkpoint_seconds,
        kind=request.kind,
    )
