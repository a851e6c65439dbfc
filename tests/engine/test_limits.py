"""Bounds of what users, programs and clusters send: the reference names them and stored rows keep to them, so that a release
that reads less, or stores more, is a decision.
"""

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

from billing.engine import budgets as billing_budgets
from billing.engine import egress as egress_prices
from billing.engine import focus, rating
from clusters.engine import (
    clocks,
    connection,
    datasets,
    egress,
    health,
    images,
    inventory,
    kubeconfig,
    object_stores,
    permissions,
    pulls,
    quantities,
    resources,
    sealing,
    secrets,
    storages,
)
from federation.engine import names, reports, retries, sightings
from federation.engine.failures import diagnoses, facts, patterns, rules
from federation.engine.intake import (
    failure_rules,
    gpu_needs,
    local_state,
    manifest_volumes,
    mounts,
    places,
    pods,
    policy_hooks,
    priority_classes,
    reading,
    reservation_reading,
    spec,
    work,
)
from federation.engine.intake import secrets as secrets_of_jobs
from federation.engine.objects import meeting, rendering, resource_claims, volumes
from placement.fleet import egress as egress_of_places
from placement.fleet import prices
from placement.values import advance, maintenance, preemption
from placement.values import quantities as amounts_of_places
from quotas.engine import amounts
from simulator import fleetfile, traces

KIB, MIB, TIB = 2**10, 2**20, 2**40
DAY, MONTH = 24 * 3600, 30 * 24 * 3600


def test_bounds_of_a_job():
    assert (spec.MAX_POD_SETS, spec.MAX_COUNT, spec.MAX_COMPLETIONS, spec.MAX_GPUS_PER_POD) == (16, 10_000, 100_000, 64)
    assert (spec.MAX_ENVIRONMENT, spec.MAX_ENVIRONMENT_BYTES, spec.MAX_ARGUMENTS) == (256, 64 * KIB, 256)
    assert (spec.MAX_ARGUMENT_BYTES, spec.MAX_SPEC_BYTES, spec.MAX_PATH_BYTES) == (32 * KIB, 256 * KIB, 255)
    assert (spec.MAX_LABELS, spec.MAX_TIERS, spec.MAX_DATASETS, spec.MAX_MOUNTS) == (64, 8, 16, 16)
    assert (spec.MAX_SECRETS, spec.MAX_SPEEDS, spec.MAX_SPEED, spec.SPEED_MILLI) == (16, 32, 1000, 1000)
    assert (spec.MAX_RESOURCES, spec.MAX_RESOURCE_AMOUNT, spec.WHOLE_GPU_MILLI) == (16, 1_000_000, 1000)
    assert (spec.MAX_SECONDS, spec.DEFAULT_DEADLINE_SECONDS) == (MONTH, DAY)
    assert (spec.MIN_CPU_MILLICORES, spec.MAX_CPU_MILLICORES) == (1, 1_024_000)
    assert (spec.MIN_MEMORY_BYTES, spec.MAX_MEMORY_BYTES) == (MIB, 64 * TIB)
    assert (spec.MIN_LOCAL_BYTES, spec.MAX_SCRATCH_BYTES) == (MIB, 64 * TIB)
    assert (spec.MAX_PORTS, spec.MAX_PORT) == (16, 65_535)
    assert (gpu_needs.MAX_GPU_MEMORY_GIB, gpu_needs.MAX_ARCHITECTURES) == (1024, 16)
    assert (manifest_volumes.MOST_VOLUMES, reading.MAX_FAULTS) == (2, 100)
    assert (names.MAX_LABEL, names.MAX_DNS_NAME) == (63, 253)


def test_bounds_of_failure_rules_and_retries():
    assert (rules.MOST_RULES, rules.MOST_CONDITIONS, rules.MOST_RETRIES_OF_RULE, rules.MOST_SECONDS) == (
        20,
        20,
        100,
        DAY,
    )
    assert (failure_rules.USUAL_RETRIES_OF_RULE, failure_rules.USUAL_AVOID_SECONDS) == (3, 3600)
    assert (failure_rules.USUAL_FACTOR_MILLI, rules.THOUSANDTHS) == (2000, 1000)
    assert (failure_rules.MOST_TEXT_BYTES, failure_rules.MOST_CODE) == (300, 255)
    assert (Decimal("1.1"), 8) == (failure_rules.LEAST_FACTOR, failure_rules.MOST_FACTOR)
    assert (patterns.MOST_PATTERN, patterns.LEAST_LETTERS, patterns.LONGEST_LINE) == (200, 3, 2000)
    assert (diagnoses.MOST_RETRIES_OF_JOB, diagnoses.LONGEST_TEXT, diagnoses.LONGEST_DETAIL) == (100, 500, 200)
    # A process that a signal ends has the exit code 128 and the signal's number, of which there are 64.
    assert (facts.FIRST_SIGNAL_CODE, facts.MOST_SIGNAL, sightings.MOST_SIGNAL) == (128, 64, 64)
    assert (retries.MOST_RETRIES, retries.USUAL_RETRIES) == (100, 10)
    assert (retries.LEAST_PAUSE_SECONDS, retries.MOST_PAUSE_SECONDS) == (60, 600)


