-- The price book, and the arithmetic of costs.

-- The same arithmetic as billing.engine.rating: millionths a GPU-hour, core-hour and GiB-hour, added up and rounded down once.
CREATE OR REPLACE FUNCTION billing_reading(gpu_price numeric, gpu_units bigint, cpu_price numeric, cpu_millicores bigint, memory_price numeric, memory_mib bigint, base timestamp with time zone, at timestamp with time zone)
    RETURNS numeric
    LANGUAGE sql STABLE AS $$
    SELECT div(
        (gpu_price * gpu_units * 128000 + coalesce(cpu_price, 0) * cpu_millicores * 128
         + coalesce(memory_price, 0) * memory_mib * 125) * 1000000 * trunc(extract(epoch FROM at - base) * 1000), 460800
    ) * 0.000000000001
$$;

-- How a price applies to a meter: 1 as its flavor's own, 2 as that of the flavor that stands in, null not at all.
CREATE OR REPLACE FUNCTION billing_rank(flavor character varying, cpu_flavor character varying, unit character varying, gpu_units bigint, price_flavor character varying, cpu_price numeric, memory_price numeric)
    RETURNS integer
    LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN price_flavor = flavor AND (unit = 'core' OR gpu_units > 0 OR cpu_price IS NOT NULL OR memory_price IS NOT NULL)
            THEN 1
        WHEN price_flavor = cpu_flavor AND cpu_flavor <> '' THEN 2
    END
$$;

-- The latest cut at or before a segment: where its meter or its price began, or midnight.
CREATE OR REPLACE FUNCTION billing_base(metered_from timestamp with time zone, valid tstzrange, period tstzrange)
    RETURNS timestamp with time zone
    LANGUAGE sql STABLE AS $$
    SELECT greatest(metered_from, lower(valid),
                    date_trunc('day', lower(period) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC')
$$;

CREATE OR REPLACE FUNCTION billing_cost(by_core boolean, gpu_units bigint, cpu_millicores bigint, memory_mib bigint, metered_from timestamp with time zone, unit_price numeric, cpu_price numeric, memory_price numeric, valid tstzrange, period tstzrange)
    RETURNS numeric
    LANGUAGE sql STABLE AS $$
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
         NEW.created_at, NEW.own_costs, lower(NEW.valid))
            IS DISTINCT FROM
        (OLD.id, OLD.rate_id, OLD.unit_price, OLD.cpu_price, OLD.memory_price, OLD.interruptions_per_hour, OLD.currency,
         OLD.created_at, OLD.own_costs, lower(OLD.valid))
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
CREATE OR REPLACE TRIGGER billing_guard_price BEFORE UPDATE OR DELETE ON billing_price
    FOR EACH ROW EXECUTE FUNCTION billing_guard_price();

CREATE OR REPLACE FUNCTION billing_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: it is kept as it was written', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'ledger_is_append_only';
END $$;
CREATE OR REPLACE TRIGGER billing_keep_prices BEFORE TRUNCATE ON billing_price
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();

CREATE OR REPLACE FUNCTION billing_guard_interruptions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM billing_rate WHERE id = NEW.rate_id AND capacity_type = 'spot') THEN
        RAISE EXCEPTION 'only spot capacity is interrupted'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'only_spot_is_interrupted';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_guard_interruptions BEFORE INSERT ON billing_price
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
CREATE OR REPLACE TRIGGER billing_guard_egress_price BEFORE UPDATE ON billing_egressprice
    FOR EACH ROW EXECUTE FUNCTION billing_guard_egress_price();
