-- What invoices of providers, and the comparison of a month with them, refuse, whoever writes.

-- Of the two numbers of an advisory lock, the first; the second names an organisation's month (0x53575250, "SWRP").
CREATE OR REPLACE FUNCTION billing_month_lock(of_organisation uuid, in_month date) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtext(of_organisation::text || (in_month - DATE '2000-01-01'))
$$;

-- The state of a month, which does not change until commit; null if it has no period, and then none begins until commit.
CREATE OR REPLACE FUNCTION billing_kept_state(of_organisation uuid, in_month date) RETURNS character varying LANGUAGE plpgsql AS $$
DECLARE
    found_state character varying;
BEGIN
    SELECT state INTO found_state FROM billing_ledgerperiod
     WHERE organisation_id = of_organisation AND month = in_month FOR SHARE;
    IF NOT FOUND THEN
        PERFORM pg_advisory_xact_lock_shared(1398231632, billing_month_lock(of_organisation, in_month));
        SELECT state INTO found_state FROM billing_ledgerperiod
         WHERE organisation_id = of_organisation AND month = in_month FOR SHARE;
    END IF;
    RETURN found_state;
END $$;

-- A month that begins waits for those who import invoices of it: after this, they lock its period.
CREATE OR REPLACE FUNCTION billing_await_provider_invoices() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1398231632, billing_month_lock(NEW.organisation_id, NEW.month));
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_await_provider_invoices AFTER INSERT ON billing_ledgerperiod
    FOR EACH ROW EXECUTE FUNCTION billing_await_provider_invoices();

-- Whether an organisation has a cluster, itself or below.
CREATE OR REPLACE FUNCTION billing_has_cluster(of_organisation uuid, of_cluster uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM tenancy_tenant AS root JOIN clusters_cluster AS c ON c.id = of_cluster
          JOIN tenancy_tenant AS owner ON owner.id = c.owner_id
         WHERE root.id = of_organisation AND root.parent_id IS NULL
           AND (owner.id = root.id OR starts_with(owner.path, root.path || '/')))
$$;

CREATE OR REPLACE FUNCTION billing_admit_provider_invoice() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (NEW.id, NEW.organisation_id, NEW.cluster_id, NEW.month, NEW.reference)
       IS DISTINCT FROM (OLD.id, OLD.organisation_id, OLD.cluster_id, OLD.month, OLD.reference) THEN
        RAISE EXCEPTION 'a line of a provider keeps its reference, cluster and month'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'provider_invoice_keeps_its_reference';
    END IF;
    IF NOT billing_has_cluster(NEW.organisation_id, NEW.cluster_id) THEN
        RAISE EXCEPTION 'invoices of providers are for clusters of the organisation'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'provider_invoice_is_of_own_cluster';
    END IF;
    IF billing_kept_state(NEW.organisation_id, NEW.month) <> 'open' THEN
        RAISE EXCEPTION 'invoices of providers change no closed month'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'provider_invoices_change_no_closed_month';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_admit_provider_invoice BEFORE INSERT OR UPDATE ON billing_providerinvoiceline
    FOR EACH ROW EXECUTE FUNCTION billing_admit_provider_invoice();

CREATE OR REPLACE TRIGGER billing_admit_policy BEFORE INSERT ON billing_variancetolerance
    FOR EACH ROW EXECUTE FUNCTION billing_admit_policy();

CREATE OR REPLACE FUNCTION billing_admit_acceptance() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT billing_has_cluster(NEW.organisation_id, NEW.cluster_id) THEN
        RAISE EXCEPTION 'a variance is of a cluster of the organisation'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'accepted_variance_is_of_own_cluster';
    END IF;
    IF billing_kept_state(NEW.organisation_id, NEW.month) = 'closed' THEN
        RAISE EXCEPTION 'a variance is accepted before its month closes'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'variance_is_accepted_before_the_close';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_admit_acceptance BEFORE INSERT ON billing_acceptedvariance
    FOR EACH ROW EXECUTE FUNCTION billing_admit_acceptance();