def test_bounds_of_reservations_classes_and_policies():
    assert (timedelta(days=30), timedelta(days=366)) == (reservation_reading.LONGEST, reservation_reading.FURTHEST)
    assert (timedelta(minutes=3), 1000) == (reservation_reading.SHORTEST, reservation_reading.MAX_COPIES)
    assert (timedelta(minutes=2), timedelta(minutes=1)) == (advance.TURNOVER, maintenance.STOPPING)
    assert (priority_classes.MOST_VALUE, priority_classes.MOST_GRANTS) == (1_000_000, 100)
    assert (priority_classes.MOST_DESCRIPTION_BYTES, priority_classes.USUAL_SHIELD_SECONDS) == (500, 300)
    assert priority_classes.MOST_SHIELD_SECONDS == MONTH
    assert (policy_hooks.MAX_WORDS, policy_hooks.RETRY_SECONDS) == (300, 5)
    assert (preemption.MOST_TIMES_PREEMPTED, preemption.CORES_PER_GPU, preemption.RESTART_SECONDS) == (3, 16, 60)


def test_bounds_of_what_a_run_reports():
    assert (reports.MOST_NUMBER, reports.MOST_VALUE) == (2**53 - 1, 1e300)
    assert (reports.MOST_SERIES, reports.MOST_POINTS, reports.MOST_CHECKPOINTS) == (16, 120, 20)
    assert (reports.MOST_REFERENCE_BYTES, reports.MOST_FLAVORS) == (1024, 32)
    assert (reports.MOST_REPORTS, reports.WINDOW_SECONDS) == (60, 60)
    assert (60, timedelta(minutes=30)) == (reports.LEAST_SECONDS, reports.STALE_AFTER)


def test_bounds_of_what_a_cluster_reports():
    assert (sightings.MOST_RUNS, sightings.LONGEST_REASON, sightings.LONGEST_DISRUPTION) == (100, 300, 60)
    assert (timedelta(seconds=2), timedelta(minutes=1)) == (sightings.TOLERANCE, sightings.LATE_NEWS)
    assert timedelta(days=7) == sightings.LATE_PODS
    assert (inventory.MOST_USES, resources.MOST_NAMES) == (10_000, 64)
    assert (images.MOST_IMAGES, images.MOST_NAMES, images.LONGEST_NAME) == (128, 8, 600)
    assert (images.LARGEST_MIB, images.MIB) == (MIB, MIB)
    assert (permissions.MOST_RULES, permissions.MOST_TERMS, permissions.LONGEST_TERM) == (1000, 20_000, 400)
    assert permissions.MOST_EXCESS == 200
    assert (health.MAX_CLOCK_SKEW_MS, health.NOT_READY_SHARE, health.NODES_NAMED) == (60_000, 4, 5)
    assert (clocks.MOST_ERAS, clocks.NOISE_MS, clocks.BELIEVED_MS) == (8, 1500, 2000)
    assert timedelta(minutes=1) == clocks.CHANGE_TAKES
    assert (pulls.FEWEST_PULLS, pulls.MOST_PULLS, pulls.MOST_OPEN, pulls.MOST_ROUNDS) == (3, 15, 2000, 20)
    assert (pulls.LONGEST_SECONDS, pulls.CLASSES_MIB) == (3600, (64, 256, 1024, 4096, 16_384))
    assert pulls.USUAL_SECONDS == (3, 8, 25, 90, 300, 600)


def test_bounds_of_what_an_administrator_registers():
    assert (connection.MAX_PEM_CHARACTERS, connection.MAX_TOKEN_CHARACTERS) == (64 * KIB, 16 * KIB)
    assert (kubeconfig.MAX_CHARACTERS, kubeconfig.MAX_DEPTH) == (256 * KIB, 8)
    assert (kubeconfig.MAX_NODES, kubeconfig.MAX_ENTRIES) == (5000, 200)
    assert (egress.MAX_URL_LENGTH, egress.MAX_PORT, egress.HTTPS_PORT, egress.MAX_NAME_LENGTH) == (
        500,
        65_535,
        443,
        253,
    )
    assert (datasets.MOST_BYTES, datasets.MOST_PLACES) == (2**60, 20)
    assert (secrets.MOST_BYTES, secrets.MOST_SECRETS, secrets.LONGEST_USERNAME) == (32 * KIB, 200, 200)
    assert (object_stores.MOST_ENDPOINT, object_stores.MOST_REGION, object_stores.MOST_BUCKET) == (300, 63, 63)
    assert (storages.MOST_PREFIX, storages.MOST_PATH, storages.MOST_NAME) == (120, 512, 255)
    assert egress_prices.MOST_EGRESS_PRICE == 1_000_000
    assert (sealing.KEY_BYTES, sealing.NONCE_BYTES) == (32, 12), "AES-256-GCM"


