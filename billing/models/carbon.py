"""What energy and emissions are computed from: grid intensities, rated power, sites of clusters, and measured energy.

All are append-only: of two rows for the same, the later one applies. Hours are whole, in UTC (trigger), so that a report is a
sum over hours.
"""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from billing.engine.carbon_file import (
    LICENCE_LENGTH,
    MOST_EMBODIED_GRAMS,
    MOST_INTENSITY,
    MOST_LIFE_HOURS,
    MOST_MEASURED,
    MOST_PUE,
    MOST_WATTS,
    REGION_LENGTH,
    SOURCE_LENGTH,
)
from clusters.models import Cluster
from tenancy.models import Tenant

from .metering import Meter


class Imported(models.Model):
    """Where a row is from, and who imported it."""

    id = models.BigAutoField(primary_key=True)
    source = models.CharField(max_length=SOURCE_LENGTH)
    licence = models.CharField(max_length=LICENCE_LENGTH, blank=True, default="", db_default="")
    made_by_id = models.UUIDField(null=True)
    made_by_name = models.CharField(max_length=254)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        abstract = True


class GridIntensity(Imported):
    """What a kWh of a region's grid emits in [valid_from, valid_until). Of several for an hour the shortest applies.

    Without an organisation, it is for clusters of all of them; an organisation's own comes first.
    """

    organisation = models.ForeignKey(Tenant, null=True, on_delete=models.PROTECT, related_name="+")
    region = models.CharField(max_length=REGION_LENGTH, help_text="Of the grid, as sites of clusters name it.")
    valid_from = models.DateTimeField(help_text="A whole hour, UTC.")
    valid_until = models.DateTimeField(help_text="A whole hour, UTC; the first to which it does not apply.")
    milligrams_per_kwh = models.PositiveIntegerField(help_text="CO2 equivalents.")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(valid_until__gt=F("valid_from")), name="grid_intensity_has_hours"),
            models.CheckConstraint(
                condition=Q(milligrams_per_kwh__lte=MOST_INTENSITY), name="grid_intensity_is_within_bounds"
            ),
            models.CheckConstraint(
                condition=~Q(source="") & ~Q(licence="") & ~Q(region=""), name="grid_intensity_has_source_and_licence"
            ),
        ]
        indexes = [models.Index(fields=["region", "valid_from"], name="grid_intensities_by_hour")]

    def __str__(self) -> str:
        return f"{self.milligrams_per_kwh} mg/kWh in {self.region}"


class PowerRating(Imported):
    """The power that a part draws in use, and what its production emitted, from an hour on.

    A part is a physical GPU of a model, a core, or a GiB of memory. An organisation's own ratings, which apply on its clusters,
    come before those without an organisation.
    """

    class Part(models.TextChoices):
        GPU = "gpu"
        CORE = "core"
        GIB = "gib"

    organisation = models.ForeignKey(Tenant, null=True, on_delete=models.PROTECT, related_name="+")
    part = models.CharField(max_length=4, choices=Part.choices)
    gpu_model = models.CharField(max_length=63, blank=True, default="", db_default="")
    since = models.DateTimeField(help_text="A whole hour, UTC.")
    milliwatts = models.PositiveBigIntegerField()
    embodied_grams = models.PositiveBigIntegerField(null=True, help_text="CO2 equivalents of its production.")
    life_hours = models.PositiveIntegerField(null=True, help_text="Over which they are spread.")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=(Q(part="gpu") & ~Q(gpu_model="")) | Q(part__in=["core", "gib"], gpu_model=""),
                name="power_rating_is_of_a_part",
            ),
            models.CheckConstraint(condition=Q(milliwatts__lte=MOST_WATTS * 1000), name="power_is_within_bounds"),
            models.CheckConstraint(
                condition=Q(embodied_grams__isnull=True, life_hours__isnull=True)
                | Q(
                    embodied_grams__isnull=False,
                    embodied_grams__lte=MOST_EMBODIED_GRAMS,
                    life_hours__isnull=False,
                    life_hours__gte=1,
                    life_hours__lte=MOST_LIFE_HOURS,
                ),
                name="embodied_emissions_have_a_life",
            ),
            models.CheckConstraint(condition=~Q(source=""), name="power_rating_has_a_source"),
        ]

    def __str__(self) -> str:
        return f"{self.gpu_model or self.part}: {self.milliwatts} mW"


class CarbonSite(Imported):
    """Which grid a cluster is on, and the power usage effectiveness of its data centre, from an hour on."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    since = models.DateTimeField(help_text="A whole hour, UTC.")
    region = models.CharField(max_length=REGION_LENGTH)
    pue_thousandths = models.PositiveIntegerField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(pue_thousandths__gte=1000, pue_thousandths__lte=MOST_PUE * 1000),
                name="pue_is_within_bounds",
            ),
            models.CheckConstraint(condition=~Q(source="") & ~Q(region=""), name="carbon_site_has_region_and_source"),
        ]

    def __str__(self) -> str:
        return f"{self.region} from {self.since:%Y-%m-%d %H}"


class MeasuredEnergy(Imported):
    """What the devices of a metered pod drew in one hour, by measurement: all that it used of the hour.

    It replaces the estimate. It is accepted once the hour is metered to its end, or to that of the pod (trigger).
    """

    meter = models.ForeignKey(Meter, on_delete=models.PROTECT, related_name="+", db_index=False)
    hour = models.DateTimeField(help_text="Its beginning, UTC.")
    milliwatt_hours = models.PositiveBigIntegerField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(milliwatt_hours__lte=MOST_MEASURED), name="measured_energy_is_within_bounds"
            ),
            models.CheckConstraint(condition=~Q(source=""), name="measured_energy_has_a_source"),
        ]
        indexes = [
            models.Index(fields=["meter", "hour", "-id"], name="measured_energy_of_meters"),
            models.Index(fields=["hour"], name="measured_energy_by_hour"),
        ]

    def __str__(self) -> str:
        return f"{self.milliwatt_hours} mWh"
