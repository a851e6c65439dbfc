"""How artifacts look in requests and responses."""

from typing import Any

from rest_framework import serializers

from clusters.engine.storages import MOST_PATH
from federation.engine.artifacts import MOST_SIZE_BYTES, MOST_URL

WHERE = "Below the tenant's part of the storage."


class DeclaredArtifactShape(serializers.Serializer[Any]):
    """What a job will write: at `path` in a `storage` that it mounts, or at a `url`."""

    name = serializers.CharField(max_length=63)
    storage = serializers.CharField(required=False, max_length=63)
    path = serializers.CharField(required=False, max_length=MOST_PATH, help_text=WHERE)
    url = serializers.CharField(required=False, max_length=MOST_URL, help_text="Such as s3://models/run-7.")
    required = serializers.BooleanField(  # type: ignore[assignment]  # the stubs know DRF's own `required`
        required=False, help_text="If a successful run does not announce it, the job's reason says so; default false."
    )


class ReportedArtifactShape(serializers.Serializer[Any]):
    """A declared artifact that the run has written completely."""

    name = serializers.CharField(max_length=63)
    path = serializers.CharField(
        required=False, max_length=MOST_PATH, help_text="Where it is below the declared place; by default right there."
    )
    sha256 = serializers.CharField(max_length=64, help_text="Its SHA-256 digest in hexadecimal.")
    size_bytes = serializers.IntegerField(min_value=0, max_value=MOST_SIZE_BYTES)


class AnnouncedArtifactShape(serializers.Serializer[Any]):
    """An artifact as a run announced it. The gateway did not read it."""

    name = serializers.CharField()
    attempt = serializers.UUIDField()
    attempt_number = serializers.IntegerField()
    cluster = serializers.CharField()
    storage = serializers.CharField(allow_null=True, help_text="On this cluster; null if it is at a `url`.")
    path = serializers.CharField(allow_null=True, help_text=WHERE)
    url = serializers.CharField(allow_null=True)
    sha256 = serializers.CharField()
    size_bytes = serializers.IntegerField()
    announced_at = serializers.DateTimeField()


class JobArtifactShape(serializers.Serializer[Any]):
    name = serializers.CharField()
    required = serializers.BooleanField()  # type: ignore[assignment]
    storage = serializers.CharField(allow_null=True)
    path = serializers.CharField(allow_null=True, help_text=WHERE)
    url = serializers.CharField(allow_null=True)
    announced = AnnouncedArtifactShape(
        allow_null=True, help_text="By the newest attempt that announced any artifact; null if that one did not."
    )
