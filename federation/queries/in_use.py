"""Which optional features an installation uses: one query, after which a cycle asks nothing about the others."""

from typing import NamedTuple

from django.db import connection

_QUERY = """
SELECT EXISTS (SELECT FROM federation_preemption WHERE ended_at IS NULL)
       OR EXISTS (SELECT FROM federation_preemptionvictim AS victim
                    JOIN federation_preemption AS preemption ON preemption.id = victim.preemption_id
                   WHERE victim.nodes <> '[]' AND preemption.deadline_at > now())
       OR EXISTS (SELECT FROM federation_move WHERE kept_until > now())
       OR EXISTS (SELECT FROM federation_keptplace WHERE ended_at IS NULL),
       EXISTS (SELECT FROM federation_priorityclass WHERE preempts = 'lower'),
       EXISTS (SELECT FROM federation_placementpolicy),
       EXISTS (SELECT FROM federation_reservation WHERE until_at > now()),
       EXISTS (SELECT FROM clusters_maintenancewindow WHERE cancelled_at IS NULL AND ends_at > now()),
       EXISTS (SELECT FROM quotas_quotalimit WHERE removed_at IS NULL),
       EXISTS (SELECT FROM quotas_quotalimit WHERE removed_at IS NULL AND reclaim_at IS NOT NULL),
       EXISTS (SELECT FROM quotas_userlimit),
       EXISTS (SELECT FROM quotas_classlimit),
       EXISTS (SELECT FROM billing_budget WHERE removed_at IS NULL),
       EXISTS (SELECT FROM billing_price WHERE lower(valid) > now()),
       EXISTS (SELECT FROM federation_keptroom WHERE ended_at IS NULL)
       OR EXISTS (SELECT FROM federation_keptroom WHERE outcome = 'given_up' AND again_at > now())
       OR EXISTS (SELECT FROM federation_keptplace WHERE ended_at IS NULL),
       EXISTS (SELECT FROM federation_consolidation WHERE ended_at IS NULL)
       OR EXISTS (SELECT FROM federation_consolidation WHERE deadline_at > now()),
       EXISTS (SELECT FROM federation_datawait WHERE ended_at IS NULL),
       EXISTS (SELECT FROM billing_carbonsite)
"""


class InUse(NamedTuple):
    """Whether there are rows of each kind. A row that another transaction adds afterwards counts from the next cycle on;
    what a cycle applies, the database checks again.
    """

    claims: bool = True
    """Preemptions that have not ended, or that still keep places for jobs that go on with fewer pods, moves that keep places, and places that are kept for a restart."""
    preempting_classes: bool = True
    policies: bool = True
    reservations: bool = True
    """That have not ended, as for windows."""
    windows: bool = True
    limits: bool = True
    lowered_limits: bool = True
    """Limits that take back what is held beyond them, now or later."""
    user_limits: bool = True
    class_limits: bool = True
    budgets: bool = True
    announced_prices: bool = True
    kept_room: bool = True
    """Room that is kept for a job, or was given up so recently that nothing is kept for it yet; or a place that is kept for a restart."""
    consolidations: bool = True
    """Plans of moves that have not ended, or that still keep places for jobs that move."""
    data_waits: bool = True
    """Jobs that wait for data."""
    carbon: bool = True
    """Sites of clusters, without which it is not known what any flavor emits."""


ALL = InUse()
"""For callers that query each feature."""


def features_in_use() -> InUse:
    """The features in use now."""
    with connection.cursor() as cursor:
        cursor.execute(_QUERY)
        return InUse._make(cursor.fetchone())
