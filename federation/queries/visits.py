"""Claimed attempts as dispatch needs them: what to create, what to release, what to stop."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models.functions import Now

from clusters.models import Cluster, Flavor
from federation.engine import isolation, rendering
from federation.engine.lifecycle import AttemptState
from federation.models import LIVE_ATTEMPT_STATES, Attempt, Job, RemoteObject

SILENT = [Cluster.Health.UNREACHABLE, Cluster.Health.AUTH_FAILED]
UNRELEASED = (AttemptState.RESERVED, AttemptState.CREATED)


@dataclass(frozen=True, slots=True)
class VisitedObject:
    """One object of an attempt; `uid` is empty until it was seen to exist."""

    id: int
    position: int
    name: str
    uid: str
    devices: rendering.Devices
    node_selector: Mapping[str, str]
    assumed_nodes: tuple[str, ...]
    domain: tuple[Mapping[str, str], ...]
    topology_label: str
    is_in_slice: bool = False
    """Its devices are parts of an accelerator of several nodes, which its pods must keep to."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One claimed attempt, with everything that is said to its cluster."""

    attempt_id: UUID
    cluster: str
    has_kueue: bool
    state: AttemptState
    stop_reason: str
    stop_message: str
    was_sent: bool
    tries: int
    namespace: str
    identity: rendering.Identity
    spec: Mapping[str, Any]
    objects: tuple[VisitedObject, ...]

    @property
    def must_stop(self) -> bool:
        """Somebody asked that it must not start, or must end."""
        return bool(self.stop_reason)

    @property
    def may_have_run(self) -> bool:
        """It was committed to before this visit, so an earlier release may have reached the cluster."""
        return self.state not in UNRELEASED

    @property
    def must_keep_domain(self) -> bool:
        """Its topology is required: its pods run in the domain that was chosen for it, or nowhere."""
        topology = self.spec["topology"]
        return bool(topology["mode"] == "required" and topology["level"] != "cluster")

    @property
    def is_gang(self) -> bool:
        """Several of its pods run at the same time."""
        return bool(sum(pod_set["count"] for pod_set in self.spec["pod_sets"]) > 1)

    @property
    def network_policies(self) -> tuple[dict[str, Any], ...]:
        """What every pod of its namespace obeys."""
        return isolation.namespace_policies(self.namespace, self.identity.install, settings.JOB_EGRESS)

    def gang_policy(self, uids: Mapping[int, str]) -> dict[str, Any]:
        """What lets its pods talk to each other, once its objects' uids are known."""
        return isolation.gang_policy(self.namespace, self.identity, {item.name: uids[item.id] for item in self.objects})

    def with_uids(self, uids: Mapping[int, str]) -> "Visit":
        """The same visit after its objects' uids have become known."""
        return replace(self, objects=tuple(replace(item, uid=uids[item.id]) for item in self.objects))

    def manifest(self, item: VisitedObject) -> dict[str, Any]:
        """The suspended Job to create."""
        manifest = rendering.render_job(
            self.spec,
            item.position,
            self.identity,
            item.devices,
            kueue_label=item.topology_label if self.has_kueue else "",
            simulated=settings.ALLOW_SIMULATION,
        )
        # As it was when the attempt was made: a tenant may have been renamed since.
        manifest["metadata"]["namespace"] = self.namespace
        return manifest

    def template_patch(self, item: VisitedObject) -> dict[str, Any]:
        """The placement hints that go down with the release."""
        return rendering.template_patch(
            item.node_selector,
            item.assumed_nodes,
            domain=item.domain,
            must_keep=self.must_keep_domain or item.is_in_slice,
        )


_COLUMNS = (
    "job__tenant__path", "job__spec", "cluster__name", "number", "state", "namespace", "spec_hash", "tries", "sent_at",
    "stop_requested_at", "stop_reason", "stop_message",
)  # fmt: skip


def due_clusters() -> list[UUID]:
    """Clusters that answer and have attempts due for a visit."""
    due = Attempt.objects.filter(next_action_at__lte=Now(), state__in=LIVE_ATTEMPT_STATES)
    return list(
        due.exclude(cluster__health__in=SILENT).order_by("cluster_id").values_list("cluster_id", flat=True).distinct()
    )


def spec_hash_of(job: Job) -> str:
    """The digest that an object of this job carries."""
    return rendering.spec_hash(job.spec)


def visits_of(attempt_ids: Collection[UUID]) -> list[Visit]:
    """The claimed attempts, with their objects and how to render them. Three queries."""
    attempts = list(
        Attempt.objects.filter(id__any_of=attempt_ids)
        .select_related("job__tenant", "cluster")
        .only(*_COLUMNS)
        .order_by("id")
    )
    rows: dict[UUID, list[RemoteObject]] = defaultdict(list)
    for row in RemoteObject.objects.filter(attempt_id__any_of=attempt_ids).order_by("attempt_id", "position"):
        rows[row.attempt_id].append(row)
    offered = Flavor.objects.filter(cluster_id__any_of=list({attempt.cluster_id for attempt in attempts}))
    flavors = {(flavor.cluster_id, flavor.name): flavor for flavor in offered}
    return [_visit(attempt, rows[attempt.id], flavors) for attempt in attempts]


def _visit(attempt: Attempt, rows: list[RemoteObject], flavors: Mapping[tuple[UUID, str], Flavor]) -> Visit:
    return Visit(
        attempt_id=attempt.id,
        cluster=attempt.cluster.name,
        has_kueue=attempt.cluster.has_kueue,
        state=AttemptState(attempt.state),
        stop_reason=(attempt.stop_reason or "cancelled") if attempt.stop_requested_at else "",
        stop_message=attempt.stop_message,
        was_sent=attempt.sent_at is not None,
        tries=attempt.tries,
        namespace=attempt.namespace,
        identity=rendering.Identity(
            install=settings.INSTALL_ID,
            tenant_id=attempt.job.tenant_id,
            tenant_path=attempt.job.tenant.path,
            job_id=attempt.job_id,
            attempt_id=attempt.id,
            attempt_number=attempt.number,
            spec_hash=attempt.spec_hash,
        ),
        spec=attempt.job.spec,
        objects=tuple(_object(row, flavors.get((attempt.cluster_id, row.flavor))) for row in rows),
    )


def _object(row: RemoteObject, flavor: Flavor | None) -> VisitedObject:
    return VisitedObject(
        id=row.id,
        position=row.position,
        name=row.name,
        uid=row.uid,
        devices=rendering.Devices(
            vendor=flavor.vendor if flavor else "",
            capacity_type=row.capacity_type,
            resource_name=flavor.resource_name if flavor else "",
            units=row.gpu_units if flavor else 0,
        ),
        node_selector=flavor.node_selector if flavor else {},
        assumed_nodes=tuple(row.assumed_nodes),
        domain=tuple(row.domain_selectors),
        topology_label=row.topology_label,
        is_in_slice=flavor is not None and flavor.slice_hosts > 1 and row.gpu_units > 0,
    )
