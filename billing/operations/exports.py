"""Exports leave a trace: who took which data."""

from datetime import datetime

from foundation.plain_json import instant
from tenancy.operations import record_audit
from tenancy.queries import Actor, visible_tenants


def note_export(actor: Actor, kind: str, tenant_path: str, start: datetime, until: datetime) -> None:
    """Records that the actor takes an export of this period; without a path, of all that they may see."""
    tenant_id = visible_tenants(actor).filter(path=tenant_path).values_list("id", flat=True).first()
    record_audit(
        actor,
        "usage.export",
        object_kind="export",
        object_id=kind,
        tenant_id=tenant_id,
        detail={"tenant": tenant_path, "from": instant(start), "to": instant(until)},
    )
