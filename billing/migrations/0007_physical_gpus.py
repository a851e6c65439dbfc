"""A meter keeps what its unit is of a physical GPU, with the GPU's model and sharing, as they were when it opened."""

from django.db import migrations, models
from django.db.models import F, Q

BACKFILL = """
ALTER TABLE billing_meter DISABLE TRIGGER billing_guard_meter;
UPDATE billing_meter AS m
   SET gpu_model = flavor.gpu_model, sharing = flavor.sharing,
       gpu_numerator = CASE WHEN parts.profile IS NULL THEN 1 ELSE least(parts.profile, parts.slices) END,
       gpu_denominator = CASE WHEN parts.profile IS NULL THEN coalesce(parts.shares, 1) ELSE parts.slices END
  FROM clusters_flavor AS flavor
 CROSS JOIN LATERAL (
       SELECT substring(flavor.sharing FROM '^mig:([1-9])g')::integer AS profile,
              substring(flavor.sharing FROM '^timeslice:([1-9][0-9]{0,8})$')::integer AS shares,
              CASE WHEN flavor.gpu_model IN ('A30', 'RTX-PRO-6000') THEN 4
                   WHEN flavor.gpu_model IN ('RTX-PRO-5000', 'RTX-PRO-4500') THEN 2 ELSE 7 END AS slices) AS parts
 WHERE flavor.cluster_id = m.cluster_id AND flavor.name = m.flavor AND flavor.gpu_model <> '';
ALTER TABLE billing_meter ENABLE TRIGGER billing_guard_meter;
"""
STANDS = """
CREATE FUNCTION billing_meter_stands() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'meter % keeps what it was opened with', OLD.id
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'meter_keeps_what_it_was_opened_with';
END $$;
CREATE TRIGGER billing_meter_keeps_its_unit BEFORE UPDATE ON billing_meter FOR EACH ROW
    WHEN ((NEW.gpu_model, NEW.sharing, NEW.gpu_numerator, NEW.gpu_denominator)
          IS DISTINCT FROM (OLD.gpu_model, OLD.sharing, OLD.gpu_numerator, OLD.gpu_denominator))
    EXECUTE FUNCTION billing_meter_stands();
"""
UNDO = """
DROP TRIGGER billing_meter_keeps_its_unit ON billing_meter;
DROP FUNCTION billing_meter_stands();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0006_pods_that_run_on"), ("clusters", "0007_datasets")]

    operations = [
        migrations.AlterField(
            "usagesegment",
            "gpu_milliseconds",
            models.PositiveBigIntegerField(help_text="In the meter's units: GPUs, MIG slices or shares."),
        ),
        migrations.AddField("meter", "gpu_model", models.CharField(blank=True, db_default="", max_length=63)),
        migrations.AddField(
            "meter",
            "sharing",
            models.CharField(
                blank=True, db_default="", help_text="`whole`, `mig:PROFILE` or `timeslice:N`.", max_length=40
            ),
        ),
        migrations.AddField(
            "meter",
            "gpu_numerator",
            models.PositiveIntegerField(
                db_default=1,
                default=1,
                help_text="A unit is this many parts of a physical GPU that has `gpu_denominator` of them.",
            ),
        ),
        migrations.AddField("meter", "gpu_denominator", models.PositiveIntegerField(db_default=1, default=1)),
        migrations.RunSQL(BACKFILL, migrations.RunSQL.noop),
        migrations.AddConstraint(
            "meter",
            models.CheckConstraint(
                condition=Q(gpu_numerator__gte=1, gpu_numerator__lte=F("gpu_denominator")),
                name="a_unit_is_a_part_of_a_gpu",
            ),
        ),
        migrations.RunSQL(STANDS, UNDO),
    ]
