"""What a caller does not give is empty: no text, zero, none, false. The few values that stand in for it are listed."""

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from fractions import Fraction
from math import inf
from types import ModuleType
from typing import Any

from billing.engine import backtest, focus, idle, invoices, ledger, rating, runs
from billing.engine import budgets as budgets_of_billing
from billing.engine import egress as egress_of_billing
from clusters.engine import (
    claimable,
    connection,
    device_inventory,
    devices,
    escapes,
    flavors,
    gpu_facts,
    health,
    inventory,
    offered,
    permissions,
    resource_slices,
    sealing,
)
from clusters.engine import datasets as datasets_of_clusters
from clusters.engine import egress as egress_of_clusters
from federation.engine import artifacts, relocation, reports, retries, sightings
from federation.engine.failures import diagnoses, facts, rules
from federation.engine.intake import job_fields, policy_hooks, priority_classes, spec
from federation.engine.objects import gpu_needs as gpu_needs_of_objects
from federation.engine.objects import rendering, volumes
from federation.engine.tree import items, kueue, kueue_reading
from placement.answers import quotes
from placement.cycle import scopes, visibility
from placement.fleet import fleet, policies, siting
from placement.preemption import consolidation as plans_of_moves
from placement.preemption import plan, search
from placement.ranking import candidates, contest, shortages, work
from placement.values import (
    advance,
    consolidation,
    decisions,
    maintenance,
    model,
    nodes,
    preemption,
    storages,
    strategies,
)
from placement.values import budgets as budgets_of_values
from placement.values import datasets as datasets_of_values
from placement.values import gpu_needs as gpu_needs_of_values
from placement.values import limits as limits_of_values
from placement.values import shares as shares_of_values
from quotas.engine import holds
from simulator import consolidating, figures, gateways, reclaiming, simulation, tally, traces, values
from simulator import shares as shares_of_simulator

