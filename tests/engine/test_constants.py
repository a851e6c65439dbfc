"""Figures and words that decisions, published measurements and other programs depend on: to change one is a decision.

Bounds of what is sent and stored are in `test_limits`.
"""

from datetime import timedelta
from decimal import Decimal

import pytest

from billing.engine import anomalies, backtest, budgets, currencies, forecast, invoices
from clusters.engine import devices, escapes, gpu_facts, gpu_models, gpu_share, permissions, taints, topology, versions
from federation.engine import artifacts, lifecycle, names, relocation, stuck, unseen
from federation.engine.failures import brake, defaults, lemons
from federation.engine.intake import artifacts as artifacts_of_jobs
from federation.engine.intake import (
    gpu_needs,
    init_and_sidecars,
    local_state,
    manifest,
    manifest_volumes,
    places,
    pods,
    policy_hooks,
    policy_reading,
    priority_classes,
    reservation_reading,
    spec,
)
from federation.engine.objects import job_secrets, meeting, ranks, rendering, volumes
from federation.engine.tree import items, kueue, kueue_reading, reading, writing
from foundation import plain_yaml
from placement.answers import estimates, quotes, recording
from placement.cycle import backfill, cycle, kept_room, ordering, share_reasons, timeline, verdicts
from placement.fleet import amounts, pools, siting
from placement.preemption import consolidation, plan, sparing
from placement.ranking import (
    candidates,
    floors,
    fragmentation,
    interruptions,
    kept_estimates,
    landing,
    leftovers,
    pulls,
    runtimes,
    shortages,
)
from placement.values import gpu_names, strategies
from quotas.engine import holds
from simulator import charts, exports, fleetfile, fragments, members, simulation
from tenancy.engine import chain

MINUTE = timedelta(minutes=1)


def test_figures_of_money():
    assert (8, 4, timedelta(days=1)) == (anomalies.WEEKS, anomalies.LEAST_WEEKS, anomalies.A_DAY)
    assert (Decimal("5.2"), Decimal("0.25")) == (anomalies.SPREADS, anomalies.LEAST_PART)
    assert (backtest.WEEK, backtest.BEFORE, backtest.MOST_HORIZON, backtest.MOST_ORIGINS) == (7, 14, 28, 91)
    assert (backtest.RULE.periods, backtest.RULE.clearly, backtest.LOW, backtest.HIGH) == (3, 0.95, 0.1, 0.9)
    assert (28, 182, timedelta(days=1)) == (forecast.LEAST_DAYS, forecast.MOST_DAYS, forecast.A_DAY)
    assert budgets.MONTHS == {"month": 1, "quarter": 3, "year": 12}
    assert (invoices.SCHEMA, invoices.NUMBER_DIGITS, invoices.PLACES) == ("switchyard.invoice/1", 6, 6)
    assert invoices.PREFIXES == {"invoice": "INV", "statement": "STM", "credit_note": "CN"}
    assert invoices.QUANTITY_AN_HOUR == 1000 * 3_600_000
    assert currencies.USUAL_DIGITS == 2


