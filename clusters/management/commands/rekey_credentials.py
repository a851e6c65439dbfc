"""`manage.py rekey_credentials`: moves every sealed credential and secret to the first key of the ring."""

from typing import Any

from django.core.management.base import CommandError

from clusters.operations import rekey_credentials
from foundation.commands import GatewayCommand


class Command(GatewayCommand):
    """Runs while the gateway runs; may be stopped and started at any time."""

    help = "Encrypts every cluster credential and every secret again with the first key of SWITCHYARD_KEY_RING. Old keys can be removed afterwards."

    def handle(self, *args: Any, **options: Any) -> None:
        done = rekey_credentials()
        self.stdout.write(
            f"{done.moved} credentials and secrets moved to the current key, {done.already_current} already used it."
        )
        if done.failed:
            told = "\n".join(f"  {failure}" for failure in done.failed)
            raise CommandError(
                f"{len(done.failed)} credentials and secrets could not be decrypted; restore their keys or replace them:\n{told}"
            )
