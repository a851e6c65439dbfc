from django.apps import AppConfig
from django.db.models import Field, ForeignObject


class FoundationConfig(AppConfig):
    name = "foundation"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from .lookups import AnyOf  # noqa: PLC0415 - models can be imported only now

        for kind in (Field, ForeignObject):
            kind.register_lookup(AnyOf)
