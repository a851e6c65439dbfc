"""What a tenant's submissions follow: its policies and the priority classes of the installation. And the classes as users see
them.
"""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from django.db import connection
from django.db.models import Exists, F, OuterRef, Prefetch, Q, QuerySet, Subquery, Value
from django.db.models.functions import Concat

from federation.engine.intake.priority_classes import (
    GPUS,
    ClassesHere,
    ClassHere,
    WantedClass,
    WantedGrant,
    gpus_text,
)
from federation.models import PriorityClass, PriorityClassGrant
from federation.queries.policies import policies_on
from foundation.problems import Invalid, NotFound
from placement.fleet.policies import Policy, prefixes_of
from quotas.engine.amounts import JOBS
from quotas.models import ClassLimit
from tenancy.models import Tenant
from tenancy.queries import Actor, tenant_by_path, visible_tenants

RULES = """
SELECT class.id, class.name, class.value, class.is_default, class.is_open,
       CASE WHEN class.is_open THEN '{}' ELSE ARRAY(
             SELECT given.role::text FROM federation_priorityclassgrant AS given
               LEFT JOIN tenancy_tenant AS place ON place.id = given.tenant_id
              WHERE given.priority_class_id = class.id AND (given.tenant_id IS NULL OR place.path = ANY(%(paths)s)))
       END,
       EXISTS (SELECT FROM federation_placementpolicy AS policy
                 JOIN tenancy_tenant AS tenant ON tenant.id = policy.tenant_id WHERE tenant.path = ANY(%(paths)s)),
       class.preempts = 'lower', class.shield_seconds
  FROM federation_priorityclass AS class ORDER BY class.value DESC, class.name
"""
"""One query for classes and the existence of policies, because every submission runs it."""


@dataclass(frozen=True, slots=True)
class TenantRules:
    """The policies and the priority classes that apply to a user's jobs of a tenant."""

    policy: Policy
    classes: ClassesHere

    def chosen(self, name: str) -> ClassHere:
        """The class of a job that names this one, or none if it is empty. Raises Invalid."""
        asked = name or self.classes.default_name
        if fault := self.classes.fault(asked):
            raise Invalid.field("priority_class", *fault)
        return self.classes.named(asked)

    def check_known(self, name: str) -> None:
        """Returns if the tenant has users who may use the class. Raises Invalid."""
        fault = self.classes.fault(name)
        if fault is not None and fault[0] == "unknown_value":
            raise Invalid.field("priority_class", *fault)


def rules_at(actor: Actor, tenant: Tenant) -> TenantRules:
    """The rules as they are now. The tenant is one that `tenant_by_path` found for the actor. One query without policies."""
    paths = prefixes_of(tenant.path)
    with connection.cursor() as cursor:
        cursor.execute(RULES, {"paths": paths})
        rows = cursor.fetchall()
    policy = policies_on(paths) if rows and rows[0][6] else Policy()
    classes = ClassesHere(
        tenant_path=tenant.path,
        classes=tuple(
            ClassHere(row_id, name, value, is_default, is_open, tuple(roles), preempts, shield_seconds)
            for row_id, name, value, is_default, is_open, roles, _, preempts, shield_seconds in rows
        ),
        held=tuple(tenant.roles_held),
        is_operator=actor.is_operator,
        inherited=policy.default_priority_class,
    )
    return TenantRules(policy, classes)


def classes_known_at(actor: Actor, tenant: Tenant) -> dict[str, UUID]:
    """The ids by name of the classes that some users of the tenant may use, the most urgent first."""
    return {one.name: one.id for one in rules_at(actor, tenant).classes.classes if one.is_known_here}


def with_limits(rows: QuerySet[PriorityClass]) -> QuerySet[PriorityClass]:
    """The classes with their limits in the whole installation and what their jobs hold of them, in base units; null without a limit."""
    own = ClassLimit.objects.filter(class_name=OuterRef("name"), tenant=None)
    of_jobs, of_gpus = own.filter(resource=JOBS), own.filter(resource=GPUS)
    found = {
        "most_running": Subquery(of_jobs.values("most")),
        "running": Subquery(of_jobs.values("held")),
        "most_gpus": Subquery(of_gpus.values("most")),
        "gpus": Subquery(of_gpus.values("held")),
    }
    return rows.annotate(**found)


def classes_below_use(names: Collection[str]) -> dict[str, str]:
    """By class of these, what users read if its jobs hold more than a limit of it."""
    rows = with_limits(PriorityClass.objects.filter(name__in=names))
    found = {}
    for row in rows.filter(Q(running__gt=F("most_running")) | Q(gpus__gt=F("most_gpus"))):
        told = []
        if row.running is not None and row.most_running is not None and row.running > row.most_running:
            told.append(f"{row.running} of its jobs hold anything, its limit is {row.most_running}")
        if row.gpus is not None and row.most_gpus is not None and row.gpus > row.most_gpus:
            told.append(f"its jobs hold {gpus_text(row.gpus)} GPUs, its limit is {gpus_text(row.most_gpus)}")
        found[row.name] = f"{'; '.join(told)}: running jobs continue, new ones wait"
    return found


def visible_classes(actor: Actor, tenant_path: str = "") -> QuerySet[PriorityClass]:
    """All classes for operators; for others, those that are open or granted at a tenant that they see, with those grants.

    With a tenant, only the classes that the actor may use there; NotFound if they may not see it.
    """
    rows = with_limits(PriorityClass.objects.all())
    if tenant_path:
        classes = rules_at(actor, tenant_by_path(actor, tenant_path)).classes
        rows = rows.filter(id__in=[one.id for one in classes.usable])
    grants = PriorityClassGrant.objects.select_related("tenant").order_by("tenant__path", "role")
    if not actor.runs_the_installation:
        grants = grants.filter(_reaches(actor))
        rows = rows.filter(Q(is_open=True) | Exists(grants.filter(priority_class=OuterRef("pk"))))
    return rows.prefetch_related(Prefetch("grants", grants))


def class_by_id(actor: Actor, class_id: UUID) -> PriorityClass:
    """A class that the actor may see, with its grants; else NotFound."""
    found = visible_classes(actor).filter(id=class_id).first()
    if found is None:
        raise NotFound
    return found


def as_wanted(row: PriorityClass) -> WantedClass:
    """The row (`with_limits`) as the value that would make it."""
    grants = (WantedGrant(one.role, one.tenant.path if one.tenant else "") for one in row.grants.all())
    return WantedClass(
        name=row.name,
        value=row.value,
        description=row.description,
        is_open=row.is_open,
        preempts=row.preempts,
        shield_seconds=row.shield_seconds,
        most_running=row.most_running,
        most_gpus=row.most_gpus,
        grants=tuple(sorted(grants, key=lambda grant: (grant.tenant_path, grant.role))),
    )


def _reaches(actor: Actor) -> Q:
    """Grants to every tenant, at a tenant that the actor sees, or above one."""
    below = visible_tenants(actor).filter(path__startswith=Concat(OuterRef("tenant__path"), Value("/")))
    return Q(tenant=None) | Q(tenant__in=visible_tenants(actor)) | Q(Exists(below))
