-- Budgets count charges and holds in other currencies at the rate of their day. The rate that a budget used first is kept for all
-- budgets of the organisation, so that a later rate moves nothing that was counted.

-- The rate of a day; if none counts on it, that of the last day before on which one did, otherwise of the first one after. No row: no
-- rate was ever known.
CREATE OR REPLACE FUNCTION billing_known_rate(of_organisation uuid, from_currency character varying, into_currency character varying, on_day date)
    RETURNS TABLE(rate numeric, rate_day date, source text)
    LANGUAGE plpgsql STABLE AS $$
DECLARE
    near date;
BEGIN
    RETURN QUERY SELECT * FROM billing_exchange_rate(of_organisation, from_currency, into_currency, on_day);
    IF FOUND THEN
        RETURN;
    END IF;
    FOR near IN
        SELECT candidate.day FROM (
            SELECT x.valid_from AS day FROM billing_exchangerate AS x
             WHERE x.kind = 'reference' AND x.quote IN (from_currency, into_currency)
               AND (x.organisation_id IS NULL OR x.organisation_id = of_organisation)
            UNION
            SELECT unnest(ARRAY[x.valid_from, x.valid_until - 1]) FROM billing_exchangerate AS x
             WHERE x.kind = 'override' AND x.organisation_id = of_organisation
               AND (x.base, x.quote) IN ((from_currency, into_currency), (into_currency, from_currency))
        ) AS candidate ORDER BY candidate.day > on_day, abs(candidate.day - on_day)
    LOOP
        RETURN QUERY SELECT * FROM billing_exchange_rate(of_organisation, from_currency, into_currency, near);
        IF FOUND THEN
            RETURN;
        END IF;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION billing_organisation_of(of_tenant uuid) RETURNS uuid LANGUAGE sql STABLE AS $$
    SELECT root.id FROM tenancy_tenant AS own JOIN tenancy_tenant AS root ON root.path = split_part(own.path, '/', 1) WHERE own.id = of_tenant
$$;

-- A rate that is kept is the one that is known for the day, whatever was written. Zero: none was ever known, which the nightly proof names.
CREATE OR REPLACE FUNCTION billing_fill_budget_rate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT x.rate, x.rate_day, x.source INTO NEW.rate, NEW.rate_day, NEW.source
      FROM billing_known_rate(NEW.organisation_id, NEW.base, NEW.quote, NEW.day) AS x;
    IF NOT FOUND THEN
        NEW.rate := 0;
        NEW.rate_day := NULL;
        NEW.source := '';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_fill_budget_rate BEFORE INSERT ON billing_budgetrate
    FOR EACH ROW EXECUTE FUNCTION billing_fill_budget_rate();
CREATE OR REPLACE TRIGGER billing_keep_budget_rates BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_budgetrate
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();

-- The kept rate, which is kept now if this is the first use. Another transaction that keeps it at the same moment is waited for.
CREATE OR REPLACE FUNCTION billing_keep_rate(of_organisation uuid, from_currency character varying, into_currency character varying, on_day date)
    RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
    found_rate numeric;
BEGIN
    SELECT k.rate INTO found_rate FROM billing_budgetrate AS k
     WHERE k.organisation_id = of_organisation AND k.base = from_currency AND k.quote = into_currency AND k.day = on_day;
    IF NOT FOUND THEN
        INSERT INTO billing_budgetrate (organisation_id, base, quote, day, rate, source)
        VALUES (of_organisation, from_currency, into_currency, on_day, 0, '')
        ON CONFLICT (organisation_id, base, quote, day) DO NOTHING;
        SELECT k.rate INTO STRICT found_rate FROM billing_budgetrate AS k
         WHERE k.organisation_id = of_organisation AND k.base = from_currency AND k.quote = into_currency AND k.day = on_day;
    END IF;
    RETURN found_rate;
END $$;

-- A cost in the currency of a budget of a tenant, at the kept rate of its day. Rounded towards zero, so that what was used never exceeds
-- what was held for it at that rate.
CREATE OR REPLACE FUNCTION billing_cost_in(into_currency character varying, of_tenant uuid, cost numeric, currency character varying, at timestamp with time zone)
    RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN currency = into_currency OR currency = '' OR into_currency = '' THEN cost ELSE trunc(cost * coalesce((
        SELECT k.rate FROM billing_budgetrate AS k
         WHERE k.organisation_id = billing_organisation_of(of_tenant) AND k.base = currency AND k.quote = into_currency
           AND k.day = (at AT TIME ZONE 'UTC')::date), 0), 12) END
$$;

-- Keeps the rates at which a budget's period counts what was metered in other currencies.
CREATE OR REPLACE FUNCTION billing_keep_rates_of_period(of_period bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM billing_keep_rate(billing_organisation_of(wanted.tenant_id), wanted.base, wanted.quote, wanted.day) FROM (
        SELECT DISTINCT b.tenant_id, d.currency AS base, b.currency AS quote, d.day
          FROM billing_budgetperiod AS p JOIN billing_budget AS b ON b.id = p.budget_id AND b.measure = 'money'
          JOIN tenancy_tenant AS bt ON bt.id = b.tenant_id
          JOIN tenancy_tenant AS t ON t.path = bt.path OR starts_with(t.path, bt.path || '/')
          JOIN billing_tenantday AS d ON d.tenant_id = t.id AND d.currency NOT IN ('', b.currency)
               AND d.day >= (p.starts_at AT TIME ZONE 'UTC')::date AND d.day < (p.ends_at AT TIME ZONE 'UTC')::date
         WHERE p.id = of_period ORDER BY 2, 3, 4) AS wanted;
END $$;

-- A take in another currency than its budget's holds the worst case at the kept rate of the day on which the hold begins: exactly, and
-- rounded up to twelve decimals.
CREATE OR REPLACE FUNCTION billing_judge_foreign_takes() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
DECLARE
    wrong record;
BEGIN
    SELECT added.run_id, h.currency, b.currency AS into_currency INTO wrong
      FROM added JOIN billing_budgetperiod AS p ON p.id = added.period_id
      JOIN billing_budget AS b ON b.id = p.budget_id AND b.measure = 'money'
      JOIN billing_budgethold AS h ON h.holder_id = added.run_id AND h.money_an_hour > 0 AND h.currency NOT IN ('', b.currency)
      LEFT JOIN billing_budgetrate AS k ON k.organisation_id = billing_organisation_of(b.tenant_id) AND k.base = h.currency
           AND k.quote = b.currency AND k.day = (h.starts_at AT TIME ZONE 'UTC')::date
     CROSS JOIN LATERAL (
        SELECT greatest(0, round(extract(epoch FROM
                   least(p.ends_at, h.starts_at + make_interval(secs => h.seconds)) - greatest(p.starts_at, h.starts_at)) * 1000000)) AS microseconds
     ) AS held
     WHERE added.kind = 'take' AND added.held IS DISTINCT FROM
           div(h.money_an_hour * 1000000000000 * k.rate * 1000000000000000000 * held.microseconds + 3599999999999999999999999999,
               3600000000000000000000000000) * 0.000000000001
     LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'run % takes % at a budget in % otherwise than at the rate of its day', wrong.run_id, wrong.currency, wrong.into_currency
            USING ERRCODE = 'check_violation', CONSTRAINT = 'budget_take_is_at_the_rate_of_its_day';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_judge_foreign_takes AFTER INSERT ON billing_budgetmovement
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_judge_foreign_takes();
