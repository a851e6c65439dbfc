"""Taking many jobs in at once: every item is judged by itself, and all that are accepted are stored in one transaction."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection

from federation.engine.policies import Policy
from federation.engine.reading import Faults, Fields
from federation.engine.spec import request_of
from federation.models import Job
from federation.queries.policies import policy_at
from federation.queries.prospects import refuse_hopeless
from federation.queries.submissions import field_errors, read_submission
from foundation import clock
from foundation.outbox import announce
from foundation.problems import Invalid, Problem
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.operations import Answer, answer_once, record_audit
from tenancy.queries import Actor, tenant_by_path

from .figures import SUBMITTED
from .submission import INSERT_COLUMNS, ROUTE, columns_of, new_job, submitter_of

BULK_ROUTE = "jobs/bulk"
MAX_JOBS = 10_000
AUDIT_BATCH = 1000
KEY = "idempotency_key"
MAX_KEY = 200
COPY_JOBS = f"COPY federation_job ({INSERT_COLUMNS}) FROM STDIN"
COPY_EVENTS = "COPY federation_jobevent (job_id, at, kind, message) FROM STDIN"
CLAIM_KEYS = """
    INSERT INTO tenancy_idempotencyrecord (tenant_id, user_id, route, key, body_digest, status, answer)
    SELECT given.tenant_id, %s, %s, given.key, given.digest, 201, given.answer
      FROM unnest(%s::uuid[], %s::text[], %s::bytea[], %s::text[]) AS given(tenant_id, key, digest, answer)
     ORDER BY given.tenant_id, given.key
    ON CONFLICT DO NOTHING RETURNING tenant_id, key
"""
FIND_KEYS = """
    SELECT record.tenant_id, record.key, record.body_digest, record.answer
      FROM tenancy_idempotencyrecord AS record
      JOIN unnest(%s::uuid[], %s::text[]) AS given(tenant_id, key) USING (tenant_id, key)
     WHERE record.user_id = %s AND record.route = %s
