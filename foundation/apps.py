import atexit
import gc

from django.apps import AppConfig
from django.core import checks
from django.db.models import Field, ForeignObject


class FoundationConfig(AppConfig):
    name = "foundation"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from .checks import role_has_no_excess  # noqa: PLC0415 - models can be imported only now
        from .lookups import AnyOf  # noqa: PLC0415 - models can be imported only now

        checks.register(role_has_no_excess, checks.Tags.database)
        for kind in (Field, ForeignObject):
            kind.register_lookup(AnyOf)
        # The settings disabled it until all models are imported, which are never garbage: enabled, it would walk them three times.
        gc.freeze()
        gc.enable()
        # Nor does a process that ends look for garbage among all that it has imported, which takes the web process a third of a second.
        atexit.register(gc.freeze)
