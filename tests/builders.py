"""Shared builders: plain functions that make rows with sensible defaults. Append yours; keep each short."""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, QuerySet

from billing.engine.budgets import BudgetRefusal, BudgetRequest, Commitment, Measure
from billing.models import Budget
from billing.operations import ObservedRun, Takers
from billing.operations.budgets import WantedBudget, put_budget
from clusters.models import Cluster, Flavor, Node
from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.models import Job
from federation.operations import submit_job
from foundation.clock import now
from foundation.ids import new_id
from foundation.rows import as_parameters, columns_of, insertion
from quotas.engine.amounts import parse_amount
from quotas.models import QuotaLimit
from quotas.operations import HoldRequest
from tenancy.engine.roles import Role
from tenancy.models import ApiToken, Membership, RoleBinding, Tenant, User
from tenancy.queries import SYSTEM, Actor

KINDS = ["organisation", "department", "team", "project"]
TENANTS_AT = f"SELECT {', '.join(columns_of(Tenant))} FROM tenancy_tenant WHERE path = ANY(%s)"
NEW_TENANTS = (
    f"{insertion(Tenant, columns_of(Tenant, without=['created_at']))} RETURNING {', '.join(columns_of(Tenant))}"
)


def make_tenant(path: str) -> Tenant:
    """The tenant at `path`, made with everything above it if need be."""
    return _line(path)[-1]


def _line(path: str) -> list[Tenant]:
    """The tenant at `path` and those above it, the organisation first."""
    names = path.split("/")
    paths = ["/".join(names[:depth]) for depth in range(1, len(names) + 1)]
    # By hand, since tests do this some ten thousand times: Django takes twice as long to write a query as the server to answer.
    found = {tenant.path: tenant for tenant in Tenant.objects.raw(TENANTS_AT, [paths])}
    if len(found) < len(paths):
        found |= _made(
            [(name, prefix) for name, prefix in zip(names, paths, strict=True) if prefix not in found], found
        )
    return [found[prefix] for prefix in paths]


def _made(missing: Sequence[tuple[str, str]], found: Mapping[str, Tenant]) -> dict[str, Tenant]:
    """New tenants of these names and paths, each below the one before or one that is found."""
    ids = {path: tenant.id for path, tenant in found.items()}
    rows: list[dict[str, object]] = []
    for name, path in missing:
        depth, above = path.count("/"), path.rpartition("/")[0]
        ids[path] = new_id()
        kind = KINDS[min(depth, len(KINDS) - 1)]
        parent_id = ids[above] if above else None
        rows.append({"id": ids[path], "parent_id": parent_id, "kind": kind, "name": name, "path": path, "depth": depth})
    made = Tenant.objects.raw(NEW_TENANTS, as_parameters({"labels": {}, "weight": 1}, rows))
    return {tenant.path: tenant for tenant in made}


def make_user(email: str = "") -> User:
    """A user; bind roles with `bind`."""
    return User.objects.create(email=email or f"{secrets.token_hex(6)}@example.org", password="!")


def bind(user: User, path: str, role: str = Role.ADMIN, expires_at: datetime | None = None) -> RoleBinding:
    """The user's role at the tenant (made if need be), in whose organisation they are a member."""
    line = _line(path)
    _make_member(user, line[0])
    return RoleBinding.objects.create(tenant=line[-1], user=user, role=role, expires_at=expires_at)


def join(user: User, path: str) -> User:
    """The user as a member of the organisation of the tenant (made if need be)."""
    _make_member(user, make_tenant(path.partition("/")[0]))
    return user


def _make_member(user: User, organisation: Tenant) -> None:
    # One statement instead of the four of `get_or_create`: most tests have members.
    Membership.objects.bulk_create([Membership(user=user, organisation=organisation)], ignore_conflicts=True)


def make_token(user: User, *scopes: str, **fields: object) -> str:
    """The secret of a new token of the user."""
    secret = "swy_" + secrets.token_urlsafe(32)
    digest = hashlib.sha256(secret.encode()).digest()
    ApiToken.objects.create(user=user, name="test", prefix=secret[:12], digest=digest, scopes=list(scopes), **fields)
    return secret


def bearer(user: User, *scopes: str, **fields: object) -> dict[str, str]:
    """Headers for Django's test client that act as the user: `client.get(url, headers=bearer(user))`."""
    return {"Authorization": f"Bearer {make_token(user, *scopes, **fields)}"}


def actor_for(user: User) -> Actor:
    """The user acting for themselves, without a token."""
    return Actor(user_id=user.id, name=user.email)


def submit(actor: Actor, body: dict[str, Any]) -> Job:
    """The job that the API would have made of `body`."""
    answer = submit_job(actor, body, show=lambda job: {"id": str(job.id)}, raw=b"")
    return Job.objects.get(id=answer.body["id"])


def make_limit(path: str, resource: str = "gpu", nominal: str = "8", clusters: tuple[str, ...] = ()) -> QuotaLimit:
    """A limit with nothing held, the amount written as people do."""
    amount = parse_amount(resource, nominal)
    return QuotaLimit.objects.create(
        tenant=make_tenant(path), resource=resource, clusters=sorted(clusters), nominal=amount, cap=amount
    )


