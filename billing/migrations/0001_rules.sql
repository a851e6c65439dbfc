-- What the tables of this room refuse, whoever writes: PostgreSQL itself judges, in one transaction with the write.

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
ALTER TABLE billing_meter ADD CONSTRAINT meter_redoes_from_a_whole_millisecond CHECK (
    date_trunc('milliseconds', redone_from AT TIME ZONE 'UTC') = redone_from AT TIME ZONE 'UTC');

-- The same arithmetic as billing.engine.rating: millionths a GPU-hour, core-hour and GiB-hour, added up and rounded down once.
CREATE OR REPLACE FUNCTION billing_reading(gpu_price numeric, gpu_units bigint, cpu_price numeric, cpu_millicores bigint, memory_price numeric, memory_mib bigint, base timestamp with time zone, at timestamp with time zone) RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT div(
        (gpu_price * gpu_units * 128000 + coalesce(cpu_price, 0) * cpu_millicores * 128
         + coalesce(memory_price, 0) * memory_mib * 125) * 1000000 * trunc(extract(epoch FROM at - base) * 1000), 460800
    ) * 0.000000000001
$$;

-- How a price applies to a meter: 1 as its flavor's own, 2 as that of the flavor that stands in, null not at all.
CREATE OR REPLACE FUNCTION billing_rank(flavor character varying, cpu_flavor character varying, unit character varying, gpu_units bigint, price_flavor character varying, cpu_price numeric, memory_price numeric) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN price_flavor = flavor AND (unit = 'core' OR gpu_units > 0 OR cpu_price IS NOT NULL OR memory_price IS NOT NULL)
            THEN 1
        WHEN price_flavor = cpu_flavor AND cpu_flavor <> '' THEN 2
    END
$$;

-- The latest cut at or before a segment: where its meter or its price began, or midnight.
CREATE OR REPLACE FUNCTION billing_base(metered_from timestamp with time zone, valid tstzrange, period tstzrange) RETURNS timestamp with time zone LANGUAGE sql STABLE AS $$
    SELECT greatest(metered_from, lower(valid),
                    date_trunc('day', lower(period) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC')
$$;

CREATE OR REPLACE FUNCTION billing_cost(by_core boolean, gpu_units bigint, cpu_millicores bigint, memory_mib bigint, metered_from timestamp with time zone, unit_price numeric, cpu_price numeric, memory_price numeric, valid tstzrange, period tstzrange) RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT billing_reading(
               CASE WHEN by_core THEN 0 ELSE unit_price END, gpu_units,
               CASE WHEN by_core THEN unit_price ELSE cpu_price END, cpu_millicores, memory_price, memory_mib,
               billing_base(metered_from, valid, period), upper(period))
         - billing_reading(
               CASE WHEN by_core THEN 0 ELSE unit_price END, gpu_units,
               CASE WHEN by_core THEN unit_price ELSE cpu_price END, cpu_millicores, memory_price, memory_mib,
               billing_base(metered_from, valid, period), lower(period))
$$;

CREATE OR REPLACE FUNCTION billing_guard_price() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
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
CREATE TRIGGER billing_guard_price BEFORE UPDATE OR DELETE ON billing_price
    FOR EACH ROW EXECUTE FUNCTION billing_guard_price();

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
CREATE TRIGGER billing_guard_meter BEFORE UPDATE ON billing_meter
    FOR EACH ROW EXECUTE FUNCTION billing_guard_meter();

CREATE OR REPLACE FUNCTION billing_meter_is_covered() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
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

CREATE OR REPLACE FUNCTION billing_judge_segments() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
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
CREATE TRIGGER billing_judge_segments AFTER INSERT ON billing_usagesegment
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_judge_segments();

CREATE OR REPLACE FUNCTION billing_keep() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE OR REPLACE FUNCTION billing_guard_interruptions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM billing_rate WHERE id = NEW.rate_id AND capacity_type = 'spot') THEN
        RAISE EXCEPTION 'only spot capacity is interrupted'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'only_spot_is_interrupted';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER billing_guard_interruptions BEFORE INSERT ON billing_price
    FOR EACH ROW WHEN (NEW.interruptions_per_hour IS NOT NULL) EXECUTE FUNCTION billing_guard_interruptions();

CREATE OR REPLACE FUNCTION billing_guard_egress_price() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.route_id, NEW.price_per_gib, NEW.currency, NEW.created_at, lower(NEW.valid))
            IS DISTINCT FROM (OLD.id, OLD.route_id, OLD.price_per_gib, OLD.currency, OLD.created_at, lower(OLD.valid))
        OR coalesce(upper(NEW.valid), 'infinity') > coalesce(upper(OLD.valid), 'infinity') THEN
        RAISE EXCEPTION 'an egress price stands as it was written; only its end may come nearer'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'egress_price_stands';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER billing_guard_egress_price BEFORE UPDATE ON billing_egressprice
    FOR EACH ROW EXECUTE FUNCTION billing_guard_egress_price();

CREATE OR REPLACE FUNCTION billing_meter_stands() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'meter % keeps what it was opened with', OLD.id
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'meter_keeps_what_it_was_opened_with';
END $$;
CREATE TRIGGER billing_meter_keeps_its_unit BEFORE UPDATE ON billing_meter FOR EACH ROW
    WHEN ((NEW.gpu_model, NEW.sharing, NEW.gpu_numerator, NEW.gpu_denominator)
          IS DISTINCT FROM (OLD.gpu_model, OLD.sharing, OLD.gpu_numerator, OLD.gpu_denominator))
    EXECUTE FUNCTION billing_meter_stands();
CREATE TRIGGER billing_meter_keeps_its_path BEFORE UPDATE ON billing_meter FOR EACH ROW
    WHEN (NEW.tenant_path IS DISTINCT FROM OLD.tenant_path) EXECUTE FUNCTION billing_meter_stands();

CREATE OR REPLACE FUNCTION billing_meter_takes_its_path() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off AS $$
BEGIN
    -- Of a tenant that does not exist the foreign key speaks.
    NEW.tenant_path := coalesce((SELECT path FROM tenancy_tenant WHERE id = NEW.tenant_id), '');
    RETURN NEW;
END $$;
CREATE TRIGGER billing_meter_takes_its_path BEFORE INSERT ON billing_meter
    FOR EACH ROW EXECUTE FUNCTION billing_meter_takes_its_path();

CREATE OR REPLACE FUNCTION billing_add_to_months() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO billing_tenantmonth AS kept (tenant_id, month, currency, gpu_numerator, gpu_denominator, cost, gpu_milliseconds)
    
SELECT m.tenant_id, date_trunc('month', lower(s.period) AT TIME ZONE 'UTC')::date AS month, s.currency, m.gpu_numerator,
       m.gpu_denominator, sum(s.cost) AS cost, sum(s.gpu_milliseconds) AS gpu_milliseconds
  FROM added AS s JOIN billing_meter AS m ON m.id = s.meter_id GROUP BY 1, 2, 3, 4, 5
 ORDER BY 1, 2, 3, 4, 5
    ON CONFLICT (tenant_id, month, currency, gpu_numerator, gpu_denominator) DO UPDATE
       SET cost = kept.cost + excluded.cost, gpu_milliseconds = kept.gpu_milliseconds + excluded.gpu_milliseconds;
    RETURN NULL;
END $$;
CREATE TRIGGER billing_add_to_months AFTER INSERT ON billing_usagesegment
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_add_to_months();
