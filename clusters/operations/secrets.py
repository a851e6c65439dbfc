"""Stores the secrets of tenants, sealed. No operation returns a value: only dispatch opens one, to send it to a cluster."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from clusters.drivers.resolve import key_ring
from clusters.engine.sealing import Sealed, seal_bound
from clusters.engine.secrets import MOST_SECRETS, Kind, binding_of
from clusters.locks import lock_secret
from clusters.models import TenantSecret
from foundation.ids import new_id
from foundation.outbox import announce
from foundation.problems import Conflict, NotFound
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import Actor, tenant_by_id


@dataclass(frozen=True, slots=True)
class NewValue:
    """What a secret contains from now on. `registry` is set exactly for the kind `registry`."""

    kind: str
    value: bytes = field(repr=False)
    registry: str = ""


def put_secret(actor: Actor, tenant_id: UUID, name: str, new: NewValue) -> TenantSecret:
    """The secret with its new value: version 1 if it is new, else the next version. The actor must manage the tenant.

    Jobs that are placed from now on get the new value; running ones keep theirs. Raises NotFound and NotAllowedHere
    (tenant), Conflict `secret_has_other_kind`, `too_many_secrets`.
    """
    tenant = tenant_by_id(actor, tenant_id, Permission.MANAGE_TENANTS)
    try:
        with transaction.atomic():
            return _put(actor, tenant, name, new)
    except IntegrityError as error:
        if "secret_name_is_unique_in_its_tenant" not in str(error):
            raise
    # Another request has created it meanwhile.
    with transaction.atomic():
        return _put(actor, tenant, name, new)


def delete_secret(actor: Actor, tenant_id: UUID, name: str) -> None:
    """Deletes the secret with its value. Jobs that name it wait until there is one of this name again."""
    tenant = tenant_by_id(actor, tenant_id, Permission.MANAGE_TENANTS)
    with transaction.atomic():
        secret = lock_secret(tenant.id, name)
        if secret is None:
            raise NotFound
        TenantSecret.objects.filter(id=secret.id).delete()
        _record(actor, "secret.delete", secret)


def _put(actor: Actor, tenant: Tenant, name: str, new: NewValue) -> TenantSecret:
    secret = lock_secret(tenant.id, name)
    if secret is None:
        if TenantSecret.objects.filter(tenant=tenant).count() >= MOST_SECRETS:
            raise Conflict(f"{tenant.path} can have at most {MOST_SECRETS} secrets.", code="too_many_secrets")
        secret_id = new_id()
        sealed = _sealed(secret_id, tenant, name, 1, new)
        secret = TenantSecret.objects.create(
            id=secret_id, tenant=tenant, name=name, kind=new.kind, registry=new.registry, version=1, **sealed
        )
        _record(actor, "secret.create", secret)
        return _shown(secret.id)
    if secret.kind != new.kind:
        told = f"{name} is of the kind {secret.kind}. Delete it first, or choose another name."
        raise Conflict(told, code="secret_has_other_kind")
    secret.version += 1
    sealed = _sealed(secret.id, tenant, name, secret.version, new)
    TenantSecret.objects.filter(id=secret.id).update(
        version=secret.version, registry=new.registry, changed_at=Now(), **sealed
    )
    _record(actor, "secret.rotate", secret)
    return _shown(secret.id)


def _sealed(secret_id: UUID, tenant: Tenant, name: str, version: int, new: NewValue) -> dict[str, Any]:
    sealed: Sealed = seal_bound(key_ring(), binding_of(secret_id, tenant.id, name, version), new.value)
    return {"key_id": sealed.key_id, "sealed": sealed.box}


def _shown(secret_id: UUID) -> TenantSecret:
    return TenantSecret.objects.select_related("tenant").get(id=secret_id)


def _record(actor: Actor, action: str, secret: TenantSecret) -> None:
    detail = {"name": secret.name, "kind": Kind(secret.kind).value, "version": secret.version}
    record_audit(actor, action, object_kind="secret", object_id=secret.id, tenant_id=secret.tenant_id, detail=detail)
    announce("cycle")