MODULES = (
    budgets_of_billing, egress_of_billing, focus, ledger, rating, runs, claimable, connection, datasets_of_clusters,
    device_inventory, devices, egress_of_clusters, escapes, flavors, gpu_facts, health, inventory, offered, permissions,
    resource_slices, reports, retries, sightings, diagnoses, facts, rules, job_fields, policy_hooks, priority_classes,
    spec, gpu_needs_of_objects, rendering, volumes, quotes, scopes, visibility, fleet, policies, siting, plan, search,
    candidates, contest, shortages, work, advance, budgets_of_values, datasets_of_values, decisions,
    gpu_needs_of_values, maintenance, model, nodes, preemption, shares_of_values, storages, strategies, holds, figures,
    gateways, shares_of_simulator, simulation, tally, traces, values, backtest, idle, invoices, artifacts, relocation,
    items, kueue, kueue_reading, limits_of_values, sealing, consolidation, plans_of_moves, consolidating,
    reclaiming,
)  # fmt: skip
STANDS_IN = {
    # Fields of connections are named as they are where no caller names them otherwise.
    ("focus.Posted", "category"): "Usage",
    ("connection.FieldNames", "server"): "server",
    ("connection.FieldNames", "ca_pem"): "ca_pem",
    ("connection.FieldNames", "token"): "token",
    ("connection.FieldNames", "client_certificate_pem"): "client_certificate_pem",
    ("backtest.Rule", "periods"): 3,
    ("backtest.Rule", "clearly"): 0.95,
    ("connection.FieldNames", "client_key_pem"): "client_key_pem",
    ("idle.Offered", "is_available"): True,
    ("invoices.Terms", "payment_days"): 30,
    # As Kueue's own manifests have it.
    ("kueue_reading.Node", "weight"): Fraction(1),
    ("kueue_reading.Node", "stop"): "None",
    ("kueue_reading.Node", "preempts"): "Never",
    # A device is one, on one host, and used by one pod.
    ("devices.Device", "shares"): 1,
    ("devices.Device", "share"): "shared",
    ("devices.Device", "slice_hosts"): 1,
    ("flavors.FlavorOffer", "slice_hosts"): 1,
    ("model.FleetFlavor", "slice_hosts"): 1,
    ("model.FleetFlavor", "currency"): "USD",
    ("rules.Rule", "most_backoff_seconds"): 86_400,
    ("rules.Rule", "step"): "stop",
    ("job_fields.JobField", "is_beside_manifest"): True,
    ("priority_classes.WantedClass", "preempts"): "never",
    ("priority_classes.WantedClass", "shield_seconds"): 300,
    ("priority_classes.ClassHere", "shield_seconds"): 300,
    ("spec.Scratch", "path"): "/scratch",
    ("spec.Mount", "is_read_only"): True,
    ("spec.JobSpec", "deadline_seconds"): 86_400,
    ("spec.JobSpec", "strategy"): "balanced",
    ("spec.JobSpec", "priority_class"): "normal",
    ("spec.JobSpec", "on_cluster_lost"): "hold",
    ("spec.JobSpec", "moves"): "never",
    ("model.JobRequest", "strategy"): "balanced",
    # A job continues by itself after ten interruptions of a kind, never after a failure of its program.
    ("retries.Retries", "preempted"): 10,
    ("retries.Retries", "node_lost"): 10,
    ("retries.Retries", "spot"): 10,
    ("retries.Retries", "infrastructure"): 10,
    ("gpu_needs.NodeNeeds", "alternatives"): ((),),
    ("rendering.Devices", "capacity_type"): "on_demand",
    ("scopes.Scope", "too_long"): inf,
    ("shortages.Shortage", "is_about_devices"): True,
    ("shortages.Shortage", "room"): (0, 0),
    ("work.Stakes", "pace"): 1.0,
    ("decisions.Placement", "pace"): 1.0,
    ("decisions.PodSetPlacement", "level"): "cluster",
    ("maintenance.MaintenanceWindow", "is_whole"): True,
    ("model.ClusterRefusal", "code"): "refused_by_cluster",
    ("model.Topology", "level"): "cluster",
    ("model.Topology", "mode"): "preferred",
    ("model.FleetCluster", "fills"): "hinted",
    ("model.FleetCluster", "has_sidecars"): True,
    ("model.FleetCluster", "has_image_volumes"): True,
    ("model.Snapshot", "patience_seconds"): 600,
    ("preemption.RoomClaim", "kind"): "preemption",
    ("consolidating.ConsolidationRule", "share"): 0.2,
    ("consolidating.ConsolidationRule", "most_moves"): 8,
    ("consolidation.Consolidating", "keep_seconds"): 600,
    ("consolidating.ConsolidationRule", "most_an_hour"): 24,
    ("consolidating.ConsolidationRule", "policy"): "any",
    ("reclaiming.ReclaimRule", "most_victims"): 16,
    ("reclaiming.ReclaimRule", "hourly_share"): 0.5,
    ("reclaiming.ReclaimRule", "shield"): timedelta(minutes=10),
    ("shares.TenantShare", "weight"): 1.0,
    ("shares.FairShare", "strength"): 1.0,
    ("shares.FairShareRule", "strength"): 1.0,
    ("shares.FairShareRule", "credit_cap"): 0.25,
    ("shares.FairShareRule", "half_life_seconds"): 86_400.0,
    ("simulation.JobRun", "cluster"): -1,
    ("traces.Shaping", "gpus_per_node"): 8,
    ("traces.Shaping", "millicores_per_gpu"): 6000,
    ("traces.Shaping", "mib_per_gpu"): 65_536,
    ("values.Machine", "domain"): ("", "", ""),
    ("values.Machine", "pods"): 110,
    ("values.Machine", "capacity_type"): "on_demand",
    ("values.ClusterPlan", "member"): "spread",
    ("values.ClusterPlan", "hints"): True,
    ("values.TraceJob", "gpu_milli"): 1000,
    ("values.TraceJob", "tenant"): "trace",
    ("values.Conditions", "seed"): 1,
    ("values.Conditions", "reclaimed_seconds"): 600.0,
    ("values.Conditions", "samples"): 240,
}  # fmt: skip


def defaults_of(module: ModuleType) -> Iterator[tuple[str, str, Any]]:
    """The fields of the module's values that a caller may leave out, each with what it is then."""
    for kind in vars(module).values():
        if not isinstance(kind, type) or kind.__module__ != module.__name__:
            continue
        name = f"{module.__name__.rpartition('.')[2]}.{kind.__name__}"
        if is_dataclass(kind):
            for field in fields(kind):
                if field.default is not MISSING:
                    yield name, field.name, field.default
                elif field.default_factory is not MISSING:
                    yield name, field.name, field.default_factory()
        for field_name, value in getattr(kind, "_field_defaults", {}).items():
            yield name, field_name, value


def test_what_is_not_given_is_empty_but_for_what_stands_in_for_it():
    found = {(name, field): value for module in MODULES for name, field, value in defaults_of(module)}
    assert len(found) > 450
    # A value with fields is empty if they are; they are in the list themselves.
    assert {key: value for key, value in found.items() if value and not is_dataclass(value)} == STANDS_IN
