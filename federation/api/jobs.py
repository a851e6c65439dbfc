"""/jobs: translate, make one call, translate back."""

from typing import Any
from uuid import UUID

from django.conf import settings
from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from billing.queries import costs_of
from federation.models import Job
from federation.operations import (
    request_cancellation,
    request_resumption,
    request_suspension,
    submit_job,
    submit_jobs,
)
from federation.queries.artifacts import artifacts_of
from federation.queries.jobs import JOB_FILTERS, attempts_of, events_of, filtered_jobs, job_of
from federation.queries.logs import MOST_TAIL_LINES, logs_of, read_number
from federation.queries.quota_in_the_way import quota_in_the_way
from federation.queries.runtimes import runtime_of_job
from federation.queries.went_first import reason_text, reason_texts
from foundation import clock
from foundation.problem_json import problem_body
from foundation.problems import Invalid
from foundation.schema import page_shape
from tenancy.api.views import ApiView
from tenancy.operations import Answer
from tenancy.queries import Actor

from .answers import attempt_json, event_json, explanation_json, job_json, job_line_json, logs_json
from .pending_stops import SuspensionShape
from .quote_answers import in_the_way_json
from .shapes import (
    AttemptShape,
    BulkAnswerShape,
    BulkShape,
    EventShape,
    ExplanationShape,
    JobShape,
    JobSpecShape,
    LogsShape,
    ManifestShape,
)

ORDERS = {"-created": "-id", "created": "id"}
TIMELINE = {"at": "id", "-at": "-id"}
ATTEMPT_ORDERS = {"-number": "-id", "number": "id"}
SUBMISSION = PolymorphicProxySerializer("Submission", [JobSpecShape, ManifestShape], resource_type_field_name=None)


def _answer(answer: Answer) -> Response:
    headers = {"Idempotent-Replayed": "true"} if answer.replayed else None
    return Response(answer.body, status=answer.status, headers=headers)


def with_cost(actor: Actor, job: Job) -> dict[str, Any]:
    """The job, with its artifacts and what it has cost so far. `actor` reads it."""
    return job_json(job, costs_of([job.id]).get(job.id), artifacts_of([job]).get(job.id, ()), reason_text(actor, job))


class Jobs(ApiView):
    filters = JOB_FILTERS
    paged = True

    @extend_schema(responses=page_shape(JobShape))
    def get(self, request: Request) -> Response:
        """Lists the jobs of the tenants that you may see, newest first."""
        page = self.page(filtered_jobs(self.actor, self.query), orders=ORDERS, render=lambda job: job)
        jobs = page.data["items"]
        costs, artifacts = costs_of([job.id for job in jobs]), artifacts_of(jobs)
        texts = reason_texts(self.actor, jobs)
        page.data["items"] = [
            job_json(job, costs.get(job.id), artifacts.get(job.id, ()), texts[job.id]) for job in jobs
        ]
        return page

    @extend_schema(request=SUBMISSION, responses={201: JobShape})
    def post(self, request: Request) -> Response:
        """Submits a job: a spec, or a `batch/v1` Job manifest. A job that could never run is refused."""
        body, key = request.data, request.headers.get("Idempotency-Key", "")
        return _answer(submit_job(self.actor, body, show=job_json, key=key, raw=self.raw_body))


class JobsInBulk(ApiView):
    max_body_bytes = settings.BULK_UPLOAD_MAX_BYTES

    @extend_schema(request=BulkShape, responses=BulkAnswerShape)
    def post(self, request: Request) -> Response:
        """Submits up to 10,000 jobs. Each is accepted or refused separately; the accepted ones are stored together."""
        body, key = request.data, request.headers.get("Idempotency-Key", "")
        answer = submit_jobs(self.actor, body, show=job_line_json, tell=problem_body, key=key, raw=self.raw_body)
        return _answer(answer)


class OneJob(ApiView):
    @extend_schema(responses=JobShape)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Returns a job."""
        return Response(with_cost(self.actor, job_of(self.actor, job_id)))


class Cancellation(ApiView):
    @extend_schema(request=None, responses={202: JobShape})
    def post(self, request: Request, job_id: UUID) -> Response:
        """Cancels a job. It is `cancelling` until its cluster confirms. Idempotent."""
        request_cancellation(self.actor, job_id)
        return Response(with_cost(self.actor, job_of(self.actor, job_id)), status=202)


class Suspension(ApiView):
    @extend_schema(request=SuspensionShape, responses={202: JobShape})
    def post(self, request: Request, job_id: UUID) -> Response:
        """Suspends a job: its run is stopped, and no other starts until it is resumed. It keeps its state, with the reason
        `suspending`, until its cluster confirms. Idempotent. With a wait, its run first goes on until its next checkpoint.
        """
        request_suspension(self.actor, job_id, request.data)
        return Response(with_cost(self.actor, job_of(self.actor, job_id)), status=202)


class Resumption(ApiView):
    @extend_schema(request=None, responses={202: JobShape})
    def post(self, request: Request, job_id: UUID) -> Response:
        """Resumes a suspended job: it waits for a new placement. Withdraws a stop that waits for a checkpoint. Idempotent."""
        request_resumption(self.actor, job_id)
        return Response(with_cost(self.actor, job_of(self.actor, job_id)), status=202)


class Attempts(ApiView):
    paged = True

    @extend_schema(responses=page_shape(AttemptShape))
    def get(self, request: Request, job_id: UUID) -> Response:
        """Lists the job's attempts, newest first."""
        return self.page(attempts_of(self.actor, job_id), orders=ATTEMPT_ORDERS, render=attempt_json)


class Events(ApiView):
    paged = True

    @extend_schema(responses=page_shape(EventShape))
    def get(self, request: Request, job_id: UUID) -> Response:
        """Lists the events of the job's timeline, oldest first."""
        return self.page(events_of(self.actor, job_id), orders=TIMELINE, render=event_json)


class Explanation(ApiView):
    @extend_schema(responses=ExplanationShape)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Returns why the job waits, overall and on each cluster, and its expected start and run time."""
        job = job_of(self.actor, job_id)
        quota = [in_the_way_json(one) for one in quota_in_the_way(self.actor, job)]
        return Response(explanation_json(job, reason_text(self.actor, job), runtime_of_job(job), clock.now(), quota))


class Logs(ApiView):
    filters = ("attempt", "pod", "container", "tail_lines")

    @extend_schema(responses=LogsShape)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Returns the ends of an attempt's logs, read from its cluster now, without control characters. Without
        `container`, of each pod's program, or of the init step that failed.
        """
        text = self.query.get("tail_lines", "500")
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:10]) <= MOST_TAIL_LINES):
            raise Invalid.field("tail_lines", "out_of_range", f"a whole number from 1 to {MOST_TAIL_LINES}")
        number, pod = read_number(self.query.get("attempt", "")), self.query.get("pod", "")
        container = self.query.get("container", "")
        found = logs_of(self.actor, job_id, number=number, pod=pod, container=container, tail_lines=int(text))
        return Response(logs_json(found))
