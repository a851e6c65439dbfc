"""The images with which runs of organisations have succeeded."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from tenancy.models import Tenant


class ProvenImage(models.Model):
    """An image with which a run or a pre-pull of an organisation has succeeded: nodes pulled it with the organisation's rights.

    Only then does the organisation learn which nodes have it. So its jobs cannot find out what others run.
    """

    id = models.BigAutoField(primary_key=True)
    organisation = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=600, help_text="The normal name (`clusters.engine.images`).")
    last_at = models.DateTimeField(db_default=Now(), help_text="About when a run last succeeded with it.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organisation", "name"], name="image_is_proven_once_for_an_organisation"),
            models.CheckConstraint(condition=~Q(name=""), name="proven_image_has_a_name"),
        ]
        indexes = [
            models.Index(fields=["-last_at"], name="newest_proven_images"),
            models.Index(fields=["organisation", "last_at"], name="proven_images_by_age"),
        ]

    def __str__(self) -> str:
        return self.name
