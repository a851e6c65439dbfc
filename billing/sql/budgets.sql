-- What the tables of budgets refuse, whoever writes. The journal alone moves their counters.

-- The period of a budget that contains a time; null outside of its dates.
CREATE OR REPLACE FUNCTION billing_budget_window(period character varying, starts_at timestamp with time zone, ends_at timestamp with time zone, at timestamp with time zone)
    RETURNS tstzrange
    LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN period <> 'dates' THEN tstzrange(
            date_trunc(period, at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC',
            (date_trunc(period, at AT TIME ZONE 'UTC') + CASE period
                WHEN 'month' THEN interval '1 month' WHEN 'quarter' THEN interval '3 months' ELSE interval '1 year'
            END) AT TIME ZONE 'UTC')
        WHEN at >= starts_at AND at < ends_at THEN tstzrange(starts_at, ends_at)
    END
$$;

-- What a segment counts at a budget. GPU-hours are of physical GPUs, rounded down once a segment.
CREATE OR REPLACE FUNCTION billing_budget_use(measure character varying, budget_currency character varying, cost numeric, currency character varying, gpu_milliseconds bigint, gpu_numerator bigint, gpu_denominator bigint)
    RETURNS numeric
    LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN measure = 'gpu_hours'
            THEN div(gpu_milliseconds::numeric * gpu_numerator * 1000000000000, gpu_denominator::numeric * 3600000) * 0.000000000001
        WHEN currency = budget_currency THEN cost
        ELSE 0
    END
$$;

CREATE OR REPLACE FUNCTION billing_guard_budget() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.notify_at IS DISTINCT FROM
       ARRAY(SELECT DISTINCT percent FROM unnest(NEW.notify_at) AS percent WHERE percent BETWEEN 1 AND 1000 ORDER BY 1)::smallint[] THEN
        RAISE EXCEPTION 'thresholds are distinct percentages from 1 to 1000, in order'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'budget_thresholds_are_in_order';
    END IF;
    IF TG_OP = 'UPDATE' AND (
        (NEW.id, NEW.tenant_id, NEW.measure, NEW.currency, NEW.period, NEW.starts_at, NEW.ends_at, NEW.counts_from)
            IS DISTINCT FROM (OLD.id, OLD.tenant_id, OLD.measure, OLD.currency, OLD.period, OLD.starts_at, OLD.ends_at, OLD.counts_from)
        OR (OLD.removed_at IS NOT NULL AND NEW.removed_at IS DISTINCT FROM OLD.removed_at)) THEN
        RAISE EXCEPTION 'what a budget is for never changes, and a removed budget does not return'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'budget_identity_is_fixed';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_guard_budget BEFORE INSERT OR UPDATE ON billing_budget
    FOR EACH ROW EXECUTE FUNCTION billing_guard_budget();

-- What approved overrides add to a period at a time.
CREATE OR REPLACE FUNCTION billing_budget_granted(period bigint, at timestamp with time zone)
    RETURNS numeric
    LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(amount), 0) FROM billing_budgetoverride
     WHERE period_id = period AND approved_at IS NOT NULL AND expires_at > at
$$;

