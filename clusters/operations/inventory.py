"""Stores a cluster's observed inventory: only the differences, in one short transaction with a few statements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F

from clusters.drivers import TooMuch
from clusters.engine.device_inventory import ClaimableDevices
from clusters.engine.flavors import FlavorOffer, key_of
from clusters.engine.health import NODES_NAMED, Reason, inventory_findings
from clusters.engine.inventory import (
    NOTHING,
    ForeignUse,
    NodeRecord,
    NodeUse,
    SeenNode,
    is_nameable,
    node_record,
    unify_flavors,
)
from clusters.locks import lock_cluster
from clusters.models import Cluster, Flavor, Node
from foundation import clock

from .health import record_findings, record_limited

_BATCH = 1000
MOST_FLAVORS = 500
NOTHING_CLAIMABLE = ClaimableDevices()
_NODE_FIELDS = (
    "uid",
    "domain",
    "labels",
    "taints",
    "devices",
    "cpu_millicores",
    "memory_mib",
    "pods",
    "foreign_cpu_millicores",
    "foreign_memory_mib",
    "foreign_pods",
    "foreign_devices",
    "used_devices",
    "resources",
    "gpu_facts",
    "is_ready",
    "is_schedulable",
)
_FLAVOR_FIELDS = (
    "vendor",
    "gpu_model",
    "gpu_memory_mib",
    "sharing",
    "capacity_type",
    "resource_name",
    "node_selector",
    "slice_hosts",
    "unplaceable",
    "device_class",
    "cel",
)


@dataclass(frozen=True, slots=True)
class InventoryChange:
    """The amount that `record_inventory` wrote. `version` is the inventory's version afterwards, None if the cluster is
    gone.
    """

    nodes_written: int
    nodes_removed: int
    flavors_written: int
    flavors_removed: int
    version: int | None


def record_inventory(
    cluster_id: UUID,
    nodes: Sequence[SeenNode],
    foreign: Mapping[str, ForeignUse],
    used_devices: Mapping[str, Mapping[str, int]] | None = None,
    claimable: ClaimableDevices = NOTHING_CLAIMABLE,
) -> InventoryChange:
    """Makes the stored nodes and flavors equal to the observed ones. `foreign` and `used_devices` (foreign pods' use
    and ours, by resource) are by node name, and `claimable` has the claimable devices.

    The inventory's version grows if anything that placement reads has changed. Implausible capacity counts as none and
    causes an event when it first appears. Concurrent observers write one after the other.
    """
    records = [
        node_record(node, claimable.by_node.get(node.name, {}), settings.RESOURCES)
        for node in nodes
        if is_nameable(node)
    ]
    kinds = len({key_of(offer) for record in records for offer in record.offers})
    if kinds > MOST_FLAVORS:
        raise TooMuch(f"its nodes offer {kinds} flavors, and the gateway keeps at most {MOST_FLAVORS} for one cluster")
    flavors, devices = unify_flavors(records, claimable.apart)
    now = clock.now()
    wanted = {
        record.name: _node_values(record, devices[record.name], foreign.get(record.name, NOTHING), used)
        for record in records
        for used in [dict((used_devices or {}).get(record.name, {}))]
    }
    with transaction.atomic():
        cluster = lock_cluster(cluster_id)
        if cluster is None:
            return InventoryChange(0, 0, 0, 0, None)
        stored = {
            row["name"]: row for row in Node.objects.filter(cluster_id=cluster_id).values("id", "name", *_NODE_FIELDS)
        }
        changed = {name: values for name, values in wanted.items() if _differs(stored.get(name), values)}
        gone = [row["id"] for name, row in stored.items() if name not in wanted]
        flavors_written, flavors_removed = _write_flavors(cluster_id, flavors)
        _write_nodes(cluster_id, changed, now)  # after the flavors: the history of the fleet reads them
        if gone:
            Node.objects.filter(id__in=gone).delete()
        _tell_problems(cluster_id, [record for record in records if record.name in changed])
        record_findings(cluster_id, "inventory", _findings(records))
        matters = any(_matters(stored.get(name), values) for name, values in changed.items())
        version = cluster.inventory_version
        if matters or gone or flavors_written or flavors_removed:
            Cluster.objects.filter(id=cluster_id).update(inventory_version=F("inventory_version") + 1)
            version += 1
    return InventoryChange(len(changed), len(gone), flavors_written, flavors_removed, version)


USE_FIELDS = ("foreign_cpu_millicores", "foreign_memory_mib", "foreign_pods", "foreign_devices", "used_devices")


def record_use(cluster_id: UUID, changed: Mapping[str, NodeUse]) -> int:
    """The number of nodes written: stores the use on these nodes, if it differs from the stored one.

    The cost depends on the change, not on the cluster's size. The inventory's version grows as in `record_inventory`.
    """
    wanted = {name: _use_values(use.foreign, dict(use.devices)) for name, use in changed.items()}
    now = clock.now()
    with transaction.atomic():
        if lock_cluster(cluster_id) is None:
            return 0
        rows = Node.objects.filter(cluster_id=cluster_id, name__in=list(wanted))
        stored = {row["name"]: row for row in rows.values("id", "name", *USE_FIELDS)}
        differing = {name: row for name, row in stored.items() if _differs(row, wanted[name])}
        Node.objects.bulk_update(
            [Node(id=row["id"], observed_at=now, **wanted[name]) for name, row in differing.items()],
            [*USE_FIELDS, "observed_at"],
            batch_size=_BATCH,
        )
        if any(_matters(row, wanted[name]) for name, row in differing.items()):
            Cluster.objects.filter(id=cluster_id).update(inventory_version=F("inventory_version") + 1)
    return len(differing)


def _use_values(foreign: ForeignUse, used: dict[str, int]) -> dict[str, Any]:
    return {
        "foreign_cpu_millicores": foreign.cpu_millicores,
        "foreign_memory_mib": foreign.memory_mib,
        "foreign_pods": foreign.pods,
        "foreign_devices": dict(foreign.devices),
        "used_devices": used,
    }


def _node_values(
    record: NodeRecord, devices: Sequence[tuple[str, int]], foreign: ForeignUse, used: dict[str, int]
) -> dict[str, Any]:
    return {
        "uid": record.uid,
        "domain": list(record.domain),
        "labels": dict(record.labels),
        "taints": [dict(taint) for taint in record.taints],
        "devices": [{"flavor": flavor, "units": units} for flavor, units in devices],
        "cpu_millicores": record.cpu_millicores,
        "memory_mib": record.memory_mib,
        "pods": record.pods,
        **_use_values(foreign, used),
        "resources": dict(record.resources),
        "gpu_facts": {
            flavor: facts
            for (flavor, _), offer in zip(devices, record.offers, strict=True)
            if (facts := offer.facts.stored())
        },
        "is_ready": record.is_ready,
        "is_schedulable": record.is_schedulable,
    }


def _differs(stored: Mapping[str, Any] | None, values: Mapping[str, Any]) -> bool:
    return stored is None or any(stored[field] != value for field, value in values.items())


def _matters(stored: Mapping[str, Any] | None, values: Mapping[str, Any]) -> bool:
    """Placement counts our own pods by their holds, so a change of only `used_devices` does not matter to it."""
    return stored is None or any(stored[field] != value for field, value in values.items() if field != "used_devices")


def _write_nodes(cluster_id: UUID, changed: Mapping[str, Mapping[str, Any]], now: datetime) -> None:
    rows = [
        Node(cluster_id=cluster_id, name=name, observed_at=now, **values) for name, values in sorted(changed.items())
    ]
    if rows:
        Node.objects.bulk_create(
            rows,
            batch_size=_BATCH,
            update_conflicts=True,
            unique_fields=["cluster", "name"],
            update_fields=[*_NODE_FIELDS, "observed_at"],
        )


def _write_flavors(cluster_id: UUID, flavors: Mapping[str, FlavorOffer]) -> tuple[int, int]:
    """The numbers of flavors written and removed."""
    stored = {row["name"]: row for row in Flavor.objects.filter(cluster_id=cluster_id).values("name", *_FLAVOR_FIELDS)}
    rows = [
        Flavor(cluster_id=cluster_id, name=name, **values)
        for name, offer in flavors.items()
        if _differs(stored.get(name), values := _flavor_values(offer))
    ]
    if rows:
        Flavor.objects.bulk_create(
            rows, update_conflicts=True, unique_fields=["cluster", "name"], update_fields=list(_FLAVOR_FIELDS)
        )
    gone = sorted(set(stored) - set(flavors))
    if gone:
        Flavor.objects.filter(cluster_id=cluster_id, name__in=gone).delete()
    return len(rows), len(gone)


def _flavor_values(offer: FlavorOffer) -> dict[str, Any]:
    return {
        field: dict(value) if isinstance(value := getattr(offer, field), Mapping) else value for field in _FLAVOR_FIELDS
    }


def _findings(records: Sequence[NodeRecord]) -> list[Reason]:
    not_ready = sum(not record.is_ready for record in records)
    return inventory_findings(len(records), not_ready, [record.name for record in records if record.problems])


def _tell_problems(cluster_id: UUID, changed: Sequence[NodeRecord]) -> None:
    """At most one event an hour, regardless of the number of nodes and how often their claims change."""
    told = [f"{record.name} ({'; '.join(record.problems)})" for record in changed if record.problems]
    if told:
        besides = f" and {len(told) - NODES_NAMED} more" if len(told) > NODES_NAMED else ""
        message = f"Nodes whose implausible capacity counts as 0: {', '.join(told[:NODES_NAMED])}{besides}."
        record_limited(cluster_id, "implausible_capacity", message)
