from django.apps import AppConfig


class FoundationConfig(AppConfig):
    name = "foundation"
    default_auto_field = "django.db.models.BigAutoField"
