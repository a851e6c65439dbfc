"""Wiring of this room."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import pre_delete


def _free_its_quota(sender: object, **given: Any) -> None:
    """Operations are imported only when a copy's row goes: most processes start without them."""
    from .operations.staging import free_its_quota  # noqa: PLC0415 - see above

    free_its_quota(sender, **given)


def _keep_budgets_of_work(sender: object, **given: Any) -> None:
    """Likewise, when a tenant moves."""
    from .operations.tenant_moves import keep_budgets_of_work  # noqa: PLC0415 - see above

    keep_budgets_of_work(sender, **given)


class FederationConfig(AppConfig):
    name = "federation"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Imports queries only now, when every room's models are loaded."""
        from billing.queries.pools import reservation_sources  # noqa: PLC0415 - see above
        from billing.queries.progress import run_sources  # noqa: PLC0415 - see above
        from tenancy.operations import tenant_moves  # noqa: PLC0415 - see above

        from .models import StageIn  # noqa: PLC0415 - see above
        from .queries.metering import unsettled_runs  # noqa: PLC0415 - see above
        from .queries.reservations import reserved_times  # noqa: PLC0415 - see above

        pre_delete.connect(_free_its_quota, sender=StageIn, dispatch_uid="federation.free_its_quota")
        tenant_moves.connect(_keep_budgets_of_work, dispatch_uid="federation.keep_budgets_of_work")
        if unsettled_runs not in run_sources:
            run_sources.append(unsettled_runs)
        if reserved_times not in reservation_sources:
            reservation_sources.append(reserved_times)
