-- What the tables of this room refuse, whoever writes: PostgreSQL itself judges, in one transaction with the write.

-- The path of each tenant from itself to its root, as it is now.
CREATE OR REPLACE FUNCTION quotas_tenants_above(tenant uuid) RETURNS TABLE(id uuid) LANGUAGE sql STABLE AS $$
    WITH RECURSIVE up AS (
        SELECT t.id, t.parent_id FROM tenancy_tenant AS t WHERE t.id = tenant
        UNION ALL SELECT t.id, t.parent_id FROM up JOIN tenancy_tenant AS t ON t.id = up.parent_id
    ) SELECT up.id FROM up
$$;

CREATE OR REPLACE FUNCTION quotas_guard_limit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    by_journal boolean := pg_trigger_depth() > 1;
BEGIN
    IF NEW.clusters IS DISTINCT FROM
       ARRAY(SELECT DISTINCT name COLLATE "C" FROM unnest(NEW.clusters) AS name ORDER BY 1)::varchar[] THEN
        RAISE EXCEPTION 'cluster names of a limit are sorted and distinct'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_scope_is_sorted';
    END IF;
    IF TG_OP = 'INSERT' THEN
        IF NEW.held <> 0 OR NEW.removed_at IS NOT NULL OR NEW.cap <> NEW.nominal THEN
            RAISE EXCEPTION 'a limit begins with nothing held'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_begins_empty';
        END IF;
        RETURN NEW;
    END IF;
    IF (NEW.id, NEW.tenant_id, NEW.resource, NEW.clusters) IS DISTINCT FROM (OLD.id, OLD.tenant_id, OLD.resource, OLD.clusters)
       OR (OLD.removed_at IS NOT NULL AND NEW.removed_at IS DISTINCT FROM OLD.removed_at) THEN
        RAISE EXCEPTION 'what a limit is for never changes, and a removed limit does not return'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_identity_is_fixed';
    END IF;
    IF by_journal THEN
        RETURN NEW;
    END IF;
    IF NEW.held <> OLD.held OR (NEW.cap <> OLD.cap AND NEW.cap <> greatest(NEW.nominal, NEW.held)) THEN
        RAISE EXCEPTION 'held and cap of a limit move only through the journal'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_held_moves_by_journal';
    END IF;
    NEW.cap := greatest(NEW.nominal, NEW.held);
    RETURN NEW;
END $$;
CREATE TRIGGER quotas_guard_limit BEFORE INSERT OR UPDATE ON quotas_quotalimit
    FOR EACH ROW EXECUTE FUNCTION quotas_guard_limit();

CREATE OR REPLACE FUNCTION quotas_guard_hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state <> 'pending' THEN
            RAISE EXCEPTION 'a hold begins pending'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'hold_begins_pending';
        END IF;
        RAISE EXCEPTION 'a hold begins now'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'hold_begins_now';
    END IF;
    IF OLD.state <> 'pending' OR NEW.state NOT IN ('posted', 'voided')
       OR (NEW.holder_id, NEW.tenant_id, NEW.cluster_name, NEW.amounts, NEW.created_at)
          IS DISTINCT FROM (OLD.holder_id, OLD.tenant_id, OLD.cluster_name, OLD.amounts, OLD.created_at) THEN
        RAISE EXCEPTION 'a hold only ever ends, once'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'hold_ends_once';
    END IF;
    IF NEW.ended_at NOT BETWEEN transaction_timestamp() AND clock_timestamp() THEN
        RAISE EXCEPTION 'a hold ends now'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'hold_ends_now';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER quotas_hold_ends BEFORE UPDATE ON quotas_hold
    FOR EACH ROW EXECUTE FUNCTION quotas_guard_hold();
CREATE TRIGGER quotas_hold_begins BEFORE INSERT ON quotas_hold FOR EACH ROW
    WHEN (NEW.state <> 'pending' OR NEW.created_at NOT BETWEEN transaction_timestamp() AND clock_timestamp())
    EXECUTE FUNCTION quotas_guard_hold();

CREATE OR REPLACE FUNCTION quotas_ended_hold_gave_back() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
BEGIN
    -- Each end mirrors its take, so what is missing shows in the sum.
    IF EXISTS (
        SELECT 1 FROM ended
        WHERE (SELECT sum(amount) FROM quotas_holdmovement AS m WHERE m.hold_id = ended.holder_id) <> 0
    ) THEN
        RAISE EXCEPTION 'a hold ends only after everything it took was given back'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ended_hold_gave_back_all';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER quotas_ended_hold_gave_back AFTER UPDATE ON quotas_hold
    REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION quotas_ended_hold_gave_back();

