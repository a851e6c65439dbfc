"""Claimed attempts as dispatch needs them: what to create, release and stop."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection
from msgspec import json

from federation.engine.in_part import Overdue
from federation.engine.intake.elastic import spec_of_run
from federation.engine.intake.gpu_needs import gpu_needs_of
from federation.engine.intake.init_and_sidecars import with_secrets
from federation.engine.lifecycle import AttemptState
from federation.engine.objects import isolation, job_secrets, meeting, mounts, ranks, rendering, resource_claims
from federation.engine.objects.gpu_needs import ANY_NODE, NodeNeeds, enforced
from federation.engine.objects.networks import lay_networks
from federation.queries.claimed_bounds import MAY_BE_BOUNDED, Stay, bounds_of_stays
from placement.values.advance import Bounds
from placement.values.gpu_needs import GpuNeeds
from placement.values.reason_codes import ReasonCode

UNRELEASED = (AttemptState.RESERVED, AttemptState.CREATED)


@dataclass(frozen=True, slots=True)
class ClaimedObject:
    """One object of an attempt; `uid` is empty until it was seen to exist."""

    id: int
    position: int
    name: str
    uid: str
    flavor: str
    is_promised: bool
    """False if the cluster no longer offered the flavor when the attempt was made: there is nothing to request."""
    devices: rendering.Devices
    node_selector: Mapping[str, str]
    assumed_nodes: tuple[str, ...]
    domain: tuple[Mapping[str, str], ...]
    topology_label: str
    stretches: tuple[ranks.Stretch, ...] = ()
    """The nodes of its pods by index (`engine.objects.ranks`)."""
    is_in_slice: bool = False
    """Whether its devices are parts of an accelerator of several nodes, which its pods must keep to."""
    mounts: tuple[Mapping[str, Any], ...] = ()
    """What its pods mount, as promised when the attempt was placed (`engine.objects.mounts`)."""
    networks: tuple[Mapping[str, Any], ...] = ()
    secrets: Mapping[str, Any] = field(default_factory=dict)
    """The Secrets of its pods, likewise (`engine.objects.job_secrets`)."""
    needs: NodeNeeds = ANY_NODE


@dataclass(frozen=True, slots=True)
class ClaimedAttempt:
    """One claimed attempt, with everything that is sent to its cluster."""

    id: UUID
    cluster: str
    cluster_identity: str
    """The cluster's identity at registration: the uid of its kube-system namespace."""
    has_kueue: bool
    state: AttemptState
    stop_reason: str
    stop_message: str
    was_sent: bool
    tries: int
    namespace: str
    identity: rendering.Identity
    spec: Mapping[str, Any]
    """With the number of pods that the attempt was given."""
    objects: tuple[ClaimedObject, ...]
    bounds: Bounds
    """The nodes that it may use if it is released now: none reserved, avoided, or of maintenance that it could meet."""
    is_released: bool = False
    creates_fail: bool = False
    """Whether failed creations of objects already count against its cluster's health."""
    lacks_services: bool = False
    """Whether its cluster's health already has that it denies the Services of gangs."""
    secret_values: Mapping[job_secrets.SecretVersion, bytes] = field(default_factory=dict, repr=False)
    """The values of its secrets, while it is to be created (`queries.secrets`)."""
    report_token: bytes = field(default=b"", repr=False)
    """Its token for reports, likewise; empty if it may not report."""
    has_closed_secret: bool = False
    """Whether one of them cannot be opened with the gateway's keys."""
    plan: str = ""
    """If it moves to a kept place, and its deletion is not decided: that, or its plan, is `open`, or `over`, so that the run can go on."""

    overdue: Mapping[int, Overdue] = field(default_factory=dict)
    """If it started in part: what has waited for too long, by the object's position (`queries.in_part`)."""

    @property
    def must_stop(self) -> bool:
        """Whether a stop was requested: it must not start, or must end."""
        return bool(self.stop_reason)

    @property
    def is_ordered(self) -> bool:
        """Whether some of its pods are placed in the order of their indices. Kueue does that itself."""
        return not self.has_kueue and any(item.stretches for item in self.objects)

    @property
    def may_have_run(self) -> bool:
        """Whether it was committed before this visit, so that an earlier release may have reached the cluster."""
        return self.state not in UNRELEASED

    @property
    def must_keep_domain(self) -> bool:
        """Whether its topology is required: its pods run only in the chosen domain."""
        topology = self.spec["topology"]
        return bool(topology["mode"] == "required" and topology["level"] != "cluster")

    @property
    def is_gang(self) -> bool:
        """Whether several of its pods run at the same time."""
        return bool(sum(pod_set["count"] for pod_set in self.spec["pod_sets"]) > 1)

    @property
    def secret_versions(self) -> set[job_secrets.SecretVersion]:
        """The versions of secrets that it was promised."""
        return {version for item in self.objects for version in job_secrets.versions_of(item.secrets)}

    def secret_manifests(self, item: ClaimedObject, uid: str) -> list[dict[str, Any]]:
        """The Secrets to create for an object, which owns them."""
        owner = (item.name, uid)
        return job_secrets.secret_manifests(
            item.secrets, self.namespace, self.identity, owner, self.secret_values, self.report_token
        )

    @property
    def may_report(self) -> bool:
        """Whether its runs may report, and know where."""
        return bool(settings.PUBLIC_URL) and any(item.secrets.get("report") for item in self.objects)

    @property
    def has_secrets(self) -> bool:
        """Whether Secrets have to be created for it."""
        return bool(self.secret_versions) or self.may_report

    @property
    def meets(self) -> bool:
        """Whether its pods find each other by names."""
        return meeting.meeting_of(self.spec, self.id, self.namespace) is not None

    @property
    def network_policies(self) -> tuple[dict[str, Any], ...]:
        """The network policies of its namespace."""
        return isolation.namespace_policies(self.namespace, self.identity.install, settings.JOB_EGRESS)

    def resource_claim_templates(self, item: ClaimedObject) -> list[dict[str, Any]]:
        """The templates that must exist in its namespace before the object's pods can claim their devices."""
        devices, install = item.devices, self.identity.install
        if devices.claimable is None:
            return []
        return resource_claims.resource_claim_templates(self.namespace, install, devices.claimable, devices.units)

    def gang_policy(self, uids: Mapping[int, str]) -> dict[str, Any]:
        """The policy that allows its pods to talk to each other, after its objects' uids are known."""
        return isolation.gang_policy(self.namespace, self.identity, self._owners(uids))

    def gang_service(self, uids: Mapping[int, str]) -> dict[str, Any]:
        """The Service by which its pods find each other, after its objects' uids are known."""
        return meeting.gang_service(self.namespace, self.id, self.identity.labels, self._owners(uids))

    def _owners(self, uids: Mapping[int, str]) -> dict[str, str]:
        return {item.name: uids[item.id] for item in self.objects}

    def with_uids(self, uids: Mapping[int, str]) -> "ClaimedAttempt":
        """The attempt with its objects' known uids."""
        return replace(self, objects=tuple(replace(item, uid=uids[item.id]) for item in self.objects))

    def manifest(self, item: ClaimedObject, *, is_gated: bool = False) -> dict[str, Any]:
        """The suspended Job to create; its pods have a gate if they need an order."""
        manifest = rendering.render_job(
            self.spec,
            item.position,
            self.identity,
            item.devices,
            kueue_label=item.topology_label if self.has_kueue else "",
            simulated=settings.ALLOW_SIMULATION,
        )
        manifest["metadata"]["namespace"] = self.namespace  # as it was then: a tenant may have been renamed since
        pod, pod_set = manifest["spec"]["template"]["spec"], self.spec["pod_sets"][item.position]
        mounts.lay_mounts(pod, item.mounts)
        lay_networks(manifest["spec"]["template"], item.networks)
        job_secrets.lay_secrets(pod, item.secrets, with_secrets(pod_set))
        reports_url = f"{settings.PUBLIC_URL}/api/v1/attempts/{self.id}/reports" if settings.PUBLIC_URL else ""
        job_secrets.lay_report(pod, item.secrets, reports_url)
        if is_gated and item.stretches:
            pod["schedulingGates"] = [{"name": ranks.GATE}]
        return manifest

    def template_patch(self, item: ClaimedObject) -> dict[str, Any]:
        """The placement hints that are sent with the release."""
        return rendering.template_patch(
            item.node_selector,
            item.assumed_nodes,
            domain=item.domain,
            must_keep=self.must_keep_domain or item.is_in_slice,
            bounds=self.bounds,
            devices=item.needs,
        )


