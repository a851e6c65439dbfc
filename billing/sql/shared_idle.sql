-- What idle capacity, its sharing and the history of pools refuse, whoever writes.

-- A policy changes no month that is closed or about to be.
CREATE OR REPLACE FUNCTION billing_admit_policy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM billing_ledgerperiod AS p
      WHERE p.organisation_id = NEW.organisation_id AND p.month >= NEW.effective_from ORDER BY p.month FOR SHARE;
    IF EXISTS (SELECT 1 FROM billing_ledgerperiod AS p
                WHERE p.organisation_id = NEW.organisation_id AND p.month >= NEW.effective_from AND p.state <> 'open') THEN
        RAISE EXCEPTION 'a policy changes no closed month'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'policy_changes_no_closed_month';
    END IF;
    IF NOT EXISTS (SELECT 1 FROM tenancy_tenant WHERE id = NEW.organisation_id AND parent_id IS NULL) THEN
        RAISE EXCEPTION 'a policy is of an organisation'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'policy_is_of_an_organisation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_admit_policy BEFORE INSERT ON billing_sharingpolicy
    FOR EACH ROW EXECUTE FUNCTION billing_admit_policy();

-- The pools of a month are recorded while it closes.
CREATE OR REPLACE FUNCTION billing_admit_pool_day() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM billing_ledgerperiod AS p
         WHERE p.id = NEW.period_id AND p.state = 'closing' AND NEW.revision = p.revision + 1
           AND NEW.day >= p.month AND NEW.day < p.month + interval '1 month') THEN
        RAISE EXCEPTION 'pools are recorded while their month closes'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'pools_are_recorded_at_a_close';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_admit_pool_day BEFORE INSERT ON billing_poolday
    FOR EACH ROW EXECUTE FUNCTION billing_admit_pool_day();

-- Entries of idle capacity and of the platform are posted while their own month closes, to their own accounts.
CREATE OR REPLACE FUNCTION billing_admit_share() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.kind IN ('idle', 'platform')
        OR (NEW.kind = 'reversal' AND (SELECT r.kind FROM billing_ledgerentry AS r WHERE r.id = NEW.reverses_id) IN ('idle', 'platform')))
       AND NOT EXISTS (SELECT 1 FROM billing_ledgerperiod AS p WHERE p.id = NEW.period_id AND p.state = 'closing'
                          AND p.month = date_trunc('month', NEW.charge_day)::date) THEN
        RAISE EXCEPTION 'idle capacity and the platform are shared while their month closes'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'shares_are_posted_at_a_close';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_admit_share BEFORE INSERT ON billing_ledgerentry
    FOR EACH ROW EXECUTE FUNCTION billing_admit_share();

CREATE OR REPLACE FUNCTION billing_judge_share() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM billing_await_lines(NEW);
    IF EXISTS (
        SELECT 1 FROM billing_ledgerline AS l JOIN billing_ledgeraccount AS a ON a.id = l.account_id
         WHERE l.entry_id = NEW.id AND NOT (
            (NEW.kind = 'idle' AND (a.kind IN ('idle', 'overhead', 'tenant_expense')
                                    OR (a.kind = 'cluster_pool' AND a.cluster_id = NEW.cluster_id)))
            OR (NEW.kind = 'platform' AND a.kind IN ('platform', 'tenant_expense')))
    ) THEN
        RAISE EXCEPTION 'the lines of % are of other accounts', NEW.key
            USING ERRCODE = 'check_violation', CONSTRAINT = 'line_is_of_its_entrys_accounts';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER billing_judge_share AFTER INSERT ON billing_ledgerentry
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.kind IN ('idle', 'platform')) EXECUTE FUNCTION billing_judge_share();

