"""What simulated objects get from manifests."""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from clusters.drivers.port import Refused
from clusters.engine.quantities import Implausible

from . import life
from .objects import Job, merged

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def preferring(wishes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The part of a pod's spec with these preferences of nodes."""
    if not wishes:
        return {}
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": list(wishes)}}}


def job_from(manifest: Mapping[str, Any]) -> Job:
    """The Job of a manifest. Raises Refused for what an API server would refuse."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    name, namespace = str(metadata["name"]), str(metadata["namespace"])
    if _NAME.fullmatch(name) is None:
        raise Refused(f"metadata.name: {name[:60]!r} is not a valid object name", status=422)
    if not spec.get("template", {}).get("spec", {}).get("containers"):
        raise Refused("spec.template.spec.containers: Required value", status=422)
    try:
        life.requests_of(spec["template"]["spec"])
    except Implausible as error:
        raise Refused(f"spec.template.spec.containers: {error}", status=400) from None
    parallelism = int(spec.get("parallelism", 1))
    deadline = spec.get("activeDeadlineSeconds")
    return Job(
        namespace=namespace,
        name=name,
        uid=str(uuid4()),
        labels=dict(metadata.get("labels", {})),
        template=merged({}, spec["template"]),
        suspended=bool(spec.get("suspend", False)),
        completions=int(spec.get("completions", parallelism)),
        parallelism=parallelism,
        backoff_limit=int(spec.get("backoffLimit", 6)),
        deadline_seconds=None if deadline is None else float(deadline),
    )