_ATTEMPTS = f"""
SELECT attempt.id, attempt.number, attempt.state, attempt.namespace, attempt.spec_hash, attempt.tries,
       attempt.sent_at IS NOT NULL, attempt.stop_requested_at IS NOT NULL, attempt.stop_reason, attempt.stop_message,
       cluster.id, cluster.name, cluster.identity, cluster.has_kueue, job.id, job.tenant_id, tenant.path, job.spec,
       attempt.released_at IS NOT NULL, cluster.reasons @> '[{{"code": "creates_fail"}}]',
       cluster.reasons @> '[{{"code": "services_closed"}}]', statement_timestamp(),
       (SELECT count(*) FROM federation_attempt AS earlier
         WHERE earlier.job_id = attempt.job_id AND earlier.number < attempt.number AND earlier.starting_at IS NOT NULL),
       (SELECT checkpoint.reference
          FROM federation_attempt AS earlier JOIN federation_checkpoint AS checkpoint ON checkpoint.attempt_id = earlier.id
         WHERE earlier.job_id = attempt.job_id AND earlier.number < attempt.number
           AND (checkpoint.flavors = '[]' OR checkpoint.flavors @> to_jsonb(attempt.flavor))
         ORDER BY earlier.number DESC, checkpoint.sequence DESC LIMIT 1),
       {MAY_BE_BOUNDED},
       CASE WHEN attempt.stop_reason = 'migrated' AND attempt.deletion_at IS NULL THEN (
         SELECT CASE WHEN (plan.ended_at IS NOT NULL OR move.kept_until <= statement_timestamp()) AND job.suspend_requested_at IS NULL
                     THEN 'over' ELSE 'open' END
           FROM federation_move AS move LEFT JOIN federation_consolidation AS plan ON plan.id = move.consolidation_id
          WHERE move.attempt_id = attempt.id AND (plan.id IS NOT NULL OR move.kept_until IS NOT NULL)) END
  FROM federation_attempt AS attempt
  JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id
  JOIN federation_job AS job ON job.id = attempt.job_id
  JOIN tenancy_tenant AS tenant ON tenant.id = job.tenant_id
 WHERE attempt.id = ANY(%s) ORDER BY attempt.id
"""
_OBJECTS = """
SELECT object.attempt_id, object.id, object.position, object.name, object.uid, object.capacity_type, object.gpu_units,
       object.assumed_nodes, object.domain_selectors, object.topology_label, object.stretches,
       object.flavor, object.promised, object.mounts, object.networks, object.secrets, object.pods
  FROM federation_remoteobject AS object
 WHERE object.attempt_id = ANY(%s) ORDER BY object.attempt_id, object.position
"""
"""Written in SQL, because dispatch runs them for every few jobs, and composing them costs more than executing them."""


