"""What operations count and time as they work, for `/metrics`.

With several processes set PROMETHEUS_MULTIPROC_DIR to one folder for all of them, emptied when the gateway starts: each
process keeps its numbers there and whichever is asked adds them up.
"""

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
SUBMITTED = Counter("switchyard_jobs_submitted", "Jobs taken in: singly or in bulk.", ["way"])
REOPENED = Counter(
    "switchyard_attempts_reopened", "Attempts that were settled and of which a pod was seen to run after that."
)
UNMETERED = Counter(
    "switchyard_metering_failures", "Attempts whose usage could not be recorded, each time it was tried.", ["step"]
)
REFUSED_REPORTS = Counter(
    "switchyard_refused_reports",
    "Reports of a cluster that count for nothing, by cluster and fault (events of security).",
    ["cluster", "fault"],
)
