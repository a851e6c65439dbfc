-- Meters and their segments: one chain for each meter, priced as the price book says.

CREATE OR REPLACE FUNCTION billing_guard_meter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A revision shortens a meter, once: its row is there, and the meter counts it.
    IF NEW.revisions <> OLD.revisions OR NEW.metered_until < OLD.metered_until THEN
        IF NEW.revisions <> OLD.revisions + 1 OR NEW.is_closed <> OLD.is_closed OR NEW.certain_until IS DISTINCT FROM NEW.metered_until
           OR NOT EXISTS (
            SELECT 1 FROM billing_meterrevision AS r WHERE r.meter_id = OLD.id AND r.number = NEW.revisions
               AND r.counted_until = OLD.metered_until AND r.until = NEW.metered_until) THEN
            RAISE EXCEPTION 'only a revision shortens a meter'
                USING ERRCODE = 'restrict_violation', CONSTRAINT = 'meter_only_runs_on';
        END IF;
    ELSIF OLD.is_closed OR NEW.certain_until < OLD.certain_until OR (NEW.certain_until IS NULL AND OLD.certain_until IS NOT NULL) THEN
        RAISE EXCEPTION 'a meter only runs on, and stands still once closed'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'meter_only_runs_on';
    END IF;
    IF (NEW.id, NEW.cluster_id, NEW.source_uid, NEW.tenant_id, NEW.user_id, NEW.user_name, NEW.workload_id,
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
CREATE OR REPLACE TRIGGER billing_guard_meter BEFORE UPDATE ON billing_meter
    FOR EACH ROW EXECUTE FUNCTION billing_guard_meter();

-- A meter's segments are one chain from its beginning, so the last one before its end says whether they cover it.
CREATE OR REPLACE FUNCTION billing_meter_is_covered() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off AS $$
BEGIN
    -- One that was shortened since is covered: its revision saw to that (sql/revisions.sql).
    IF NEW.revisions = (SELECT m.revisions FROM billing_meter AS m WHERE m.id = NEW.id) AND NEW.metered_until IS DISTINCT FROM (
        SELECT upper(s.period) FROM billing_usagesegment AS s
         WHERE s.meter_id = NEW.id AND lower(s.period) < NEW.metered_until ORDER BY lower(s.period) DESC LIMIT 1
    ) THEN
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

-- The added segments continue where their meter's segments ended, without gap or overlap.
-- Locked meters are taken by one transaction after the other, and the next statement sees what the one before committed.
CREATE OR REPLACE FUNCTION billing_judge_segments() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
DECLARE
    broken record;
BEGIN
    PERFORM 1 FROM billing_meter WHERE id IN (SELECT meter_id FROM added) ORDER BY id FOR NO KEY UPDATE;
    PERFORM 1 FROM billing_price WHERE id IN (SELECT price_id FROM added) ORDER BY id FOR SHARE;
    SELECT chained.meter_id, lower(chained.period) AS begins, due.at INTO broken FROM (
        SELECT meter_id, period, lag(upper(period)) OVER its AS before, count(*) OVER (PARTITION BY meter_id) AS number
          FROM added WINDOW its AS (PARTITION BY meter_id ORDER BY lower(period))
    ) AS chained CROSS JOIN LATERAL (
        SELECT coalesce(chained.before, (
                   SELECT upper(s.period) FROM billing_usagesegment AS s
                    WHERE s.meter_id = chained.meter_id AND lower(s.period) < lower(chained.period)
                    ORDER BY lower(s.period) DESC LIMIT 1
               ), (SELECT m.metered_from FROM billing_meter AS m WHERE m.id = chained.meter_id)) AS at
    ) AS due
     WHERE lower(chained.period) IS DISTINCT FROM due.at
        OR (chained.before IS NULL AND chained.number <> (
               SELECT count(*) FROM billing_usagesegment AS s
                WHERE s.meter_id = chained.meter_id AND lower(s.period) >= lower(chained.period)))
     LIMIT 1;
    IF broken.begins > broken.at THEN
        RAISE EXCEPTION 'a segment of meter % begins at %, but the one before it ends at %', broken.meter_id, broken.begins, broken.at
            USING ERRCODE = 'check_violation', CONSTRAINT = 'meter_has_no_gaps';
    ELSIF FOUND THEN
        RAISE EXCEPTION 'time of meter % from % on is metered already', broken.meter_id, broken.begins
            USING ERRCODE = 'exclusion_violation', CONSTRAINT = 'each_moment_is_metered_once';
    END IF;
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
CREATE OR REPLACE TRIGGER billing_judge_segments AFTER INSERT ON billing_usagesegment
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_judge_segments();
CREATE OR REPLACE TRIGGER billing_keep_segments BEFORE UPDATE OR TRUNCATE ON billing_usagesegment
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_meters BEFORE DELETE OR TRUNCATE ON billing_meter
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();

CREATE OR REPLACE FUNCTION billing_meter_stands() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'meter % keeps what it was opened with', OLD.id
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'meter_keeps_what_it_was_opened_with';
END $$;
CREATE OR REPLACE TRIGGER billing_meter_keeps_its_unit BEFORE UPDATE ON billing_meter FOR EACH ROW
    WHEN ((NEW.gpu_model, NEW.sharing, NEW.gpu_numerator, NEW.gpu_denominator)
          IS DISTINCT FROM (OLD.gpu_model, OLD.sharing, OLD.gpu_numerator, OLD.gpu_denominator))
    EXECUTE FUNCTION billing_meter_stands();
CREATE OR REPLACE TRIGGER billing_meter_keeps_its_path BEFORE UPDATE ON billing_meter FOR EACH ROW
    WHEN (NEW.tenant_path IS DISTINCT FROM OLD.tenant_path) EXECUTE FUNCTION billing_meter_stands();

CREATE OR REPLACE FUNCTION billing_meter_takes_its_path() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off AS $$
BEGIN
    -- Of a tenant that does not exist the foreign key speaks.
    NEW.tenant_path := coalesce((SELECT path FROM tenancy_tenant WHERE id = NEW.tenant_id), '');
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_meter_takes_its_path BEFORE INSERT ON billing_meter
    FOR EACH ROW EXECUTE FUNCTION billing_meter_takes_its_path();
CREATE OR REPLACE TRIGGER billing_meter_keeps_its_node BEFORE UPDATE ON billing_meter FOR EACH ROW
    WHEN (NEW.node IS DISTINCT FROM OLD.node) EXECUTE FUNCTION billing_meter_stands();
