"""Wiring of this room."""

from django.apps import AppConfig
from django.db.models.signals import pre_delete


class FederationConfig(AppConfig):
    name = "federation"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Imports queries only now, when every room's models are loaded."""
        from billing.queries.pools import reservation_sources  # noqa: PLC0415 - see above
        from billing.queries.progress import run_sources  # noqa: PLC0415 - see above

        from .models import StageIn  # noqa: PLC0415 - see above
        from .operations.staging import free_its_quota  # noqa: PLC0415 - see above
        from .queries.metering import unsettled_runs  # noqa: PLC0415 - see above
        from .queries.reservations import reserved_times  # noqa: PLC0415 - see above

        pre_delete.connect(free_its_quota, sender=StageIn, dispatch_uid="federation.free_its_quota")
        if unsettled_runs not in run_sources:
            run_sources.append(unsettled_runs)
        if reserved_times not in reservation_sources:
            reservation_sources.append(reserved_times)
