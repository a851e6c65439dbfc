-- Holds and their journal, which alone moves what limits hold.

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
       OR (NEW.holder_id, NEW.tenant_id, NEW.user_id, NEW.class_name, NEW.cluster_name, NEW.amounts, NEW.created_at)
          IS DISTINCT FROM
          (OLD.holder_id, OLD.tenant_id, OLD.user_id, OLD.class_name, OLD.cluster_name, OLD.amounts, OLD.created_at) THEN
        RAISE EXCEPTION 'a hold only ever ends, once'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'hold_ends_once';
    END IF;
    IF NEW.ended_at NOT BETWEEN transaction_timestamp() AND clock_timestamp() THEN
        RAISE EXCEPTION 'a hold ends now'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'hold_ends_now';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER quotas_hold_ends BEFORE UPDATE ON quotas_hold
    FOR EACH ROW EXECUTE FUNCTION quotas_guard_hold();
CREATE OR REPLACE TRIGGER quotas_hold_begins BEFORE INSERT ON quotas_hold FOR EACH ROW
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
CREATE OR REPLACE TRIGGER quotas_ended_hold_gave_back AFTER UPDATE ON quotas_hold
    REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION quotas_ended_hold_gave_back();

CREATE OR REPLACE FUNCTION quotas_apply_movements() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
DECLARE
    limits uuid[];
    amounts bigint[];
BEGIN
    -- The order of every lock taker (quotas/locks.py): holds by id, then limits from the leaves up.
    PERFORM 1 FROM quotas_hold WHERE holder_id IN (SELECT hold_id FROM added)
        ORDER BY holder_id FOR NO KEY UPDATE;
    IF EXISTS (SELECT 1 FROM added JOIN quotas_hold AS h ON h.holder_id = added.hold_id WHERE h.state <> 'pending') THEN
        RAISE EXCEPTION 'an ended hold moves nothing'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ended_hold_moves_nothing';
    END IF;
    IF EXISTS (
        SELECT 1 FROM added WHERE added.kind = 'end' AND -added.amount IS DISTINCT FROM (
            SELECT sum(took.amount) FROM quotas_holdmovement AS took
            WHERE took.hold_id = added.hold_id AND took.limit_id = added.limit_id AND took.kind <> 'end')
    ) THEN
        RAISE EXCEPTION 'a hold gives back exactly what it took'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'end_is_minus_its_take';
    END IF;
    SELECT array_agg(one.limit_id), array_agg(one.amount) INTO limits, amounts
        FROM (SELECT limit_id, sum(amount)::bigint AS amount FROM added GROUP BY limit_id) AS one;
    IF limits IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM quotas_change_held(limits, amounts);
    -- The limits are locked now: what is read of them here remains until commit.
    IF EXISTS (
        SELECT 1 FROM added
        JOIN quotas_hold AS h ON h.holder_id = added.hold_id JOIN quotas_quotalimit AS l ON l.id = added.limit_id
        WHERE added.amount > 0 AND (
            (h.amounts ->> l.resource)::bigint IS DISTINCT FROM added.amount
            OR NOT (cardinality(l.clusters) = 0 OR h.cluster_name = ANY (l.clusters)))
    ) OR EXISTS (
        SELECT 1 FROM (
            SELECT DISTINCT h.tenant_id, added.limit_id FROM added JOIN quotas_hold AS h ON h.holder_id = added.hold_id
            WHERE added.amount > 0
        ) AS taken JOIN quotas_quotalimit AS l ON l.id = taken.limit_id
        WHERE l.id IS DISTINCT FROM quotas_nearest_limit(taken.tenant_id, l.resource, l.clusters)
    ) THEN
        RAISE EXCEPTION 'a hold takes what it asked for, at the nearest limits above it'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'take_is_what_was_asked';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_apply_movements AFTER INSERT ON quotas_holdmovement
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION quotas_apply_movements();

