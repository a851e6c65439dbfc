"""How often spot capacity is interrupted stands with its price."""

from django.db import migrations, models
from django.db.models import Q

PRICES = """
CREATE OR REPLACE FUNCTION billing_guard_price() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (
        (NEW.id, NEW.rate_id, NEW.unit_price, NEW.cpu_price, NEW.memory_price, NEW.interruptions_per_hour, NEW.currency,
         NEW.created_at, lower(NEW.valid))
            IS DISTINCT FROM
        (OLD.id, OLD.rate_id, OLD.unit_price, OLD.cpu_price, OLD.memory_price, OLD.interruptions_per_hour, OLD.currency,
         OLD.created_at, lower(OLD.valid))
        OR coalesce(upper(NEW.valid), 'infinity') > coalesce(upper(OLD.valid), 'infinity')) THEN
        RAISE EXCEPTION 'a price stands as it was written; only its end may come nearer'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'price_stands';
    END IF;
    IF EXISTS (SELECT 1 FROM billing_usagesegment WHERE price_id = OLD.id
               AND (TG_OP = 'DELETE' OR upper(period) > upper(NEW.valid))) THEN
        RAISE EXCEPTION 'this price was charged already'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'used_price_stands';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;
CREATE FUNCTION billing_guard_interruptions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM billing_rate WHERE id = NEW.rate_id AND capacity_type = 'spot') THEN
        RAISE EXCEPTION 'only spot capacity is interrupted'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'only_spot_is_interrupted';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER billing_guard_interruptions BEFORE INSERT ON billing_price
    FOR EACH ROW WHEN (NEW.interruptions_per_hour IS NOT NULL) EXECUTE FUNCTION billing_guard_interruptions();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0003_cpu_and_memory_prices")]
    operations = [
        migrations.AddField(
            "price",
            "interruptions_per_hour",
            models.DecimalField(
                decimal_places=6,
                help_text="How often a job on this spot capacity must expect to lose its pods; null: as the settings say.",
                max_digits=9,
                null=True,
            ),
        ),
        migrations.AddConstraint(
            "price",
            models.CheckConstraint(
                condition=Q(interruptions_per_hour__isnull=True)
                | Q(interruptions_per_hour__gte=0, interruptions_per_hour__lte=100),
                name="interruptions_are_within_bounds",
            ),
        ),
        migrations.RunSQL(PRICES),
    ]
