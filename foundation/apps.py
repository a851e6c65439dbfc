from django.apps import AppConfig


class FoundationConfig(AppConfig):
    name = "foundation"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import lookups  # noqa: F401, PLC0415 - registers its lookup
