"""The results of the nightly proof of the ledger."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class BookProof(models.Model):
    """One proof: of all rows, or of the rows written since the last proof without findings."""

    id = models.BigAutoField(primary_key=True)
    began_at = models.DateTimeField(help_text="On the database's clock: the proof covers rows written before.")
    finished_at = models.DateTimeField(db_default=Now())
    is_full = models.BooleanField()
    meter = models.BigIntegerField(help_text="The last meter when the proof began; the next fields likewise.")
    segment = models.BigIntegerField()
    movement = models.BigIntegerField()
    found = models.PositiveIntegerField(help_text="The number of findings.")
    told = models.JSONField(default=list, help_text="The first findings, as sentences.")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(finished_at__gte=models.F("began_at")), name="proof_ends_after_it_began")
        ]

    def __str__(self) -> str:
        return f"proof of {self.began_at}: {self.found} found"