class _AttemptRow(NamedTuple):
    """The columns of _ATTEMPTS."""

    id: UUID
    number: int
    state: str
    namespace: str
    spec_hash: str
    tries: int
    was_sent: bool
    must_stop: bool
    stop_reason: str
    stop_message: str
    cluster_id: UUID
    cluster: str
    cluster_identity: str
    has_kueue: bool
    job_id: UUID
    tenant_id: UUID
    tenant_path: str
    spec: str
    is_released: bool
    creates_fail: bool
    lacks_services: bool
    now: datetime
    earlier_runs: int
    checkpoint: str | None
    may_be_bounded: bool
    plan: str | None


class _ObjectRow(NamedTuple):
    """The columns of _OBJECTS."""

    attempt_id: UUID
    id: int
    position: int
    name: str
    uid: str
    capacity_type: str
    gpu_units: int
    assumed_nodes: str
    domain_selectors: str
    topology_label: str
    stretches: str
    flavor: str
    promised: str | None
    mounts: str
    networks: str
    secrets: str
    pods: int


@lru_cache(maxsize=4096)
def spec_hash_of(spec: str) -> str:
    """The digest on objects of a job with this stored spec."""
    return rendering.spec_hash(json.decode(spec))


def claimed_attempts(attempt_ids: Collection[UUID]) -> list[ClaimedAttempt]:
    """The claimed attempts, with their objects and how to render them. Two queries, or six if nodes are kept from some."""
    ids = list(attempt_ids)
    objects: dict[UUID, list[_ObjectRow]] = defaultdict(list)
    for row in map(_ObjectRow._make, _rows(_OBJECTS, [ids])):
        objects[row.attempt_id].append(row)
    rows = [_AttemptRow._make(row) for row in _rows(_ATTEMPTS, [ids])]
    specs = [json.decode(row.spec) for row in rows]
    bounds = bounds_of_stays([_stay(row, spec) for row, spec in zip(rows, specs, strict=True)])
    return [_claimed(row, spec, objects[row.id], its) for row, spec, its in zip(rows, specs, bounds, strict=True)]


