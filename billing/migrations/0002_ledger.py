"""The ledger judges itself: prices in use stand, every moment is metered once, every cost is price times quantity.

Functions that look things up leave only index lookups to the planner: a plan is kept for a session, and one made while
a table was still empty would read it whole for ever after.
"""

from django.db import migrations

WHOLE_MILLISECONDS = """
ALTER TABLE billing_usagesegment ADD CONSTRAINT segment_is_in_whole_milliseconds CHECK (
    date_trunc('milliseconds', lower(period) AT TIME ZONE 'UTC') = lower(period) AT TIME ZONE 'UTC'
    AND date_trunc('milliseconds', upper(period) AT TIME ZONE 'UTC') = upper(period) AT TIME ZONE 'UTC');
ALTER TABLE billing_usagesegment ADD CONSTRAINT segment_lies_within_a_day CHECK (
    date_trunc('day', lower(period) AT TIME ZONE 'UTC') + interval '1 day' >= upper(period) AT TIME ZONE 'UTC');
ALTER TABLE billing_meter ADD CONSTRAINT meter_is_in_whole_milliseconds CHECK (
    date_trunc('milliseconds', metered_from AT TIME ZONE 'UTC') = metered_from AT TIME ZONE 'UTC'
    AND date_trunc('milliseconds', metered_until AT TIME ZONE 'UTC') = metered_until AT TIME ZONE 'UTC');
ALTER TABLE billing_price ADD CONSTRAINT price_is_in_whole_milliseconds CHECK (
    date_trunc('milliseconds', lower(valid) AT TIME ZONE 'UTC') = lower(valid) AT TIME ZONE 'UTC'
    AND date_trunc('milliseconds', upper(valid) AT TIME ZONE 'UTC') IS NOT DISTINCT FROM upper(valid) AT TIME ZONE 'UTC');
"""

PRICES = """
CREATE FUNCTION billing_guard_price() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (
        (NEW.id, NEW.rate_id, NEW.unit_price, NEW.currency, NEW.created_at, lower(NEW.valid))
            IS DISTINCT FROM (OLD.id, OLD.rate_id, OLD.unit_price, OLD.currency, OLD.created_at, lower(OLD.valid))
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
CREATE TRIGGER billing_guard_price BEFORE UPDATE OR DELETE ON billing_price
    FOR EACH ROW EXECUTE FUNCTION billing_guard_price();
"""

METERS = """
CREATE FUNCTION billing_guard_meter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.is_closed OR NEW.metered_until < OLD.metered_until
       OR (NEW.id, NEW.cluster_id, NEW.source_uid, NEW.tenant_id, NEW.user_id, NEW.user_name, NEW.workload_id,
           NEW.workload_name, NEW.run_id, NEW.flavor, NEW.capacity_type, NEW.unit, NEW.gpu_units, NEW.cpu_millicores,
           NEW.metered_from)
          IS DISTINCT FROM
          (OLD.id, OLD.cluster_id, OLD.source_uid, OLD.tenant_id, OLD.user_id, OLD.user_name, OLD.workload_id,
           OLD.workload_name, OLD.run_id, OLD.flavor, OLD.capacity_type, OLD.unit, OLD.gpu_units, OLD.cpu_millicores,
           OLD.metered_from) THEN
        RAISE EXCEPTION 'a meter only runs on, and stands still once closed'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'meter_only_runs_on';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER billing_guard_meter BEFORE UPDATE ON billing_meter
    FOR EACH ROW EXECUTE FUNCTION billing_guard_meter();

CREATE FUNCTION billing_meter_is_covered() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    begun timestamptz := NEW.metered_from;
    covered interval;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        begun := OLD.metered_until;
    END IF;
    -- In the words of the exclusion constraint, so that its index answers.
    SELECT sum(upper(period) - lower(period)) INTO covered FROM billing_usagesegment
        WHERE int8range(meter_id, meter_id, '[]') && int8range(NEW.id, NEW.id, '[]')
        AND period <@ tstzrange(begun, NEW.metered_until);
    IF covered IS DISTINCT FROM NEW.metered_until - begun THEN
        RAISE EXCEPTION 'the segments of meter % leave a gap', NEW.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'meter_has_no_gaps';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER billing_new_meter_is_covered AFTER INSERT ON billing_meter
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.metered_until > NEW.metered_from)
    EXECUTE FUNCTION billing_meter_is_covered();
CREATE CONSTRAINT TRIGGER billing_meter_is_covered AFTER UPDATE ON billing_meter
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.metered_until > OLD.metered_until)
    EXECUTE FUNCTION billing_meter_is_covered();
"""