-- How the pools of a period's last close differ from the ledger; no rows if they agree. An entry of a tenant's share has the
-- flavor `idle capacity`, which no node offers.
CREATE OR REPLACE FUNCTION billing_sharing_errors(of_period uuid)
    RETURNS TABLE(what text, place text, currency character varying, kept numeric, posted numeric) LANGUAGE sql STABLE AS $$
    WITH p AS (
        SELECT * FROM billing_ledgerperiod WHERE id = of_period
    ), pool AS (
        SELECT d.* FROM billing_poolday AS d JOIN p ON d.period_id = p.id AND d.revision = p.revision
    ), charged AS (
        SELECT e.cluster_id, e.flavor, e.charge_day AS day, l.currency, -sum(l.amount) AS amount
          FROM p JOIN billing_ledgerentry AS e ON e.organisation_id = p.organisation_id AND e.charge_day >= p.month
               AND e.charge_day < (p.month + interval '1 month')::date AND e.tenant_id IS NOT NULL
          JOIN billing_ledgerline AS l ON l.entry_id = e.id
          JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'cluster_pool'
         WHERE e.id <= (SELECT max(last_entry) FROM pool) GROUP BY 1, 2, 3, 4
    ), moved AS (
        SELECT e.cluster_id, e.flavor, l.currency, sum(l.amount) FILTER (WHERE a.kind = 'idle') AS idle,
               sum(l.amount) FILTER (WHERE a.kind = 'overhead') AS overhead
          FROM p JOIN billing_ledgerentry AS e ON e.period_id = p.id
          LEFT JOIN billing_ledgerentry AS r ON r.id = e.reverses_id
          JOIN billing_ledgerline AS l ON l.entry_id = e.id
          JOIN billing_ledgeraccount AS a ON a.id = l.account_id
         WHERE 'idle' IN (e.kind, r.kind) GROUP BY 1, 2, 3
    ), due AS (
        SELECT cluster_id, flavor, currency, sum(idle) AS idle, sum(overhead) AS overhead FROM pool GROUP BY 1, 2, 3
    ), shared AS (
        SELECT cluster_id, currency, sum(shared) AS amount FROM pool GROUP BY 1, 2
    )
    SELECT 'charged', concat_ws(' ', pool.cluster_id, pool.flavor, pool.day), pool.currency, pool.charged, coalesce(charged.amount, 0)
      FROM pool LEFT JOIN charged USING (cluster_id, flavor, day, currency) WHERE pool.charged <> coalesce(charged.amount, 0)
    UNION ALL
    SELECT 'idle', concat_ws(' ', cluster_id, flavor), currency, coalesce(due.idle, 0), coalesce(moved.idle, 0)
      FROM due FULL JOIN (SELECT * FROM moved WHERE flavor <> 'idle capacity') AS moved USING (cluster_id, flavor, currency)
     WHERE coalesce(due.idle, 0) <> coalesce(moved.idle, 0)
    UNION ALL
    SELECT 'overhead', concat_ws(' ', cluster_id, flavor), currency, coalesce(due.overhead, 0), coalesce(moved.overhead, 0)
      FROM due FULL JOIN (SELECT * FROM moved WHERE flavor <> 'idle capacity') AS moved USING (cluster_id, flavor, currency)
     WHERE coalesce(due.overhead, 0) <> coalesce(moved.overhead, 0)
    UNION ALL
    SELECT 'shared', cluster_id::text, currency, coalesce(shared.amount, 0), -coalesce(moved.idle, 0)
      FROM shared FULL JOIN (SELECT * FROM moved WHERE flavor = 'idle capacity') AS moved USING (cluster_id, currency)
     WHERE coalesce(shared.amount, 0) <> -coalesce(moved.idle, 0)
    UNION ALL
    SELECT 'negative', concat_ws(' ', pool.cluster_id, pool.flavor, pool.day), pool.currency, pool.cost, pool.charged
      FROM pool WHERE pool.idle < 0 AND NOT EXISTS (
          SELECT 1 FROM billing_negativeidle AS n
           WHERE (n.period_id, n.cluster_id, n.flavor, n.day, n.currency, n.cost, n.charged, n.state)
               = (pool.period_id, pool.cluster_id, pool.flavor, pool.day, pool.currency, pool.cost, pool.charged, 'accepted'))
$$;

CREATE OR REPLACE FUNCTION billing_judge_sharing() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    wrong record;
BEGIN
    SELECT * INTO wrong FROM billing_sharing_errors(NEW.id) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the pools of % have % % % of %, but the ledger has %', NEW.month, wrong.what, wrong.kept, wrong.currency, wrong.place, wrong.posted
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_shares_what_pools_left';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER billing_judge_sharing AFTER UPDATE ON billing_ledgerperiod
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.state = 'closed' AND OLD.state <> 'closed')
    EXECUTE FUNCTION billing_judge_sharing();

-- Numbers of people's decisions do not change; a decision is made once.
CREATE OR REPLACE FUNCTION billing_guard_negative_idle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state <> 'open' AND NOT (OLD.state = 'superseded' AND NEW.state = 'open')
       OR (NEW.id, NEW.period_id, NEW.cluster_id, NEW.flavor, NEW.day, NEW.currency, NEW.cost, NEW.charged, NEW.seen_at)
          IS DISTINCT FROM
          (OLD.id, OLD.period_id, OLD.cluster_id, OLD.flavor, OLD.day, OLD.currency, OLD.cost, OLD.charged, OLD.seen_at) THEN
        RAISE EXCEPTION 'negative idle is decided once, and keeps its numbers'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'negative_idle_is_decided_once';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_guard_negative_idle BEFORE UPDATE ON billing_negativeidle
    FOR EACH ROW EXECUTE FUNCTION billing_guard_negative_idle();
CREATE OR REPLACE TRIGGER billing_keep_policies BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_sharingpolicy
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_pool_days BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_poolday
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_negative_idle BEFORE DELETE OR TRUNCATE ON billing_negativeidle
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