def _stay(row: _AttemptRow, spec: Mapping[str, Any]) -> Stay:
    return Stay(
        job_id=row.job_id,
        cluster_id=row.cluster_id,
        tenant_path=row.tenant_path,
        reservation=spec["constraints"].get("reservation", ""),
        deadline_seconds=spec["deadline_seconds"],
        now=row.now,
        may_be_bounded=row.may_be_bounded,
    )


def _rows(statement: str, parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def _claimed(
    row: _AttemptRow, spec: Mapping[str, Any], objects: Sequence[_ObjectRow], bounds: Bounds
) -> ClaimedAttempt:
    needs = gpu_needs_of(spec["constraints"])
    return ClaimedAttempt(
        id=row.id,
        cluster=row.cluster,
        cluster_identity=row.cluster_identity,
        has_kueue=row.has_kueue,
        state=AttemptState(row.state),
        stop_reason=(row.stop_reason or ReasonCode.CANCELLED) if row.must_stop else "",
        stop_message=row.stop_message,
        was_sent=row.was_sent,
        tries=row.tries,
        namespace=row.namespace,
        identity=rendering.Identity(
            install=settings.INSTALL_ID,
            tenant_id=row.tenant_id,
            tenant_path=row.tenant_path,
            job_id=row.job_id,
            attempt_id=row.id,
            attempt_number=row.number,
            spec_hash=row.spec_hash,
            kept_namespace=row.namespace,
            earlier_runs=row.earlier_runs,
            checkpoint=row.checkpoint or "",
        ),
        spec=spec_of_run(spec, [each.pods for each in objects]),
        objects=tuple(_object(each, needs) for each in objects),
        bounds=bounds,
        is_released=row.is_released,
        creates_fail=row.creates_fail,
        lacks_services=row.lacks_services,
        plan=row.plan or "",
    )


def _object(row: _ObjectRow, needs: GpuNeeds | None) -> ClaimedObject:
    promised = json.decode(row.promised) if row.promised else {}
    device_class, name, cel = (promised.get(key, "") for key in ("device_class", "resource_name", "cel"))
    nodes, cel = enforced(needs if row.gpu_units else None, name, cel)
    return ClaimedObject(
        id=row.id,
        position=row.position,
        name=row.name,
        uid=row.uid,
        flavor=row.flavor,
        is_promised=bool(promised),
        devices=rendering.Devices(
            vendor=promised.get("vendor", ""),
            capacity_type=row.capacity_type,
            resource_name=name,
            units=row.gpu_units,
            claimable=resource_claims.Claimable(device_class, cel) if device_class else None,
        ),
        node_selector=promised.get("node_selector", {}),
        assumed_nodes=tuple(json.decode(row.assumed_nodes)),
        domain=tuple(json.decode(row.domain_selectors)),
        topology_label=row.topology_label,
        stretches=tuple(json.decode(row.stretches)),
        mounts=tuple(json.decode(row.mounts)),
        networks=tuple(json.decode(row.networks)),
        secrets=json.decode(row.secrets),
        needs=nodes,
        is_in_slice=promised.get("slice_hosts", 1) > 1 and row.gpu_units > 0,
    )