CREATE OR REPLACE FUNCTION billing_guard_budget_period() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.held <> 0 OR NEW.spent <> 0 OR NEW.granted <> 0 OR NEW.cap <> NEW.amount OR NOT EXISTS (
            SELECT 1 FROM billing_budget AS b WHERE b.id = NEW.budget_id AND b.removed_at IS NULL
                AND b.amount = NEW.amount
                AND billing_budget_window(b.period, b.starts_at, b.ends_at, NEW.starts_at) = tstzrange(NEW.starts_at, NEW.ends_at)
        ) THEN
            RAISE EXCEPTION 'a period begins empty, with the amount and the dates of its budget'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'budget_period_begins_empty';
        END IF;
        RETURN NEW;
    END IF;
    IF (NEW.id, NEW.budget_id, NEW.starts_at, NEW.ends_at) IS DISTINCT FROM (OLD.id, OLD.budget_id, OLD.starts_at, OLD.ends_at) THEN
        RAISE EXCEPTION 'a period keeps its dates'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'budget_period_is_fixed';
    END IF;
    IF pg_trigger_depth() > 1 THEN
        RETURN NEW;
    END IF;
    IF (NEW.held, NEW.spent) IS DISTINCT FROM (OLD.held, OLD.spent)
       OR (NEW.cap, NEW.granted) IS DISTINCT FROM (OLD.cap, OLD.granted) THEN
        RAISE EXCEPTION 'the counters of a budget move only through the journal'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'budget_moves_by_journal';
    END IF;
    NEW.granted := billing_budget_granted(NEW.id, clock_timestamp());
    NEW.cap := greatest(NEW.amount + NEW.granted, NEW.spent + NEW.held);
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_guard_budget_period BEFORE INSERT OR UPDATE ON billing_budgetperiod
    FOR EACH ROW EXECUTE FUNCTION billing_guard_budget_period();

CREATE OR REPLACE FUNCTION billing_alert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO billing_budgetalert (period_id, percent, spent, amount)
    SELECT NEW.id, percent, NEW.spent, NEW.amount FROM billing_budget AS b, unnest(b.notify_at) AS percent
     WHERE b.id = NEW.budget_id AND b.removed_at IS NULL AND NEW.spent * 100 >= percent * NEW.amount
    ON CONFLICT (period_id, percent) DO NOTHING;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_alert AFTER UPDATE OF spent, amount ON billing_budgetperiod
    FOR EACH ROW WHEN (NEW.spent > 0) EXECUTE FUNCTION billing_alert();

CREATE OR REPLACE FUNCTION billing_guard_budget_hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        RAISE EXCEPTION 'a hold begins pending, now'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'budget_hold_begins_pending';
    END IF;
    IF OLD.state <> 'pending' OR NEW.state NOT IN ('posted', 'voided')
       OR (NEW.holder_id, NEW.tenant_id, NEW.money_an_hour, NEW.currency, NEW.gpus, NEW.starts_at, NEW.seconds, NEW.created_at)
          IS DISTINCT FROM (OLD.holder_id, OLD.tenant_id, OLD.money_an_hour, OLD.currency, OLD.gpus, OLD.starts_at, OLD.seconds, OLD.created_at)
       OR NEW.ended_at NOT BETWEEN transaction_timestamp() AND clock_timestamp() THEN
        RAISE EXCEPTION 'a hold only ever ends, once, now'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'budget_hold_ends_once';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_budget_hold_ends BEFORE UPDATE ON billing_budgethold
    FOR EACH ROW EXECUTE FUNCTION billing_guard_budget_hold();
CREATE OR REPLACE TRIGGER billing_budget_hold_begins BEFORE INSERT ON billing_budgethold FOR EACH ROW
    WHEN (NEW.state <> 'pending' OR NEW.created_at NOT BETWEEN transaction_timestamp() AND clock_timestamp())
    EXECUTE FUNCTION billing_guard_budget_hold();

CREATE OR REPLACE FUNCTION billing_ended_budget_hold_gave_back() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM ended, LATERAL (
            SELECT sum(m.held) AS held, sum(m.spent) AS spent FROM billing_budgetmovement AS m WHERE m.run_id = ended.holder_id
        ) AS lines WHERE lines.held <> 0 OR (ended.state = 'voided' AND lines.spent <> 0)
    ) THEN
        RAISE EXCEPTION 'a hold ends with nothing held, and is voided only if nothing was spent'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ended_budget_hold_gave_back_all';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_ended_budget_hold_gave_back AFTER UPDATE ON billing_budgethold
    REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION billing_ended_budget_hold_gave_back();

