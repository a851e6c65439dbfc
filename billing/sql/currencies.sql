-- Currencies: which rate counts on a day, what a conversion must be, and what refuses mixed sums.

-- The currency of an organisation's documents in a month; null: those of the prices.
CREATE OR REPLACE FUNCTION billing_currency_of(of_organisation uuid, in_month date)
    RETURNS character varying
    LANGUAGE sql STABLE AS $$
    SELECT b.currency FROM billing_billingcurrency AS b WHERE b.organisation_id = of_organisation AND b.effective_from <= in_month
     ORDER BY b.effective_from DESC, b.id DESC LIMIT 1
$$;

-- What one unit of a currency is worth in another one on a day; no row: no rate is known. An override of the organisation counts
-- before reference rates, which are of the euro and count for a week (billing.engine.reference_rates). The day is that of the older
-- rate. The thirty zeros keep the quotient exact far behind the eighteen decimals that it is rounded to.
CREATE OR REPLACE FUNCTION billing_exchange_rate(of_organisation uuid, from_currency character varying, into_currency character varying, on_day date)
    RETURNS TABLE(rate numeric, rate_day date, source text)
    LANGUAGE sql STABLE AS $$
    WITH own AS (
        SELECT CASE WHEN x.base = from_currency THEN round(x.rate, 18)
                    ELSE round(1.000000000000000000000000000000 / x.rate, 18) END AS rate, x.valid_from, x.source::text AS source
          FROM billing_exchangerate AS x
         WHERE x.organisation_id = of_organisation AND x.kind = 'override' AND x.valid_from <= on_day AND x.valid_until > on_day
           AND (x.base, x.quote) IN ((from_currency, into_currency), (into_currency, from_currency))
         ORDER BY x.id DESC LIMIT 1
    ), leg AS (
        SELECT wanted.currency, found.* FROM (VALUES (from_currency), (into_currency)) AS wanted(currency)
         CROSS JOIN LATERAL (
            SELECT x.rate, x.valid_from, x.source::text AS source FROM billing_exchangerate AS x
             WHERE x.kind = 'reference' AND x.quote = wanted.currency AND x.valid_from <= on_day AND x.valid_from > on_day - 7
               AND (x.organisation_id IS NULL OR x.organisation_id = of_organisation)
             ORDER BY x.valid_from DESC, x.organisation_id NULLS LAST, x.id DESC LIMIT 1
         ) AS found WHERE wanted.currency <> 'EUR'
        UNION ALL
        SELECT 'EUR', 1, NULL, NULL
    )
    SELECT own.rate, own.valid_from, own.source FROM own
    UNION ALL
    SELECT round(b.rate * 1.000000000000000000000000000000 / a.rate, 18), least(a.valid_from, b.valid_from),
           concat_ws(', ', a.source, CASE WHEN b.source IS DISTINCT FROM a.source THEN b.source END)
      FROM leg AS a JOIN leg AS b ON a.currency = from_currency AND b.currency = into_currency
     WHERE NOT EXISTS (SELECT 1 FROM own) AND from_currency <> into_currency
$$;

-- What a period charges in other currencies than its own: by currency and day of use, what no conversion has moved.
CREATE OR REPLACE FUNCTION billing_unconverted(of_period uuid)
    RETURNS TABLE(currency character varying, day date)
    LANGUAGE sql STABLE AS $$
    SELECT DISTINCT left_over.currency, left_over.charge_day FROM (
        SELECT a.tenant_id, l.currency, e.charge_day
          FROM billing_ledgerperiod AS p
         CROSS JOIN LATERAL billing_currency_of(p.organisation_id, p.month) AS own(currency)
          JOIN billing_ledgerentry AS e ON e.period_id = p.id
          JOIN billing_ledgerline AS l ON l.entry_id = e.id AND l.currency <> own.currency
          JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind IN ('tenant_expense', 'tenant_converted')
         WHERE p.id = of_period GROUP BY 1, 2, 3 HAVING sum(l.amount) <> 0
    ) AS left_over
$$;

CREATE OR REPLACE FUNCTION billing_judge_currency() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    wrong record;
BEGIN
    SELECT * INTO wrong FROM billing_unconverted(NEW.id) ORDER BY day, currency LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'charges of % in % are not converted', wrong.day, wrong.currency
            USING ERRCODE = 'check_violation', CONSTRAINT = 'closed_period_has_one_currency';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_judge_currency BEFORE UPDATE ON billing_ledgerperiod
    FOR EACH ROW WHEN (NEW.state = 'closed' AND OLD.state <> 'closed') EXECUTE FUNCTION billing_judge_currency();

