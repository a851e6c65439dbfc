"""Counters and timings of operations, for `/metrics` of the process in which they run (`foundation.figures`)."""

from prometheus_client import Counter, Histogram

FAST = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

CYCLE_SECONDS = Histogram("switchyard_cycle_seconds", "Duration of a scheduling cycle.", buckets=FAST)
DECISIONS = Counter("switchyard_decisions", "Decisions of scheduling cycles: placed or waiting.", ["outcome"])
DISPATCH_SECONDS = Histogram(
    "switchyard_dispatch_seconds",
    "From an attempt's reservation to its release, by cluster.",
    ["cluster"],
    buckets=FAST,
)
SUBMITTED = Counter("switchyard_jobs_submitted", "Jobs accepted, singly or in bulk.", ["way"])
OBSERVED = Counter("switchyard_observations", "Reports on Jobs and pods that were recorded, by cluster.", ["cluster"])
REOPENED = Counter("switchyard_attempts_reopened", "Settled attempts of which a pod was later seen running.")
CORRECTED = Counter(
    "switchyard_usage_corrected",
    "Attempts whose assumed usage was corrected to the end that their cluster reported later.",
)
MOVED = Counter("switchyard_jobs_moved", "Runs that users asked to move to another cluster.")
RELOCATED = Counter(
    "switchyard_jobs_relocated",
    "Runs that the gateway itself stops so that they continue elsewhere or with more pods, by cause.",
    ["cause"],
)
UNSEEN_PODS = Counter(
    "switchyard_pods_unseen", "Pods that ran while no observer watched, metered from what their Jobs report."
)
UNMETERED = Counter(
    "switchyard_metering_failures", "Failures to record the usage of an attempt, counted at each retry.", ["step"]
)
REFUSED_REPORTS = Counter(
    "switchyard_refused_reports",
    "Reports of a cluster that were ignored, by cluster and fault (security events).",
    ["cluster", "fault"],
)
