"""A meter keeps its tenant's path as it was when it opened, so that moving or renaming a tenant rewrites no past usage."""

from django.db import migrations, models

BACKFILL = """
ALTER TABLE billing_meter DISABLE TRIGGER billing_guard_meter;
UPDATE billing_meter AS m SET tenant_path = tenant.path FROM tenancy_tenant AS tenant WHERE tenant.id = m.tenant_id;
ALTER TABLE billing_meter ENABLE TRIGGER billing_guard_meter;
"""
KEEPS = """
CREATE FUNCTION billing_meter_takes_its_path() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    -- Of a tenant that does not exist the foreign key speaks.
    NEW.tenant_path := coalesce((SELECT path FROM tenancy_tenant WHERE id = NEW.tenant_id), '');
    RETURN NEW;
END $$;
CREATE TRIGGER billing_meter_takes_its_path BEFORE INSERT ON billing_meter
    FOR EACH ROW EXECUTE FUNCTION billing_meter_takes_its_path();
CREATE TRIGGER billing_meter_keeps_its_path BEFORE UPDATE ON billing_meter FOR EACH ROW
    WHEN (NEW.tenant_path IS DISTINCT FROM OLD.tenant_path) EXECUTE FUNCTION billing_meter_stands();
"""
UNDO = """
DROP TRIGGER billing_meter_keeps_its_path ON billing_meter;
DROP TRIGGER billing_meter_takes_its_path ON billing_meter;
DROP FUNCTION billing_meter_takes_its_path();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0007_physical_gpus"), ("tenancy", "0002_triggers")]

    operations = [
        migrations.AddField(
            "meter",
            "tenant_path",
            models.CharField(
                db_collation="C",
                db_default="",
                default="",
                editable=False,
                help_text="Where the tenant was when the meter opened (trigger).",
                max_length=1100,
            ),
        ),
        migrations.RunSQL(BACKFILL, migrations.RunSQL.noop),
        migrations.AddIndex("meter", models.Index(fields=["tenant_path", "tenant"], name="meters_by_tenant_path")),
        migrations.RunSQL(KEEPS, UNDO),
    ]
