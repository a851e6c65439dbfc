"""What the operations on hooks share: locking one, sealing and opening what is secret of it, and its audit entries."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from billing import locks
from billing.models import AlertHook
from billing.queries.hooks import hook_by_id
from clusters.drivers.resolve import key_ring
from clusters.engine.hook_servers import HookServer, read_hook_url
from clusters.engine.sealing import Sealed, seal_bound, unseal_bound
from foundation.problems import Conflict, NotFound
from tenancy.operations import record_audit
from tenancy.queries import SYSTEM, Actor

ROUTINE = "alert"


def locked_hook(actor: Actor, hook_id: UUID) -> AlertHook:
    """The hook, locked until commit. Raises NotFound."""
    hook_by_id(actor, hook_id)
    hook = locks.lock_hook(hook_id)
    if hook is None:
        raise NotFound
    return hook


def unpaused_hook(actor: Actor, hook_id: UUID) -> AlertHook:
    """The hook, locked until commit. Raises NotFound, Conflict `hook_paused`."""
    hook = locked_hook(actor, hook_id)
    if hook.paused_at is not None:
        raise Conflict("The hook is paused. Resume it first.", code="hook_paused")
    return hook


def seal_hook(hook: AlertHook, held: Mapping[str, str]) -> None:
    """Sets what is sealed of the hook; the caller saves it."""
    sealed = seal_bound(key_ring(), binding_of(hook), json.dumps(held).encode())
    hook.key_id, hook.sealed = sealed.key_id, sealed.box


def opened(hook_id: UUID, tenant_id: UUID, sealed: Sealed) -> tuple[HookServer, str]:
    """The server and the signing secret. Raises CannotUnseal."""
    found = _held(hook_id, tenant_id, sealed)
    return read_hook_url(found["url"]), found["secret"]


def opened_link(hook_id: UUID, tenant_id: UUID, sealed: Sealed) -> str:
    """The secret of the newest link that confirms the hook's address. Raises CannotUnseal."""
    return _held(hook_id, tenant_id, sealed)["link"]


def binding_of(hook: AlertHook) -> str:
    """What the seal is bound to: moved to another row, it does not open."""
    return _binding(hook.id, hook.tenant_id)


def record_hook(actor: Actor, action: str, hook: AlertHook, detail: Mapping[str, Any] | None = None) -> None:
    """An audit entry of what an actor did with a hook."""
    to = {"address": hook.address} if hook.address else {"server": hook.server}
    told = {"name": hook.name, **to, "kinds": hook.kinds, "form": hook.form, **(detail or {})}
    record_audit(actor, action, object_kind="alert_hook", object_id=hook.id, tenant_id=hook.tenant_id, detail=told)


def record_of_hook(action: str, hook: AlertHook, detail: Mapping[str, Any]) -> None:
    """An audit entry of what the gateway did with a hook."""
    record_hook(SYSTEM, action, hook, detail)


def _binding(hook_id: UUID, tenant_id: UUID) -> str:
    return f"alert hook|{hook_id}|{tenant_id}"


def _held(hook_id: UUID, tenant_id: UUID, sealed: Sealed) -> dict[str, str]:
    found: dict[str, str] = json.loads(unseal_bound(key_ring(), _binding(hook_id, tenant_id), sealed))
    return found