def test_what_pods_are_made_with():
    assert (rendering.RUN_AS_USER, rendering.TERMINATION_SECONDS, rendering.MOST_HINTED_NODES) == (1000, 30, 1000)
    assert (rendering.MOST_TERMS, rendering.NODES_WEIGHT, rendering.DOMAIN_WEIGHT) == (2000, 100, 50)
    assert (meeting.MASTER_PORT, meeting.MOST_HOSTS_BYTES) == (29_500, 64 * KIB)
    assert (resource_claims.MOST_PER_CLAIM, volumes.RUNTIMES_SHM_BYTES) == (32, 64 * MIB)


def test_units_are_what_their_names_say():
    assert (quantities.MILLICORES.size, quantities.MEBIBYTES.size, quantities.PLAIN.size) == (Fraction(1, 1000), MIB, 1)
    assert (quantities.MILLICORES.most, quantities.MEBIBYTES.most, quantities.PLAIN.most) == (10**9, 10**10, 10**6)
    assert (resources.HUGE_PAGES_MIB, amounts_of_places.BYTES_PER_MIB) == (
        {"hugepages-2Mi": 2, "hugepages-1Gi": 1024},
        MIB,
    )
    assert (amounts.MEBIBYTE, amounts.MILLI, amounts.MAX_AMOUNT) == (MIB, 1000, 10**15)
    assert (egress_of_places.BYTES_PER_GIB, prices.MIB_PER_GIB, prices.MILLICORES_PER_CORE) == (2**30, 1024, 1000)
    hour = timedelta(hours=1)
    assert prices.MICROSECONDS_AN_HOUR == billing_budgets.AN_HOUR == hour / timedelta(microseconds=1)
    assert hour / rating.MILLISECOND == focus.MILLISECONDS_AN_HOUR
    assert (timedelta(microseconds=1),) * 2 == (prices.MICROSECOND, billing_budgets.MICROSECOND)
    assert 24 * hour == rating.DAY
    assert billing_budgets.PLACES == focus.PLACES == rating.PLACES == 12
    assert rating.READINGS_AN_HOUR == 3_600_000 * 128 // 1000, (
        "GPU-hours, millicore-hours and MiB-hours are whole in it"
    )


def test_bounds_of_a_replay():
    assert (fleetfile.MOST_NODES, fleetfile.MOST_CHARACTERS, fleetfile.MOST) == (200_000, 8 * MIB, 10**9)
    assert fleetfile.MOST_INTERRUPTIONS == 100
    assert (traces.MOST, traces.MOST_PODS, traces.MILLISECONDS) == (10**12, 100_000, 1000)


def test_words_that_a_job_chooses_from():
    assert spec.CAPACITY_TYPES == ("on_demand", "spot", "reserved")
    assert spec.ON_CLUSTER_LOST == ("hold",)
    assert spec.DEFAULT_SCRATCH_PATH == "/scratch"
    assert failure_rules.AVOIDABLE == ("node", "cluster")
    assert pods.GPU_VENDORS == ("nvidia", "amd", "intel", "google")
    assert (priority_classes.PREEMPTS, priority_classes.EVERY_ROLE) == (("never", "lower"), "")
    assert mounts.CLOSED == ("/proc", "/sys", "/dev", "/run", "/var/run", "/etc")
    assert (secrets_of_jobs.OPEN, manifest_volumes.SHM_PATH) == ("/run/secrets", "/dev/shm")


def test_names_of_fields_are_those_of_the_reference():
    for found, expected in (
        (failure_rules.RULE_FIELDS, "name when class text then retries backoff avoid keep_seconds memory"),
        (failure_rules.WHEN_FIELDS, "exit_codes signals seen pod_sets node_taints messages log"),
        (failure_rules.BACKOFF_FIELDS, "seconds most_seconds"),
        (failure_rules.AVOID_FIELDS, "what seconds"),
        (failure_rules.MEMORY_FIELDS, "factor most"),
        (local_state.PORT_FIELDS, "name number"),
        (local_state.SCRATCH_FIELDS, "size path"),
        (mounts.MOUNT_FIELDS, "storage path sub_path read_only size"),
        (secrets_of_jobs.SECRET_FIELDS, "secret env file"),
        (work.DATA_FIELDS, "name read stage"),
        (pods.GPU_FIELDS, "count models mig fraction vendor"),
        (places.TIER_FIELDS, "after_seconds clusters regions"),
        (places.TOPOLOGY_FIELDS, "level mode"),
        (priority_classes.GRANT_FIELDS, "role tenant"),
        (reports.REPORT_FIELDS, "sequence step total_steps loss series checkpoint artifacts"),
        (reports.ANNOUNCED_FIELDS, "name path sha256 size_bytes"),
        (reports.CHECKPOINT_FIELDS, "reference size_bytes step flavors written_at"),
    ):
        assert set(found) == set(expected.split())