-- A currency waits for all who post; it changes no month that is closed or about to be, and none in which amounts were converted.
CREATE OR REPLACE FUNCTION billing_admit_currency() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM billing_ledgerperiod AS p JOIN billing_ledgerentry AS e ON e.period_id = p.id AND e.kind = 'conversion'
                WHERE p.organisation_id = NEW.organisation_id AND p.month >= NEW.effective_from) THEN
        RAISE EXCEPTION 'amounts of that month, or of a later one, are already converted'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'currency_changes_no_converted_month';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_a_await_raters BEFORE INSERT ON billing_billingcurrency
    FOR EACH ROW EXECUTE FUNCTION billing_await_raters();
CREATE OR REPLACE TRIGGER billing_admit_policy BEFORE INSERT ON billing_billingcurrency
    FOR EACH ROW EXECUTE FUNCTION billing_admit_policy();
CREATE OR REPLACE TRIGGER billing_b_admit_currency BEFORE INSERT ON billing_billingcurrency
    FOR EACH ROW EXECUTE FUNCTION billing_admit_currency();

CREATE OR REPLACE FUNCTION billing_mark_currency_days() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO billing_conversionday (organisation_id, day)
    SELECT DISTINCT e.organisation_id, e.charge_day
      FROM billing_ledgerperiod AS p JOIN billing_ledgerentry AS e ON e.period_id = p.id
      JOIN billing_ledgerline AS l ON l.entry_id = e.id AND l.currency <> NEW.currency
      JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
     WHERE p.organisation_id = NEW.organisation_id AND p.month >= NEW.effective_from AND p.state <> 'closed' ORDER BY 2
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_mark_currency_days AFTER INSERT ON billing_billingcurrency
    FOR EACH ROW EXECUTE FUNCTION billing_mark_currency_days();

-- A rate waits for all who convert, and marks the days on which it may count.
CREATE OR REPLACE TRIGGER billing_a_await_raters BEFORE INSERT ON billing_exchangerate
    FOR EACH STATEMENT EXECUTE FUNCTION billing_await_raters();

CREATE OR REPLACE FUNCTION billing_mark_rate_days() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO billing_conversionday (organisation_id, day)
    SELECT DISTINCT used.organisation_id, used.charge_day FROM (
        SELECT DISTINCT e.organisation_id, e.charge_day, l.currency, own.currency AS billed
          FROM (SELECT organisation_id, min(effective_from) AS since FROM billing_billingcurrency GROUP BY 1) AS begun
         CROSS JOIN (SELECT min(valid_from) AS first, max(coalesce(valid_until, valid_from + 7)) AS until FROM added) AS reach
          JOIN billing_ledgerentry AS e ON e.organisation_id = begun.organisation_id
               AND e.charge_day >= reach.first AND e.charge_day < reach.until
          JOIN billing_ledgerperiod AS p ON p.id = e.period_id AND p.month >= begun.since
         CROSS JOIN LATERAL billing_currency_of(p.organisation_id, p.month) AS own(currency)
          JOIN billing_ledgerline AS l ON l.entry_id = e.id AND l.currency <> own.currency
          JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
    ) AS used WHERE EXISTS (
        SELECT 1 FROM added WHERE (added.organisation_id IS NULL OR added.organisation_id = used.organisation_id)
           AND used.charge_day >= added.valid_from AND used.charge_day < coalesce(added.valid_until, added.valid_from + 7)
           AND (used.currency IN (added.base, added.quote) OR used.billed IN (added.base, added.quote)))
     ORDER BY 1, 2
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_mark_rate_days AFTER INSERT ON billing_exchangerate
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_mark_rate_days();

-- Only conversions, and their reversals, move money between currencies.
CREATE OR REPLACE FUNCTION billing_judge_converted_lines() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM added AS l JOIN billing_ledgeraccount AS a ON a.id = l.account_id
          JOIN billing_ledgerentry AS e ON e.id = l.entry_id LEFT JOIN billing_ledgerentry AS r ON r.id = e.reverses_id
         WHERE (a.kind IN ('tenant_converted', 'exchange')) <> (coalesce(r.kind, e.kind) = 'conversion')
            OR (l.priced_currency <> '' AND a.kind <> 'tenant_converted')) THEN
        RAISE EXCEPTION 'only conversions move money between currencies'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'only_conversions_exchange';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_judge_converted_lines AFTER INSERT ON billing_ledgerline
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_judge_converted_lines();

