"""Pods pay for what they ask: GPUs, and cores and memory where the price book has them."""

from django.db import migrations, models
from django.db.models import Q

PRICES = """
CREATE OR REPLACE FUNCTION billing_guard_price() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (
        (NEW.id, NEW.rate_id, NEW.unit_price, NEW.cpu_price, NEW.memory_price, NEW.currency, NEW.created_at,
         lower(NEW.valid))
            IS DISTINCT FROM
        (OLD.id, OLD.rate_id, OLD.unit_price, OLD.cpu_price, OLD.memory_price, OLD.currency, OLD.created_at,
         lower(OLD.valid))
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
"""

METERS = """
CREATE OR REPLACE FUNCTION billing_guard_meter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.is_closed OR NEW.metered_until < OLD.metered_until
       OR (NEW.id, NEW.cluster_id, NEW.source_uid, NEW.tenant_id, NEW.user_id, NEW.user_name, NEW.workload_id,
           NEW.workload_name, NEW.run_id, NEW.flavor, NEW.capacity_type, NEW.unit, NEW.gpu_units, NEW.cpu_millicores,
           NEW.memory_mib, NEW.cpu_flavor, NEW.metered_from)
          IS DISTINCT FROM
          (OLD.id, OLD.cluster_id, OLD.source_uid, OLD.tenant_id, OLD.user_id, OLD.user_name, OLD.workload_id,
           OLD.workload_name, OLD.run_id, OLD.flavor, OLD.capacity_type, OLD.unit, OLD.gpu_units, OLD.cpu_millicores,
           OLD.memory_mib, OLD.cpu_flavor, OLD.metered_from) THEN
        RAISE EXCEPTION 'a meter only runs on, and stands still once closed'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'meter_only_runs_on';
    END IF;
    RETURN NEW;
END $$;
"""

