"""What is known of failed attempts, and the rules that judge them; diagnoses as users see them."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Case as CaseOf
from django.db.models import Exists, OuterRef, QuerySet, When
from django.db.models.functions import Coalesce

from clusters.models import Node
from federation.engine.failures.defaults import DEFAULTS, MOST_STARTS
from federation.engine.failures.diagnoses import History
from federation.engine.failures.facts import Facts, PodFacts
from federation.engine.failures.rules import NOT_OURS, RuleSet, Step
from federation.engine.intake.failure_rules import rules_of
from federation.engine.retries import Cause, Failure, Told, cause_of, retries_of
from federation.models import Attempt, Diagnosis, Job, PodRun, RemoteObject, TenantFailureRules
from federation.queries.kept_places import PlaceView, place_of
from placement.fleet.policies import prefixes_of
from placement.values.reason_codes import ReasonCode
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.queries import Actor, permissions_at, tenant_by_id

JOBS_OWN = "Job"
LATE = "DeadlineExceeded"
MOST_PODS = 1000
"""The pods of an attempt that its diagnosis considers, those that ended first."""
MOST_UNJUDGED = 100


@dataclass(frozen=True, slots=True)
class Case:
    """A failed attempt as its diagnosis needs it."""

    attempt: Attempt
    cause: Cause
    facts: Facts
    rule_sets: Sequence[RuleSet]
    history: History


def cases_of(
    attempts: Collection[Attempt], told: Mapping[UUID, Sequence[str]], *, cannot_start: bool = False
) -> list[Case]:
    """These attempts (with their jobs and tenants) as their diagnoses need them. `told` are their Jobs' failure messages,
    or the reasons why they could not start.
    """
    if not attempts:
        return []
    ids = [attempt.id for attempt in attempts]
    pods, capacity = _pods(ids), _capacity(ids)
    ends, retried = _ends({attempt.job_id for attempt in attempts}), _retried({attempt.job_id for attempt in attempts})
    rules = _rules_by_path({attempt.job.tenant.path for attempt in attempts})
    taints = _taints(attempts, pods)
    cases = []
    for attempt in attempts:
        own, words = pods[attempt.id], told.get(attempt.id, ())
        cause = _cause(own, words, capacity[attempt.id])
        facts = Facts(
            cause="" if cannot_start else cause,
            pods=[_facts(attempt, pod, taints) for pod in own],
            told=words,
            is_late=any(said.startswith(LATE) for said in words),
            cannot_start=cannot_start,
        )
        allowed = MOST_STARTS if cannot_start else retries_of(attempt.job.spec).of(cause)
        used = ends[attempt.job_id].count(ReasonCode.CANNOT_START if cannot_start else cause)
        history = History(retried[attempt.job_id], allowed, used)
        cases.append(Case(attempt, cause, facts, _rule_sets(attempt.job, rules), history))
    return cases


def _cause(pods: Sequence[PodRun], words: Sequence[str], capacity: Mapping[int, str]) -> Cause:
    told = [Told(pod.disruption, pod.reason, capacity.get(pod.position, "")) for pod in pods]
    return cause_of(Failure(told, words, frozenset(capacity.values())))


def unfollowed_pods(attempt_ids: Collection[UUID]) -> QuerySet[PodRun]:
    """The pods of failed attempts that may have made their Job fail, those that ended first. One that another pod of its index
    followed did not: its Job would have ended then. Kueue suspends Jobs and resumes them, for example, and their pods end with 143.
    """
    pods = PodRun.objects.filter(attempt_id__any_of=list(attempt_ids))
    ended_at = Coalesce("finished_at", CaseOf(When(is_gone=True, then="observed_at")))
    of_its_index = {name: OuterRef(name) for name in ("attempt_id", "position", "index")}
    followers = PodRun.objects.filter(**of_its_index, id__gt=OuterRef("id"), started_at__gte=OuterRef("ended_at"))
    return pods.annotate(ended_at=ended_at).exclude(Exists(followers)).order_by("finished_at", "id")


def _pods(attempt_ids: Collection[UUID]) -> Mapping[UUID, list[PodRun]]:
    found: dict[UUID, list[PodRun]] = defaultdict(list)
    for pod in unfollowed_pods(attempt_ids):
        if len(found[pod.attempt_id]) < MOST_PODS:
            found[pod.attempt_id].append(pod)
    return found


def _capacity(attempt_ids: Collection[UUID]) -> Mapping[UUID, dict[int, str]]:
    """The capacity types that attempts run on, by the positions of their objects."""
    found: dict[UUID, dict[int, str]] = defaultdict(dict)
    rows = RemoteObject.objects.filter(attempt_id__any_of=list(attempt_ids))
    for attempt_id, position, capacity_type in rows.values_list("attempt_id", "position", "capacity_type"):
        found[attempt_id][position] = capacity_type
    return found


def _ends(job_ids: set[UUID]) -> Mapping[UUID, list[str]]:
    found: dict[UUID, list[str]] = defaultdict(list)
    rows = Attempt.objects.filter(job_id__any_of=job_ids, finished_at__isnull=False)
    for job_id, reason in rows.values_list("job_id", "end_reason"):
        found[job_id].append(reason)
    return found


def _retried(job_ids: set[UUID]) -> Mapping[UUID, Counter[str]]:
    """How often each job was retried, by rule."""
    found: dict[UUID, Counter[str]] = defaultdict(Counter)
    rows = Diagnosis.objects.filter(attempt__job_id__any_of=job_ids, judged_at__isnull=False).exclude(step=Step.STOP)
    for job_id, rule in rows.values_list("attempt__job_id", "rule"):
        found[job_id][rule] += 1
    return found


def _rules_by_path(paths: Iterable[str]) -> Mapping[str, RuleSet]:
    wanted = {prefix for path in paths for prefix in prefixes_of(path)}
    rows = TenantFailureRules.objects.filter(tenant__path__in=wanted).values_list("tenant__path", "rules")
    return {path: RuleSet(path, rules_of(rules)) for path, rules in rows}


def _rule_sets(job: Job, by_path: Mapping[str, RuleSet]) -> list[RuleSet]:
    """The job's own rules, then those of its tenants, the nearest first."""
    own = rules_of(job.spec.get("failure_rules", ()))
    above = [by_path[path] for path in sorted(prefixes_of(job.tenant.path), key=len, reverse=True) if path in by_path]
    return [RuleSet(JOBS_OWN, own), *above] if own else above


