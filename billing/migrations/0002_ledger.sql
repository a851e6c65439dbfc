-- What the tables of the ledger refuse, whoever writes: PostgreSQL itself judges, in one transaction with the write.

ALTER TABLE billing_pricecorrection ADD CONSTRAINT correction_is_in_whole_milliseconds CHECK (
    date_trunc('milliseconds', lower(span) AT TIME ZONE 'UTC') = lower(span) AT TIME ZONE 'UTC'
    AND date_trunc('milliseconds', upper(span) AT TIME ZONE 'UTC') = upper(span) AT TIME ZONE 'UTC');

-- Sums of a tenant's day. The organisation is the root of the tenant's current path: a tenant never leaves it.
CREATE OR REPLACE FUNCTION billing_add_to_days() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO billing_tenantday AS kept
        (organisation_id, tenant_id, tenant_path, cluster_id, flavor, day, currency, cost, segments)
    SELECT root.id, part.* FROM (
        SELECT m.tenant_id, m.tenant_path, m.cluster_id, m.flavor, (lower(s.period) AT TIME ZONE 'UTC')::date AS day,
               s.currency, sum(s.cost) AS cost, count(*) AS segments
          FROM added AS s JOIN billing_meter AS m ON m.id = s.meter_id GROUP BY 1, 2, 3, 4, 5, 6
    ) AS part JOIN tenancy_tenant AS tenant ON tenant.id = part.tenant_id
      JOIN tenancy_tenant AS root ON root.path = split_part(tenant.path, '/', 1)
     ORDER BY part.tenant_id, part.day, part.cluster_id, part.flavor, part.tenant_path, part.currency
    ON CONFLICT (tenant_id, day, cluster_id, flavor, tenant_path, currency) DO UPDATE
       SET cost = kept.cost + excluded.cost, segments = kept.segments + excluded.segments, is_due = true;
    RETURN NULL;
END $$;
INSERT INTO billing_tenantday
    (organisation_id, tenant_id, tenant_path, cluster_id, flavor, day, currency, cost, segments)
SELECT root.id, part.* FROM (
    SELECT m.tenant_id, m.tenant_path, m.cluster_id, m.flavor, (lower(s.period) AT TIME ZONE 'UTC')::date AS day,
           s.currency, sum(s.cost) AS cost, count(*) AS segments
      FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id GROUP BY 1, 2, 3, 4, 5, 6
) AS part JOIN tenancy_tenant AS tenant ON tenant.id = part.tenant_id
  JOIN tenancy_tenant AS root ON root.path = split_part(tenant.path, '/', 1);
CREATE TRIGGER billing_add_to_days AFTER INSERT ON billing_usagesegment
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_add_to_days();

-- A step counts a day: the day's sums are locked until commit, so that no segment comes in between.
CREATE OR REPLACE FUNCTION billing_take_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM billing_tenantday AS d
      WHERE (d.tenant_id, d.day, d.cluster_id, d.flavor, d.tenant_path)
          = (NEW.tenant_id, NEW.day, NEW.cluster_id, NEW.flavor, NEW.tenant_path)
      ORDER BY d.currency FOR NO KEY UPDATE;
    UPDATE billing_tenantday AS d SET is_due = false
      WHERE (d.tenant_id, d.day, d.cluster_id, d.flavor, d.tenant_path)
          = (NEW.tenant_id, NEW.day, NEW.cluster_id, NEW.flavor, NEW.tenant_path);
    RETURN NULL;
END $$;
CREATE TRIGGER billing_take_step AFTER INSERT ON billing_ledgerstep
    FOR EACH ROW EXECUTE FUNCTION billing_take_step();

CREATE OR REPLACE FUNCTION billing_mark_corrected_days() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    corrected uuid := (SELECT cluster_id FROM billing_rate WHERE id = NEW.rate_id);
BEGIN
    PERFORM 1 FROM billing_tenantday AS d
      WHERE d.cluster_id = corrected AND d.day BETWEEN (lower(NEW.span) AT TIME ZONE 'UTC')::date AND (upper(NEW.span) AT TIME ZONE 'UTC')::date
      ORDER BY d.tenant_id, d.day, d.cluster_id, d.flavor, d.tenant_path, d.currency FOR NO KEY UPDATE;
    UPDATE billing_tenantday AS d SET is_due = true
      WHERE d.cluster_id = corrected AND d.day BETWEEN (lower(NEW.span) AT TIME ZONE 'UTC')::date AND (upper(NEW.span) AT TIME ZONE 'UTC')::date;
    RETURN NULL;
