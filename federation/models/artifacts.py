"""What jobs have written, as their attempts announced it."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from federation.engine.artifacts import (
    DIGEST_PATTERN,
    DOTS_PATTERN,
    MOST_REFERENCE,
    MOST_SIZE_BYTES,
    NAME_PATTERN,
    PATH_PATTERN,
    URL_PATTERN,
)

from .jobs import Attempt


class Artifact(models.Model):
    """A declared artifact as an attempt announced it. It is written only while the attempt may run (`sql/artifacts.sql`), and
    the gateway never reads what the reference names. The job's artifacts are those of its newest attempt that has any.
    """

    id = models.BigAutoField(primary_key=True)
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="artifacts", db_index=False)
    name = models.CharField(max_length=63)
    storage = models.CharField(max_length=63, blank=True, help_text="On the attempt's cluster; empty for a URL.")
    reference = models.CharField(
        max_length=MOST_REFERENCE, help_text="A path below the tenant's part of the storage, or a URL."
    )
    sha256 = models.CharField(max_length=64, help_text="In hexadecimal, as the run computed it.")
    size_bytes = models.BigIntegerField()
    sequence = models.BigIntegerField(help_text="Of the newest report that has it.")
    announced_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["attempt", "name"], name="an_artifact_is_listed_once"),
            models.CheckConstraint(condition=Q(name__regex=NAME_PATTERN), name="an_artifacts_name_is_a_dns_label"),
            models.CheckConstraint(condition=Q(sha256__regex=DIGEST_PATTERN), name="an_artifacts_digest_is_a_sha256"),
            models.CheckConstraint(
                condition=Q(size_bytes__gte=0, size_bytes__lte=MOST_SIZE_BYTES, sequence__gte=0),
                name="an_artifact_has_a_size",
            ),
            models.CheckConstraint(
                condition=(
                    (Q(storage="") & Q(reference__regex=URL_PATTERN))
                    | (Q(storage__regex=NAME_PATTERN) & Q(reference__regex=PATH_PATTERN))
                )
                & ~Q(reference__regex=DOTS_PATTERN),
                name="an_artifacts_reference_leads_nowhere_else",
            ),
        ]

    def __str__(self) -> str:
        return self.name