def test_figures_of_devices():
    assert devices.AMD_CUTS == {"spx": 1, "dpx": 2, "tpx": 3, "qpx": 4}
    assert gpu_models.AMD_COMPUTE_DIES == {
        "MI300A": 6, "MI300X": 8, "MI308X": 4, "MI325X": 8, "MI350X": 8, "MI355X": 8,
    }  # fmt: skip
    assert gpu_share.USUAL_MIG_SLICES == 7
    assert gpu_share.MIG_SLICES == {"A30": 4, "RTX-PRO-6000": 4, "RTX-PRO-5000": 2, "RTX-PRO-4500": 2}
    assert gpu_facts.COMPUTE_LABELS == ("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor")
    assert gpu_facts.CUDA_LABELS == ("nvidia.com/cuda.runtime.major", "nvidia.com/cuda.runtime.minor")
    assert tuple(f"nvidia.com/cuda.driver.{part}" for part in ("major", "minor", "rev")) == gpu_facts.DRIVER_LABELS
    assert (gpu_facts.FAMILY_LABEL, gpu_facts.MEMORY_LABEL) == ("nvidia.com/gpu.family", "nvidia.com/gpu.memory")
    assert topology.LEVELS == ("zone", "block", "rack", "node", "clique")
    assert (escapes.OLDEST_WITH_POLICIES, versions.OLDEST_WITH_SIDECARS) == ((1, 31), (1, 31))
    assert versions.OLDEST_WITH_IMAGE_VOLUMES == (1, 35)
    assert (escapes.DEVICES, escapes.FOREIGN_NAMESPACES) == ("resource.k8s.io", ("kube-system", "default"))
    assert permissions.REVIEWED_NAMESPACES == ("switchyard-system", "default", "kube-system")
    assert {"resource.k8s.io"} == permissions.OPTIONAL_GROUPS
    assert {taint["effect"] for taint in taints.tolerations_for("nvidia", "spot") if "effect" in taint} <= {
        "NoSchedule"
    }


@pytest.mark.parametrize(
    ("model", "gigabytes"),
    [
        ("A10", 24), ("A10G", 24), ("A2", 16), ("A30", 24), ("A40", 48), ("B200", 180), ("B300", 288), ("GB200", 186),
        ("GB300", 288), ("Flex-140", 6), ("Flex-170", 16), ("Gaudi", 32), ("Gaudi2", 96), ("Gaudi3", 128), ("H20", 96),
        ("H200", 141), ("K80", 12), ("L4", 24), ("L40", 48), ("L40S", 48), ("M60", 8), ("Max-1100", 48),
        ("Max-1550", 128), ("MI100", 32), ("MI210", 64), ("MI250X", 64), ("MI300A", 128), ("MI300X", 192),
        ("MI308X", 192), ("MI325X", 256), ("MI350X", 288), ("MI355X", 288), ("P4", 8), ("P40", 24), ("T4", 16),
        ("tpu-v4-podslice", 32), ("tpu-v5-lite-device", 16), ("tpu-v5-lite-podslice", 16), ("tpu-v5p-slice", 95),
        ("tpu-v6e-slice", 32), ("tpu7x", 192), ("A100-80GB", 80), ("H100-94GB", 94), ("unknown", 0), ("X-80GB", 0),
    ],
)  # fmt: skip
def test_the_memory_of_a_model_is_that_of_its_maker(model, gigabytes):
    assert gpu_models.usual_memory_mib(model) == gigabytes * 1024


def test_bounds_of_artifacts_steps_and_trees():
    assert (artifacts.MOST_ARTIFACTS, artifacts.MOST_URL, artifacts.MOST_REFERENCE) == (32, 512, 1025)
    assert artifacts.MOST_SIZE_BYTES == 2**53 - 1
    assert (spec.MAX_INIT_STEPS, spec.MAX_SIDECARS) == (8, 4)
    assert (reading.MOST_TENANTS, reading.MOST_ENTRIES, reading.MOST_LEVELS, reading.MOST_LABELS) == (5000, 500, 16, 64)
    assert (Decimal("0.01"), 1000, 10**12) == (reading.LEAST_WEIGHT, reading.MOST_WEIGHT, reading.MOST_MONEY)
    assert (reading.MOST_WAITING, reading.MOST_PER_MINUTE) == (10_000_000, 1_000_000)
    assert (reading.MOST_RECLAIM_SECONDS, reading.USUAL_THRESHOLDS) == (30 * 24 * 3600, (50, 80, 100))
    assert (reading.VERSION, reading.FILE_KIND) == ("switchyard/v1", "TenantTree")
    assert reading.TENANT_KINDS == ("organisation", "department", "team", "project")
    assert reading.PERIODS == ("month", "quarter", "year", "dates")
    assert (writing.WIDTH, plain_yaml.MOST_DOCUMENTS, manifest.MOST_DIGITS) == (120, 2000, 10)
    assert items.ACTIONS == ("create", "change", "remove")


