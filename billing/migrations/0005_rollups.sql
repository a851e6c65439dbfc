-- Stored sums of what reports ask, moved with each segment, and the chain of a meter's segments.

-- The same words as in 0001, and: the added segments continue where their meter's segments ended, without gap or overlap.
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

-- A meter's segments are one chain from its beginning, so the last one before its end says whether they cover it.
CREATE OR REPLACE FUNCTION billing_meter_is_covered() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off AS $$
BEGIN
    IF NEW.metered_until IS DISTINCT FROM (
        SELECT upper(s.period) FROM billing_usagesegment AS s
         WHERE s.meter_id = NEW.id AND lower(s.period) < NEW.metered_until ORDER BY lower(s.period) DESC LIMIT 1
    ) THEN
        RAISE EXCEPTION 'the segments of meter % leave a gap', NEW.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'meter_has_no_gaps';
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION billing_day_due(of_tenant uuid, at_path character varying, on_cluster uuid, with_flavor character varying, on_day date) RETURNS TABLE(currency character varying, cost numeric, milliseconds numeric) LANGUAGE sql STABLE AS $$
    SELECT c.currency, sum(c.cost), sum(c.milliseconds)
      FROM billing_meter AS m
      JOIN billing_usagesegment AS s ON s.meter_id = m.id
           AND lower(s.period) >= on_day::timestamp AT TIME ZONE 'UTC' AND lower(s.period) < (on_day + 1)::timestamp AT TIME ZONE 'UTC'
     CROSS JOIN LATERAL billing_corrected(m.id, s.period) AS c
     WHERE (m.tenant_id, m.cluster_id, m.flavor, m.tenant_path) = (of_tenant, on_cluster, with_flavor, at_path)
       AND m.metered_from < (on_day + 1)::timestamp AT TIME ZONE 'UTC'
       AND m.metered_until > on_day::timestamp AT TIME ZONE 'UTC'
     GROUP BY 1
$$;

-- Sums of a meter's day.
CREATE OR REPLACE FUNCTION billing_add_to_meter_days() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO billing_meterday AS kept (meter_id, day, price_id, currency, milliseconds, cost)
    SELECT s.meter_id, (lower(s.period) AT TIME ZONE 'UTC')::date AS day, s.price_id, s.currency,
           sum(extract(epoch FROM upper(s.period) - lower(s.period)) * 1000), sum(s.cost)
      FROM added AS s GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3
    ON CONFLICT (meter_id, day, price_id) DO UPDATE
       SET milliseconds = kept.milliseconds + excluded.milliseconds, cost = kept.cost + excluded.cost;
    RETURN NULL;
END $$;
CREATE TRIGGER billing_add_to_meter_days AFTER INSERT ON billing_usagesegment
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_add_to_meter_days();
CREATE TRIGGER billing_keep_meter_days BEFORE DELETE OR TRUNCATE ON billing_meterday
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();

-- Sums of a tenant's day. The organisation is the root of the tenant's current path: a tenant never leaves it.
CREATE OR REPLACE FUNCTION billing_add_to_days() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO billing_tenantday AS kept
        (organisation_id, tenant_id, tenant_path, cluster_id, flavor, day, currency, gpu_numerator, gpu_denominator, cost,
         gpu_milliseconds, cpu_millicore_milliseconds, memory_mib_milliseconds, segments)
    SELECT root.id, part.* FROM (
        SELECT m.tenant_id, m.tenant_path, m.cluster_id, m.flavor, (lower(s.period) AT TIME ZONE 'UTC')::date AS day,
               s.currency, m.gpu_numerator, m.gpu_denominator, sum(s.cost) AS cost, sum(s.gpu_milliseconds) AS gpu,
               sum(s.cpu_millicore_milliseconds) AS cpu,
               sum(m.memory_mib * extract(epoch FROM upper(s.period) - lower(s.period)) * 1000) AS memory, count(*) AS segments
          FROM added AS s JOIN billing_meter AS m ON m.id = s.meter_id GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
    ) AS part JOIN tenancy_tenant AS tenant ON tenant.id = part.tenant_id
      JOIN tenancy_tenant AS root ON root.path = split_part(tenant.path, '/', 1)
     ORDER BY part.tenant_id, part.day, part.cluster_id, part.flavor, part.tenant_path, part.currency, part.gpu_numerator,
              part.gpu_denominator
    ON CONFLICT (tenant_id, day, cluster_id, flavor, tenant_path, currency, gpu_numerator, gpu_denominator) DO UPDATE
       SET cost = kept.cost + excluded.cost, gpu_milliseconds = kept.gpu_milliseconds + excluded.gpu_milliseconds,
           cpu_millicore_milliseconds = kept.cpu_millicore_milliseconds + excluded.cpu_millicore_milliseconds,
           memory_mib_milliseconds = kept.memory_mib_milliseconds + excluded.memory_mib_milliseconds,
           segments = kept.segments + excluded.segments, is_due = true;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION billing_take_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM billing_tenantday AS d
      WHERE (d.tenant_id, d.day, d.cluster_id, d.flavor, d.tenant_path)
          = (NEW.tenant_id, NEW.day, NEW.cluster_id, NEW.flavor, NEW.tenant_path)
      ORDER BY d.currency, d.gpu_numerator, d.gpu_denominator FOR NO KEY UPDATE;
    UPDATE billing_tenantday AS d SET is_due = false
      WHERE (d.tenant_id, d.day, d.cluster_id, d.flavor, d.tenant_path)
          = (NEW.tenant_id, NEW.day, NEW.cluster_id, NEW.flavor, NEW.tenant_path);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION billing_mark_corrected_days() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    corrected uuid := (SELECT cluster_id FROM billing_rate WHERE id = NEW.rate_id);
