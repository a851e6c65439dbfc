"""Bulk submission: each item is checked separately, and all accepted items are stored in one transaction."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.db import connection

from federation.engine.intake.reading import Faults, Fields
from federation.models import Job
from federation.queries.feasibility import refuse_hopeless
from federation.queries.policy_hooks import Draft, Reviewed, has_hooks, review_all
from federation.queries.priority_classes import TenantRules, rules_at
from federation.queries.queue import refuse_when_full
from federation.queries.reservations import with_reservation
from federation.queries.submissions import field_errors, read_submission
from foundation import clock
from foundation.outbox import announce
from foundation.problems import Invalid, Problem
from foundation.transactions import retried
from tenancy.engine.roles import Permission
from tenancy.models import Tenant, User
from tenancy.operations import Answer, Slot, answer_once, claim_keys, given_answer, kept_answers, record_audit
from tenancy.queries import Actor, tenant_by_path

from .figures import SUBMITTED
from .priority_classes import while_classes_exist
from .reviews import check_reviewed, keep_reviewed, while_tenants_exist
from .submission import JOB_COLUMNS, ROUTE, new_job, request_for, submitter_of, values_of
from .submission_limits import within_submission_limits

BULK_ROUTE = "jobs/bulk"
MAX_JOBS = 10_000
AUDIT_BATCH = 1000
KEY = "idempotency_key"
MAX_KEY = 200
COPY_JOBS = f"COPY federation_job ({', '.join(JOB_COLUMNS)}) FROM STDIN"
COPY_EVENTS = "COPY federation_jobevent (job_id, at, kind, message) FROM STDIN"


@dataclass(slots=True)
class _Item:
    """One job of the request: refused, replayed, or to be stored."""

    index: int
    tenant: Tenant | None = None
    reviewed: Reviewed | None = None
    job: Job | None = None
    key: str = ""
    digest: bytes = b""
    problem: Problem | None = None
    replayed: dict[str, Any] | None = None

    @property
    def slot(self) -> Slot:
        """The scope of its key."""
        assert self.tenant is not None
        return self.tenant.id, self.key

    def settle(self, digest: bytes, answer: str) -> None:
        """Sets the first answer to its key, or the refusal of another body."""
        if digest == self.digest:
            self.replayed = json.loads(answer)
        else:
            self.problem = Invalid("This idempotency_key was used with another job.", code="idempotency_key_reused")
        self.job = self.reviewed = None


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

    An item is `{"index", "status", "job"}` with the new job as rendered by `show`, or `{"index", "status", "problem"}`
    with the refusal as rendered by `tell`. An item may have its own `idempotency_key`. Raises Invalid for the list
    itself, and what `within_submission_limits` raises: then no item is stored. Policy hooks are called before the transaction, and never for an item whose key has an answer.
    Tenants, permissions and rules that they took for granted are then read again in it.
    """
    faults = Faults()
    top = Fields(body, "", faults, frozenset(["tenant", "jobs"]))
    default_tenant = top.text("tenant", default="", most_bytes=1100)
    values = top.array("jobs", least=1, most=MAX_JOBS)
    if faults.found:
        raise Invalid(errors=field_errors(faults.found))

    reviewed: tuple[_Batch, list[_Item]] | None = None
    if has_hooks():
        given = given_answer(actor, tenant_id=None, route=BULK_ROUTE, key=key, body=raw)
        if given is not None:
            return given
        batch = _Batch(actor, default_tenant)
        items = batch.read_all(values)
        batch.review(items)
        reviewed = batch, items

    def produce() -> tuple[int, dict[str, Any]]:
        batch = reviewed[0] if reviewed else _Batch(actor, default_tenant)
        if reviewed:
            items = [replace(item) for item in reviewed[1]]  # the transaction may be retried
            batch.keep_reviewed(items)
        else:
            items = batch.read_all(values)
        batch.judge_all(items)
        _settle_keys(batch.submitter, items, show)
        _store(actor, items)
        return 200, {"items": [_answer(item, show, tell) for item in items]}

    with while_classes_exist(), while_tenants_exist(), within_submission_limits():
        # Several tenants are kept in place: who moves a tenant with those below it may lock them in another order.
        answer = retried(answer_once)(actor, tenant_id=None, route=BULK_ROUTE, key=key, body=raw, produce=produce)
    if not answer.replayed:
        SUBMITTED.labels("bulk").inc(sum("job" in item and "replayed" not in item for item in answer.body["items"]))
    return answer