CREATE OR REPLACE FUNCTION billing_apply_movements() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
BEGIN
    -- The order of every lock taker (billing/locks.py): holds by id, then periods from the root down.
    PERFORM 1 FROM billing_budgethold WHERE holder_id IN (SELECT run_id FROM added)
        ORDER BY holder_id FOR NO KEY UPDATE;
    PERFORM 1 FROM billing_budgetperiod AS p JOIN billing_budget AS b ON b.id = p.budget_id
        JOIN tenancy_tenant AS t ON t.id = b.tenant_id
        WHERE p.id IN (SELECT period_id FROM added) ORDER BY t.depth, p.id FOR NO KEY UPDATE OF p;
    IF EXISTS (
        SELECT 1 FROM added WHERE added.held <> 0 AND NOT EXISTS (
            SELECT 1 FROM billing_budgethold AS h WHERE h.holder_id = added.run_id AND h.state = 'pending')
    ) THEN
        RAISE EXCEPTION 'only a pending hold holds'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ended_budget_hold_moves_nothing';
    END IF;
    IF EXISTS (
        SELECT 1 FROM added JOIN billing_budgetperiod AS p ON p.id = added.period_id
        JOIN billing_budget AS b ON b.id = p.budget_id JOIN tenancy_tenant AS bt ON bt.id = b.tenant_id
        LEFT JOIN billing_budgethold AS h ON h.holder_id = added.run_id LEFT JOIN tenancy_tenant AS ht ON ht.id = h.tenant_id
        WHERE added.kind = 'take' AND (
            b.removed_at IS NOT NULL OR h.holder_id IS NULL
            OR NOT (ht.path = bt.path OR starts_with(ht.path, bt.path || '/'))
            OR h.starts_at >= p.ends_at OR h.starts_at + make_interval(secs => h.seconds) < p.starts_at)
    ) THEN
        RAISE EXCEPTION 'a hold takes at periods that it touches, of budgets on its own path'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'budget_take_is_on_its_path';
    END IF;
    IF EXISTS (
        SELECT 1 FROM (SELECT DISTINCT run_id, period_id FROM added) AS touched
        WHERE (SELECT sum(m.held) FROM billing_budgetmovement AS m
               WHERE m.run_id = touched.run_id AND m.period_id = touched.period_id) < 0
    ) THEN
        RAISE EXCEPTION 'a hold returns no more than it has'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'budget_hold_returns_what_it_has';
    END IF;
    -- A take at a stopping budget leaves `cap` at the amount, or at what running work already uses beyond that, so that
    -- CHECK (spent + held <= cap) refuses every overshoot. Running work raises it.
    UPDATE billing_budgetperiod AS p
       SET held = p.held + moved.held, spent = p.spent + moved.spent, granted = fresh.granted,
           cap = CASE WHEN b.stops_admission AND moved.taken > 0
                 THEN greatest(p.amount + fresh.granted, p.spent + p.held + moved.held + moved.spent - moved.taken)
                 ELSE greatest(p.amount + fresh.granted, p.spent + p.held + moved.held + moved.spent) END
      FROM (SELECT period_id, sum(held) AS held, sum(spent) AS spent,
                   coalesce(sum(held) FILTER (WHERE kind = 'take'), 0) AS taken FROM added GROUP BY period_id) AS moved
      JOIN billing_budgetperiod AS own ON own.id = moved.period_id JOIN billing_budget AS b ON b.id = own.budget_id
     CROSS JOIN LATERAL (SELECT billing_budget_granted(own.id, clock_timestamp()) AS granted) AS fresh
     WHERE moved.period_id = p.id;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_apply_movements AFTER INSERT ON billing_budgetmovement
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_apply_movements();

CREATE OR REPLACE FUNCTION billing_line_is_dated_now() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a line of the journal is dated now'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'budget_line_is_dated_now';
END $$;
CREATE OR REPLACE TRIGGER billing_line_is_dated_now BEFORE INSERT ON billing_budgetmovement FOR EACH ROW
    WHEN (NEW.at NOT BETWEEN transaction_timestamp() AND clock_timestamp())
    EXECUTE FUNCTION billing_line_is_dated_now();
CREATE OR REPLACE TRIGGER billing_keep_budget_movements BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_budgetmovement
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_budget_holds BEFORE DELETE OR TRUNCATE ON billing_budgethold
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_budget_alerts BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_budgetalert
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();

