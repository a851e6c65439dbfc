-- Work that infrastructure lost, and what of it is not charged.

-- What is known of a run now: its newest row.
CREATE OR REPLACE FUNCTION billing_lost(of_run uuid)
    RETURNS TABLE(cause character varying, lost_from timestamp with time zone)
    LANGUAGE sql STABLE AS $$
    SELECT newest.cause, newest.lost_from FROM (
        SELECT w.cause, w.lost_from FROM billing_lostwork AS w WHERE w.run_id = of_run ORDER BY w.id DESC LIMIT 1
    ) AS newest WHERE newest.cause <> ''
$$;

-- The policy of an organisation for a day; null: all is charged.
CREATE OR REPLACE FUNCTION billing_credit_policy(of_organisation uuid, on_day date) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT p.id FROM billing_creditpolicy AS p WHERE p.organisation_id = of_organisation AND p.effective_from <= on_day
     ORDER BY p.effective_from DESC, p.id DESC LIMIT 1
$$;

-- The time from `begins` to `ends`; empty if it ends before it begins. PostgreSQL may cut a segment before it looks whether the segment
-- counts at all, and a range that ends before it begins is an error.
CREATE OR REPLACE FUNCTION billing_span(begins timestamp with time zone, ends timestamp with time zone)
    RETURNS tstzrange LANGUAGE sql IMMUTABLE AS $$
    SELECT tstzrange(begins, greatest(begins, ends))
$$;

-- What of a tenant's day is not charged, by the corrected prices: the same arithmetic as billing.engine.credits.
CREATE OR REPLACE FUNCTION billing_day_credit(of_organisation uuid, of_tenant uuid, at_path character varying, on_cluster uuid, with_flavor character varying, on_day date)
    RETURNS TABLE(cause character varying, currency character varying, cost numeric)
    LANGUAGE sql STABLE AS $$
    SELECT lost.cause, c.currency, sum(c.cost)
      FROM billing_creditpolicy AS p
      JOIN billing_meter AS m ON (m.tenant_id, m.cluster_id, m.flavor, m.tenant_path) = (of_tenant, on_cluster, with_flavor, at_path)
           AND m.metered_from < (on_day + 1)::timestamp AT TIME ZONE 'UTC'
           AND m.metered_until > on_day::timestamp AT TIME ZONE 'UTC'
     CROSS JOIN LATERAL billing_lost(m.run_id) AS lost
      JOIN billing_usagesegment AS s ON int8range(s.meter_id, s.meter_id, '[]') && int8range(m.id, m.id, '[]')
           AND s.period && tstzrange(on_day::timestamp AT TIME ZONE 'UTC', (on_day + 1)::timestamp AT TIME ZONE 'UTC')
           AND upper(s.period) > lost.lost_from
     CROSS JOIN LATERAL billing_corrected(m.id, billing_span(greatest(lower(s.period), lost.lost_from), upper(s.period))) AS c
     WHERE p.id = billing_credit_policy(of_organisation, on_day) AND p.causes ? lost.cause AND c.currency <> ''
     GROUP BY 1, 2 HAVING sum(c.cost) <> 0
$$;

-- What the lost work of these runs costs in a span, by meter and day, and whether it is not charged.
CREATE OR REPLACE FUNCTION billing_lost_costs(runs uuid[], since timestamp with time zone, until timestamp with time zone)
    RETURNS TABLE(meter_id bigint, day date, cause character varying, currency character varying, milliseconds numeric, cost numeric, is_waived boolean)
    LANGUAGE sql STABLE AS $$
    SELECT m.id, used.day, lost.cause, c.currency, sum(c.milliseconds), sum(c.cost), coalesce(p.causes ? lost.cause, false) AS waived
      FROM unnest(runs) AS run(id)
     CROSS JOIN LATERAL billing_lost(run.id) AS lost
      JOIN billing_meter AS m ON m.run_id = run.id AND m.metered_until > greatest(since, lost.lost_from) AND m.metered_from < until
      JOIN tenancy_tenant AS t ON t.id = m.tenant_id JOIN tenancy_tenant AS root ON root.path = split_part(t.path, '/', 1)
      JOIN billing_usagesegment AS s ON s.meter_id = m.id AND lower(s.period) < until
           AND upper(s.period) > greatest(since, lost.lost_from)
     CROSS JOIN LATERAL (SELECT (lower(s.period) AT TIME ZONE 'UTC')::date AS day) AS used
      LEFT JOIN billing_creditpolicy AS p ON p.id = billing_credit_policy(root.id, used.day)
     CROSS JOIN LATERAL billing_corrected(
           m.id, billing_span(greatest(lower(s.period), lost.lost_from, since), least(upper(s.period), until))) AS c
     GROUP BY 1, 2, 3, 4, 7
$$;