class _Batch:
    """Checks items one by one, and caches what it learns about tenants and shapes."""

    def __init__(self, actor: Actor, default_tenant: str) -> None:
        self.actor, self.submitter = actor, submitter_of(actor)
        self.default_tenant = default_tenant
        self.tenants: dict[str, Tenant | Problem] = {}
        self.rules: dict[str, TenantRules] = {}
        self.verdicts: dict[tuple[UUID, str], Problem | None] = {}

    def read_all(self, values: Sequence[object]) -> list[_Item]:
        """The items as far as they are valid, completed by their tenants' rules."""
        return [self._read(index, value) for index, value in enumerate(values)]

    def _read(self, index: int, value: object) -> _Item:
        item = _Item(index)
        try:
            if isinstance(value, dict) and KEY in value:
                item.key = _read_key(value)
                item.digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
                value = {name: field for name, field in value.items() if name != KEY}
            submission = read_submission(value, default_tenant=self.default_tenant)
            item.tenant = self._tenant(submission.tenant_path)
            item.reviewed = Reviewed(submission.under(self._rules(item.tenant)))
        except Problem as problem:
            item.problem = problem
        return item

    def review(self, items: Sequence[_Item]) -> None:
        """Calls the policy hooks for all new items, once for those with the same key and body: they are one job."""
        keyed = [item for item in items if item.key and item.reviewed]
        kept = kept_answers(self.submitter.id, ROUTE, [item.slot for item in keyed]) if keyed else {}
        for item in keyed:
            if item.slot in kept:
                item.settle(*kept[item.slot])
        alike: dict[object, list[_Item]] = defaultdict(list)
        drafts: list[Draft] = []
        for item in items:
            if item.tenant and item.reviewed:
                same = alike[(item.slot, item.digest) if item.key else item.index]
                same.append(item)
                if len(same) == 1:
                    drafts.append(Draft(item.tenant.path, item.reviewed.spec, self._rules(item.tenant)))
        for same, outcome in zip(alike.values(), review_all(self.actor, drafts), strict=True):
            for item in same:
                if isinstance(outcome, Problem):
                    item.problem, item.reviewed = outcome, None
                else:
                    item.reviewed = outcome

    def keep_reviewed(self, items: Sequence[_Item]) -> None:
        """Refuses the items whose tenants, permissions or rules changed while the hooks were called."""
        tenants = {item.tenant.id: item.tenant for item in items if item.tenant and item.reviewed}
        now = keep_reviewed(self.actor, tenants.values()) if tenants else {}
        for item in items:
            if item.tenant and item.reviewed:
                try:
                    check_reviewed(now[item.tenant.id], item.reviewed.spec)
                except Problem as problem:
                    item.problem, item.reviewed = problem, None

    def judge_all(self, items: Sequence[_Item]) -> None:
        """Makes jobs of the items that could ever run."""
        at = clock.now()
        admitted: Counter[UUID] = Counter()
        for item in items:
            if item.tenant and item.reviewed:
                try:
                    refuse_when_full(item.tenant, admitted[item.tenant.id] + 1)
                    spec = with_reservation(item.reviewed.spec, item.tenant)
                    chosen = self._rules(item.tenant).classes.named(spec.priority_class)
                    job = new_job(self.submitter, item.tenant, spec, chosen, at)
                    self._refuse_hopeless(job, item.tenant)
                except Problem as problem:
                    item.problem = problem
                else:
                    item.job = job
                    admitted[item.tenant.id] += 1

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

    def _rules(self, tenant: Tenant) -> TenantRules:
        if tenant.path not in self.rules:
            self.rules[tenant.path] = rules_at(self.actor, tenant)
        return self.rules[tenant.path]

    def _refuse_hopeless(self, job: Job, tenant: Tenant) -> None:
        known = (tenant.id, job.shape)
        if known not in self.verdicts:
            self.verdicts[known] = None
            try:
                refuse_hopeless(request_for(job), tenant.id)
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


def _settle_keys(submitter: User, items: Sequence[_Item], show: Callable[[Job], dict[str, Any]]) -> None:
    """Claims the keys of new items; an item whose key was used before gets the first answer, or its refusal."""
    keyed = [item for item in items if item.key and item.job is not None]
    if not keyed:
        return
    first: dict[Slot, _Item] = {}
    for item in keyed:
        first.setdefault(item.slot, item)
    claims = {slot: (item.digest, json.dumps(show(item.job))) for slot, item in first.items() if item.job is not None}
    ours = claim_keys(submitter.id, ROUTE, claims)
    kept = kept_answers(submitter.id, ROUTE, first)
    for item in keyed:
        if not (first[item.slot] is item and item.slot in ours):
            item.settle(*kept[item.slot])


def _store(actor: Actor, items: Sequence[_Item]) -> None:
    stored = [(item.job, item.reviewed) for item in items if item.job and item.reviewed]
    if not stored:
        return
    message = f"Submitted by {actor.name}."
    with connection.cursor() as cursor:
        with cursor.copy(COPY_JOBS) as copy:
            for job, _ in stored:
                copy.write_row(list(values_of(job).values()))
        with cursor.copy(COPY_EVENTS) as copy:
            for job, reviewed in stored:
                copy.write_row((job.id, job.created_at, "submitted", message + reviewed.sentence))
    announce("cycle")
    by_tenant: dict[UUID, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for job, reviewed in stored:
        by_tenant[job.tenant_id].append((str(job.id), reviewed.detail))
    for tenant_id, told in by_tenant.items():
        for start in range(0, len(told), AUDIT_BATCH):
            some = told[start : start + AUDIT_BATCH]
            detail: dict[str, Any] = {"jobs": [job_id for job_id, _ in some]}
            if reviews := {job_id: more for job_id, more in some if more}:
                detail["reviews"] = reviews
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
