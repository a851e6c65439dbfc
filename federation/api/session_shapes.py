"""The shape of a session in a job, for the OpenAPI description."""

from typing import Any

from rest_framework import serializers

from federation.engine.sessions import MAX_IDLE_SECONDS, MAX_PORT, MIN_IDLE_SECONDS, MIN_PORT


class SessionShape(serializers.Serializer[Any]):
    """One pod whose program users open in their browser through the gateway. The job needs a deadline of at most a week."""

    port = serializers.IntegerField(
        min_value=MIN_PORT,
        max_value=MAX_PORT,
        help_text="Where the program listens in the pod, on the loopback address.",
    )
    idle_seconds = serializers.IntegerField(
        min_value=MIN_IDLE_SECONDS,
        max_value=MAX_IDLE_SECONDS,
        help_text="It is stopped after this time without a request.",
    )
