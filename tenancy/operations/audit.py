"""The audit trail: one entry for each change, in the change's own transaction."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import connection

from foundation.clock import now
from foundation.requests import current_request_id, current_source
from foundation.rows import columns_of
from tenancy.models import AuditEntry
from tenancy.queries import Actor

_COLUMNS = columns_of(AuditEntry, without={"id"})
ADD_ENTRY = f"""
    INSERT INTO tenancy_auditentry ({", ".join(_COLUMNS)})
    VALUES ({", ".join(f"%(audited_{column})s" for column in _COLUMNS)})
"""
"""Its parameters are those of `entry_values`."""


def record_audit(  # noqa: PLR0913 - each names one column of the trail
    actor: Actor,
    action: str,
    *,
    object_kind: str,
    object_id: str | UUID = "",
    tenant_id: UUID | None = None,
    detail: Mapping[str, Any] | None = None,
    outcome: str = "done",
) -> None:
    """Adds an entry to the trail; call it inside the transaction of the change that it records.

    `action` has the form `noun.verb` (`tenant.create`); `outcome` is `done` or `refused`. `detail` is plain JSON
    without secrets. Request id and client address are those of the current request.
    """
    with connection.cursor() as cursor:
        cursor.execute(ADD_ENTRY, entry_values(actor, action, object_kind, object_id, tenant_id, detail, outcome))


def entry_values(  # noqa: PLR0913, PLR0917 - likewise
    actor: Actor,
    action: str,
    object_kind: str,
    object_id: str | UUID = "",
    tenant_id: UUID | None = None,
    detail: Mapping[str, Any] | None = None,
    outcome: str = "done",
) -> dict[str, Any]:
    """The parameters of ADD_ENTRY, for a statement that also makes the change. As for `record_audit`."""
    return {
        "audited_at": now(),
        "audited_actor_id": actor.user_id,
        "audited_actor_name": actor.name,
        "audited_token_id": actor.token_id,
        "audited_action": action,
        "audited_outcome": outcome,
        "audited_object_kind": object_kind,
        "audited_object_id": str(object_id),
        "audited_tenant_id": tenant_id,
        "audited_detail": json.dumps(dict(detail or {})),
        "audited_request_id": current_request_id.get(),
        "audited_source": current_source.get(),
    }