CREATE OR REPLACE FUNCTION quotas_apply_movements() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
BEGIN
    -- The order of every lock taker (quotas/locks.py): holds by id, then limits from the root down.
    PERFORM 1 FROM quotas_hold WHERE holder_id IN (SELECT hold_id FROM added)
        ORDER BY holder_id FOR NO KEY UPDATE;
    PERFORM 1 FROM quotas_quotalimit AS l JOIN tenancy_tenant AS t ON t.id = l.tenant_id
        WHERE l.id IN (SELECT limit_id FROM added) ORDER BY t.depth, l.id FOR NO KEY UPDATE OF l;
    IF EXISTS (SELECT 1 FROM added JOIN quotas_hold AS h ON h.holder_id = added.hold_id WHERE h.state <> 'pending') THEN
        RAISE EXCEPTION 'an ended hold moves nothing'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ended_hold_moves_nothing';
    END IF;
    IF EXISTS (
        SELECT 1 FROM added
        JOIN quotas_hold AS h ON h.holder_id = added.hold_id JOIN tenancy_tenant AS ht ON ht.id = h.tenant_id
        JOIN quotas_quotalimit AS l ON l.id = added.limit_id JOIN tenancy_tenant AS lt ON lt.id = l.tenant_id
        WHERE added.kind = 'take' AND (
            l.removed_at IS NOT NULL
            OR (h.amounts ->> l.resource)::bigint IS DISTINCT FROM added.amount
            OR NOT (ht.path = lt.path OR starts_with(ht.path, lt.path || '/'))
            OR NOT (cardinality(l.clusters) = 0 OR h.cluster_name = ANY (l.clusters)))
    ) THEN
        RAISE EXCEPTION 'a hold takes what it asked for, at limits on its own path'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'take_is_what_was_asked';
    END IF;
    IF EXISTS (
        SELECT 1 FROM added WHERE added.kind = 'end' AND -added.amount IS DISTINCT FROM (
            SELECT take.amount FROM quotas_holdmovement AS take
            WHERE take.hold_id = added.hold_id AND take.limit_id = added.limit_id AND take.kind = 'take')
    ) THEN
        RAISE EXCEPTION 'a hold gives back exactly what it took'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'end_is_minus_its_take';
    END IF;
    -- `cap` never grows here, so that CHECK (held <= cap) refuses every overshoot.
    UPDATE quotas_quotalimit AS l
        SET held = l.held + moved.amount, cap = least(l.cap, greatest(l.nominal, l.held + moved.amount))
        FROM (SELECT limit_id, sum(amount)::bigint AS amount FROM added GROUP BY limit_id) AS moved
        WHERE moved.limit_id = l.id;
    RETURN NULL;
END $$;
CREATE TRIGGER quotas_apply_movements AFTER INSERT ON quotas_holdmovement
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION quotas_apply_movements();

CREATE OR REPLACE FUNCTION quotas_given_back_hold_ended() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM quotas_hold WHERE holder_id = NEW.hold_id AND state = 'pending') THEN
        RAISE EXCEPTION 'a hold that gave something back must end in the same transaction'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'pending_hold_gave_nothing_back';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER quotas_given_back_hold_ended AFTER INSERT ON quotas_holdmovement
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.kind = 'end')
    EXECUTE FUNCTION quotas_given_back_hold_ended();

CREATE OR REPLACE FUNCTION quotas_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: it is kept as it was written', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'journal_is_append_only';
END $$;
CREATE TRIGGER quotas_keep_movements BEFORE UPDATE OR DELETE OR TRUNCATE ON quotas_holdmovement
    FOR EACH STATEMENT EXECUTE FUNCTION quotas_keep();
CREATE TRIGGER quotas_keep_holds BEFORE DELETE OR TRUNCATE ON quotas_hold
    FOR EACH STATEMENT EXECUTE FUNCTION quotas_keep();

CREATE OR REPLACE FUNCTION quotas_keep_tenant_in_place() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM quotas_hold AS h JOIN tenancy_tenant AS t ON t.id = h.tenant_id
        WHERE h.state = 'pending' AND (t.path IN (OLD.path, NEW.path)
            OR starts_with(t.path, OLD.path || '/') OR starts_with(t.path, NEW.path || '/'))
    ) THEN
        RAISE EXCEPTION 'tenant % has pending holds and stays where it is', OLD.path
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'tenant_with_pending_holds_stays';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER quotas_keep_tenant_in_place AFTER UPDATE ON tenancy_tenant
    FOR EACH ROW WHEN (OLD.parent_id IS DISTINCT FROM NEW.parent_id) EXECUTE FUNCTION quotas_keep_tenant_in_place();