-- At the end of the statement that writes holds: each has taken at every budget on its path in the period it begins in.
CREATE OR REPLACE FUNCTION billing_budget_hold_is_counted() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
BEGIN
    -- Until commit nobody moves the tenants on the path or sets a budget on them.
    PERFORM 1 FROM tenancy_tenant WHERE id IN (
        SELECT up.id FROM (SELECT DISTINCT tenant_id FROM begun) AS own, quotas_tenants_above(own.tenant_id) AS up
    ) ORDER BY id FOR SHARE;
    -- Holds of one tenant and beginning are due at the same budgets.
    IF EXISTS (SELECT 1 FROM billing_budget WHERE removed_at IS NULL) AND EXISTS (
        WITH kinds AS MATERIALIZED (
            SELECT tenant_id, starts_at, array_agg(holder_id) AS holders FROM begun GROUP BY tenant_id, starts_at
        ), due AS MATERIALIZED (
            SELECT kinds.holders, kinds.starts_at, b.id AS budget FROM kinds, quotas_tenants_above(kinds.tenant_id) AS up
            JOIN billing_budget AS b ON b.tenant_id = up.id AND b.removed_at IS NULL
            WHERE billing_budget_window(b.period, b.starts_at, b.ends_at, kinds.starts_at) IS NOT NULL
        )
        SELECT 1 FROM due, unnest(due.holders) AS holder WHERE NOT EXISTS (
            SELECT 1 FROM billing_budgetmovement AS m JOIN billing_budgetperiod AS p ON p.id = m.period_id
            WHERE m.run_id = holder AND m.kind = 'take' AND p.budget_id = due.budget
                AND due.starts_at >= p.starts_at AND due.starts_at < p.ends_at)
    ) THEN
        RAISE EXCEPTION 'a hold takes at every budget on its path in the statement that writes it'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'pending_budget_hold_is_counted';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_budget_hold_is_counted AFTER INSERT ON billing_budgethold
    REFERENCING NEW TABLE AS begun FOR EACH STATEMENT EXECUTE FUNCTION billing_budget_hold_is_counted();

-- Waits for takers that this budget must count; keeps new ones out until commit.
CREATE OR REPLACE FUNCTION billing_stop_takers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM tenancy_tenant WHERE id = NEW.tenant_id FOR NO KEY UPDATE;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_budget_stops_takers AFTER INSERT ON billing_budget
    FOR EACH ROW EXECUTE FUNCTION billing_stop_takers();

