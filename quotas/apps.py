"""Wiring of this room."""

from django.apps import AppConfig


class QuotasConfig(AppConfig):
    name = "quotas"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Operations can be imported only now, when every room's models are there."""
        from tenancy.operations import tenant_moves  # noqa: PLC0415 - see above

        from .operations import take_holds_along  # noqa: PLC0415 - see above

        tenant_moves.connect(take_holds_along, dispatch_uid="quotas.take_holds_along")