-- Runs at the end of the statement, so a hold and its takes come in one statement (a CTE).
CREATE OR REPLACE FUNCTION quotas_hold_is_counted() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
BEGIN
    -- Until commit nobody moves the tenants on the path or puts a limit on them (quotas/locks.py takes the same locks).
    PERFORM 1 FROM tenancy_tenant WHERE id IN (
        SELECT up.id FROM (SELECT DISTINCT tenant_id FROM begun) AS own, quotas_tenants_above(own.tenant_id) AS up
    ) ORDER BY id FOR SHARE;
    -- Holds of one tenant, cluster and amounts are due at the same limits. The journal lets a hold take only where it is due
    -- and once, so equal numbers prove that none is left out.
    IF EXISTS (
        WITH kinds AS MATERIALIZED (
            SELECT tenant_id, cluster_name, amounts, array_agg(holder_id) AS holders FROM begun
            GROUP BY tenant_id, cluster_name, amounts
        ), due AS MATERIALIZED (
            SELECT kinds.holders, (
                SELECT count(*) FROM quotas_tenants_above(kinds.tenant_id) AS up
                JOIN quotas_quotalimit AS l ON l.tenant_id = up.id AND l.removed_at IS NULL
                WHERE (kinds.amounts ->> l.resource)::bigint > 0
                    AND (cardinality(l.clusters) = 0 OR kinds.cluster_name = ANY (l.clusters))) AS takes
            FROM kinds
        )
        SELECT 1 FROM due, unnest(due.holders) AS holder
        WHERE due.takes <> (SELECT count(*) FROM quotas_holdmovement AS m WHERE m.hold_id = holder AND m.kind = 'take')
    ) THEN
        RAISE EXCEPTION 'a hold takes at every limit on its path in the statement that writes it'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'pending_hold_is_counted';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER quotas_hold_is_counted AFTER INSERT ON quotas_hold
    REFERENCING NEW TABLE AS begun FOR EACH STATEMENT EXECUTE FUNCTION quotas_hold_is_counted();

-- Waits for takers whose holds this limit must count; keeps new ones out until commit.
CREATE OR REPLACE FUNCTION quotas_stop_takers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM tenancy_tenant WHERE id = NEW.tenant_id FOR NO KEY UPDATE;
    RETURN NULL;
END $$;
CREATE TRIGGER quotas_limit_stops_takers AFTER INSERT ON quotas_quotalimit
    FOR EACH ROW EXECUTE FUNCTION quotas_stop_takers();

CREATE OR REPLACE FUNCTION quotas_limit_counts_what_is_held() RETURNS trigger LANGUAGE plpgsql
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM tenancy_tenant AS lt
        JOIN tenancy_tenant AS t ON t.path = lt.path OR starts_with(t.path, lt.path || '/')
        JOIN quotas_hold AS h ON h.tenant_id = t.id AND h.state = 'pending'
        WHERE lt.id = NEW.tenant_id AND (h.amounts ->> NEW.resource)::bigint > 0
            AND (cardinality(NEW.clusters) = 0 OR h.cluster_name = ANY (NEW.clusters))
            AND NOT EXISTS (SELECT 1 FROM quotas_holdmovement AS m
                WHERE m.hold_id = h.holder_id AND m.limit_id = NEW.id AND m.kind = 'take')
    ) AND EXISTS (SELECT 1 FROM quotas_quotalimit WHERE id = NEW.id AND removed_at IS NULL) THEN
        RAISE EXCEPTION 'a new limit counts the pending holds below it'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'limit_counts_what_is_held';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER quotas_limit_counts_what_is_held AFTER INSERT ON quotas_quotalimit
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION quotas_limit_counts_what_is_held();

CREATE OR REPLACE FUNCTION quotas_line_is_dated_now() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a line of the journal is dated now'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'journal_line_is_dated_now';
END $$;
CREATE TRIGGER quotas_line_is_dated_now BEFORE INSERT ON quotas_holdmovement FOR EACH ROW
    WHEN (NEW.at NOT BETWEEN transaction_timestamp() AND clock_timestamp())
    EXECUTE FUNCTION quotas_line_is_dated_now();
