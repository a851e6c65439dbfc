"""What the organisation used before the world begins: a little in May, so that a day of June can be unusual, budgets have a
history to forecast from, and there is an earlier month to close.
"""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from billing.operations import ObservedRun, record_runs
from clusters.models import Flavor
from tenancy.models import Tenant, User

FIRST_DAY = datetime(2026, 5, 4, 9, tzinfo=UTC)
"""Four weeks before the world begins: as much as is needed to know what is usual."""
WEEKS = 2


def record_past(team_paths: tuple[str, ...]) -> None:
    """An hour of one GPU of each team, in each of two weeks. Its jobs are not known any more."""
    user = User.objects.order_by("id").first()
    flavors = list(
        Flavor.objects.filter(capacity_type="on_demand").exclude(gpu_model="").order_by("cluster__name", "name")
    )
    assert user is not None
    runs = []
    for number, path in enumerate(team_paths):
        flavor = flavors[number % len(flavors)]
        for week in range(WEEKS):
            place = 10 * number + week + 1
            start = FIRST_DAY + timedelta(days=7 * week)
            runs.append(
                ObservedRun(
                    cluster_id=flavor.cluster_id, source_uid=f"past-{place}", tenant_id=Tenant.objects.get(path=path).id,
                    user_id=user.id, workload_id=UUID(int=1000 + place), run_id=UUID(int=2000 + place), flavor=flavor.name,
                    capacity_type=flavor.capacity_type, gpu_units=1, cpu_millicores=1000, started_at=start,
                    until_at=start + timedelta(hours=1), is_final=True, workload_name="past", user_name=user.email,
                    gpu_model=flavor.gpu_model,
                )
            )  # fmt: skip
    record_runs(runs)
