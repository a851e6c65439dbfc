-- The ledger: entries that balance and are never rewritten, in periods that close.

CREATE OR REPLACE FUNCTION billing_account_name(account bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat_ws(':', kind, tenant_id, cluster_id) FROM billing_ledgeraccount WHERE id = account
$$;

-- The canonical text of an entry, as billing.engine.ledger writes it.
CREATE OR REPLACE FUNCTION billing_entry_text(entry bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat_ws(E'\t', e.key, e.kind, e.organisation_id, coalesce(e.tenant_id::text, ''), e.tenant_path,
                     coalesce(e.cluster_id::text, ''), e.flavor, to_char(e.charge_day, 'YYYY-MM-DD'),
                     coalesce((SELECT r.key FROM billing_ledgerentry AS r WHERE r.id = e.reverses_id), ''),
                     coalesce(e.correction_id::text, ''), e.reason,
                     (SELECT c.key FROM billing_ledgerentry AS c WHERE c.id = e.converts_id))
        || coalesce((SELECT string_agg(E'\n' || named.name || E'\t' || l.currency || E'\t' || l.amount::text
                         || CASE WHEN l.priced_currency = '' THEN '' ELSE concat(
                                E'\t', l.priced_amount, E'\t', l.priced_currency, E'\t', l.rate, E'\t',
                                to_char(l.rate_day, 'YYYY-MM-DD'), E'\t', l.rate_source) END, ''
                         ORDER BY named.name COLLATE "C", l.currency COLLATE "C", l.priced_currency COLLATE "C")
                       FROM billing_ledgerline AS l CROSS JOIN LATERAL billing_account_name(l.account_id) AS named(name)
                      WHERE l.entry_id = e.id), '')
      FROM billing_ledgerentry AS e WHERE e.id = entry
$$;

CREATE OR REPLACE FUNCTION billing_period_checksum(period uuid) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT encode(sha256(convert_to(coalesce(string_agg(
        e.key || E'\t' || to_char(e.charge_day, 'YYYY-MM-DD') || E'\t' || named.name || E'\t' || l.currency || E'\t'
        || l.amount::text || E'\n', ''
        ORDER BY e.key COLLATE "C", named.name COLLATE "C", l.currency COLLATE "C", l.priced_currency COLLATE "C"), ''),
        'UTF8')), 'hex')
      FROM billing_ledgerentry AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id
     CROSS JOIN LATERAL billing_account_name(l.account_id) AS named(name)
     WHERE e.period_id = period
$$;

-- Entries enter a period that is not closed: that of their day, or if it is closed, the first after it that is not.
CREATE OR REPLACE FUNCTION billing_admit_entry() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    its_period billing_ledgerperiod;
    own date := date_trunc('month', NEW.charge_day)::date;
    missed integer;
BEGIN
    SELECT * INTO its_period FROM billing_ledgerperiod WHERE id = NEW.period_id FOR SHARE;
    IF its_period.state = 'closed' THEN
        RAISE EXCEPTION 'period % is closed', to_char(its_period.month, 'YYYY-MM')
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'closed_period_stands';
    END IF;
    SELECT extract(year FROM age(its_period.month, own)) * 12 + extract(month FROM age(its_period.month, own))
         - count(*) INTO missed
      FROM billing_ledgerperiod AS p
     WHERE p.organisation_id = NEW.organisation_id AND p.month >= own AND p.month < its_period.month AND p.state = 'closed';
    IF its_period.organisation_id <> NEW.organisation_id OR its_period.month < own OR missed <> 0 THEN
        RAISE EXCEPTION 'an entry belongs to the period of its day, or to the first that is open after it'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'entry_is_in_its_period';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_admit_entry BEFORE INSERT ON billing_ledgerentry
    FOR EACH ROW EXECUTE FUNCTION billing_admit_entry();

-- A session may have a constraint judged before the lines are there, but then it is judged for nothing: none is added to an entry
-- that has them all.
CREATE OR REPLACE FUNCTION billing_await_lines(e billing_ledgerentry) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF e.line_count <> (SELECT count(*) FROM billing_ledgerline AS l WHERE l.entry_id = e.id) THEN
        RAISE EXCEPTION '% is judged with its lines', e.key
            USING ERRCODE = 'check_violation', CONSTRAINT = 'entry_is_judged_with_its_lines';
    END IF;
END $$;

-- At commit: lines balance, are those that the digest covers, and belong to the entry's accounts.
CREATE OR REPLACE FUNCTION billing_judge_entry_text(entry bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    e billing_ledgerentry;
BEGIN
    SELECT * INTO e FROM billing_ledgerentry WHERE id = entry;
    IF EXISTS (SELECT 1 FROM billing_ledgerline WHERE entry_id = entry GROUP BY currency HAVING sum(amount) <> 0) THEN
        RAISE EXCEPTION 'the lines of % do not add up to zero', e.key
            USING ERRCODE = 'check_violation', CONSTRAINT = 'entry_adds_up_to_zero';
    END IF;
    IF e.line_count <> (SELECT count(*) FROM billing_ledgerline WHERE entry_id = entry)
       OR e.digest <> encode(sha256(convert_to(billing_entry_text(entry), 'UTF8')), 'hex') THEN
        RAISE EXCEPTION 'the digest of % is not of its lines', e.key
            USING ERRCODE = 'check_violation', CONSTRAINT = 'entry_is_what_its_digest_says';
    END IF;
    IF EXISTS (
        SELECT 1 FROM billing_ledgerline AS l JOIN billing_ledgeraccount AS a ON a.id = l.account_id
         WHERE l.entry_id = entry AND (a.organisation_id <> e.organisation_id
            OR (e.kind IN ('usage', 'reentry') AND NOT (
                (a.kind = 'tenant_expense' AND a.tenant_id = e.tenant_id)
                OR (a.kind = 'cluster_pool' AND a.cluster_id = e.cluster_id))))
    ) THEN
        RAISE EXCEPTION 'the lines of % are of other accounts', e.key
            USING ERRCODE = 'check_violation', CONSTRAINT = 'line_is_of_its_entrys_accounts';
    END IF;
    IF e.reverses_id IS NOT NULL AND (
        EXISTS (
            SELECT account_id, currency FROM billing_ledgerline WHERE entry_id IN (entry, e.reverses_id)
             GROUP BY account_id, currency HAVING sum(amount) <> 0)
        OR (SELECT (r.organisation_id, r.tenant_id, r.tenant_path, r.cluster_id, r.flavor, r.charge_day)
                   IS DISTINCT FROM (e.organisation_id, e.tenant_id, e.tenant_path, e.cluster_id, e.flavor, e.charge_day)
              FROM billing_ledgerentry AS r WHERE r.id = e.reverses_id)) THEN
        RAISE EXCEPTION '% does not reverse what it says', e.key
            USING ERRCODE = 'check_violation', CONSTRAINT = 'reversal_is_the_opposite';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION billing_judge_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM billing_judge_entry_text(NEW.id);
    IF NEW.tenant_id IS NOT NULL THEN
        PERFORM billing_judge_day(NEW);
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER billing_judge_entry AFTER INSERT ON billing_ledgerentry
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION billing_judge_entry();

CREATE OR REPLACE FUNCTION billing_judge_line() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM billing_judge_entry_text(NEW.entry_id);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER billing_judge_line AFTER INSERT ON billing_ledgerline
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION billing_judge_line();

CREATE OR REPLACE FUNCTION billing_guard_period() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state <> 'open' OR NEW.revision <> 0
           OR NOT EXISTS (SELECT 1 FROM tenancy_tenant WHERE id = NEW.organisation_id AND parent_id IS NULL) THEN
            RAISE EXCEPTION 'a period is of an organisation and begins open'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'period_begins_open';
        END IF;
        RETURN NEW;
    END IF;
    IF (NEW.id, NEW.organisation_id, NEW.month, NEW.created_at)
       IS DISTINCT FROM (OLD.id, OLD.organisation_id, OLD.month, OLD.created_at)
       OR (OLD.state, NEW.state) NOT IN (
           ('open', 'closing'), ('closing', 'open'), ('closing', 'closing'), ('closing', 'closed'), ('closed', 'open'))
       OR NEW.revision <> OLD.revision + (OLD.state = 'closing' AND NEW.state = 'closed')::integer THEN
        RAISE EXCEPTION 'a period goes from open to closing, and from there to closed or back'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'period_goes_its_way';
    END IF;
    IF NEW.state = 'closed' AND (
        NEW.checksum <> billing_period_checksum(NEW.id)
        OR (NEW.month + interval '1 month') AT TIME ZONE 'UTC' > clock_timestamp()
        OR EXISTS (SELECT 1 FROM billing_ledgerperiod AS p
                    WHERE p.organisation_id = NEW.organisation_id AND p.month < NEW.month AND p.state <> 'closed')
        OR EXISTS (SELECT 1 FROM billing_tenantday AS d WHERE d.organisation_id = NEW.organisation_id AND d.is_due
                      AND d.day >= NEW.month AND d.day < NEW.month + interval '1 month')) THEN
        RAISE EXCEPTION 'a period closes with the checksum of its lines, after its end, after those before it, fully posted'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'period_closes_whole';
    END IF;
    IF OLD.state = 'closed' AND (
        NOT EXISTS (SELECT 1 FROM billing_periodreopening AS r
                     WHERE r.period_id = NEW.id AND r.revision = OLD.revision AND r.approved_by_id IS NOT NULL)
        OR EXISTS (SELECT 1 FROM billing_ledgerperiod AS p WHERE p.organisation_id = NEW.organisation_id
                      AND p.month > NEW.month AND p.state = 'closed')) THEN
        RAISE EXCEPTION 'only the last closed period opens again, when two people agreed'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'reopening_is_approved';
    END IF;
    IF OLD.state = 'closed' AND EXISTS (
        SELECT 1 FROM billing_invoice AS i WHERE i.period_id = NEW.id AND i.kind = 'invoice' AND NOT billing_is_credited(i.id)) THEN
        RAISE EXCEPTION 'a month with an invoice opens again only once the invoice is credited in full'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'invoiced_period_stays_closed';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_guard_period BEFORE INSERT OR UPDATE ON billing_ledgerperiod
    FOR EACH ROW EXECUTE FUNCTION billing_guard_period();

CREATE OR REPLACE FUNCTION billing_record_close() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO billing_periodclose (period_id, revision, checksum, closed_by_id, closed_by_name, closed_at)
    VALUES (NEW.id, NEW.revision, NEW.checksum, NEW.closing_by_id, NEW.closing_by_name, NEW.closed_at);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_record_close AFTER UPDATE ON billing_ledgerperiod
    FOR EACH ROW WHEN (NEW.state = 'closed' AND OLD.state <> 'closed') EXECUTE FUNCTION billing_record_close();

CREATE OR REPLACE FUNCTION billing_guard_reopening() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.approved_by_id IS NOT NULL OR NOT EXISTS (
            SELECT 1 FROM billing_ledgerperiod WHERE id = NEW.period_id AND state = 'closed' AND revision = NEW.revision) THEN
            RAISE EXCEPTION 'the reopening of a closed period begins as a request'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'reopening_begins_as_a_request';
        END IF;
    ELSIF OLD.approved_by_id IS NOT NULL
       OR (NEW.id, NEW.period_id, NEW.revision, NEW.reason, NEW.requested_by_id, NEW.requested_by_name, NEW.requested_at)
          IS DISTINCT FROM
          (OLD.id, OLD.period_id, OLD.revision, OLD.reason, OLD.requested_by_id, OLD.requested_by_name, OLD.requested_at) THEN
        RAISE EXCEPTION 'a reopening is only ever approved, once'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'reopening_is_approved_once';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_guard_reopening BEFORE INSERT OR UPDATE ON billing_periodreopening
    FOR EACH ROW EXECUTE FUNCTION billing_guard_reopening();
CREATE OR REPLACE TRIGGER billing_keep_accounts BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_ledgeraccount
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_entries BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_ledgerentry
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_lines BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_ledgerline
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_closes BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_periodclose
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_periods BEFORE DELETE OR TRUNCATE ON billing_ledgerperiod
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_reopenings BEFORE DELETE OR TRUNCATE ON billing_periodreopening
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
