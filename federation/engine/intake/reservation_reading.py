"""A request for an advance reservation, read from untrusted JSON."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from federation.engine import names
from placement.values.advance import TURNOVER

from .reading import Fault, Faults, Fields, Refused
from .spec import DNS_LABEL, JobSpec, Rules
from .spec_reading import read_spec

RESERVATION_FIELDS = frozenset(
    [
        "tenant", "name", "cluster", "starts_at", "ends_at", "count", "recall_seconds", "pod_sets", "topology",
        "constraints",
    ]
)  # fmt: skip
SHAPE_FIELDS = ("pod_sets", "topology", "constraints")
SHAPE_NAME, SHAPE_IMAGE = "shape", "registry.example/shape:1"
"""The placeholder for the name and the image of a job that is never submitted."""
MAX_COPIES = 1000
FEWEST_RECALL_SECONDS = int(TURNOVER.total_seconds()) + 60
"""A shorter time lends to no job."""
MOST_RECALL_SECONDS = 24 * 3600
LONGEST = timedelta(days=30)
FURTHEST = timedelta(days=366)
SHORTEST = TURNOVER + timedelta(minutes=1)
"""The shortest reservation; no job could run in a shorter one."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A number of jobs of a shape at the same time, from a start to an end; on any cluster unless
    the shape names one. Jobs that end within `recall_seconds` may use what is unused; None: none may.
    """

    tenant_path: str
    name: str
    starts_at: datetime
    ends_at: datetime
    count: int
    shape: JobSpec
    recall_seconds: int | None = None


def read_reservation(value: object, now: datetime) -> Wanted:
    """The reservation in a JSON object. Raises Refused with every field at fault.

    Pod sets may lack their names and images. Without `starts_at` it starts now.
    """
    faults = Faults()
    fields = Fields(value, "", faults, RESERVATION_FIELDS)
    tenant_path = fields.text("tenant", most_bytes=1100)
    name = fields.checked("name", names.dns_label, DNS_LABEL, most_bytes=names.MAX_LABEL)
    count = fields.whole("count", 1, MAX_COPIES, 1) or 1
    recall = fields.whole("recall_seconds", FEWEST_RECALL_SECONDS, MOST_RECALL_SECONDS, None)
    starts_at, ends_at = _read_times(fields, now)
    shape = _read_shape(fields)
    if shape is None or faults.found:
        raise Refused(faults.found)
    return Wanted(tenant_path, name, starts_at, ends_at, count, shape, recall)


def _read_times(fields: Fields, now: datetime) -> tuple[datetime, datetime]:
    before = len(fields.faults.found)
    starts_at = fields.instant("starts_at") or now
    ends_at = fields.instant("ends_at", required=True) or starts_at
    if len(fields.faults.found) > before:
        return starts_at, ends_at
    if starts_at < now:
        fields.fault("starts_at", "in_the_past", "starts_at is in the past; leave it out to start now")
    elif starts_at > now + FURTHEST:
        fields.fault("starts_at", "out_of_range", f"can be at most {FURTHEST.days} days ahead")
    if ends_at <= starts_at:
        fields.fault("ends_at", "out_of_range", "must be later than starts_at")
    elif not SHORTEST <= ends_at - starts_at <= LONGEST:
        shortest = int(SHORTEST.total_seconds() // 60)
        fields.fault("ends_at", "out_of_range", f"must be {shortest} minutes to {LONGEST.days} days after starts_at")
    return starts_at, ends_at


def _read_shape(fields: Fields) -> JobSpec | None:
    """The request of one of the jobs; None after a fault."""
    cluster = ""
    if fields.values.get("cluster") is not None:
        cluster = fields.checked("cluster", names.dns_label, DNS_LABEL, most_bytes=names.MAX_LABEL)
    said = {name: fields.values[name] for name in SHAPE_FIELDS if name in fields.values}
    try:
        spec = read_spec(named_shape({"name": SHAPE_NAME, **said}), Rules())
    except Refused as refused:
        fields.faults.found += refused.faults
        return None
    constraints = spec.constraints
    for part in ("overflow", "reservation"):
        if getattr(constraints, part):
            fields.faults.found.append(Fault(f"constraints.{part}", "not_allowed", "not allowed in a reservation"))
    if cluster and constraints.clusters and cluster not in constraints.clusters:
        fields.fault("cluster", "conflict", "is not among constraints.clusters")
    return replace(spec, constraints=replace(constraints, clusters=(cluster,))) if cluster else spec


def named_shape(body: object) -> Any:
    """The body of a job that is never submitted, with its name and its pods' names and images filled in."""
    if not isinstance(body, dict) or "manifest" in body:
        return body
    pod_sets = body.get("pod_sets")
    if isinstance(pod_sets, list):
        pod_sets = [_named_pod_set(item, index) for index, item in enumerate(pod_sets)]
    return {"name": SHAPE_NAME, **body, "pod_sets": pod_sets}


def _named_pod_set(item: Any, index: int) -> Any:
    return {"name": f"set-{index}", "image": SHAPE_IMAGE, **item} if isinstance(item, dict) else item