CREATE OR REPLACE FUNCTION quotas_given_back_hold_ended() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
BEGIN
    -- A new limit between takes over the line of a pending hold, whole. One that moved may be below no such limit any more.
    IF EXISTS (
        SELECT 1 FROM quotas_hold AS h JOIN quotas_quotalimit AS l ON l.id = NEW.limit_id CROSS JOIN LATERAL (
            SELECT sum(m.amount) AS amount FROM quotas_holdmovement AS m JOIN quotas_quotalimit AS other ON other.id = m.limit_id
            WHERE m.hold_id = h.holder_id AND other.resource = l.resource AND other.clusters = l.clusters) AS counted
        WHERE h.holder_id = NEW.hold_id AND h.state = 'pending' AND (h.amounts ->> l.resource)::bigint <> counted.amount
            AND NOT (NEW.kind = 'move' AND counted.amount = 0
                     AND quotas_nearest_limit(h.tenant_id, l.resource, l.clusters) IS NULL)
    ) THEN
        RAISE EXCEPTION 'a hold that gave something back must end in the same transaction'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'pending_hold_gave_nothing_back';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER quotas_given_back_hold_ended AFTER INSERT ON quotas_holdmovement
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.kind <> 'take')
    EXECUTE FUNCTION quotas_given_back_hold_ended();

CREATE OR REPLACE FUNCTION quotas_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: it is kept as it was written', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'journal_is_append_only';
END $$;
CREATE OR REPLACE TRIGGER quotas_keep_movements BEFORE UPDATE OR DELETE OR TRUNCATE ON quotas_holdmovement
    FOR EACH STATEMENT EXECUTE FUNCTION quotas_keep();
CREATE OR REPLACE TRIGGER quotas_keep_holds BEFORE DELETE OR TRUNCATE ON quotas_hold
    FOR EACH STATEMENT EXECUTE FUNCTION quotas_keep();

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
    -- Holds of one tenant, cluster and amounts are due at the same limits. The journal lets a hold take only at the nearest limit
    -- of a resource and scope and once, so equal numbers prove that none is left out.
    IF EXISTS (
        WITH kinds AS MATERIALIZED (
            SELECT tenant_id, cluster_name, amounts, array_agg(holder_id) AS holders FROM begun
            GROUP BY tenant_id, cluster_name, amounts
        ), due AS MATERIALIZED (
            SELECT kinds.holders, (
                SELECT count(DISTINCT (l.resource, l.clusters)) FROM quotas_tenants_above(kinds.tenant_id) AS up
                JOIN quotas_quotalimit AS l ON l.tenant_id = up.id AND l.removed_at IS NULL
                WHERE (kinds.amounts ->> l.resource)::bigint > 0
                    AND (cardinality(l.clusters) = 0 OR kinds.cluster_name = ANY (l.clusters))) AS takes
            FROM kinds
        )
        SELECT 1 FROM due, unnest(due.holders) AS holder
        WHERE due.takes <> (SELECT count(*) FROM quotas_holdmovement AS m WHERE m.hold_id = holder AND m.kind = 'take')
    ) THEN
        RAISE EXCEPTION 'a hold takes under every limit on its path in the statement that writes it'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'pending_hold_is_counted';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_hold_is_counted AFTER INSERT ON quotas_hold
    REFERENCING NEW TABLE AS begun FOR EACH STATEMENT EXECUTE FUNCTION quotas_hold_is_counted();

CREATE OR REPLACE FUNCTION quotas_line_is_dated_now() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a line of the journal is dated now'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'journal_line_is_dated_now';
END $$;
CREATE OR REPLACE TRIGGER quotas_line_is_dated_now BEFORE INSERT ON quotas_holdmovement FOR EACH ROW
    WHEN (NEW.at NOT BETWEEN transaction_timestamp() AND clock_timestamp())
    EXECUTE FUNCTION quotas_line_is_dated_now();