def _taints(
    attempts: Collection[Attempt], pods: Mapping[UUID, Sequence[PodRun]]
) -> Mapping[tuple[UUID, str], tuple[str, ...]]:
    wanted = {(attempt.cluster_id, pod.node) for attempt in attempts for pod in pods[attempt.id] if pod.node}
    if not wanted:
        return {}
    rows = Node.objects.filter(cluster_id__in={place[0] for place in wanted}, name__in={place[1] for place in wanted})
    return {
        (cluster_id, name): tuple(taint_text(taint) for taint in taints)
        for cluster_id, name, taints in rows.exclude(taints=[]).values_list("cluster_id", "name", "taints")
    }


def taint_text(taint: Mapping[str, str]) -> str:
    """A node's taint as `key=value:effect`."""
    return f"{taint.get('key', '')}={taint.get('value', '')}:{taint.get('effect', '')}"


def _facts(attempt: Attempt, pod: PodRun, taints: Mapping[tuple[UUID, str], tuple[str, ...]]) -> PodFacts:
    pod_sets = attempt.job.spec["pod_sets"]
    asked = pod_sets[pod.position] if pod.position < len(pod_sets) else {}
    return PodFacts(
        name=pod.name,
        pod_set=asked.get("name", ""),
        node=pod.node,
        exit_code=pod.exit_code,
        signal=pod.signal,
        reason=pod.reason,
        ending=pod.ending,
        message=pod.message,
        disruption=pod.disruption,
        memory=_limit(asked, pod.init_step),
        init_step=pod.init_step,
        taints=taints.get((attempt.cluster_id, pod.node), ()),
    )


def _limit(pod_set: Mapping[str, Any], init_step: int | None) -> str:
    """The memory of the program that ended the pod."""
    steps = pod_set.get("init", ())
    own = steps[init_step - 1].get("memory", "") if init_step is not None and init_step <= len(steps) else ""
    return own or pod_set.get("memory", "")


@dataclass(frozen=True, slots=True)
class DiagnosisView:
    """A diagnosis as users see it; `retry_at` only while the job waits for it."""

    failure_class: str
    own_class: str
    text: str
    rule: str
    step: str
    next_step: str
    retry: int
    most: int
    retry_at: datetime | None
    node: str
    kept_place: PlaceView | None

    @property
    def is_infrastructure(self) -> bool:
        """Whether the job did not cause it, as far as its cluster shows."""
        return self.own_class in NOT_OURS


def diagnosis_of(attempt: Attempt) -> DiagnosisView | None:
    """The diagnosis on an attempt of `attempts_with_objects`; None if it did not fail, or is not judged yet."""
    row: Diagnosis | None = getattr(attempt, "diagnosis", None)
    if row is None or row.judged_at is None:
        return None
    ended_at = attempt.finished_at
    waits = row.wait_seconds > 0 and row.step != Step.STOP and ended_at is not None
    return DiagnosisView(
        failure_class=row.failure_class,
        own_class=row.own_class,
        text=row.text,
        rule=row.rule,
        step=row.step,
        next_step=row.next_step,
        retry=row.retry,
        most=row.most,
        retry_at=ended_at + timedelta(seconds=row.wait_seconds) if waits and ended_at else None,
        node=row.node,
        kept_place=place_of(attempt.id) if row.step == Step.AGAIN_HERE else None,
    )


@dataclass(frozen=True, slots=True)
class RulesView:
    """The failure rules that apply to a tenant: its own, and those above it, the nearest first."""

    tenant: Tenant
    own: Sequence[dict[str, Any]]
    above: Sequence[tuple[str, Sequence[dict[str, Any]]]]
    may_edit: bool

    @property
    def version(self) -> str:
        """Equal for equal own rules, so that a form can say which it was made from."""
        return hashlib.sha256(json.dumps(list(self.own), sort_keys=True).encode()).hexdigest()


def rules_at(actor: Actor, tenant_id: UUID, permission: Permission = Permission.VIEW) -> RulesView:
    """The rules at and above a tenant. Raises NotFound and NotAllowedHere."""
    tenant = tenant_by_id(actor, tenant_id, permission)
    paths = sorted(prefixes_of(tenant.path), key=len, reverse=True)
    stored = dict(
        TenantFailureRules.objects.filter(tenant__path__in=paths).values_list("tenant__path", "rules"),
    )
    return RulesView(
        tenant=tenant,
        own=stored.get(tenant.path, []),
        above=[(path, stored[path]) for path in paths if path in stored and path != tenant.path],
        may_edit=Permission.MANAGE_TENANTS in permissions_at(actor, tenant),
    )


def default_names() -> list[str]:
    """The names of our own rules, in their order."""
    return [rule.name for rule in DEFAULTS.rules]
