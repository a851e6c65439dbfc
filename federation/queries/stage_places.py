"""Where copies of datasets come from and go to: what a copy that begins now is promised, and what it lacks."""

from collections.abc import Iterable
from typing import Any

from django.conf import settings

import clusters.queries
from clusters.engine.secrets import Keyring, Kind, KnownSecret, meant_secret
from clusters.engine.storages import sub_path_of
from clusters.models import StagingPlan
from clusters.queries.staging import known_storage
from federation.engine.objects.job_secrets import secret_name
from federation.engine.objects.mounts import promised_mount
from federation.engine.objects.stage_jobs import SOURCE, TARGET, promised_key
from federation.engine.staging import LONGEST_MESSAGE
from federation.models import StageIn
from foundation.ids import new_id


def copies_are_on() -> bool:
    """Whether the installation has an image for any kind of copy."""
    return bool(settings.STAGE_IMAGE or settings.OBJECT_STAGE_IMAGE)


def image_for(plan: StagingPlan) -> str:
    """The image that copies by this plan; empty if the installation has none."""
    image: str = settings.OBJECT_STAGE_IMAGE if _is_from_store(plan) else settings.STAGE_IMAGE
    return image


def keys_for(plans: Iterable[StagingPlan]) -> Keyring:
    """The secrets among which the access keys of these plans are. No query if none of them has an object store as its source."""
    return clusters.queries.known_secrets({plan.source.secret for plan in plans if _is_from_store(plan)})


def why_unable(plan: StagingPlan, keyring: Keyring) -> str:
    """What a copy that begins now lacks, whatever its cluster does: an image, or its access key among these (`keys_for`); empty if it
    has both.
    """
    if not image_for(plan):
        setting = "SWITCHYARD_OBJECT_STAGE_IMAGE" if _is_from_store(plan) else "SWITCHYARD_STAGE_IMAGE"
        what = "copies no data from object stores" if _is_from_store(plan) else "copies no data"
        return f"This installation {what}: an operator sets {setting} first."
    if _is_from_store(plan) and _key_of(plan, keyring) is None:
        told = f"{plan.dataset.tenant.path} has no secret {plan.source.secret} of the kind access_key."
        return told[:LONGEST_MESSAGE]
    return ""


def _is_from_store(plan: StagingPlan) -> bool:
    return known_storage(plan, plan.source).store is not None


def _key_of(plan: StagingPlan, keyring: Keyring) -> KnownSecret | None:
    """The access key that the plan's source names: that of the dataset's tenant, else the nearest above."""
    return meant_secret(keyring, plan.dataset.tenant.path, plan.source.secret, Kind.ACCESS_KEY)


def has_moved(row: StageIn) -> bool:
    """Whether a copy under way reads or writes where its plan's storages are no longer."""
    if row.phase == StageIn.Phase.IDLE:
        return False
    return (row.mounts, row.store) != (promised_places(row.plan), promised_store(row.plan))


def promised_places(plan: StagingPlan) -> list[dict[str, Any]]:
    """What the copy mounts: its source, read-only, unless that is an object store, and its target."""
    tenant_id, known = plan.dataset.tenant_id, known_storage(plan, plan.source)
    source = {"path": SOURCE, "sub_path": plan.source_path, "read_only": True}
    target = {"path": TARGET, "sub_path": plan.target_path, "read_only": False}
    return [
        *([] if known.store else [promised_mount(source, known, tenant_id)]),
        promised_mount(target, known_storage(plan, plan.target), tenant_id),
    ]


def promised_store(plan: StagingPlan) -> dict[str, str]:
    """What the copy reads in an object store; empty if it mounts its source."""
    known = known_storage(plan, plan.source)
    if known.store is None:
        return {}
    path = sub_path_of(known.prefix, plan.dataset.tenant_id, plan.source_path)
    return {"endpoint": known.store.endpoint, "region": known.store.region, "bucket": known.store.bucket, "path": path}


def promised_secret(plan: StagingPlan) -> dict[str, Any]:
    """The version of its access key that a copy gets which begins now, and the name of its Secret; empty without an object store."""
    secret = _key_of(plan, keys_for([plan])) if _is_from_store(plan) else None
    return {} if secret is None else promised_key(secret, secret_name(new_id()))
