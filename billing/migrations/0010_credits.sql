-- Credits for lost work: what they are due, which days they touch, and what the ledger refuses. Replaces functions of 0002, 0004
-- and 0007, which are the same but for credits.

ALTER TABLE billing_lostwork ADD CONSTRAINT lost_work_is_in_whole_milliseconds CHECK (
    date_trunc('milliseconds', lost_from AT TIME ZONE 'UTC') = lost_from AT TIME ZONE 'UTC');

-- What is known of a run now: its newest row.
CREATE OR REPLACE FUNCTION billing_lost(of_run uuid) RETURNS TABLE(cause character varying, lost_from timestamp with time zone) LANGUAGE sql STABLE AS $$
    SELECT newest.cause, newest.lost_from FROM (
        SELECT w.cause, w.lost_from FROM billing_lostwork AS w WHERE w.run_id = of_run ORDER BY w.id DESC LIMIT 1
    ) AS newest WHERE newest.cause <> ''
$$;

-- The policy of an organisation for a day; null: all is charged.
CREATE OR REPLACE FUNCTION billing_credit_policy(of_organisation uuid, on_day date) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT p.id FROM billing_creditpolicy AS p WHERE p.organisation_id = of_organisation AND p.effective_from <= on_day
     ORDER BY p.effective_from DESC, p.id DESC LIMIT 1
$$;

-- What of a tenant's day is not charged, by the corrected prices: the same arithmetic as billing.engine.credits.
CREATE OR REPLACE FUNCTION billing_day_credit(of_organisation uuid, of_tenant uuid, at_path character varying, on_cluster uuid, with_flavor character varying, on_day date) RETURNS TABLE(cause character varying, currency character varying, cost numeric) LANGUAGE sql STABLE AS $$
    SELECT lost.cause, c.currency, sum(c.cost)
      FROM billing_creditpolicy AS p
      JOIN billing_meter AS m ON (m.tenant_id, m.cluster_id, m.flavor, m.tenant_path) = (of_tenant, on_cluster, with_flavor, at_path)
           AND m.metered_from < (on_day + 1)::timestamp AT TIME ZONE 'UTC'
           AND m.metered_until > on_day::timestamp AT TIME ZONE 'UTC'
     CROSS JOIN LATERAL billing_lost(m.run_id) AS lost
      JOIN billing_usagesegment AS s ON int8range(s.meter_id, s.meter_id, '[]') && int8range(m.id, m.id, '[]')
           AND s.period && tstzrange(on_day::timestamp AT TIME ZONE 'UTC', (on_day + 1)::timestamp AT TIME ZONE 'UTC')
           AND upper(s.period) > lost.lost_from
     CROSS JOIN LATERAL billing_corrected(m.id, tstzrange(greatest(lower(s.period), lost.lost_from), upper(s.period))) AS c
     WHERE p.id = billing_credit_policy(of_organisation, on_day) AND p.causes ? lost.cause AND c.currency <> ''
     GROUP BY 1, 2 HAVING sum(c.cost) <> 0
$$;

-- What the lost work of these runs costs in a span, by meter and day, and whether it is not charged.
CREATE OR REPLACE FUNCTION billing_lost_costs(runs uuid[], since timestamp with time zone, until timestamp with time zone) RETURNS TABLE(meter_id bigint, day date, cause character varying, currency character varying, milliseconds numeric, cost numeric, is_waived boolean) LANGUAGE sql STABLE AS $$
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
           m.id, tstzrange(greatest(lower(s.period), lost.lost_from, since), least(upper(s.period), until))) AS c
     GROUP BY 1, 2, 3, 4, 7
$$;

CREATE OR REPLACE FUNCTION billing_waived(runs uuid[], since timestamp with time zone, until timestamp with time zone) RETURNS TABLE(meter_id bigint, day date, cause character varying, currency character varying, cost numeric) LANGUAGE sql STABLE AS $$
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
CREATE TRIGGER billing_mark_lost_days AFTER INSERT ON billing_lostwork
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_mark_lost_days();

-- A policy changes no month that is closed or about to be (0006), and waits for all who rate; then it marks the days of lost work.
CREATE OR REPLACE FUNCTION billing_await_raters() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1398233424);
    RETURN NEW;
END $$;
CREATE TRIGGER billing_a_await_raters BEFORE INSERT ON billing_creditpolicy
    FOR EACH ROW EXECUTE FUNCTION billing_await_raters();
CREATE TRIGGER billing_admit_policy BEFORE INSERT ON billing_creditpolicy
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
CREATE TRIGGER billing_mark_policy_days AFTER INSERT ON billing_creditpolicy
    FOR EACH ROW EXECUTE FUNCTION billing_mark_policy_days();

CREATE OR REPLACE FUNCTION billing_judge_credit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
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