def test_figures_of_failures_and_waits():
    assert (brake.PULLED_AT_PERCENT, brake.RELEASED_AT_PERCENT, defaults.MOST_STARTS) == (50, 25, 2)
    assert (lemons.PRIOR_RUNS, lemons.LEAST_RATE, lemons.PRECISION, lemons.MOST_PERCENT) == (20, 0.002, 1e-12, 10)
    assert (lemons.LEAST_FAILURES, lemons.LEAST_JOBS, lemons.LEAST_GROUPS) == (4, 4, 2)
    assert (lemons.FALSE_ALARM, lemons.INDEPENDENT_CHANCE) == (0.01, 0.01)
    assert (stuck.PATIENCE, unseen.LONGEST_WAITED) == (5 * MINUTE, 10 * MINUTE)
    assert {
        "InvalidImageName", "ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "ImageInspectError",
        "RegistryUnavailable", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
    } == stuck.HOPELESS  # fmt: skip
    assert relocation.MOVES_POLICIES == ("never", "when_needed", "when_cheaper")
    assert {state.value for state in lifecycle.KEPT_ATTEMPTS} == {"succeeded", "failed"}


def test_what_pods_and_secrets_are_made_with():
    assert (job_secrets.FILE_MODE, job_secrets.VOLUME, job_secrets.REPORT_KEY) == (0o440, "secrets", "token")
    assert (job_secrets.PULL_KEY, job_secrets.PULL_TYPE) == (".dockerconfigjson", "kubernetes.io/dockerconfigjson")
    assert (meeting.HOSTS_FOLDER, meeting.HOSTS_FILE, meeting.HOSTS_VOLUME) == ("/etc/switchyard", "hosts", "hosts")
    assert (ranks.NODE_WEIGHT, rendering.CLAIM, volumes.SCRATCH) == (50, "devices", "scratch")
    assert (rendering.STEP_STORAGE_LIMIT, rendering.SIDECAR_STORAGE_LIMIT) == ("64Gi", "4Gi")
    assert names.RESERVED_LABEL_DOMAINS == ("kubernetes.io", "k8s.io", "kueue.x-k8s.io", "switchyard.dev")
    assert (
        tuple(
            f"sim.switchyard.dev/{name}" for name in ("run-seconds", "exit-code", "ending", "waiting", "failing-step")
        )
        == names.SIMULATED
    )


def test_figures_by_which_places_are_ranked():
    assert (floors.WHOLE_WEIGHT, floors.WHOLE_IDLE_WEIGHT, floors.SCARCITY_WEIGHT) == (0.05, 0.3, 0.3)
    assert (fragmentation.BESIDE_LEFTOVERS, fragmentation.COVERED, landing.IDLE_WEIGHT) == (0.3, 0.95, 0.2)
    assert (leftovers.ROUNDS, leftovers.DEVICES, leftovers.DEMAND) == (16, 4000, 1.3)
    assert (interruptions.UNKNOWN_SECONDS, interruptions.RESTART_SECONDS, interruptions.MOST_TIMES) == (3600, 300, 1000)
    assert (runtimes.WEIGHT_OF_WIDER, runtimes.WEIGHT_OF_NO_MORE, runtimes.FACTOR) == (4, 2, 2)
    assert (runtimes.MOST_KEPT, runtimes.HALF_LIFE, runtimes.QUANTILES) == (50, 16, (0.1, 0.5, 0.9))
    assert (runtimes.ASKED, runtimes.LONGEST_SECONDS) == (("count", "cpu", "memory", "gpu"), 10 * 365 * 24 * 3600)
    assert (kept_estimates.SHORTEST_SECONDS, kept_estimates.HALF_LIFE_SECONDS) == (60, 7 * 86_400)
    assert (pulls.STEP_SECONDS, shortages.REASONS_NAMED, candidates.MOST_COMBINATIONS) == (10, 4, 256)
    assert (gpu_names.MOST_NEAREST, gpu_names.LEAST_LIKENESS, amounts.USUAL_VENDOR) == (3, 0.5, "nvidia")
    assert strategies.TERMS == ("price", "free", "cluster_free", "stranding")
    assert strategies.STRATEGY_NAMES == ("balanced", "cheapest", "soonest", "pack", "spread", "greenest")
    assert pools.WIDTH_OF_LEVEL == {"node": 0, "clique": 1, "rack": 2, "block": 3, "zone": 4, "cluster": 5}
    assert (siting.TIGHTNESS_OF_A_UNIT, siting.PERCENT, pools.ADMITTED, pools.WHOLE) == (2**31, 100, 2**31, 1000)


