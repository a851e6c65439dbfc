"""`manage.py rekey_credentials`: moves every sealed credential to the first key of the ring."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from clusters.operations import rekey_credentials


class Command(BaseCommand):
    """Runs while the gateway runs; may be stopped and started at any time."""

    help = (
        "Seals every cluster credential anew under the first key of SWITCHYARD_KEY_RING. Old keys may leave afterwards."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        done = rekey_credentials()
        self.stdout.write(
            f"{done.moved} credentials moved to the current key, {done.already_current} were there already."
        )
        if done.failed:
            told = "\n".join(f"  {failure}" for failure in done.failed)
            raise CommandError(
                f"{len(done.failed)} credentials could not be opened; put their keys back or replace them:\n{told}"
            )
