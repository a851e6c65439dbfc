from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks

from .engine.sealing import BadKeyRing, read_key_ring


class ClustersConfig(AppConfig):
    name = "clusters"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        checks.register(key_ring_is_usable, checks.Tags.security)


def key_ring_is_usable(**_: Any) -> list[checks.CheckMessage]:
    """An error if no credential can be sealed, so that it appears at boot and not at the first registration.

    A process that needs no key ring has none; then there is nothing to check.
    """
    if not settings.KEY_RING:
        return []
    try:
        read_key_ring(settings.KEY_RING)
    except BadKeyRing as error:
        hint = "Set SWITCHYARD_KEY_RING to id:key,id2:key2 with the current key first. To make a key: openssl rand -base64 32"
        return [checks.Error(f"SWITCHYARD_KEY_RING: {error}", hint=hint, id="clusters.E001")]
    return []