CREATE OR REPLACE FUNCTION billing_waived(runs uuid[], since timestamp with time zone, until timestamp with time zone)
    RETURNS TABLE(meter_id bigint, day date, cause character varying, currency character varying, cost numeric)
    LANGUAGE sql STABLE AS $$
    SELECT part.meter_id, part.day, part.cause, part.currency, part.cost FROM billing_lost_costs(runs, since, until) AS part
     WHERE part.is_waived AND part.currency <> '' AND part.cost <> 0
$$;

-- The days of runs, locked in the order of all who mark days, and marked as due.
CREATE OR REPLACE FUNCTION billing_mark_days_of_runs(runs uuid[], since date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    marked bigint[] := (
        SELECT array_agg(DISTINCT d.id) FROM billing_meter AS m JOIN billing_tenantday AS d
            ON (d.tenant_id, d.cluster_id, d.flavor, d.tenant_path) = (m.tenant_id, m.cluster_id, m.flavor, m.tenant_path)
           AND d.day BETWEEN greatest(since, (m.metered_from AT TIME ZONE 'UTC')::date) AND (m.metered_until AT TIME ZONE 'UTC')::date
         WHERE m.run_id = ANY(runs));
BEGIN
    IF marked IS NULL THEN
        RETURN;
    END IF;
    PERFORM 1 FROM billing_tenantday AS d WHERE d.id = ANY(marked)
      ORDER BY d.tenant_id, d.day, d.cluster_id, d.flavor, d.tenant_path, d.currency, d.gpu_numerator, d.gpu_denominator
        FOR NO KEY UPDATE;
    UPDATE billing_tenantday AS d SET is_due = true WHERE d.id = ANY(marked);
END $$;

-- Lost work marks its days, unless no policy can make a difference. The price book excludes a policy that is set meanwhile.
CREATE OR REPLACE FUNCTION billing_mark_lost_days() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1398233424);
    PERFORM billing_mark_days_of_runs((
        SELECT array_agg(DISTINCT added.run_id) FROM added
          JOIN billing_meter AS m ON m.run_id = added.run_id JOIN tenancy_tenant AS t ON t.id = m.tenant_id
          JOIN tenancy_tenant AS root ON root.path = split_part(t.path, '/', 1)
         WHERE EXISTS (SELECT 1 FROM billing_creditpolicy AS p WHERE p.organisation_id = root.id)), '-infinity');
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_mark_lost_days AFTER INSERT ON billing_lostwork
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_mark_lost_days();

-- A policy changes no month that is closed or about to be, and waits for all who rate; then it marks the days of lost work.
CREATE OR REPLACE FUNCTION billing_await_raters() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1398233424);
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_a_await_raters BEFORE INSERT ON billing_creditpolicy
    FOR EACH ROW EXECUTE FUNCTION billing_await_raters();
CREATE OR REPLACE TRIGGER billing_admit_policy BEFORE INSERT ON billing_creditpolicy
    FOR EACH ROW EXECUTE FUNCTION billing_admit_policy();

CREATE OR REPLACE FUNCTION billing_mark_policy_days() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM billing_mark_days_of_runs((
        SELECT array_agg(DISTINCT m.run_id) FROM billing_lostwork AS w
          JOIN billing_meter AS m ON m.run_id = w.run_id JOIN tenancy_tenant AS t ON t.id = m.tenant_id
          JOIN tenancy_tenant AS root ON root.id = NEW.organisation_id AND split_part(t.path, '/', 1) = root.path
         WHERE m.metered_until > NEW.effective_from::timestamp AT TIME ZONE 'UTC'), NEW.effective_from);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_mark_policy_days AFTER INSERT ON billing_creditpolicy
    FOR EACH ROW EXECUTE FUNCTION billing_mark_policy_days();

CREATE OR REPLACE FUNCTION billing_judge_credit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM billing_await_lines(NEW);
    IF EXISTS (
        SELECT 1 FROM billing_ledgerline AS l JOIN billing_ledgeraccount AS a ON a.id = l.account_id
         WHERE l.entry_id = NEW.id AND NOT (
            (a.kind = 'tenant_expense' AND a.tenant_id = NEW.tenant_id AND l.amount < 0)
            OR (a.kind = 'infrastructure' AND l.amount > 0))) THEN
        RAISE EXCEPTION 'the lines of % are of other accounts', NEW.key
            USING ERRCODE = 'check_violation', CONSTRAINT = 'line_is_of_its_entrys_accounts';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER billing_judge_credit AFTER INSERT ON billing_ledgerentry
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.kind = 'credit') EXECUTE FUNCTION billing_judge_credit();

-- What of an entry is a credit: it is one, or it reverses one.
CREATE OR REPLACE FUNCTION billing_is_credit(kind character varying, reverses bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT kind = 'credit' OR (kind = 'reversal' AND EXISTS (
        SELECT 1 FROM billing_ledgerentry AS r WHERE r.id = reverses AND r.kind = 'credit'))
$$;
CREATE OR REPLACE TRIGGER billing_keep_lost_work BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_lostwork
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_credit_policies BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_creditpolicy
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