CREATE OR REPLACE FUNCTION billing_corrections_due(lines bigint[]) RETURNS TABLE(line_id bigint, budget_id uuid, span tstzrange, amount numeric) LANGUAGE sql STABLE AS $$
    SELECT l.id, b.id, w.span, l.amount
      FROM billing_ledgerline AS l JOIN billing_ledgerentry AS e ON e.id = l.entry_id
      JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
      LEFT JOIN billing_ledgerentry AS undone ON undone.id = e.reverses_id
     CROSS JOIN LATERAL quotas_tenants_above(a.tenant_id) AS up
      JOIN billing_budget AS b ON b.tenant_id = up.id AND b.removed_at IS NULL
           AND b.measure = 'money' AND b.currency = l.currency
           AND e.charge_day::timestamp AT TIME ZONE 'UTC' >= b.counts_from
     CROSS JOIN LATERAL (SELECT billing_budget_window(
               b.period, b.starts_at, b.ends_at, e.charge_day::timestamp AT TIME ZONE 'UTC') AS span) AS w
     WHERE l.id = ANY(lines) AND w.span IS NOT NULL
       AND (e.kind IN ('reentry', 'adjustment', 'credit')
            OR (e.kind = 'reversal' AND undone.kind NOT IN ('idle', 'platform')))
$$;

CREATE OR REPLACE FUNCTION billing_open_corrections(of_budget uuid) RETURNS void LANGUAGE sql AS $$
    SELECT billing_count_corrections((
        SELECT array_agg(l.id)
          FROM billing_budget AS b JOIN tenancy_tenant AS bt ON bt.id = b.tenant_id
          JOIN tenancy_tenant AS t ON t.path = bt.path OR starts_with(t.path, bt.path || '/')
          JOIN billing_ledgeraccount AS a ON a.tenant_id = t.id AND a.kind = 'tenant_expense'
          JOIN billing_ledgerline AS l ON l.account_id = a.id
          JOIN billing_ledgerentry AS e ON e.id = l.entry_id AND e.kind IN ('reversal', 'reentry', 'adjustment', 'credit')
               AND e.charge_day::timestamp AT TIME ZONE 'UTC' >= b.counts_from
         WHERE b.id = of_budget), of_budget)
$$;

-- What stands for the flavor of an entry on a document: credits have lines of their own.
CREATE OR REPLACE FUNCTION billing_sku_of(e billing_ledgerentry) RETURNS character varying LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN billing_is_credit(e.kind, e.reverses_id) THEN 'infrastructure credit' ELSE e.flavor END
$$;

CREATE OR REPLACE FUNCTION billing_invoice_charges(period uuid, in_currency character varying, below character varying)
    RETURNS TABLE(tenant_path character varying, cluster_id uuid, flavor character varying, month date, amount numeric, quantity numeric, known boolean)
    LANGUAGE sql STABLE AS $$
    SELECT place.path, e.cluster_id, billing_sku_of(e), date_trunc('month', e.charge_day)::date, sum(l.amount), sum(l.quantity), bool_and(l.quantity IS NOT NULL)
      FROM billing_ledgerentry AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id AND l.currency = in_currency
      JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
      JOIN tenancy_tenant AS t ON t.id = a.tenant_id
     CROSS JOIN LATERAL (SELECT coalesce(nullif(e.tenant_path, ''), t.path)::character varying COLLATE "C" AS path) AS place
     WHERE e.period_id = period AND (below = '' OR place.path = below OR starts_with(place.path, below || '/'))
     GROUP BY 1, 2, 3, 4
$$;

-- A remark on a document's line keeps its entries.
CREATE OR REPLACE FUNCTION billing_guard_remark() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    line billing_invoiceline;
    its_document billing_invoice;
BEGIN
    IF TG_OP = 'INSERT' THEN
        SELECT * INTO line FROM billing_invoiceline WHERE id = NEW.line_id;
        SELECT * INTO its_document FROM billing_invoice WHERE id = line.invoice_id;
        IF NEW.state <> 'open' OR its_document.organisation_id IS DISTINCT FROM NEW.organisation_id THEN
            RAISE EXCEPTION 'a remark on a line begins open'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'remark_begins_open';
        END IF;
        NEW.entries := coalesce((
            SELECT array_agg(DISTINCT e.id ORDER BY e.id)
              FROM billing_ledgerentry AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id AND l.currency = its_document.currency
              JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
              JOIN tenancy_tenant AS t ON t.id = a.tenant_id
             WHERE e.period_id = its_document.period_id AND billing_sku_of(e) = line.flavor
               AND e.cluster_id IS NOT DISTINCT FROM line.cluster_id AND date_trunc('month', e.charge_day)::date = line.month
               AND coalesce(nullif(e.tenant_path, ''), t.path) COLLATE "C" = line.tenant_path), '{}');
        RETURN NEW;
    END IF;
    IF (NEW.id, NEW.organisation_id, NEW.line_id, NEW.kind, NEW.entries, NEW.text, NEW.opened_by_id, NEW.opened_by_name, NEW.opened_at)
       IS DISTINCT FROM
       (OLD.id, OLD.organisation_id, OLD.line_id, OLD.kind, OLD.entries, OLD.text, OLD.opened_by_id, OLD.opened_by_name, OLD.opened_at)
       OR (OLD.state, NEW.state) NOT IN (('open', 'answered'), ('answered', 'resolved'))
       OR (OLD.state = 'answered' AND (NEW.answer, NEW.answered_by_name, NEW.answered_at)
           IS DISTINCT FROM (OLD.answer, OLD.answered_by_name, OLD.answered_at)) THEN
        RAISE EXCEPTION 'a remark goes from open to answered to resolved, and keeps what was said'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'remark_goes_its_way';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER billing_keep_lost_work BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_lostwork
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE TRIGGER billing_keep_credit_policies BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_creditpolicy
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
