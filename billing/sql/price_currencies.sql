-- Prices in several currencies: of an organisation that is billed in one. A budget counts all of them, so their rates into its currency are known.

-- The currencies of an organisation's prices, of capacity and of egress, that apply after a time.
CREATE OR REPLACE FUNCTION billing_price_currencies(of_path character varying, after_time timestamp with time zone)
    RETURNS TABLE(currency character varying) LANGUAGE sql STABLE AS $$
    SELECT DISTINCT found.currency FROM (
        SELECT p.currency, p.valid FROM billing_price AS p JOIN billing_rate AS r ON r.id = p.rate_id
          JOIN clusters_cluster AS c ON c.id = r.cluster_id JOIN tenancy_tenant AS owner ON owner.id = c.owner_id
         WHERE split_part(owner.path, '/', 1) = of_path
        UNION ALL
        SELECT p.currency, p.valid FROM billing_egressprice AS p JOIN billing_egressroute AS r ON r.id = p.route_id
          JOIN tenancy_tenant AS owner ON owner.id = r.owner_id WHERE split_part(owner.path, '/', 1) = of_path
    ) AS found WHERE coalesce(upper(found.valid), 'infinity') > after_time
$$;

-- A price waits for budgets that are being written (the lock of billing.locks.rewrite_price_book).
CREATE OR REPLACE FUNCTION billing_admit_price_currency() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    own record;
BEGIN
    IF NEW.currency !~ '^[A-Z]{3}$' THEN
        RETURN NEW; -- a check of the table refuses it
    END IF;
    PERFORM pg_advisory_xact_lock(1398233424);
    IF TG_TABLE_NAME = 'billing_price' THEN
        SELECT root.id, root.path INTO own FROM billing_rate AS r JOIN clusters_cluster AS c ON c.id = r.cluster_id
          JOIN tenancy_tenant AS owner ON owner.id = c.owner_id JOIN tenancy_tenant AS root ON root.path = split_part(owner.path, '/', 1)
         WHERE r.id = NEW.rate_id;
    ELSE
        SELECT root.id, root.path INTO own FROM billing_egressroute AS r JOIN tenancy_tenant AS owner ON owner.id = r.owner_id
          JOIN tenancy_tenant AS root ON root.path = split_part(owner.path, '/', 1) WHERE r.id = NEW.route_id;
    END IF;
    IF EXISTS (SELECT 1 FROM billing_price_currencies(own.path, '-infinity') AS other WHERE other.currency <> NEW.currency)
       AND billing_currency_of(own.id, date_trunc('month', lower(NEW.valid) AT TIME ZONE 'UTC')::date) IS NULL THEN
        RAISE EXCEPTION 'prices in several currencies are of an organisation that is billed in one'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'several_currencies_are_billed_in_one';
    END IF;
    IF EXISTS (
        SELECT 1 FROM billing_budget AS b JOIN tenancy_tenant AS t ON t.id = b.tenant_id
         WHERE b.removed_at IS NULL AND b.measure = 'money' AND b.currency <> NEW.currency AND split_part(t.path, '/', 1) = own.path
           AND NOT EXISTS (SELECT 1 FROM billing_known_rate(
               own.id, NEW.currency, b.currency, (lower(NEW.valid) AT TIME ZONE 'UTC')::date))) THEN
        RAISE EXCEPTION 'a budget counts every price, and no rate from % into its currency is known', NEW.currency
            USING ERRCODE = 'check_violation', CONSTRAINT = 'budgets_count_every_price';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_admit_price_currency BEFORE INSERT ON billing_price
    FOR EACH ROW EXECUTE FUNCTION billing_admit_price_currency();
CREATE OR REPLACE TRIGGER billing_admit_price_currency BEFORE INSERT ON billing_egressprice
    FOR EACH ROW EXECUTE FUNCTION billing_admit_price_currency();

-- A budget waits for prices that are being written, as they wait for all who rate.
CREATE OR REPLACE FUNCTION billing_admit_budget_currency() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    other character varying;
    root record;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1398233424);
    SELECT t.id, t.path INTO root FROM tenancy_tenant AS t WHERE t.id = billing_organisation_of(NEW.tenant_id);
    SELECT priced.currency INTO other FROM billing_price_currencies(root.path, NEW.counts_from) AS priced
     WHERE priced.currency <> NEW.currency AND NOT EXISTS (SELECT 1 FROM billing_known_rate(
           root.id, priced.currency, NEW.currency, (NEW.counts_from AT TIME ZONE 'UTC')::date)) ORDER BY 1 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'a budget counts every price, and no rate from % into its currency is known', other
            USING ERRCODE = 'check_violation', CONSTRAINT = 'budgets_count_every_price';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_admit_budget_currency BEFORE INSERT ON billing_budget
    FOR EACH ROW WHEN (NEW.measure = 'money') EXECUTE FUNCTION billing_admit_budget_currency();
