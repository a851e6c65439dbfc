-- Limits on what each user may hold at a tenant and below it. What users hold there moves in the statement that begins or ends
-- a hold. A hold has no journal lines for them: the holds themselves are the record.

-- A change of `most` waits for takers, who keep the tenants on their path until commit (quotas_hold_is_counted).
CREATE OR REPLACE FUNCTION quotas_users_take() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    over record;
BEGIN
    IF NOT EXISTS (SELECT FROM quotas_userlimit) THEN
        RETURN NULL;
    END IF;
    PERFORM 1 FROM tenancy_tenant WHERE id IN (
        SELECT up.id FROM (SELECT DISTINCT tenant_id FROM begun) AS own, quotas_tenants_above(own.tenant_id) AS up
    ) ORDER BY id FOR SHARE;
    WITH asked AS MATERIALIZED (
        SELECT b.tenant_id, b.user_id, one.key AS resource, sum(one.value::bigint) AS amount
        FROM begun AS b CROSS JOIN LATERAL jsonb_each(b.amounts) AS one
        WHERE b.user_id IS NOT NULL GROUP BY b.tenant_id, b.user_id, one.key
    ), raised AS (
        INSERT INTO quotas_userholding AS own (limit_id, user_id, held)
        SELECT l.id, asked.user_id, sum(asked.amount)::bigint FROM asked
            CROSS JOIN LATERAL quotas_tenants_above(asked.tenant_id) AS up
            JOIN quotas_userlimit AS l ON l.tenant_id = up.id AND l.resource = asked.resource
            WHERE asked.amount > 0 GROUP BY l.id, asked.user_id ORDER BY l.id, asked.user_id
        ON CONFLICT (limit_id, user_id) DO UPDATE SET held = own.held + excluded.held
        RETURNING own.limit_id, own.user_id, own.held
    )
    SELECT raised.user_id, raised.held, l.most INTO over FROM raised JOIN quotas_userlimit AS l ON l.id = raised.limit_id
        WHERE raised.held > l.most LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'user % would hold % of %', over.user_id, over.held, over.most
            USING ERRCODE = 'check_violation', CONSTRAINT = 'user_limit_is_never_exceeded';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_users_take AFTER INSERT ON quotas_hold
    REFERENCING NEW TABLE AS begun FOR EACH STATEMENT EXECUTE FUNCTION quotas_users_take();

CREATE OR REPLACE FUNCTION quotas_users_give_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM quotas_userlimit) THEN
        RETURN NULL;
    END IF;
    PERFORM 1 FROM quotas_userholding AS own WHERE (own.limit_id, own.user_id) IN (
        SELECT l.id, e.user_id FROM (SELECT DISTINCT tenant_id, user_id FROM ended WHERE user_id IS NOT NULL) AS e
            CROSS JOIN LATERAL quotas_tenants_above(e.tenant_id) AS up JOIN quotas_userlimit AS l ON l.tenant_id = up.id
    ) ORDER BY own.limit_id, own.user_id FOR NO KEY UPDATE;
    WITH freed AS MATERIALIZED (
        SELECT l.id AS limit_id, e.user_id, sum(one.value::bigint)::bigint AS amount
        FROM ended AS e CROSS JOIN LATERAL jsonb_each(e.amounts) AS one
        CROSS JOIN LATERAL quotas_tenants_above(e.tenant_id) AS up
        JOIN quotas_userlimit AS l ON l.tenant_id = up.id AND l.resource = one.key
        WHERE e.user_id IS NOT NULL GROUP BY l.id, e.user_id
    )
    UPDATE quotas_userholding AS own SET held = own.held - freed.amount
        FROM freed WHERE own.limit_id = freed.limit_id AND own.user_id = freed.user_id AND freed.amount > 0;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_users_give_back AFTER UPDATE ON quotas_hold
    REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION quotas_users_give_back();

CREATE OR REPLACE FUNCTION quotas_guard_user_limit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (NEW.id, NEW.tenant_id, NEW.resource) IS DISTINCT FROM (OLD.id, OLD.tenant_id, OLD.resource) THEN
        RAISE EXCEPTION 'what a limit is for never changes'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'user_limit_identity_is_fixed';
    END IF;
    -- Waits for takers whose holds this limit must count, and keeps new ones out until commit.
    PERFORM 1 FROM tenancy_tenant WHERE id = (CASE TG_OP WHEN 'DELETE' THEN OLD.tenant_id ELSE NEW.tenant_id END)
        FOR NO KEY UPDATE;
    IF TG_OP = 'DELETE' THEN
        DELETE FROM quotas_userholding WHERE limit_id = OLD.id;
        RETURN OLD;
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER quotas_guard_user_limit BEFORE INSERT OR UPDATE OR DELETE ON quotas_userlimit
    FOR EACH ROW EXECUTE FUNCTION quotas_guard_user_limit();

