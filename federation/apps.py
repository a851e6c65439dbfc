"""Wiring of this room."""

from django.apps import AppConfig


class FederationConfig(AppConfig):
    name = "federation"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Imports queries only now, when every room's models are loaded."""
        from billing.queries.pools import reservation_sources  # noqa: PLC0415 - see above
        from billing.queries.progress import run_sources  # noqa: PLC0415 - see above

        from .queries.metering import unsettled_runs  # noqa: PLC0415 - see above
        from .queries.reservations import reserved_times  # noqa: PLC0415 - see above

        if unsettled_runs not in run_sources:
            run_sources.append(unsettled_runs)
        if reserved_times not in reservation_sources:
            reservation_sources.append(reserved_times)