-- At commit: a conversion moves all foreign charges of its entry into the currency of its period, at the rate of the day of use, and
-- is the only one that counts.
CREATE OR REPLACE FUNCTION billing_judge_conversion() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    own billing_ledgerentry;
    billed character varying := (
        SELECT billing_currency_of(p.organisation_id, p.month) FROM billing_ledgerperiod AS p WHERE p.id = NEW.period_id);
BEGIN
    PERFORM billing_await_lines(NEW);
    SELECT * INTO own FROM billing_ledgerentry WHERE id = NEW.converts_id;
    IF billed IS NULL OR own.kind = 'conversion'
       OR (own.organisation_id, own.tenant_id, own.tenant_path, own.cluster_id, own.flavor, own.charge_day)
          IS DISTINCT FROM (NEW.organisation_id, NEW.tenant_id, NEW.tenant_path, NEW.cluster_id, NEW.flavor, NEW.charge_day) THEN
        RAISE EXCEPTION '% is not of the entry that it converts', NEW.key
            USING ERRCODE = 'check_violation', CONSTRAINT = 'conversion_is_of_its_entry';
    END IF;
    IF EXISTS (
        WITH due AS (
            SELECT a.tenant_id, l.currency, l.amount, l.quantity, x.rate, x.rate_day, x.source
              FROM billing_ledgerline AS l
              JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
              LEFT JOIN LATERAL billing_exchange_rate(own.organisation_id, l.currency, billed, own.charge_day) AS x ON true
             WHERE l.entry_id = own.id AND l.currency <> billed
        ), wanted AS (
            SELECT tenant_id, currency, -amount, -quantity, NULL::numeric, ''::text, NULL::numeric, NULL::date, ''::text FROM due
            UNION ALL
            SELECT tenant_id, billed, round(amount * rate, 12), quantity, amount, currency::text, rate, rate_day, source FROM due
             WHERE round(amount * rate, 12) IS DISTINCT FROM 0
        ), posted AS (
            SELECT a.tenant_id, l.currency, l.amount, l.quantity, l.priced_amount, l.priced_currency::text, l.rate, l.rate_day, l.rate_source::text
              FROM billing_ledgerline AS l
              JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_converted'
             WHERE l.entry_id = NEW.id
        )
        (SELECT * FROM wanted EXCEPT SELECT * FROM posted) UNION ALL (SELECT * FROM posted EXCEPT SELECT * FROM wanted)
    ) THEN
        RAISE EXCEPTION '% does not convert its entry at the rate of the day', NEW.key
            USING ERRCODE = 'check_violation', CONSTRAINT = 'conversion_is_at_the_rate_of_its_day';
    END IF;
    IF 1 < (SELECT count(*) FROM billing_ledgerentry AS c WHERE c.converts_id = NEW.converts_id
               AND NOT EXISTS (SELECT 1 FROM billing_ledgerentry AS r WHERE r.reverses_id = c.id)) THEN
        RAISE EXCEPTION '% is converted twice', own.key
            USING ERRCODE = 'check_violation', CONSTRAINT = 'one_conversion_counts';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER billing_judge_conversion AFTER INSERT ON billing_ledgerentry
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.kind = 'conversion') EXECUTE FUNCTION billing_judge_conversion();

-- A document is in the currency that its organisation is billed in.
CREATE OR REPLACE FUNCTION billing_judge_invoice_currency() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.currency <> (SELECT billing_currency_of(p.organisation_id, p.month) FROM billing_ledgerperiod AS p WHERE p.id = NEW.period_id) THEN
        RAISE EXCEPTION 'a document is in the currency of its month'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'document_is_in_the_billing_currency';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_judge_invoice_currency BEFORE INSERT ON billing_invoice
    FOR EACH ROW WHEN (NEW.kind <> 'credit_note') EXECUTE FUNCTION billing_judge_invoice_currency();
CREATE OR REPLACE TRIGGER billing_keep_currencies BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_billingcurrency
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_rates BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_exchangerate
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