-- How many percent a provider's invoice may differ by in a month (billing.engine.reconciliation: USUAL_TOLERANCE).
CREATE OR REPLACE FUNCTION billing_variance_tolerance(of_organisation uuid, in_month date) RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT coalesce((
        SELECT t.percent FROM billing_variancetolerance AS t WHERE t.organisation_id = of_organisation AND t.effective_from <= in_month
         ORDER BY t.effective_from DESC, t.id DESC LIMIT 1), 2)
$$;

-- A cluster is recorded while its month closes, with the sum of its lines, within the tolerance or with a person's acceptance.
CREATE OR REPLACE FUNCTION billing_admit_reconciled() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    its billing_ledgerperiod;
    billed numeric;
    others boolean;
    its_cost numeric := NEW.charged + NEW.overhead + NEW.idle;
BEGIN
    SELECT * INTO its FROM billing_ledgerperiod WHERE id = NEW.period_id AND state = 'closing' AND NEW.revision = revision + 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'clusters are reconciled while their month closes'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'clusters_are_reconciled_at_a_close';
    END IF;
    SELECT sum(l.amount), coalesce(bool_or(l.currency <> NEW.currency), false) INTO billed, others
      FROM billing_providerinvoiceline AS l
     WHERE l.organisation_id = its.organisation_id AND l.month = its.month AND l.cluster_id = NEW.cluster_id;
    IF (billed IS NULL) <> (NEW.invoiced IS NULL) OR (NOT others AND billed IS DISTINCT FROM NEW.invoiced) THEN
        RAISE EXCEPTION 'the lines of the cluster add up to %, not %', billed, NEW.invoiced
            USING ERRCODE = 'check_violation', CONSTRAINT = 'reconciled_cluster_has_its_lines';
    END IF;
    IF abs(NEW.invoiced - its_cost) * 100 > billing_variance_tolerance(its.organisation_id, its.month) * abs(its_cost) AND NOT EXISTS (
        SELECT 1 FROM billing_acceptedvariance AS a
         WHERE (a.organisation_id, a.month, a.cluster_id, a.currency, a.cost, a.invoiced)
             = (its.organisation_id, its.month, NEW.cluster_id, NEW.currency, its_cost, NEW.invoiced)) THEN
        RAISE EXCEPTION '% is billed for %, which no person has accepted', NEW.invoiced, its_cost
            USING ERRCODE = 'check_violation', CONSTRAINT = 'reconciled_cluster_is_within_tolerance';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_admit_reconciled BEFORE INSERT ON billing_reconciledcluster
    FOR EACH ROW EXECUTE FUNCTION billing_admit_reconciled();

-- A month closes only with each cluster reconciled that a provider billed for.
CREATE OR REPLACE FUNCTION billing_judge_reconciliation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM billing_providerinvoiceline AS l
         WHERE l.organisation_id = NEW.organisation_id AND l.month = NEW.month AND NOT EXISTS (
            SELECT 1 FROM billing_reconciledcluster AS r
             WHERE (r.period_id, r.revision, r.cluster_id) = (NEW.id, NEW.revision, l.cluster_id))) THEN
        RAISE EXCEPTION 'a month closes once what providers billed is reconciled'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'period_closes_reconciled';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_judge_reconciliation BEFORE UPDATE ON billing_ledgerperiod
    FOR EACH ROW WHEN (NEW.state = 'closed' AND OLD.state <> 'closed') EXECUTE FUNCTION billing_judge_reconciliation();
CREATE OR REPLACE TRIGGER billing_keep_provider_invoices BEFORE DELETE OR TRUNCATE ON billing_providerinvoiceline
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_tolerances BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_variancetolerance
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_acceptances BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_acceptedvariance
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_reconciled BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_reconciledcluster
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