SEGMENTS = """
-- The same arithmetic as billing.engine.rating: millionths a GPU-hour, core-hour and GiB-hour, added up and rounded down once.
CREATE FUNCTION billing_reading(
    gpu_price numeric, gpu_units bigint, cpu_price numeric, cpu_millicores bigint, memory_price numeric, memory_mib bigint,
    base timestamptz, at timestamptz
) RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT div(
        (gpu_price * gpu_units * 128000 + coalesce(cpu_price, 0) * cpu_millicores * 128
         + coalesce(memory_price, 0) * memory_mib * 125) * 1000000 * trunc(extract(epoch FROM at - base) * 1000), 460800
    ) * 0.000000000001
$$;
CREATE FUNCTION billing_cost(
    by_core boolean, gpu_units bigint, cpu_millicores bigint, memory_mib bigint, metered_from timestamptz,
    unit_price numeric, cpu_price numeric, memory_price numeric, valid tstzrange, period tstzrange
) RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT billing_reading(gpu, gpu_units, cpu, cpu_millicores, memory_price, memory_mib, base, upper(period))
         - billing_reading(gpu, gpu_units, cpu, cpu_millicores, memory_price, memory_mib, base, lower(period))
    FROM (SELECT CASE WHEN by_core THEN 0 ELSE unit_price END AS gpu,
                 CASE WHEN by_core THEN unit_price ELSE cpu_price END AS cpu,
                 greatest(metered_from, lower(valid),
                          date_trunc('day', lower(period) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC') AS base) AS known
$$;
-- How a price applies to a meter: 1 as its flavor's own, 2 as that of the flavor that stands in, null not at all.
CREATE FUNCTION billing_rank(
    flavor varchar, cpu_flavor varchar, unit varchar, gpu_units bigint, price_flavor varchar, cpu_price numeric,
    memory_price numeric
) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN price_flavor = flavor AND (unit = 'core' OR gpu_units > 0 OR cpu_price IS NOT NULL OR memory_price IS NOT NULL)
            THEN 1
        WHEN price_flavor = cpu_flavor AND cpu_flavor <> '' THEN 2
    END
$$;

CREATE OR REPLACE FUNCTION billing_judge_segments() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    PERFORM 1 FROM billing_meter WHERE id IN (SELECT meter_id FROM added) ORDER BY id FOR NO KEY UPDATE;
    PERFORM 1 FROM billing_price WHERE id IN (SELECT price_id FROM added) ORDER BY id FOR SHARE;
    IF EXISTS (
        SELECT 1 FROM added AS s JOIN billing_meter AS m ON m.id = s.meter_id
        WHERE NOT s.period <@ tstzrange(m.metered_from, m.metered_until)
           OR s.gpu_milliseconds <> m.gpu_units * extract(epoch FROM upper(s.period) - lower(s.period)) * 1000
           OR s.cpu_millicore_milliseconds
              <> m.cpu_millicores * extract(epoch FROM upper(s.period) - lower(s.period)) * 1000
    ) THEN
        RAISE EXCEPTION 'a segment is what its meter counted'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'segment_is_what_its_meter_counted';
    END IF;
    IF EXISTS (
        SELECT 1 FROM added AS s JOIN billing_meter AS m ON m.id = s.meter_id
        JOIN billing_price AS p ON p.id = s.price_id JOIN billing_rate AS r ON r.id = p.rate_id
        CROSS JOIN LATERAL billing_rank(
            m.flavor, m.cpu_flavor, m.unit, m.gpu_units, r.flavor, p.cpu_price, p.memory_price) AS rank
        WHERE (r.cluster_id, r.capacity_type) IS DISTINCT FROM (m.cluster_id, m.capacity_type) OR rank IS NULL
           OR NOT s.period <@ p.valid OR s.currency <> p.currency
           OR s.cost <> billing_cost(
               m.unit = 'core' OR rank = 2, m.gpu_units, m.cpu_millicores, m.memory_mib, m.metered_from, p.unit_price,
               p.cpu_price, p.memory_price, p.valid, s.period)
    ) THEN
        RAISE EXCEPTION 'a segment costs what its price says'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'segment_costs_what_its_price_says';
    END IF;
    -- A price that comes first, where another or none was taken. A row for each flavor, so that the index answers.
    IF EXISTS (
        SELECT 1 FROM added AS s JOIN billing_meter AS m ON m.id = s.meter_id
        LEFT JOIN billing_price AS taken ON taken.id = s.price_id
        LEFT JOIN billing_rate AS taken_rate ON taken_rate.id = taken.rate_id
        CROSS JOIN LATERAL unnest(ARRAY[m.flavor, m.cpu_flavor]) AS sold(flavor)
        JOIN billing_rate AS r ON (r.cluster_id, r.flavor, r.capacity_type) = (m.cluster_id, sold.flavor, m.capacity_type)
        JOIN billing_price AS p ON p.rate_id = r.id AND p.valid && s.period
        WHERE s.price_id IS DISTINCT FROM p.id
          AND billing_rank(m.flavor, m.cpu_flavor, m.unit, m.gpu_units, r.flavor, p.cpu_price, p.memory_price)
              < coalesce(billing_rank(m.flavor, m.cpu_flavor, m.unit, m.gpu_units, taken_rate.flavor, taken.cpu_price,
                                      taken.memory_price), 3)
    ) THEN
        RAISE EXCEPTION 'a segment is unpriced only where there is no price'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'segment_takes_the_price_there_is';
    END IF;
    RETURN NULL;
END $$;
DROP FUNCTION billing_cost(varchar, bigint, bigint, timestamptz, numeric, tstzrange, tstzrange);
DROP FUNCTION billing_reading(varchar, bigint, bigint, numeric, timestamptz, timestamptz);
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_ledger"), ("clusters", "0002_pinned")]
    operations = [
        migrations.AddField(
            "price",
            "cpu_price",
            models.DecimalField(
                decimal_places=6, help_text="Of a core and hour, on flavors with GPUs.", max_digits=18, null=True
            ),
        ),
        migrations.AddField(
            "price",
            "memory_price",
            models.DecimalField(decimal_places=6, help_text="Of a GiB and hour.", max_digits=18, null=True),
        ),
        migrations.AddField("meter", "memory_mib", models.PositiveBigIntegerField(db_default=0)),
        migrations.AddField(
            "meter",
            "cpu_flavor",
            models.CharField(
                blank=True,
                db_default="",
                help_text="For a pod without GPUs on a GPU flavor: the CPU-only flavor whose price it pays if its own says nothing.",
                max_length=120,
            ),
        ),
        migrations.AddConstraint(
            "price",
            models.CheckConstraint(
                condition=Q(Q(cpu_price__isnull=True) | Q(cpu_price__gte=0))
                & Q(Q(memory_price__isnull=True) | Q(memory_price__gte=0)),
                name="prices_of_cpu_and_memory_are_not_negative",
            ),
        ),
        migrations.AddConstraint(
            "meter",
            models.CheckConstraint(
                condition=Q(cpu_flavor="") | Q(unit="gpu", gpu_units=0), name="only_guests_pay_another_flavors_price"
            ),
        ),
        migrations.RunSQL(PRICES + METERS + SEGMENTS),
    ]