END $$;
CREATE TRIGGER billing_mark_corrected_days AFTER INSERT ON billing_pricecorrection
    FOR EACH ROW EXECUTE FUNCTION billing_mark_corrected_days();

CREATE OR REPLACE FUNCTION billing_judge_correction() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF upper(NEW.span) > clock_timestamp() THEN
        RAISE EXCEPTION 'a correction is of past time'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'correction_is_of_the_past';
    END IF;
    IF NOT EXISTS (SELECT 1 FROM billing_price WHERE rate_id = NEW.rate_id AND currency = NEW.currency) THEN
        RAISE EXCEPTION 'a correction is in the currency of its rate'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'correction_is_in_its_rates_currency';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER billing_judge_correction BEFORE INSERT ON billing_pricecorrection
    FOR EACH ROW EXECUTE FUNCTION billing_judge_correction();

-- What a meter costs in a span within one day, by the prices as they are corrected: the same arithmetic as
-- billing.engine.corrected. Empty currency: no price.
CREATE OR REPLACE FUNCTION billing_corrected(meter bigint, span tstzrange) RETURNS TABLE(currency character varying, cost numeric, milliseconds numeric) LANGUAGE sql STABLE AS $$
    WITH m AS MATERIALIZED (
        SELECT * FROM billing_meter WHERE id = meter
    ), terms AS MATERIALIZED (
        SELECT r.flavor, p.valid, p.unit_price, p.cpu_price, p.memory_price, p.currency, 0::bigint AS number
          FROM m JOIN billing_rate AS r ON r.cluster_id = m.cluster_id AND r.capacity_type = m.capacity_type
               AND r.flavor IN (m.flavor, m.cpu_flavor)
          JOIN billing_price AS p ON p.rate_id = r.id AND p.valid && span
        UNION ALL
        SELECT r.flavor, c.span, c.unit_price, c.cpu_price, c.memory_price, c.currency, c.id
          FROM m JOIN billing_rate AS r ON r.cluster_id = m.cluster_id AND r.capacity_type = m.capacity_type
               AND r.flavor IN (m.flavor, m.cpu_flavor)
          JOIN billing_pricecorrection AS c ON c.rate_id = r.id AND c.span && billing_corrected.span
    ), cuts AS (
        SELECT lower(span) AS at UNION SELECT upper(span)
        UNION SELECT lower(valid) FROM terms WHERE lower(valid) > lower(span) AND lower(valid) < upper(span)
        UNION SELECT upper(valid) FROM terms WHERE upper(valid) > lower(span) AND upper(valid) < upper(span)
    ), pieces AS (
        SELECT at, lead(at) OVER (ORDER BY at) AS until FROM cuts
    )
    SELECT coalesce(chosen.currency, ''), sum(coalesce(billing_cost(
               m.unit = 'core' OR chosen.rank = 2, m.gpu_units, m.cpu_millicores, m.memory_mib, m.metered_from,
               chosen.unit_price, chosen.cpu_price, chosen.memory_price, chosen.valid,
               tstzrange(pieces.at, pieces.until)), 0)),
           sum(trunc(extract(epoch FROM pieces.until - pieces.at) * 1000))
      FROM pieces CROSS JOIN m LEFT JOIN LATERAL (
          SELECT latest.*, rank FROM (
              SELECT DISTINCT ON (terms.flavor) terms.* FROM terms WHERE terms.valid @> pieces.at
               ORDER BY terms.flavor, terms.number DESC
          ) AS latest CROSS JOIN LATERAL billing_rank(
              m.flavor, m.cpu_flavor, m.unit, m.gpu_units, latest.flavor, latest.cpu_price, latest.memory_price) AS rank
          WHERE rank IS NOT NULL ORDER BY rank LIMIT 1
      ) AS chosen ON true
     WHERE pieces.until IS NOT NULL GROUP BY 1
