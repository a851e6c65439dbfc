-- Sums of meters', tenants' days and months, which move with each segment, and their ledger.

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
CREATE OR REPLACE TRIGGER billing_add_to_months AFTER INSERT ON billing_usagesegment
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_add_to_months();

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
CREATE OR REPLACE TRIGGER billing_add_to_days AFTER INSERT ON billing_usagesegment
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_add_to_days();

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
CREATE OR REPLACE TRIGGER billing_take_step AFTER INSERT ON billing_ledgerstep
    FOR EACH ROW EXECUTE FUNCTION billing_take_step();

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
CREATE OR REPLACE TRIGGER billing_mark_corrected_days AFTER INSERT ON billing_pricecorrection
    FOR EACH ROW EXECUTE FUNCTION billing_mark_corrected_days();

CREATE OR REPLACE FUNCTION billing_day_due(of_tenant uuid, at_path character varying, on_cluster uuid, with_flavor character varying, on_day date)
    RETURNS TABLE(currency character varying, cost numeric, milliseconds numeric)
    LANGUAGE sql STABLE AS $$
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

-- At commit: the ledger of a tenant's day is what its segments cost, what they cost by the corrected prices, and what of it is
-- not charged.
CREATE OR REPLACE FUNCTION billing_judge_day(e billing_ledgerentry) RETURNS void LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
DECLARE
    is_corrected boolean := EXISTS (
        SELECT 1 FROM billing_rate AS r JOIN billing_pricecorrection AS c ON c.rate_id = r.id
         WHERE r.cluster_id = e.cluster_id AND c.span && tstzrange(
             e.charge_day::timestamp AT TIME ZONE 'UTC', (e.charge_day + 1)::timestamp AT TIME ZONE 'UTC'));
    has_policy boolean := billing_credit_policy(e.organisation_id, e.charge_day) IS NOT NULL;
BEGIN
    IF EXISTS (
        SELECT 1 FROM (
            SELECT l.currency, coalesce(sum(l.amount) FILTER (WHERE p.kind = 'usage'), 0) AS used,
                   sum(l.amount) FILTER (WHERE NOT billing_is_credit(p.kind, p.reverses_id)) AS charged,
                   sum(l.amount) FILTER (WHERE billing_is_credit(p.kind, p.reverses_id)) AS credited
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
        ) AS due USING (currency) FULL JOIN (
            SELECT c.currency, sum(c.cost) AS cost
              FROM billing_day_credit(e.organisation_id, e.tenant_id, e.tenant_path, e.cluster_id, e.flavor, e.charge_day) AS c
             WHERE has_policy GROUP BY 1
        ) AS waived USING (currency)
        WHERE coalesce(posted.used, 0) <> coalesce(observed.cost, 0)
           OR coalesce(posted.charged, 0) <> CASE WHEN is_corrected THEN coalesce(due.cost, 0) ELSE coalesce(observed.cost, 0) END
           OR coalesce(posted.credited, 0) <> -coalesce(waived.cost, 0)
    ) THEN
        RAISE EXCEPTION 'the ledger of % is not what its segments cost', e.charge_day
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_is_what_segments_cost';
    END IF;
END $$;
CREATE OR REPLACE TRIGGER billing_keep_steps BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_ledgerstep
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();

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
CREATE OR REPLACE TRIGGER billing_add_to_meter_days AFTER INSERT ON billing_usagesegment
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_add_to_meter_days();
CREATE OR REPLACE TRIGGER billing_keep_meter_days BEFORE DELETE OR TRUNCATE ON billing_meterday
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_days BEFORE DELETE OR TRUNCATE ON billing_tenantday
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
