-- Budgets follow corrections of the ledger.

CREATE OR REPLACE FUNCTION billing_corrections_due(lines bigint[])
    RETURNS TABLE(line_id bigint, budget_id uuid, span tstzrange, amount numeric)
    LANGUAGE sql STABLE AS $$
    SELECT l.id, b.id, w.span,
           billing_cost_in(b.currency, b.tenant_id, l.amount, l.currency, e.charge_day::timestamp AT TIME ZONE 'UTC')
      FROM billing_ledgerline AS l JOIN billing_ledgerentry AS e ON e.id = l.entry_id
      JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
      LEFT JOIN billing_ledgerentry AS undone ON undone.id = e.reverses_id
     CROSS JOIN LATERAL quotas_tenants_above(a.tenant_id) AS up
      JOIN billing_budget AS b ON b.tenant_id = up.id AND b.removed_at IS NULL
           AND b.measure = 'money'
           AND e.charge_day::timestamp AT TIME ZONE 'UTC' >= b.counts_from
     CROSS JOIN LATERAL (SELECT billing_budget_window(
               b.period, b.starts_at, b.ends_at, e.charge_day::timestamp AT TIME ZONE 'UTC') AS span) AS w
     WHERE l.id = ANY(lines) AND w.span IS NOT NULL
       AND (e.kind IN ('reentry', 'adjustment', 'credit')
            OR (e.kind = 'reversal' AND undone.kind NOT IN ('idle', 'platform')))
$$;

-- Counts these lines: at every budget above their tenant, or at one that is new.
CREATE OR REPLACE FUNCTION billing_count_corrections(lines bigint[], at_budget uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM billing_keep_rate(wanted.organisation_id, wanted.base, wanted.quote, wanted.day) FROM (
        SELECT DISTINCT e.organisation_id, l.currency AS base, b.currency AS quote, e.charge_day AS day
          FROM billing_corrections_due(lines) AS due JOIN billing_budget AS b ON b.id = due.budget_id
          JOIN billing_ledgerline AS l ON l.id = due.line_id AND l.currency <> b.currency
          JOIN billing_ledgerentry AS e ON e.id = l.entry_id
         WHERE at_budget IS NULL OR b.id = at_budget ORDER BY 1, 2, 3, 4) AS wanted;
    INSERT INTO billing_budgetperiod (budget_id, starts_at, ends_at, amount, granted, cap, held, spent)
    SELECT DISTINCT b.id, lower(due.span), upper(due.span), b.amount, 0, b.amount, 0, 0
      FROM billing_corrections_due(lines) AS due JOIN billing_budget AS b ON b.id = due.budget_id
     WHERE at_budget IS NULL OR b.id = at_budget ORDER BY 1, 2
    ON CONFLICT (budget_id, starts_at) DO NOTHING;
    INSERT INTO billing_budgetmovement (line_id, period_id, kind, held, spent)
    SELECT due.line_id, p.id, 'correct', 0, due.amount
      FROM billing_corrections_due(lines) AS due
      JOIN billing_budgetperiod AS p ON p.budget_id = due.budget_id AND p.starts_at = lower(due.span)
     WHERE at_budget IS NULL OR p.budget_id = at_budget ORDER BY due.line_id, p.id;
END $$;

CREATE OR REPLACE FUNCTION billing_correct_budgets() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    lines bigint[] := (
        SELECT array_agg(added.id) FROM added JOIN billing_ledgerentry AS e ON e.id = added.entry_id
          LEFT JOIN billing_ledgerentry AS undone ON undone.id = e.reverses_id
         WHERE coalesce(undone.kind, e.kind) NOT IN ('idle', 'platform') AND e.kind <> 'usage');
BEGIN
    IF lines IS NULL THEN
        RETURN NULL;
    END IF;
    -- A new budget excludes all who correct, until it has counted what was posted (billing/locks.py: the price book).
    PERFORM pg_advisory_xact_lock_shared(1398233424);
    IF EXISTS (SELECT 1 FROM billing_budget WHERE removed_at IS NULL) THEN
        PERFORM billing_count_corrections(lines, NULL);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_correct_budgets AFTER INSERT ON billing_ledgerline
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_correct_budgets();

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

CREATE OR REPLACE FUNCTION billing_judge_budget_correction() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM added WHERE added.kind = 'correct') AND EXISTS (
        SELECT added.line_id, added.period_id, added.spent FROM added WHERE added.kind = 'correct'
        EXCEPT
        SELECT due.line_id, p.id, due.amount
          FROM billing_corrections_due((SELECT array_agg(added.line_id) FROM added WHERE added.kind = 'correct')) AS due
          JOIN billing_budgetperiod AS p ON p.budget_id = due.budget_id AND p.starts_at = lower(due.span)
    ) THEN
        RAISE EXCEPTION 'a budget is corrected by what a line of the ledger changes on its path, in the period of the day of use'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'budget_correction_is_what_the_ledger_says';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_judge_budget_correction AFTER INSERT ON billing_budgetmovement
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_judge_budget_correction();

-- What each run used in a budget's period, below its tenant. The history is read once, and joined by hashing or sorting: without
-- statistics a plan with nested loops would read it once for each meter.
CREATE OR REPLACE FUNCTION billing_budget_used(of_period bigint) RETURNS TABLE(run_id uuid, spent numeric) LANGUAGE plpgsql STABLE
    SET enable_nestloop = off
    SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    own billing_budgetperiod;
    budget billing_budget;
    at_path character varying;
BEGIN
    SELECT * INTO own FROM billing_budgetperiod WHERE id = of_period;
    SELECT * INTO budget FROM billing_budget WHERE id = own.budget_id;
    SELECT path INTO at_path FROM tenancy_tenant WHERE id = budget.tenant_id;
    RETURN QUERY
    SELECT m.run_id, sum(billing_budget_use(
               budget.measure, budget.currency, billing_cost_in(budget.currency, budget.tenant_id, s.cost, s.currency, lower(s.period)),
               budget.currency, s.gpu_milliseconds, m.gpu_numerator, m.gpu_denominator))
      FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id
      JOIN tenancy_tenant AS t ON t.id = m.tenant_id
     WHERE lower(s.period) >= own.starts_at AND lower(s.period) < own.ends_at
       AND (t.path = at_path OR starts_with(t.path, at_path || '/'))
     GROUP BY m.run_id;
END $$;
