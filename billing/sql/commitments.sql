-- Commitments: what their tables refuse, which days have to be split, and that the ledger agrees with each split.

-- The version that applies to a commitment's whole term.
CREATE OR REPLACE FUNCTION billing_newest_commitment(of_commitment uuid) RETURNS billing_commitmentversion LANGUAGE sql STABLE AS $$
    SELECT v FROM billing_commitmentversion AS v WHERE v.commitment_id = of_commitment ORDER BY v.number DESC LIMIT 1
$$;

-- The times of payment, as billing.engine.commitments.payment_times: the start, and the same time of each month after it.
CREATE OR REPLACE FUNCTION billing_commitment_payments(v billing_commitmentversion) RETURNS SETOF timestamp LANGUAGE sql IMMUTABLE AS $$
    SELECT (v.start AT TIME ZONE 'UTC') + k * interval '1 month'
      FROM generate_series(0, (extract(year FROM age(v.until AT TIME ZONE 'UTC', v.start AT TIME ZONE 'UTC')) * 12 + 12)::integer) AS k
     WHERE (v.start AT TIME ZONE 'UTC') + k * interval '1 month' < v.until AT TIME ZONE 'UTC'
$$;

-- What the payments of a savings plan for the hours until a time amount to, without what is paid at the start for all hours.
CREATE OR REPLACE FUNCTION billing_plan_rest(v billing_commitmentversion, at timestamp) RETURNS numeric LANGUAGE sql IMMUTABLE AS $$
    SELECT div((v.total - v.upfront) * 1000000000000
               * floor(extract(epoch FROM least(at, v.until AT TIME ZONE 'UTC') - v.start AT TIME ZONE 'UTC') / 3600),
               floor(extract(epoch FROM v.until - v.start) / 3600)) * 0.000000000001
$$;

-- What is paid on a day.
CREATE OR REPLACE FUNCTION billing_commitment_paid(v billing_commitmentversion, on_day date) RETURNS numeric LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN v.is_withdrawn THEN 0 WHEN v.kind = 'savings_plan' THEN
        CASE WHEN (v.start AT TIME ZONE 'UTC')::date = on_day THEN v.upfront ELSE 0 END
        + coalesce((SELECT sum(billing_plan_rest(v, coalesce(due.following, v.until AT TIME ZONE 'UTC')) - billing_plan_rest(v, due.at))
                      FROM (SELECT at, lead(at) OVER (ORDER BY at) AS following FROM billing_commitment_payments(v) AS at) AS due
                     WHERE due.at::date = on_day), 0)
        ELSE
        CASE WHEN (v.start AT TIME ZONE 'UTC')::date = on_day THEN v.upfront ELSE 0 END
        + v.recurring * (SELECT count(*) FROM billing_commitment_payments(v) AS at WHERE at::date = on_day) END
$$;

-- What of the total belongs to the hours until a time, as Commitment.amortised counts it: whole hours, rounded down to 10^-12.
CREATE OR REPLACE FUNCTION billing_commitment_reading(v billing_commitmentversion, at timestamp with time zone) RETURNS numeric LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN v.is_withdrawn THEN 0 ELSE
        div(v.total * 1000000000000 * floor(extract(epoch FROM least(greatest(at, v.start), v.until) - v.start) / 3600),
            floor(extract(epoch FROM v.until - v.start) / 3600)) * 0.000000000001 END
$$;

-- Whether these are rates of a savings plan: texts [flavor, capacity type, price above zero], each flavor once, in their order.
CREATE OR REPLACE FUNCTION billing_are_plan_rates(rates jsonb) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF jsonb_typeof(rates) <> 'array' OR jsonb_array_length(rates) = 0 THEN
        RETURN false;
    END IF;
    IF EXISTS (
        SELECT 1 FROM jsonb_array_elements(rates) AS one
         WHERE jsonb_typeof(one) <> 'array' OR jsonb_array_length(one) <> 3 OR jsonb_typeof(one->0) <> 'string'
            OR jsonb_typeof(one->1) <> 'string' OR jsonb_typeof(one->2) <> 'string') THEN
        RETURN false;
    END IF;
    RETURN NOT EXISTS (
        SELECT 1 FROM jsonb_array_elements(rates) AS one
         WHERE one->>0 = '' OR one->>1 = '' OR one->>2 !~ '^[0-9]{1,12}\.[0-9]{6}$' OR one->>2 ~ '^[0.]*$')
       AND (SELECT jsonb_agg(each.of ORDER BY (each.of->>0) COLLATE "C", (each.of->>1) COLLATE "C")
              FROM (SELECT DISTINCT ON (one->>0, one->>1) one AS of FROM jsonb_array_elements(rates) AS one) AS each) = rates;