SEGMENTS = """
-- The same arithmetic as billing.engine.rating: the total since the latest cut, rounded down to 12 places.
CREATE FUNCTION billing_reading(
    unit varchar, gpu_units bigint, cpu_millicores bigint, unit_price numeric, base timestamptz, at timestamptz
) RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT CASE unit
        WHEN 'gpu' THEN div(unit_price * 1000000 * gpu_units * trunc(extract(epoch FROM at - base) * 1000) * 5, 18)
        ELSE div(unit_price * 1000000 * cpu_millicores * trunc(extract(epoch FROM at - base) * 1000), 3600)
    END * 0.000000000001
$$;
CREATE FUNCTION billing_cost(
    unit varchar, gpu_units bigint, cpu_millicores bigint, metered_from timestamptz, unit_price numeric, valid tstzrange,
    period tstzrange
) RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT billing_reading(unit, gpu_units, cpu_millicores, unit_price, base, upper(period))
         - billing_reading(unit, gpu_units, cpu_millicores, unit_price, base, lower(period))
    FROM greatest(metered_from, lower(valid),
                  date_trunc('day', lower(period) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC') AS base
$$;

CREATE FUNCTION billing_judge_segments() RETURNS trigger LANGUAGE plpgsql
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
        WHERE (r.cluster_id, r.flavor, r.capacity_type) IS DISTINCT FROM (m.cluster_id, m.flavor, m.capacity_type)
           OR NOT s.period <@ p.valid OR s.currency <> p.currency
           OR s.cost <> billing_cost(
               m.unit, m.gpu_units, m.cpu_millicores, m.metered_from, p.unit_price, p.valid, s.period)
    ) THEN
        RAISE EXCEPTION 'a segment costs what its price says'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'segment_costs_what_its_price_says';
    END IF;
    IF EXISTS (
        SELECT 1 FROM added AS s JOIN billing_meter AS m ON m.id = s.meter_id
        JOIN billing_rate AS r ON (r.cluster_id, r.flavor, r.capacity_type) = (m.cluster_id, m.flavor, m.capacity_type)
        JOIN billing_price AS p ON p.rate_id = r.id AND p.valid && s.period
        WHERE s.price_id IS NULL
    ) THEN
        RAISE EXCEPTION 'a segment is unpriced only where there is no price'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'segment_takes_the_price_there_is';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER billing_judge_segments AFTER INSERT ON billing_usagesegment
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_judge_segments();
"""

APPEND_ONLY = """
CREATE FUNCTION billing_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: it is kept as it was written', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'ledger_is_append_only';
END $$;
CREATE TRIGGER billing_keep_segments BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_usagesegment
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE TRIGGER billing_keep_meters BEFORE DELETE OR TRUNCATE ON billing_meter
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE TRIGGER billing_keep_prices BEFORE TRUNCATE ON billing_price
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
"""

UNDO = """
DROP TRIGGER billing_keep_prices ON billing_price;
DROP TRIGGER billing_keep_meters ON billing_meter;
DROP TRIGGER billing_keep_segments ON billing_usagesegment;
DROP FUNCTION billing_keep();
DROP TRIGGER billing_judge_segments ON billing_usagesegment;
DROP FUNCTION billing_judge_segments();
DROP FUNCTION billing_cost(varchar, bigint, bigint, timestamptz, numeric, tstzrange, tstzrange);
DROP FUNCTION billing_reading(varchar, bigint, bigint, numeric, timestamptz, timestamptz);
DROP TRIGGER billing_meter_is_covered ON billing_meter;
DROP TRIGGER billing_new_meter_is_covered ON billing_meter;
DROP FUNCTION billing_meter_is_covered();
DROP TRIGGER billing_guard_meter ON billing_meter;
DROP FUNCTION billing_guard_meter();
DROP TRIGGER billing_guard_price ON billing_price;
DROP FUNCTION billing_guard_price();
ALTER TABLE billing_price DROP CONSTRAINT price_is_in_whole_milliseconds;
ALTER TABLE billing_meter DROP CONSTRAINT meter_is_in_whole_milliseconds;
ALTER TABLE billing_usagesegment DROP CONSTRAINT segment_lies_within_a_day;
ALTER TABLE billing_usagesegment DROP CONSTRAINT segment_is_in_whole_milliseconds;
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_initial")]
    operations = [migrations.RunSQL(WHOLE_MILLISECONDS + PRICES + METERS + SEGMENTS + APPEND_ONLY, UNDO)]
