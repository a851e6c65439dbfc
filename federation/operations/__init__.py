"""The only writers of this room."""

from .bulk_submission import submit_jobs as submit_jobs
from .cancellation import request_cancellation as request_cancellation
from .continuity import sweep as sweep
from .cycle import run_scheduling_cycle as run_scheduling_cycle
from .dispatch import dispatch_attempts as dispatch_attempts
from .foretelling import foretell_starts as foretell_starts
from .observation import Observations as Observations
from .observation import record_observations as record_observations
from .policies import put_policy as put_policy
from .policies import remove_policy as remove_policy
from .reconciliation import ask_for_reconciliation as ask_for_reconciliation
from .reconciliation import reconcile_clusters as reconcile_clusters
from .settlement import accrue_running as accrue_running
from .settlement import settle_attempts as settle_attempts
from .submission import submit_job as submit_job