def test_how_far_a_cycle_and_a_quote_look():
    assert (cycle.MOST_OFFERS_PER_CLUSTER, kept_room.MOST_AT_ONCE, share_reasons.ANOTHER_TENANT) == (
        4,
        4,
        "another tenant",
    )
    assert (timeline.MOST_INSTANTS, timeline.STEP, ordering.ORDERS) == (500, MINUTE, ("ratio", "submitted"))
    assert (quotes.MOST_COUNTED, quotes.UNLIMITED, estimates.PARTS) == (
        10_000, 2**62, ("run", "interruptions", "egress"),
    )  # fmt: skip
    assert (recording.SNAPSHOT_FORMAT, recording.DECISIONS_FORMAT, recording.VERSION) == (
        "switchyard/snapshot", "switchyard/decisions", 1,
    )  # fmt: skip
    for_room = {"waiting_for_capacity", "behind_in_queue"}
    assert for_room == share_reasons.FOR_ROOM
    assert {"reserved_for_gang", "waiting_for_share"} == backfill.MAY_BORROW - verdicts.WAITING_FOR_ROOM
    assert {
        "waiting_for_quota", "reserved_for_gang", "reservation_full", "waiting_for_share",
    } == plan.REPLACES_WHILE - verdicts.WAITING_FOR_ROOM  # fmt: skip
    limits = {"quota_reached", "user_limit_reached", "class_limit_reached"}
    assert limits | {"budget_reached"} == quotes._NOT_ABOUT_ROOM
    assert plan.REPLACES_WHILE - {"waiting_for_quota", "reservation_full"} == consolidation.WAITS_FOR_SHAPE
    assert (consolidation.MOST_CONSIDERED, consolidation.MOST_CLUSTERS, consolidation.MOST_CANDIDATES) == (4, 8, 60)
    assert (consolidation.MOST_TRIALS, consolidation.MOST_REPAIRS) == (600, 4)
    assert (consolidation.LONGEST_GAIN, consolidation.UNKNOWN_GAIN) == (86_400, 3600)
    assert (sparing.MOST_OF_A_USER, sparing.MOST_OF_A_TENANT) == (8, 32)
    assert sparing.MOST_MOVES_A_DAY == relocation.MOST_MOVES_A_DAY == 3
    assert (plan.MOST_CONSIDERED, plan.MOST_CLUSTERS, plan.MOST_CANDIDATES, plan.MOST_SHOWN) == (8, 8, 40, 20)


def test_figures_of_a_replay():
    assert (charts.WIDTH, charts.HEIGHT, charts.TICKS) == (720, 250, 5)
    assert (exports.FORMAT, exports.VERSION) == ("switchyard/replay", 1)
    assert (fleetfile.USUAL_INTERRUPTIONS, fragments.COVERED) == (0.05, 0.95)
    assert (members.LARGE_CPU, members.LARGE_GPU) == (128_000, 8000)
    assert (0.6180339887, 256, {"summary", "cycle"}) == (simulation.STRIDE, simulation.TELL_EVERY, simulation.ROUTINE)
    assert (holds.ANY_USER.int, chain.START) == (0, bytes(32))


