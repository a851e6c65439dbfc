"""Stops that wait for a checkpoint, as requests name them and as jobs show them."""

from typing import Any

from rest_framework import serializers

from federation.queries.pending_stops import MOST_WAIT_SECONDS, PendingStop
from foundation.plain_json import instant


def wait_field() -> serializers.IntegerField:
    """How a request says that its stop waits."""
    return serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=MOST_WAIT_SECONDS,
        help_text="Its run goes on until its next checkpoint is reported, this long at most. Default 0: it stops now.",
    )


class SuspensionShape(serializers.Serializer[Any]):
    wait_for_checkpoint_seconds = wait_field()


class PendingStopShape(serializers.Serializer[Any]):
    """A stop that waits for the next checkpoint of the run."""

    then = serializers.ChoiceField(choices=["suspend", "move"])
    by = serializers.CharField(help_text="Who asked for it.")
    requested_at = serializers.DateTimeField(help_text="Checkpoints that are reported later count.")
    until = serializers.DateTimeField(help_text="It waits no longer.")


def pending_stop_json(stop: PendingStop | None) -> dict[str, Any] | None:
    """The stop that waits for a checkpoint; null without one."""
    if stop is None:
        return None
    times = {"requested_at": instant(stop.requested_at), "until": instant(stop.until)}
    return {"then": stop.then, "by": stop.by, **times}