def hold_request(
    path: str,
    amounts: Mapping[str, int] | None = None,
    cluster_name: str = "north",
    user_id: UUID | None = None,
    class_name: str = "",
) -> HoldRequest:
    """A request of a new holder, for one GPU (1000 milli-GPU) unless told otherwise."""
    tenant, asked = make_tenant(path), {"gpu": 1000} if amounts is None else amounts
    return HoldRequest(new_id(), tenant.id, tenant.path, cluster_name, asked, user_id, class_name=class_name)


def make_spec(**changes: Any) -> dict[str, Any]:
    """A small valid job spec without its tenant; `pod` changes its only pod set."""
    pod = {"name": "main", "count": 1, "image": "registry.example/train:1", "cpu": "1", "memory": "1Gi"}
    pod |= dict(changes.pop("pod", {}))
    return {"name": "train", "pod_sets": [pod], **changes}


def stored_spec(**changes: Any) -> dict[str, Any]:
    """`make_spec` in its normal form, as submission stores it."""
    return spec_json(read_spec(make_spec(**changes), Rules()))


def make_cluster(owner: str = "acme", name: str = "", **fields: object) -> Cluster:
    """A registered cluster without credential, ready, owned by the tenant at `owner` (made if need be)."""
    name = name or f"c{secrets.token_hex(4)}"
    fields = {
        "server": "https://cluster.example:6443",
        "region": "eu-west-1",
        "identity": secrets.token_hex(8),
    } | fields
    return Cluster.objects.create(owner=make_tenant(owner), name=name, **fields)


def make_flavor(cluster: Cluster, name: str = "h100", **fields: object) -> Flavor:
    """A flavor of whole H100 GPUs, on demand."""
    given = {"vendor": "nvidia", "gpu_model": "H100-80GB", "gpu_memory_mib": 81_559, "resource_name": "nvidia.com/gpu"}
    return Flavor.objects.create(cluster=cluster, name=name, **(given | fields))


def make_node(cluster: Cluster, name: str = "", **fields: object) -> Node:
    """A ready node with `devices` (8 H100s of the flavor `h100` unless given), 64 CPUs and 512 GiB."""
    name = name or f"n{secrets.token_hex(4)}"
    given = {
        "uid": secrets.token_hex(8),
        "devices": [{"flavor": "h100", "units": 8}],
        "cpu_millicores": 64_000,
        "memory_mib": 512 * 1024,
        "pods": 110,
        "observed_at": now(),
        "labels": {"kubernetes.io/hostname": name},
    }
    node = Node.objects.create(cluster=cluster, name=name, **(given | fields))
    Cluster.objects.filter(id=cluster.id).update(inventory_version=F("inventory_version") + 1)
    return node


def make_run(cluster: Cluster, tenant_path: str = "acme", **fields: Any) -> ObservedRun:
    """A pod that ran on one H100 with two cores for an hour, finished; `started_at` and `until_at` change that."""
    started_at = fields.get("started_at", datetime(2026, 11, 10, 12, tzinfo=UTC))
    given: dict[str, Any] = {
        "source_uid": secrets.token_hex(8),
        "tenant_id": make_tenant(tenant_path).id,
        "user_id": new_id(),
        "workload_id": new_id(),
        "run_id": new_id(),
        "flavor": "h100",
        "capacity_type": "on_demand",
        "gpu_units": 1,
        "cpu_millicores": 2000,
        "started_at": started_at,
        "until_at": started_at + timedelta(hours=1),
        "is_final": True,
    }
    return ObservedRun(cluster_id=cluster.id, **(given | fields))


def make_budget(
    path: str, amount: str = "100", *, measure: Measure = "money", stops: bool = True, **changes: Any
) -> Budget:
    """A budget of a tenant (made if need be) for dates from 2026-11-01 on, without end within the life of these tests."""
    make_tenant(path)
    given: dict[str, Any] = {
        "period": "dates",
        "starts_at": datetime(2026, 11, 1, tzinfo=UTC),
        "ends_at": datetime(2099, 1, 1, tzinfo=UTC),
        "currency": "USD" if measure == "money" else "",
    }
    wanted = WantedBudget(path, measure, Decimal(amount), stops_admission=stops, **(given | changes))
    return put_budget(SYSTEM, wanted)[0]


def budget_request(
    path: str, an_hour: str = "1", *, gpus: str = "1", seconds: int = 3600, holder_id: UUID | None = None
) -> BudgetRequest:
    """A run of an hour at this price, from now on."""
    tenant = make_tenant(path)
    commitment = Commitment(Decimal(an_hour), "USD", Decimal(gpus), now(), seconds)
    return BudgetRequest(holder_id or new_id(), tenant.id, tenant.path, commitment)


def take_budgets(*requests: BudgetRequest) -> dict[UUID, BudgetRefusal]:
    """Takes the holds of those requests that the budgets allow; why they do not allow the others."""
    with transaction.atomic():
        takers = Takers(requests)
        takers.write([one for one in requests if one.holder_id not in takers.refusals])
    return takers.refusals


def redate(rows: QuerySet[Any], **changes: Any) -> None:
    """Writes instants past the triggers by which ends are dated now and stand."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        rows.update(**changes)
        cursor.execute("SET LOCAL session_replication_role = origin")