BEGIN
    PERFORM 1 FROM billing_tenantday AS d
      WHERE d.cluster_id = corrected AND d.day BETWEEN (lower(NEW.span) AT TIME ZONE 'UTC')::date AND (upper(NEW.span) AT TIME ZONE 'UTC')::date
      ORDER BY d.tenant_id, d.day, d.cluster_id, d.flavor, d.tenant_path, d.currency, d.gpu_numerator, d.gpu_denominator
        FOR NO KEY UPDATE;
    UPDATE billing_tenantday AS d SET is_due = true
      WHERE d.cluster_id = corrected AND d.day BETWEEN (lower(NEW.span) AT TIME ZONE 'UTC')::date AND (upper(NEW.span) AT TIME ZONE 'UTC')::date;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION billing_judge_day(e billing_ledgerentry) RETURNS void LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
DECLARE
    is_corrected boolean := EXISTS (
        SELECT 1 FROM billing_rate AS r JOIN billing_pricecorrection AS c ON c.rate_id = r.id
         WHERE r.cluster_id = e.cluster_id AND c.span && tstzrange(
             e.charge_day::timestamp AT TIME ZONE 'UTC', (e.charge_day + 1)::timestamp AT TIME ZONE 'UTC'));
BEGIN
    IF EXISTS (
        SELECT 1 FROM (
            SELECT l.currency, coalesce(sum(l.amount) FILTER (WHERE p.kind = 'usage'), 0) AS used, sum(l.amount) AS charged
              FROM billing_ledgerentry AS p JOIN billing_ledgerline AS l ON l.entry_id = p.id
              JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
             WHERE (p.tenant_id, p.charge_day, p.cluster_id, p.flavor, p.tenant_path)
                 = (e.tenant_id, e.charge_day, e.cluster_id, e.flavor, e.tenant_path) GROUP BY 1
        ) AS posted FULL JOIN (
            SELECT d.currency, sum(d.cost) AS cost FROM billing_tenantday AS d
             WHERE (d.tenant_id, d.day, d.cluster_id, d.flavor, d.tenant_path)
                 = (e.tenant_id, e.charge_day, e.cluster_id, e.flavor, e.tenant_path) AND d.currency <> '' GROUP BY 1
        ) AS observed USING (currency) FULL JOIN (
            SELECT due.currency, due.cost
              FROM billing_day_due(e.tenant_id, e.tenant_path, e.cluster_id, e.flavor, e.charge_day) AS due
             WHERE is_corrected AND due.currency <> ''
        ) AS due USING (currency)
        WHERE coalesce(posted.used, 0) <> coalesce(observed.cost, 0)
           OR coalesce(posted.charged, 0) <> CASE WHEN is_corrected THEN coalesce(due.cost, 0) ELSE coalesce(observed.cost, 0) END
    ) THEN
        RAISE EXCEPTION 'the ledger of % is not what its segments cost', e.charge_day
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_is_what_segments_cost';
    END IF;
END $$;

-- Room in each page for the next version of a sum: an update then touches no index.
ALTER TABLE billing_meterday SET (fillfactor = 80);
ALTER TABLE billing_tenantday SET (fillfactor = 70);
ALTER TABLE billing_tenantmonth SET (fillfactor = 50);

-- The sums of what was metered before. A day that the ledger has counted stays counted.
INSERT INTO billing_meterday (meter_id, day, price_id, currency, milliseconds, cost)
SELECT meter_id, (lower(period) AT TIME ZONE 'UTC')::date AS day, price_id, currency,
       sum(extract(epoch FROM upper(period) - lower(period)) * 1000), sum(cost)
  FROM billing_usagesegment GROUP BY 1, 2, 3, 4 ORDER BY 2, 1;
DROP TRIGGER billing_keep_days ON billing_tenantday;
CREATE TEMPORARY TABLE counted_before ON COMMIT DROP AS
    SELECT tenant_id, tenant_path, cluster_id, flavor, day FROM billing_tenantday
     GROUP BY 1, 2, 3, 4, 5 HAVING NOT bool_or(is_due);
DELETE FROM billing_tenantday;
INSERT INTO billing_tenantday
    (organisation_id, tenant_id, tenant_path, cluster_id, flavor, day, currency, gpu_numerator, gpu_denominator, cost,
     gpu_milliseconds, cpu_millicore_milliseconds, memory_mib_milliseconds, segments, is_due)
SELECT root.id, part.*, NOT EXISTS (
           SELECT 1 FROM counted_before AS c WHERE (c.tenant_id, c.tenant_path, c.cluster_id, c.flavor, c.day)
                = (part.tenant_id, part.tenant_path, part.cluster_id, part.flavor, part.day))
  FROM (
    SELECT m.tenant_id, m.tenant_path, m.cluster_id, m.flavor, (lower(s.period) AT TIME ZONE 'UTC')::date AS day,
           s.currency, m.gpu_numerator, m.gpu_denominator, sum(s.cost) AS cost, sum(s.gpu_milliseconds) AS gpu,
           sum(s.cpu_millicore_milliseconds) AS cpu,
           sum(m.memory_mib * extract(epoch FROM upper(s.period) - lower(s.period)) * 1000) AS memory, count(*) AS segments
      FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
) AS part JOIN tenancy_tenant AS tenant ON tenant.id = part.tenant_id
  JOIN tenancy_tenant AS root ON root.path = split_part(tenant.path, '/', 1);
SET CONSTRAINTS ALL IMMEDIATE;
CREATE TRIGGER billing_keep_days BEFORE DELETE OR TRUNCATE ON billing_tenantday
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