-- Each segment moves its cost from held to spent at every budget on its tenant's path.
CREATE OR REPLACE FUNCTION billing_spend() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- The part of a replaced segment that was used counts where it did: its revision returns the rest (sql/revisions.sql).
    IF pg_trigger_depth() > 1 THEN
        RETURN NULL;
    END IF;
    -- A new budget excludes all who meter, until it has counted what was metered (billing/locks.py: the price book).
    PERFORM pg_advisory_xact_lock_shared(1398233424);
    IF NOT EXISTS (SELECT 1 FROM billing_budget WHERE removed_at IS NULL) THEN
        RETURN NULL;
    END IF;
    IF EXISTS (
        SELECT 1 FROM (SELECT DISTINCT s.currency FROM added AS s WHERE s.currency <> '') AS used
          JOIN billing_budget AS b ON b.removed_at IS NULL AND b.measure = 'money' AND b.currency <> used.currency
    ) THEN
        PERFORM billing_keep_rate(wanted.organisation, wanted.base, wanted.quote, wanted.day) FROM (
            SELECT DISTINCT billing_organisation_of(b.tenant_id) AS organisation, used.currency AS base, b.currency AS quote, used.day
              FROM (SELECT DISTINCT m.tenant_id, s.currency, (lower(s.period) AT TIME ZONE 'UTC')::date AS day
                      FROM added AS s JOIN billing_meter AS m ON m.id = s.meter_id WHERE s.currency <> '') AS used
             CROSS JOIN LATERAL quotas_tenants_above(used.tenant_id) AS up
              JOIN billing_budget AS b ON b.tenant_id = up.id AND b.removed_at IS NULL AND b.measure = 'money'
                   AND b.currency <> used.currency
             ORDER BY 1, 2, 3, 4) AS wanted;
    END IF;
    INSERT INTO billing_budgetperiod (budget_id, starts_at, ends_at, amount, granted, cap, held, spent)
    SELECT b.id, lower(w.span), upper(w.span), b.amount, 0, b.amount, 0, 0
      FROM (SELECT DISTINCT m.tenant_id, lower(s.period) AS at FROM added AS s JOIN billing_meter AS m ON m.id = s.meter_id) AS used
     CROSS JOIN LATERAL quotas_tenants_above(used.tenant_id) AS up
      JOIN billing_budget AS b ON b.tenant_id = up.id AND b.removed_at IS NULL AND used.at >= b.counts_from
     CROSS JOIN LATERAL (SELECT billing_budget_window(b.period, b.starts_at, b.ends_at, used.at) AS span) AS w
     WHERE w.span IS NOT NULL GROUP BY b.id, w.span ORDER BY b.id, w.span
    ON CONFLICT (budget_id, starts_at) DO NOTHING;
    INSERT INTO billing_budgetmovement (run_id, period_id, kind, held, spent)
    SELECT used.run_id, used.period_id, CASE WHEN h.state = 'pending' THEN 'adjust' ELSE 'post' END,
           CASE WHEN h.state = 'pending' THEN -least(used.amount, (
               SELECT coalesce(sum(m.held), 0) FROM billing_budgetmovement AS m
                WHERE m.run_id = used.run_id AND m.period_id = used.period_id)) ELSE 0 END,
           used.amount
      FROM (
        SELECT m.run_id, p.id AS period_id, sum(billing_budget_use(
                   b.measure, b.currency, billing_cost_in(b.currency, b.tenant_id, s.cost, s.currency, lower(s.period)), b.currency,
                   s.gpu_milliseconds, m.gpu_numerator, m.gpu_denominator)) AS amount
          FROM added AS s JOIN billing_meter AS m ON m.id = s.meter_id
         CROSS JOIN LATERAL quotas_tenants_above(m.tenant_id) AS up
          JOIN billing_budget AS b ON b.tenant_id = up.id AND b.removed_at IS NULL AND lower(s.period) >= b.counts_from
          JOIN billing_budgetperiod AS p ON p.budget_id = b.id
               AND lower(s.period) >= p.starts_at AND lower(s.period) < p.ends_at
         GROUP BY m.run_id, p.id) AS used
      LEFT JOIN billing_budgethold AS h ON h.holder_id = used.run_id
     WHERE used.amount > 0 ORDER BY used.run_id, used.period_id;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_spend AFTER INSERT ON billing_usagesegment
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_spend();

CREATE OR REPLACE FUNCTION billing_guard_override() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.approved_at IS NOT NULL THEN
            RAISE EXCEPTION 'an override begins as a request'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'override_begins_as_a_request';
        END IF;
        RETURN NEW;
    END IF;
    IF OLD.approved_at IS NOT NULL OR (NEW.id, NEW.period_id, NEW.amount, NEW.reason, NEW.expires_at, NEW.requested_by, NEW.requested_at)
       IS DISTINCT FROM (OLD.id, OLD.period_id, OLD.amount, OLD.reason, OLD.expires_at, OLD.requested_by, OLD.requested_at)
       OR NEW.approved_at NOT BETWEEN transaction_timestamp() AND clock_timestamp() OR NEW.expires_at <= clock_timestamp() THEN
        RAISE EXCEPTION 'an override is only ever approved, once, before it expires'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'override_is_approved_once';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_guard_override BEFORE INSERT OR UPDATE ON billing_budgetoverride
    FOR EACH ROW EXECUTE FUNCTION billing_guard_override();
CREATE OR REPLACE TRIGGER billing_keep_overrides BEFORE DELETE OR TRUNCATE ON billing_budgetoverride
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