END $$;

-- Whether a version covers usage of a flavor.
CREATE OR REPLACE FUNCTION billing_covers_flavor(v billing_commitmentversion, of_flavor character varying) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT v.flavor = of_flavor OR (v.kind = 'savings_plan'
        AND EXISTS (SELECT 1 FROM jsonb_array_elements(v.rates) AS one WHERE one->>0 = of_flavor))
$$;

CREATE OR REPLACE FUNCTION billing_admit_commitment() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM tenancy_tenant WHERE id = NEW.organisation_id AND parent_id IS NULL) THEN
        RAISE EXCEPTION 'a commitment is of an organisation'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'commitment_is_of_an_organisation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_admit_commitment BEFORE INSERT ON billing_commitment
    FOR EACH ROW EXECUTE FUNCTION billing_admit_commitment();

-- A version waits for all who rate. Its clusters are the organisation's, its times whole hours, its total all payments.
CREATE OR REPLACE FUNCTION billing_admit_commitment_version() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before billing_commitmentversion := billing_newest_commitment(NEW.commitment_id);
BEGIN
    IF NEW.number <> coalesce(before.number, 0) + 1 OR NEW.currency <> coalesce(before.currency, NEW.currency) THEN
        RAISE EXCEPTION 'versions follow one another, in one currency'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'commitment_versions_follow';
    END IF;
    IF NEW.start <> date_trunc('hour', NEW.start AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
       OR NEW.until <> date_trunc('hour', NEW.until AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
       OR NEW.until > NEW.start + interval '20 years' THEN
        RAISE EXCEPTION 'a term is of whole hours, at most 20 years'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'commitment_term_is_of_whole_hours';
    END IF;
    IF NEW.kind = 'savings_plan' AND (
        NEW.total <> NEW.hourly * extract(epoch FROM NEW.until - NEW.start) / 3600 OR NEW.upfront > NEW.total)
       OR NEW.kind <> 'savings_plan' AND NEW.total <> NEW.upfront + NEW.recurring * (SELECT count(*) FROM billing_commitment_payments(NEW)) THEN
        RAISE EXCEPTION 'the total of a commitment is all that is paid'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'commitment_total_is_paid';
    END IF;
    IF NEW.kind = 'savings_plan' AND NOT billing_are_plan_rates(NEW.rates) THEN
        RAISE EXCEPTION 'a savings plan has a rate for each of its flavors, once, in their order'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'plan_has_its_rates';
    END IF;
    IF cardinality(NEW.clusters) = 0
       OR NEW.clusters <> (SELECT array_agg(DISTINCT id ORDER BY id) FROM unnest(NEW.clusters) AS id)
       OR EXISTS (
        SELECT 1 FROM unnest(NEW.clusters) AS wanted(id)
          LEFT JOIN clusters_cluster AS c ON c.id = wanted.id LEFT JOIN tenancy_tenant AS owner ON owner.id = c.owner_id
         WHERE owner.id IS NULL OR split_part(owner.path, '/', 1) <> (
            SELECT t.path FROM billing_commitment AS own JOIN tenancy_tenant AS t ON t.id = own.organisation_id
             WHERE own.id = NEW.commitment_id)) THEN
        RAISE EXCEPTION 'a commitment names clusters of its organisation, each once, in their order'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'commitment_names_own_clusters';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_a_await_raters BEFORE INSERT ON billing_commitmentversion
    FOR EACH ROW EXECUTE FUNCTION billing_await_raters();
CREATE OR REPLACE TRIGGER billing_b_admit_version BEFORE INSERT ON billing_commitmentversion
    FOR EACH ROW EXECUTE FUNCTION billing_admit_commitment_version();

-- A mark locks the row until its transaction commits, so that who splits the day sees what the mark is for.
CREATE OR REPLACE FUNCTION billing_mark_commitment_days() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO billing_commitmentdueday AS d (organisation_id, day)
    SELECT DISTINCT c.organisation_id, at::date
      FROM billing_commitment AS c JOIN billing_commitmentversion AS v ON v.commitment_id = c.id
     CROSS JOIN LATERAL generate_series(
        date_trunc('day', v.start AT TIME ZONE 'UTC'),
        least(v.until AT TIME ZONE 'UTC' - interval '1 hour', (clock_timestamp() AT TIME ZONE 'UTC')::date - 1), interval '1 day') AS at
     WHERE c.id = NEW.commitment_id ORDER BY 2
    ON CONFLICT (organisation_id, day) DO UPDATE SET marks = d.marks + 1;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_mark_commitment_days AFTER INSERT ON billing_commitmentversion
    FOR EACH ROW EXECUTE FUNCTION billing_mark_commitment_days();

-- The ledger counted a tenant's day: its quantity, price or credits may differ.
CREATE OR REPLACE FUNCTION billing_mark_counted_commitments() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO billing_commitmentdueday AS d (organisation_id, day)
    SELECT DISTINCT c.organisation_id, NEW.day
      FROM billing_commitmentversion AS v JOIN billing_commitment AS c ON c.id = v.commitment_id
     WHERE NEW.cluster_id = ANY (v.clusters) AND billing_covers_flavor(v, NEW.flavor)
       AND v.start < (NEW.day + 1)::timestamp AT TIME ZONE 'UTC' AND v.until > NEW.day::timestamp AT TIME ZONE 'UTC' ORDER BY 1
    ON CONFLICT (organisation_id, day) DO UPDATE SET marks = d.marks + 1;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_mark_counted_commitments AFTER INSERT ON billing_ledgerstep
    FOR EACH ROW EXECUTE FUNCTION billing_mark_counted_commitments();

-- A policy on idle capacity says where the unused part stands. It waits for all who split days: a day that is split for the first time
-- meanwhile is not there yet to be marked.
CREATE OR REPLACE TRIGGER billing_a_await_raters BEFORE INSERT ON billing_sharingpolicy
    FOR EACH ROW EXECUTE FUNCTION billing_await_raters();
CREATE OR REPLACE FUNCTION billing_mark_shared_commitments() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO billing_commitmentdueday AS d (organisation_id, day)
    SELECT DISTINCT c.organisation_id, split.day FROM billing_commitment AS c JOIN billing_commitmentday AS split ON split.commitment_id = c.id
     WHERE c.organisation_id = NEW.organisation_id AND split.day >= NEW.effective_from ORDER BY 2
    ON CONFLICT (organisation_id, day) DO UPDATE SET marks = d.marks + 1;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_mark_shared_commitments AFTER INSERT ON billing_sharingpolicy
    FOR EACH ROW EXECUTE FUNCTION billing_mark_shared_commitments();

CREATE OR REPLACE FUNCTION billing_admit_commitment_day() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.version_id <> (billing_newest_commitment(NEW.commitment_id)).id
       OR NEW.revision <> 1 + coalesce((SELECT max(d.revision) FROM billing_commitmentday AS d
                                         WHERE d.commitment_id = NEW.commitment_id AND d.day = NEW.day), 0) THEN
        RAISE EXCEPTION 'a day is split by the newest version, one revision after the other'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'day_is_split_by_the_newest_version';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_admit_commitment_day BEFORE INSERT ON billing_commitmentday
    FOR EACH ROW EXECUTE FUNCTION billing_admit_commitment_day();

-- The beginning of the keys of its entries. A session may have dates written in another way; keys are not.
CREATE OR REPLACE FUNCTION billing_commitment_prefix(kind text, of_commitment text, on_day date) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT kind || '/' || of_commitment || '/' || to_char(on_day, 'YYYY-MM-DD')
$$;

-- What is posted of a commitment and day: its entries, found by the beginning of their keys, and their reversals.
CREATE OR REPLACE FUNCTION billing_commitment_entries(of_commitment uuid, on_day date)
    RETURNS TABLE(entry_id bigint, kind character varying, organisation_id uuid, charge_day date) LANGUAGE sql STABLE AS $$
    WITH own AS MATERIALIZED (
        SELECT e.id, e.kind, e.organisation_id, e.charge_day
          FROM (VALUES ('commitment'), ('purchase')) AS its(kind)
         CROSS JOIN LATERAL (
            SELECT e.* FROM billing_ledgerentry AS e
             WHERE e.key ~>=~ (billing_commitment_prefix(its.kind, of_commitment::text, on_day) || '/')
               AND e.key ~<~ (billing_commitment_prefix(its.kind, of_commitment::text, on_day) || '0') AND e.kind = its.kind OFFSET 0) AS e
    )
    SELECT own.id, own.kind, own.organisation_id, own.charge_day FROM own
    UNION ALL
    SELECT r.id, own.kind, r.organisation_id, r.charge_day FROM own CROSS JOIN LATERAL (
        SELECT r.* FROM billing_ledgerentry AS r WHERE r.reverses_id = own.id OFFSET 0) AS r
$$;

-- How a day of a commitment differs from what its version costs, from its hours, or from the ledger; no rows if all agree.
CREATE OR REPLACE FUNCTION billing_commitment_errors(of_commitment uuid, on_day date)
    RETURNS TABLE(what text, kept numeric, due numeric) LANGUAGE sql STABLE AS $$
    WITH v AS (
        SELECT v.* FROM billing_commitmentversion AS v WHERE v.commitment_id = of_commitment ORDER BY v.number DESC LIMIT 1
    ), d AS (
        SELECT d.* FROM billing_commitmentday AS d WHERE d.commitment_id = of_commitment AND d.day = on_day ORDER BY d.revision DESC LIMIT 1
    ), due_hour AS (
        SELECT at.hour, billing_commitment_reading(v, at.hour + interval '1 hour') - billing_commitment_reading(v, at.hour) AS amortised,
               CASE WHEN v.kind = 'savings_plan' THEN v.hourly * 1000000000000 ELSE v.units * 3600000000::numeric END AS quantity, true AS is_due
          FROM v CROSS JOIN LATERAL (
            SELECT (on_day + k * interval '1 hour') AT TIME ZONE 'UTC' AS hour FROM generate_series(0, 23) AS k) AS at
         WHERE NOT v.is_withdrawn AND at.hour >= v.start AND at.hour < v.until
    ), kept_hour AS (
        SELECT h.*, true AS is_kept FROM billing_commitmenthour AS h JOIN d ON d.id = h.day_id
    ), posted AS (
        SELECT its.kind, l.account, sum(l.amount) AS amount
          FROM billing_commitment AS c CROSS JOIN billing_commitment_entries(of_commitment, on_day) AS its
         -- One entry after the other: if the planner misjudges how many there are, it reads the whole ledger.
         CROSS JOIN LATERAL (
            SELECT a.kind AS account, l.amount FROM billing_ledgerline AS l JOIN billing_ledgeraccount AS a ON a.id = l.account_id
             WHERE l.entry_id = its.entry_id OFFSET 0) AS l
         WHERE c.id = of_commitment AND its.organisation_id = c.organisation_id AND its.charge_day = on_day
         GROUP BY 1, 2
    ), checked(what, kept, due) AS (
        SELECT 'version', (SELECT version_id FROM d)::numeric,
               (SELECT id FROM v WHERE EXISTS (SELECT 1 FROM d) OR EXISTS (SELECT 1 FROM due_hour))::numeric
        UNION ALL SELECT 'amortised', coalesce((SELECT amortised FROM d), 0), coalesce((SELECT sum(amortised) FROM due_hour), 0)
        UNION ALL SELECT 'quantity', coalesce((SELECT quantity FROM d), 0), coalesce((SELECT sum(quantity) FROM due_hour), 0)
        UNION ALL SELECT 'hours', count(*) FILTER (WHERE is_kept AND is_due), count(*) FROM kept_hour FULL JOIN due_hour USING (hour, amortised, quantity)
        UNION ALL SELECT 'used', coalesce((SELECT used FROM d), 0), coalesce((SELECT sum(used) FROM kept_hour), 0)
        UNION ALL SELECT 'used quantity', coalesce((SELECT used_quantity FROM d), 0), coalesce((SELECT sum(used_quantity) FROM kept_hour), 0)
        UNION ALL SELECT 'used spend', coalesce(sum(used_quantity), 0), coalesce(sum(used) * 1000000000000, 0) FROM kept_hour
                    WHERE (SELECT kind FROM v) = 'savings_plan'
        UNION ALL SELECT 'posted', coalesce((SELECT amortised FROM d), 0),
                         -coalesce((SELECT sum(amount) FROM posted WHERE (kind, account) = ('commitment', 'commitment')), 0)
        UNION ALL SELECT 'posted as unused', coalesce((SELECT unused FROM d), 0),
                         coalesce((SELECT sum(amount) FROM posted WHERE account IN ('commitment_unused', 'idle')), 0)
        UNION ALL SELECT 'paid', coalesce((SELECT sum(amount) FROM posted WHERE (kind, account) = ('purchase', 'commitment')), 0),
                         coalesce((SELECT billing_commitment_paid(v, on_day) FROM v), 0)
    )
    SELECT checked.* FROM checked WHERE checked.kept IS DISTINCT FROM checked.due
$$;

CREATE OR REPLACE FUNCTION billing_judge_commitment(of_commitment uuid, on_day date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    wrong record;
BEGIN
    SELECT * INTO wrong FROM billing_commitment_errors(of_commitment, on_day) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'commitment % on %: % is %, but should be %', of_commitment, on_day, wrong.what, wrong.kept, wrong.due
            USING ERRCODE = 'check_violation', CONSTRAINT = 'commitment_is_used_or_unused';
    END IF;
END $$;

-- At commit, of the days that were split and of the entries that were posted.
CREATE OR REPLACE FUNCTION billing_judge_commitment_day() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM billing_judge_commitment(NEW.commitment_id, NEW.day);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER billing_judge_commitment_day AFTER INSERT ON billing_commitmentday
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION billing_judge_commitment_day();

CREATE OR REPLACE FUNCTION billing_judge_commitment_hour() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM billing_judge_commitment(d.commitment_id, d.day) FROM billing_commitmentday AS d
      WHERE d.id IN (SELECT added.day_id FROM added);
    RETURN NULL;
END $$;
-- Hours are written last, after the entries of their day.
CREATE OR REPLACE TRIGGER billing_judge_commitment_hour AFTER INSERT ON billing_commitmenthour
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_judge_commitment_hour();

-- Whether the same transaction wrote a later entry (or later reversal) of the same commitment and day, whose turn to be judged comes
-- after this one's. Of entries that one command wrote, the last by key is the later one.
CREATE OR REPLACE FUNCTION billing_has_later_entry(entry billing_ledgerentry, its_key text, whole text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    -- What a savepoint protects has its own number, so an entry never relies on one that is rolled back without it.
    own_number xid;
    own_command bigint;
BEGIN
    SELECT e.xmin, e.cmin::text::bigint INTO own_number, own_command FROM billing_ledgerentry AS e WHERE e.id = entry.id;
    IF entry.reverses_id IS NULL THEN
        -- Backwards: entries are mostly posted in the order of their keys, so that the first one read is later.
        PERFORM 1 FROM billing_ledgerentry AS e
          WHERE e.key ~>=~ whole AND e.key ~<~ (left(whole, -1) || '0') AND e.kind = entry.kind AND e.xmin = own_number
            AND (e.cmin::text::bigint > own_command OR e.cmin::text::bigint = own_command AND e.key ~>~ entry.key)
          ORDER BY e.key USING ~>~ LIMIT 1;
    ELSE
        PERFORM 1 FROM billing_ledgerentry AS e JOIN billing_ledgerentry AS r ON r.reverses_id = e.id
          WHERE e.key ~>=~ whole AND e.key ~<~ (left(whole, -1) || '0') AND r.xmin = own_number
            AND (r.cmin::text::bigint > own_command OR r.cmin::text::bigint = own_command AND e.key ~>~ its_key)
          ORDER BY e.key USING ~>~ LIMIT 1;
    END IF;
    RETURN FOUND;
END $$;

CREATE OR REPLACE FUNCTION billing_judge_commitment_entry() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    its_kind character varying := coalesce((SELECT r.kind FROM billing_ledgerentry AS r WHERE r.id = NEW.reverses_id), NEW.kind);
    its_key character varying := coalesce((SELECT r.key FROM billing_ledgerentry AS r WHERE r.id = NEW.reverses_id), NEW.key);
    its_id text := split_part(its_key, '/', 2);
    whole text := billing_commitment_prefix(its_kind, its_id, NEW.charge_day) || '/';
BEGIN
    IF its_kind NOT IN ('commitment', 'purchase') THEN
        RETURN NULL;
    END IF;
    IF NOT starts_with(its_key, whole) OR NOT EXISTS (
        SELECT 1 FROM billing_commitment AS c WHERE c.id::text = its_id AND c.organisation_id = NEW.organisation_id) THEN
        RAISE EXCEPTION '% is of no commitment', NEW.key
            USING ERRCODE = 'check_violation', CONSTRAINT = 'entry_is_of_its_commitment';
    END IF;
    -- A session may have its constraints judged before the lines are there. None is added to an entry that has them all.
    IF NEW.line_count <> (SELECT count(*) FROM billing_ledgerline AS l WHERE l.entry_id = NEW.id) THEN
        RAISE EXCEPTION '% is judged with its lines', NEW.key
            USING ERRCODE = 'check_violation', CONSTRAINT = 'commitment_is_used_or_unused';
    END IF;
    IF EXISTS (
        SELECT 1 FROM billing_ledgerline AS l JOIN billing_ledgeraccount AS a ON a.id = l.account_id
         WHERE l.entry_id = NEW.id AND NOT (
            (its_kind, NEW.flavor, a.kind) IN (
                ('purchase', 'purchased commitment', 'commitment'), ('purchase', 'purchased commitment', 'purchases'),
                ('commitment', 'used commitment', 'commitment'), ('commitment', 'used commitment', 'tenant_expense'),
                ('commitment', 'covered by commitment', 'commitment_covered'), ('commitment', 'covered by commitment', 'tenant_expense'),
                ('commitment', 'unused commitment', 'commitment'), ('commitment', 'unused commitment', 'commitment_unused'),
                ('commitment', 'unused commitment', 'idle')))) THEN
        RAISE EXCEPTION 'the lines of % are of other accounts', NEW.key
            USING ERRCODE = 'check_violation', CONSTRAINT = 'line_is_of_its_entrys_accounts';
    END IF;
    IF NOT billing_has_later_entry(NEW, its_key, whole) THEN
        PERFORM billing_judge_commitment(its_id::uuid, NEW.charge_day);
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER billing_judge_commitment_entry AFTER INSERT ON billing_ledgerentry
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.kind IN ('commitment', 'purchase', 'reversal'))
    EXECUTE FUNCTION billing_judge_commitment_entry();

-- Only entries of commitments move money on their accounts.
CREATE OR REPLACE FUNCTION billing_judge_commitment_lines() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM added AS l JOIN billing_ledgeraccount AS a ON a.id = l.account_id
           AND a.kind IN ('commitment', 'commitment_unused', 'commitment_covered', 'purchases')
          JOIN billing_ledgerentry AS e ON e.id = l.entry_id LEFT JOIN billing_ledgerentry AS r ON r.id = e.reverses_id
         WHERE coalesce(r.kind, e.kind) NOT IN ('commitment', 'purchase')) THEN
        RAISE EXCEPTION 'only commitments move money on their accounts'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'only_commitments_amortise';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER billing_judge_commitment_lines AFTER INSERT ON billing_ledgerline
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_judge_commitment_lines();

-- The days of a month that are not split by what applies; a month closes without any.
CREATE OR REPLACE FUNCTION billing_unsplit(of_organisation uuid, in_month date) RETURNS SETOF date LANGUAGE sql STABLE AS $$
    SELECT d.day FROM billing_commitmentdueday AS d
     WHERE d.organisation_id = of_organisation AND d.day >= in_month AND d.day < (in_month + interval '1 month')::date
    UNION
    SELECT at::date
      FROM billing_commitment AS c CROSS JOIN LATERAL billing_newest_commitment(c.id) AS v
     CROSS JOIN LATERAL generate_series(
        greatest(date_trunc('day', v.start AT TIME ZONE 'UTC'), in_month::timestamp),
        least(v.until AT TIME ZONE 'UTC' - interval '1 hour', in_month + interval '1 month' - interval '1 day'), interval '1 day') AS at
     WHERE c.organisation_id = of_organisation AND NOT v.is_withdrawn
       AND NOT EXISTS (SELECT 1 FROM billing_commitmentday AS d WHERE d.commitment_id = c.id AND d.day = at::date AND d.version_id = v.id)
$$;

CREATE OR REPLACE FUNCTION billing_judge_split_month() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM billing_unsplit(NEW.organisation_id, NEW.month)) OR EXISTS (
        SELECT 1 FROM billing_commitment AS c JOIN billing_commitmentday AS d ON d.commitment_id = c.id
           AND d.day >= NEW.month AND d.day < (NEW.month + interval '1 month')::date
         CROSS JOIN LATERAL billing_commitment_errors(c.id, d.day) WHERE c.organisation_id = NEW.organisation_id) THEN
        RAISE EXCEPTION 'a month closes when every hour of its commitments is used or unused'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'closed_period_splits_commitments';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_judge_split_month BEFORE UPDATE ON billing_ledgerperiod
    FOR EACH ROW WHEN (NEW.state = 'closed' AND OLD.state <> 'closed') EXECUTE FUNCTION billing_judge_split_month();

CREATE OR REPLACE TRIGGER billing_keep_commitments BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_commitment
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_versions BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_commitmentversion
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_splits BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_commitmentday
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
CREATE OR REPLACE TRIGGER billing_keep_split_hours BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_commitmenthour
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