"""


@dataclass(slots=True)
class _Item:
    """One job of the request on its way: refused, replayed, or to be stored."""

    index: int
    job: Job | None = None
    key: str = ""
    digest: bytes = b""
    problem: Problem | None = None
    replayed: dict[str, Any] | None = None

    @property
    def slot(self) -> tuple[UUID, str]:
        """Where its key counts."""
        assert self.job is not None
        return self.job.tenant_id, self.key


def submit_jobs(
    actor: Actor,
    body: object,
    *,
    show: Callable[[Job], dict[str, Any]],
    tell: Callable[[Problem], dict[str, Any]],
    key: str = "",
    raw: bytes = b"",
) -> Answer:
    """200 and one answer per item of `{"tenant": path?, "jobs": […]}`, in order.

    An item is `{"index", "status", "job"}` with the new job as `show` puts it, or `{"index", "status", "problem"}` with
    the refusal as `tell` puts it. An item may carry an `idempotency_key` of its own. Raises Invalid for the list itself.
    """
    faults = Faults()
    top = Fields(body, "", faults, frozenset(["tenant", "jobs"]))
    default_tenant = top.text("tenant", default="", most_bytes=1100)
    values = top.array("jobs", least=1, most=MAX_JOBS)
    if faults.found:
        raise Invalid(errors=field_errors(faults.found))

    def produce() -> tuple[int, dict[str, Any]]:
        batch = _Batch(actor, default_tenant)
        items = [batch.judge(index, value) for index, value in enumerate(values)]
        _settle_keys(actor, items, show)
        _store(actor, [item.job for item in items if item.job is not None])
        return 200, {"items": [_answer(item, show, tell) for item in items]}

    answer = answer_once(actor, tenant_id=None, route=BULK_ROUTE, key=key, body=raw, produce=produce)
    if not answer.replayed:
        SUBMITTED.labels("bulk").inc(sum("job" in item and "replayed" not in item for item in answer.body["items"]))
    return answer


class _Batch:
    """Judges items one by one and remembers what it has learned about tenants and shapes."""

    def __init__(self, actor: Actor, default_tenant: str) -> None:
        self.actor, self.submitter = actor, submitter_of(actor)
        self.default_tenant, self.at = default_tenant, clock.now()
        self.tenants: dict[str, Tenant | Problem] = {}
        self.policies: dict[str, Policy] = {}
        self.verdicts: dict[tuple[UUID, str], Problem | None] = {}

    def judge(self, index: int, value: object) -> _Item:
        """The item as a job to store, or with its problem."""
        item = _Item(index)
        try:
            if isinstance(value, dict) and KEY in value:
                item.key = _read_key(value)
                item.digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
                value = {name: field for name, field in value.items() if name != KEY}
            submission = read_submission(value, default_tenant=self.default_tenant)
            tenant = self._tenant(submission.tenant_path)
            job = new_job(self.submitter, tenant, submission.under(self._policy(tenant)), self.at)
            self._refuse_hopeless(job, tenant)
            item.job = job
        except Problem as problem:
            item.problem = problem
        return item

    def _tenant(self, path: str) -> Tenant:
        if path not in self.tenants:
            try:
                self.tenants[path] = tenant_by_path(self.actor, path, Permission.SUBMIT)
            except Problem as problem:
                self.tenants[path] = problem
        found = self.tenants[path]
        if isinstance(found, Problem):
            raise found
        return found

    def _policy(self, tenant: Tenant) -> Policy:
        if tenant.path not in self.policies:
            self.policies[tenant.path] = policy_at(tenant.path)
        return self.policies[tenant.path]

    def _refuse_hopeless(self, job: Job, tenant: Tenant) -> None:
        known = (tenant.id, job.shape)
        if known not in self.verdicts:
            self.verdicts[known] = None
            try:
                refuse_hopeless(
                    request_of(job.spec, job_id=job.id, tenant_path=tenant.path, shape=job.shape), tenant.id
                )
            except Problem as problem:
                self.verdicts[known] = problem
        verdict = self.verdicts[known]
        if verdict is not None:
            raise verdict


def _read_key(value: dict[str, Any]) -> str:
    key = value[KEY]
    if not (isinstance(key, str) and key.isascii() and key.isprintable() and 1 <= len(key) <= MAX_KEY):
        raise Invalid.field(KEY, "out_of_range", "an idempotency key is 1 to 200 printable ASCII characters")
    return key


def _settle_keys(actor: Actor, items: Sequence[_Item], show: Callable[[Job], dict[str, Any]]) -> None:
    """Claims the keys of new items; an item whose key was used before gets the first answer, or its refusal."""
    keyed = [item for item in items if item.key and item.job is not None]
    if not keyed:
        return
    first: dict[tuple[UUID, str], _Item] = {}
    for item in keyed:
        first.setdefault(item.slot, item)
    claims = list(first.values())
    tenants, keys = [item.slot[0] for item in claims], [item.key for item in claims]
    answers = [json.dumps(show(item.job)) for item in claims if item.job is not None]
    with connection.cursor() as cursor:
        cursor.execute(CLAIM_KEYS, [actor.user_id, ROUTE, tenants, keys, [item.digest for item in claims], answers])
        ours = set(cursor.fetchall())
        cursor.execute(FIND_KEYS, [tenants, keys, actor.user_id, ROUTE])
        kept = {(tenant_id, key): (bytes(digest), answer) for tenant_id, key, digest, answer in cursor.fetchall()}
    for item in keyed:
        if first[item.slot] is item and item.slot in ours:
            continue
        digest, answer = kept[item.slot]
        if digest == item.digest:
            item.replayed = json.loads(answer)
        else:
            item.problem = Invalid("This idempotency_key was used with another job.", code="idempotency_key_reused")
        item.job = None


def _store(actor: Actor, jobs: Sequence[Job]) -> None:
    if not jobs:
        return
    message = f"Submitted by {actor.name}."
    with connection.cursor() as cursor:
        with cursor.copy(COPY_JOBS) as copy:
            for job in jobs:
                copy.write_row(columns_of(job))
        with cursor.copy(COPY_EVENTS) as copy:
            for job in jobs:
                copy.write_row((job.id, job.created_at, "submitted", message))
    announce("cycle")
    by_tenant: dict[UUID, list[str]] = defaultdict(list)
    for job in jobs:
        by_tenant[job.tenant_id].append(str(job.id))
    for tenant_id, ids in by_tenant.items():
        for start in range(0, len(ids), AUDIT_BATCH):
            detail = {"jobs": ids[start : start + AUDIT_BATCH]}
            record_audit(actor, "job.submit_many", object_kind="job", tenant_id=tenant_id, detail=detail)


def _answer(
    item: _Item, show: Callable[[Job], dict[str, Any]], tell: Callable[[Problem], dict[str, Any]]
) -> dict[str, Any]:
    if item.problem is not None:
        return {"index": item.index, "status": item.problem.status, "problem": tell(item.problem)}
    if item.replayed is not None:
        return {"index": item.index, "status": 201, "job": item.replayed, "replayed": True}
    assert item.job is not None
    return {"index": item.index, "status": 201, "job": show(item.job)}