def test_names_of_fields_are_those_that_files_and_requests_have():
    for found, expected in (
        (artifacts_of_jobs.ARTIFACT_FIELDS, "name storage path url required"),
        (init_and_sidecars.INIT_FIELDS, "image command args env cpu memory secrets"),
        (init_and_sidecars.SIDECAR_FIELDS, "name image command args env cpu memory secrets"),
        (pods.POD_SET_FIELDS, ("name count image command args env cpu memory gpu ports shm scratch mounts networks secrets pull_secret"
         " resources init sidecars")),
        (places.CONSTRAINT_FIELDS - gpu_needs.NEED_FIELDS,
         "clusters exclude_clusters regions capacity_types overflow reservation"),
        (policy_reading.POLICY_FIELDS, ("default_strategy default_priority_class consolidation strategies clusters regions"
         " capacity_types flavors weights")),
        (policy_hooks._ANSWER_FIELDS, "allow message changes"),
        (priority_classes.CLASS_FIELDS,
         "name value description is_open is_default preempts shield_seconds most_running most_gpus grants"),
        (reservation_reading.RESERVATION_FIELDS,
         "tenant name cluster starts_at ends_at recall_seconds count pod_sets topology constraints"),
        (reservation_reading.SHAPE_FIELDS, "pod_sets topology constraints"),
        (local_state._KEPT_PATHS, "dev proc sys etc"),
        (manifest._MANIFEST_FIELDS, "apiVersion kind metadata spec"),
        (manifest._METADATA_FIELDS, "name labels"),
        (manifest._JOB_FIELDS, ("parallelism completions completionMode activeDeadlineSeconds backoffLimit suspend"
         " podReplacementPolicy template")),
        (manifest._POD_FIELDS, ("containers restartPolicy automountServiceAccountToken enableServiceLinks securityContext"
         " volumes")),
        (manifest._CONTAINER_FIELDS, "name image command args env resources securityContext ports volumeMounts"),
        (manifest_volumes._MOUNT_FIELDS, "name mountPath"),
        (kueue_reading.QUEUE_FIELDS, "resourceGroups cohort cohortName fairSharing stopPolicy preemption"),
        (kueue_reading.COHORT_FIELDS, "resourceGroups parent parentName fairSharing"),
        (kueue_reading.LOCAL_FIELDS, "clusterQueue fairSharing stopPolicy"),
        (kueue_reading.NOT_READ, "apiVersion kind metadata status spec"),
        (kueue.HELD, "Hold HoldAndDrain"),
        (fleetfile.CLUSTER_FIELDS, "name region provider member hints summary_seconds nodes price_changes"),
        (fleetfile.GROUP_FIELDS, ("name count model gpus cpu memory_gib price flavor spot zone block rack nodes_per_rack clique"
         " pods vendor gpu_memory_mib interruptions_per_hour")),
        (fleetfile.CHANGE_FIELDS, "at_hours flavor price"),
        (reading.TOP, "apiVersion kind tenants priority_classes"),
        (reading.OF_TENANT, "path kind labels weight limits class_limits user_limits submission_limit roles budgets invoice_terms"),
        (reading.KNOWN[items.Kind.LIMIT], "resource clusters nominal borrowing_limit lending_limit reclaims reclaim_after"),
        (reading.KNOWN[items.Kind.USER_LIMIT], "resource most"),
        (reading.KNOWN[items.Kind.SUBMISSION_LIMIT], "most_waiting jobs_per_minute"),
        (reading.KNOWN[items.Kind.ROLE], "user group role expires_at"),
        (reading.KNOWN[items.Kind.BUDGET],
         "amount currency gpu_hours period starts_on ends_on notify_at stops_admission"),
        (reading.KNOWN[items.Kind.INVOICE_TERMS],
         "issuer tax_rate tax_name payment_days cost_centre gl_account remark"),
    ):  # fmt: skip
        assert set(found) == set(expected.split())
