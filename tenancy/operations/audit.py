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
_ADD = f"""
    INSERT INTO tenancy_auditentry ({", ".join(_COLUMNS)})
    VALUES ({", ".join(f"%({column})s" for column in _COLUMNS)})
"""


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
        cursor.execute(
            _ADD,
            {
                "at": now(),
                "actor_id": actor.user_id,
                "actor_name": actor.name,
                "token_id": actor.token_id,
                "action": action,
                "outcome": outcome,
                "object_kind": object_kind,
                "object_id": str(object_id),
                "tenant_id": tenant_id,
                "detail": json.dumps(dict(detail or {})),
                "request_id": current_request_id.get(),
                "source": current_source.get(),
            },
        )