CREATE OR REPLACE FUNCTION quotas_count_users() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Waits for holds that are ending, so that each is counted until it has ended.
    PERFORM 1 FROM quotas_hold AS h JOIN tenancy_tenant AS t ON t.id = h.tenant_id
        JOIN tenancy_tenant AS lt ON lt.id = NEW.tenant_id
        WHERE h.state = 'pending' AND (t.path = lt.path OR starts_with(t.path, lt.path || '/'))
        ORDER BY h.holder_id FOR NO KEY UPDATE OF h;
    INSERT INTO quotas_userholding (limit_id, user_id, held)
        SELECT NEW.id, h.user_id, sum((h.amounts ->> NEW.resource)::bigint)::bigint FROM quotas_hold AS h
        JOIN tenancy_tenant AS t ON t.id = h.tenant_id JOIN tenancy_tenant AS lt ON lt.id = NEW.tenant_id
        WHERE h.state = 'pending' AND h.user_id IS NOT NULL AND (h.amounts ->> NEW.resource)::bigint > 0
            AND (t.path = lt.path OR starts_with(t.path, lt.path || '/'))
        GROUP BY h.user_id;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_count_users AFTER INSERT ON quotas_userlimit FOR EACH ROW EXECUTE FUNCTION quotas_count_users();

CREATE OR REPLACE FUNCTION quotas_guard_user_holding() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() = 1 AND (TG_OP <> 'INSERT' OR NEW.held <> 0) THEN
        RAISE EXCEPTION 'what a user holds moves only with holds'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'user_holding_moves_with_holds';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;
CREATE OR REPLACE TRIGGER quotas_guard_user_holding BEFORE INSERT OR UPDATE OR DELETE ON quotas_userholding
    FOR EACH ROW EXECUTE FUNCTION quotas_guard_user_holding();

-- Limits on submission: a bucket of tokens for each, one for a job, which is full after a minute. Rows of limits are locked by
-- id, and only where such a limit applies.
CREATE OR REPLACE FUNCTION quotas_tokens_left(tokens double precision, at timestamptz, rate integer, clock timestamptz)
    RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT least(rate, tokens + greatest(0, extract(epoch FROM clock - at)::double precision) * rate / 60)
$$;

CREATE OR REPLACE FUNCTION quotas_guard_submission_limit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() > 1 THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'INSERT' THEN
        NEW.tokens := coalesce(NEW.jobs_per_minute, 0);
        NEW.tokens_at := clock_timestamp();
        RETURN NEW;
    END IF;
    IF (NEW.id, NEW.tenant_id, NEW.tokens, NEW.tokens_at) IS DISTINCT FROM (OLD.id, OLD.tenant_id, OLD.tokens, OLD.tokens_at) THEN
        RAISE EXCEPTION 'tokens move only with jobs, and the tenant of a limit never changes'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'submission_tokens_move_with_jobs';
    END IF;
    IF NEW.jobs_per_minute IS DISTINCT FROM OLD.jobs_per_minute THEN
        NEW.tokens := coalesce(least(NEW.jobs_per_minute,
            coalesce(quotas_tokens_left(OLD.tokens, OLD.tokens_at, OLD.jobs_per_minute, clock_timestamp()),
                NEW.jobs_per_minute)), 0);
        NEW.tokens_at := clock_timestamp();
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER quotas_guard_submission_limit BEFORE INSERT OR UPDATE ON quotas_submissionlimit
    FOR EACH ROW EXECUTE FUNCTION quotas_guard_submission_limit();

-- Takes a token for each new job of each tenant at every limit above it, or raises with the seconds to wait. `clock` may be
-- from before a wait for a lock: the time of a bucket never goes back, so none fills twice.
CREATE OR REPLACE FUNCTION quotas_spend_submissions(tenants uuid[], numbers integer[], clock timestamptz)
    RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    over record;
BEGIN
    PERFORM 1 FROM quotas_submissionlimit WHERE tenant_id IN (
        SELECT up.id FROM unnest(tenants) AS tenant, quotas_tenants_above(tenant) AS up
    ) ORDER BY id FOR NO KEY UPDATE;
    WITH asked AS MATERIALIZED (
        SELECT l.id, sum(arrived.number) AS number FROM unnest(tenants, numbers) AS arrived(tenant, number)
        CROSS JOIN LATERAL quotas_tenants_above(arrived.tenant) AS up
        JOIN quotas_submissionlimit AS l ON l.tenant_id = up.id WHERE l.jobs_per_minute IS NOT NULL GROUP BY l.id
    ), spent AS (
        SELECT l.id, l.tenant_id, l.jobs_per_minute AS rate, asked.number,
            quotas_tokens_left(l.tokens, l.tokens_at, l.jobs_per_minute, clock) - asked.number AS rest
        FROM asked JOIN quotas_submissionlimit AS l ON l.id = asked.id
    ), kept AS (
        UPDATE quotas_submissionlimit AS l SET tokens = greatest(0, spent.rest), tokens_at = greatest(l.tokens_at, clock)
        FROM spent WHERE l.id = spent.id
    )
    SELECT t.path, spent.rate, spent.number, ceil(-spent.rest * 60 / spent.rate)::bigint AS seconds INTO over
        FROM spent JOIN tenancy_tenant AS t ON t.id = spent.tenant_id WHERE spent.rest < -1e-6
        ORDER BY spent.rest / spent.rate LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% jobs are more than % may submit now', over.number, over.path
            USING ERRCODE = 'check_violation', CONSTRAINT = 'submission_rate_is_kept', DETAIL = json_build_object(
                'tenant', over.path, 'most', over.rate, 'asked', over.number, 'seconds', over.seconds)::text;
    END IF;
END $$;