$$;

-- What a tenant's day costs by the corrected prices.
CREATE OR REPLACE FUNCTION billing_day_due(of_tenant uuid, at_path character varying, on_cluster uuid, with_flavor character varying, on_day date) RETURNS TABLE(currency character varying, cost numeric, milliseconds numeric) LANGUAGE sql STABLE AS $$
    SELECT c.currency, sum(c.cost), sum(c.milliseconds)
      FROM billing_meter AS m
      JOIN billing_usagesegment AS s ON int8range(s.meter_id, s.meter_id, '[]') && int8range(m.id, m.id, '[]')
           AND s.period && tstzrange(on_day::timestamp AT TIME ZONE 'UTC', (on_day + 1)::timestamp AT TIME ZONE 'UTC')
     CROSS JOIN LATERAL billing_corrected(m.id, s.period) AS c
     WHERE (m.tenant_id, m.cluster_id, m.flavor, m.tenant_path) = (of_tenant, on_cluster, with_flavor, at_path)
       AND m.metered_from < (on_day + 1)::timestamp AT TIME ZONE 'UTC'
       AND m.metered_until > on_day::timestamp AT TIME ZONE 'UTC'
     GROUP BY 1
$$;

CREATE OR REPLACE FUNCTION billing_account_name(account bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat_ws(':', kind, tenant_id, cluster_id) FROM billing_ledgeraccount WHERE id = account
$$;

-- The canonical text of an entry, as billing.engine.ledger writes it.
CREATE OR REPLACE FUNCTION billing_entry_text(entry bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat_ws(E'\t', e.key, e.kind, e.organisation_id, coalesce(e.tenant_id::text, ''), e.tenant_path,
                     coalesce(e.cluster_id::text, ''), e.flavor, to_char(e.charge_day, 'YYYY-MM-DD'),
                     coalesce((SELECT r.key FROM billing_ledgerentry AS r WHERE r.id = e.reverses_id), ''),
                     coalesce(e.correction_id::text, ''), e.reason)
        || coalesce((SELECT string_agg(E'\n' || named.name || E'\t' || l.currency || E'\t' || l.amount::text, ''
                                       ORDER BY named.name COLLATE "C", l.currency COLLATE "C")
                       FROM billing_ledgerline AS l CROSS JOIN LATERAL billing_account_name(l.account_id) AS named(name)
                      WHERE l.entry_id = e.id), '')
      FROM billing_ledgerentry AS e WHERE e.id = entry
$$;

CREATE OR REPLACE FUNCTION billing_period_checksum(period uuid) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT encode(sha256(convert_to(coalesce(string_agg(
        e.key || E'\t' || to_char(e.charge_day, 'YYYY-MM-DD') || E'\t' || named.name || E'\t' || l.currency || E'\t'
        || l.amount::text || E'\n', '' ORDER BY e.key COLLATE "C", named.name COLLATE "C", l.currency COLLATE "C"), ''),
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
CREATE TRIGGER billing_admit_entry BEFORE INSERT ON billing_ledgerentry
    FOR EACH ROW EXECUTE FUNCTION billing_admit_entry();

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

-- At commit: the ledger of a tenant's day is what its segments cost, and what they cost by the corrected prices.
CREATE OR REPLACE FUNCTION billing_judge_day(e billing_ledgerentry) RETURNS void LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
DECLARE
    is_corrected boolean := EXISTS (
        SELECT 1 FROM billing_rate AS r JOIN billing_pricecorrection AS c ON c.rate_id = r.id
         WHERE r.cluster_id = e.cluster_id AND c.span && tstzrange(
             e.charge_day::timestamp AT TIME ZONE 'UTC', (e.charge_day + 1)::timestamp AT TIME ZONE 'UTC'));
BEGIN
    IF EXISTS (
        SELECT 1 FROM (
            SELECT l.currency, coalesce(sum(l.amount) FILTER (WHERE p.kind = 'usage'), 0) AS used, sum(l.amount) AS charged
              FROM billing_ledgerentry AS p JOIN billing_ledgerline AS l ON l.entry_id = p.id
              JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
             WHERE (p.tenant_id, p.charge_day, p.cluster_id, p.flavor, p.tenant_path)
                 = (e.tenant_id, e.charge_day, e.cluster_id, e.flavor, e.tenant_path) GROUP BY 1
        ) AS posted FULL JOIN (
            SELECT d.currency, d.cost FROM billing_tenantday AS d
             WHERE (d.tenant_id, d.day, d.cluster_id, d.flavor, d.tenant_path)
                 = (e.tenant_id, e.charge_day, e.cluster_id, e.flavor, e.tenant_path) AND d.currency <> ''
        ) AS observed USING (currency) FULL JOIN (
            SELECT due.currency, due.cost
              FROM billing_day_due(e.tenant_id, e.tenant_path, e.cluster_id, e.flavor, e.charge_day) AS due
             WHERE is_corrected AND due.currency <> ''
        ) AS due USING (currency)
        WHERE coalesce(posted.used, 0) <> coalesce(observed.cost, 0)
           OR coalesce(posted.charged, 0) <> CASE WHEN is_corrected THEN coalesce(due.cost, 0) ELSE coalesce(observed.cost, 0) END
    ) THEN
        RAISE EXCEPTION 'the ledger of % is not what its segments cost', e.charge_day
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_is_what_segments_cost';
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
           ('open', 'closing'), ('closing', 'closing'), ('closing', 'closed'), ('closed', 'open'))
       OR NEW.revision <> OLD.revision + (OLD.state = 'closing' AND NEW.state = 'closed')::integer THEN
        RAISE EXCEPTION 'a period goes from open to closing to closed'
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
    RETURN NEW;
END $$;
CREATE TRIGGER billing_guard_period BEFORE INSERT OR UPDATE ON billing_ledgerperiod
    FOR EACH ROW EXECUTE FUNCTION billing_guard_period();

CREATE OR REPLACE FUNCTION billing_record_close() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO billing_periodclose (period_id, revision, checksum, closed_by_id, closed_by_name, closed_at)
    VALUES (NEW.id, NEW.revision, NEW.checksum, NEW.closing_by_id, NEW.closing_by_name, NEW.closed_at);
    RETURN NULL;
END $$;
CREATE TRIGGER billing_record_close AFTER UPDATE ON billing_ledgerperiod
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
CREATE TRIGGER billing_guard_reopening BEFORE INSERT OR UPDATE ON billing_periodreopening
    FOR EACH ROW EXECUTE FUNCTION billing_guard_reopening();

CREATE OR REPLACE FUNCTION billing_guard_conflict() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.resolved_at IS NOT NULL
       OR (NEW.id, NEW.organisation_id, NEW.key, NEW.month, NEW.standing_digest, NEW.offered_digest, NEW.offered, NEW.seen_at)
          IS DISTINCT FROM
          (OLD.id, OLD.organisation_id, OLD.key, OLD.month, OLD.standing_digest, OLD.offered_digest, OLD.offered, OLD.seen_at) THEN
        RAISE EXCEPTION 'a conflict is only ever resolved, once'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'conflict_is_resolved_once';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER billing_guard_conflict BEFORE UPDATE ON billing_postingconflict
    FOR EACH ROW EXECUTE FUNCTION billing_guard_conflict();

CREATE TRIGGER billing_keep_accounts BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_ledgeraccount
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE TRIGGER billing_keep_entries BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_ledgerentry
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE TRIGGER billing_keep_lines BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_ledgerline
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE TRIGGER billing_keep_steps BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_ledgerstep
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE TRIGGER billing_keep_corrections BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_pricecorrection
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE TRIGGER billing_keep_closes BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_periodclose
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE TRIGGER billing_keep_periods BEFORE DELETE OR TRUNCATE ON billing_ledgerperiod
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE TRIGGER billing_keep_reopenings BEFORE DELETE OR TRUNCATE ON billing_periodreopening
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE TRIGGER billing_keep_conflicts BEFORE DELETE OR TRUNCATE ON billing_postingconflict
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE TRIGGER billing_keep_days BEFORE DELETE OR TRUNCATE ON billing_tenantday
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
