-- Limits on what all work of a class may hold: in all tenants together (without `tenant_id`), or at a tenant and below it. What it
-- holds moves in the statement that begins or ends a hold, as for users (people.sql), and after what users hold: by their names,
-- these triggers run after those, and after the one that locks the tenants on the path of new holds (quotas_hold_is_counted).

-- Locks these limits from the leaves up, and last those of all tenants; then changes what they hold.
CREATE OR REPLACE FUNCTION quotas_change_held_of_classes(limits uuid[], amounts bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    over record;
BEGIN
    IF limits IS NULL THEN
        RETURN;
    END IF;
    PERFORM 1 FROM quotas_classlimit AS l LEFT JOIN tenancy_tenant AS t ON t.id = l.tenant_id
        WHERE l.id = ANY (limits) ORDER BY t.depth DESC NULLS LAST, l.id FOR NO KEY UPDATE OF l;
    WITH changed AS (
        UPDATE quotas_classlimit AS l SET held = l.held + due.amount FROM unnest(limits, amounts) AS due(id, amount)
        WHERE l.id = due.id
        RETURNING l.tenant_id, l.class_name, l.resource, l.held, l.most, due.amount
    )
    SELECT changed.*, coalesce(' in ' || t.path, '') AS place INTO over
        FROM changed LEFT JOIN tenancy_tenant AS t ON t.id = changed.tenant_id
        WHERE changed.amount > 0 AND changed.held > changed.most LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the class % would hold % of % %', over.class_name, over.held, over.most, over.resource || over.place
            USING ERRCODE = 'check_violation', CONSTRAINT = 'class_limit_is_never_exceeded';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION quotas_work_of_class_takes() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    limits uuid[];
    amounts bigint[];
BEGIN
    IF NOT EXISTS (SELECT FROM quotas_classlimit) THEN
        RETURN NULL;
    END IF;
    WITH asked AS MATERIALIZED (
        SELECT b.tenant_id, b.class_name, one.key AS resource, sum(one.value::bigint) AS amount
        FROM begun AS b CROSS JOIN LATERAL jsonb_each(b.amounts) AS one
        WHERE b.class_name <> '' AND one.value::bigint > 0 GROUP BY b.tenant_id, b.class_name, one.key
    ), due AS (
        SELECT l.id, sum(asked.amount)::bigint AS amount FROM asked
        JOIN quotas_classlimit AS l ON l.class_name = asked.class_name AND l.resource = asked.resource
        WHERE l.tenant_id IS NULL OR l.tenant_id IN (SELECT up.id FROM quotas_tenants_above(asked.tenant_id) AS up)
        GROUP BY l.id
    )
    SELECT array_agg(due.id), array_agg(due.amount) INTO limits, amounts FROM due;
    PERFORM quotas_change_held_of_classes(limits, amounts);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_work_of_class_takes AFTER INSERT ON quotas_hold
    REFERENCING NEW TABLE AS begun FOR EACH STATEMENT EXECUTE FUNCTION quotas_work_of_class_takes();

CREATE OR REPLACE FUNCTION quotas_work_of_class_gives_back() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    limits uuid[];
    amounts bigint[];
BEGIN
    IF NOT EXISTS (SELECT FROM quotas_classlimit) THEN
        RETURN NULL;
    END IF;
    WITH freed AS MATERIALIZED (
        SELECT e.tenant_id, e.class_name, one.key AS resource, sum(one.value::bigint) AS amount
        FROM ended AS e CROSS JOIN LATERAL jsonb_each(e.amounts) AS one
        WHERE e.class_name <> '' AND one.value::bigint > 0 GROUP BY e.tenant_id, e.class_name, one.key
    ), due AS (
        SELECT l.id, -sum(freed.amount)::bigint AS amount FROM freed
        JOIN quotas_classlimit AS l ON l.class_name = freed.class_name AND l.resource = freed.resource
        WHERE l.tenant_id IS NULL OR l.tenant_id IN (SELECT up.id FROM quotas_tenants_above(freed.tenant_id) AS up)
        GROUP BY l.id
    )
    SELECT array_agg(due.id), array_agg(due.amount) INTO limits, amounts FROM due;
    PERFORM quotas_change_held_of_classes(limits, amounts);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_work_of_class_gives_back AFTER UPDATE ON quotas_hold
    REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION quotas_work_of_class_gives_back();

-- What a moved tenant and those below it hold leaves the limits above the old place, and counts at those above the new one. By its
-- name, this runs after quotas_holds_follow_tenant, which locks the tenants and holds and refuses two moves in one statement, and
-- after quotas_limits_follow_tenant: limits of classes are locked after quota limits.
CREATE OR REPLACE FUNCTION quotas_work_of_class_follows_tenant() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    limits uuid[];
    amounts bigint[];
BEGIN
    IF NOT EXISTS (SELECT FROM quotas_classlimit WHERE tenant_id IS NOT NULL) THEN
        RETURN NULL;
    END IF;
    WITH RECURSIVE under AS (
        SELECT NEW.id UNION ALL SELECT t.id FROM under JOIN tenancy_tenant AS t ON t.parent_id = under.id
    ), held AS MATERIALIZED (
        SELECT h.class_name, one.key AS resource, sum(one.value::bigint) AS amount
        FROM quotas_hold AS h CROSS JOIN LATERAL jsonb_each(h.amounts) AS one
        WHERE h.tenant_id IN (SELECT id FROM under) AND h.state = 'pending' AND h.class_name <> '' AND one.value::bigint > 0
        GROUP BY h.class_name, one.key
    ), sides AS (
        SELECT up.id, -1 AS sign FROM quotas_tenants_above(OLD.parent_id) AS up
        UNION ALL SELECT up.id, 1 FROM quotas_tenants_above(NEW.parent_id) AS up
    ), due AS (
        SELECT l.id, sum(sides.sign * held.amount)::bigint AS amount
        FROM sides JOIN quotas_classlimit AS l ON l.tenant_id = sides.id
        JOIN held ON held.class_name = l.class_name AND held.resource = l.resource
        GROUP BY l.id HAVING sum(sides.sign) <> 0
    )
    SELECT array_agg(due.id), array_agg(due.amount) INTO limits, amounts FROM due;
    PERFORM quotas_change_held_of_classes(limits, amounts);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_work_of_class_follows_tenant AFTER UPDATE ON tenancy_tenant
    FOR EACH ROW WHEN (OLD.parent_id IS DISTINCT FROM NEW.parent_id) EXECUTE FUNCTION quotas_work_of_class_follows_tenant();

CREATE OR REPLACE FUNCTION quotas_guard_class_limit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        -- Waits for all holds that are beginning or ending where the limit counts, and keeps others from it until commit, so that
        -- each is counted once. Who begins one locks the tenants on its path; a limit of all tenants has none, so it locks all holds.
        IF NEW.tenant_id IS NULL THEN
            LOCK TABLE quotas_hold IN SHARE ROW EXCLUSIVE MODE;
            NEW.held := (SELECT coalesce(sum((h.amounts ->> NEW.resource)::bigint), 0) FROM quotas_hold AS h
                WHERE h.state = 'pending' AND h.class_name = NEW.class_name);
            RETURN NEW;
        END IF;
        PERFORM 1 FROM tenancy_tenant WHERE id = NEW.tenant_id FOR NO KEY UPDATE;
        PERFORM 1 FROM quotas_hold AS h JOIN tenancy_tenant AS t ON t.id = h.tenant_id
            JOIN tenancy_tenant AS lt ON lt.id = NEW.tenant_id
            WHERE h.state = 'pending' AND (t.path = lt.path OR starts_with(t.path, lt.path || '/'))
            ORDER BY h.holder_id FOR NO KEY UPDATE OF h;
        NEW.held := (SELECT coalesce(sum((h.amounts ->> NEW.resource)::bigint), 0) FROM quotas_hold AS h
            JOIN tenancy_tenant AS t ON t.id = h.tenant_id JOIN tenancy_tenant AS lt ON lt.id = NEW.tenant_id
            WHERE h.state = 'pending' AND h.class_name = NEW.class_name
                AND (t.path = lt.path OR starts_with(t.path, lt.path || '/')));
        RETURN NEW;
    END IF;
    IF (NEW.id, NEW.tenant_id, NEW.class_name, NEW.resource) IS DISTINCT FROM
       (OLD.id, OLD.tenant_id, OLD.class_name, OLD.resource) THEN
        RAISE EXCEPTION 'what a limit is for never changes'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'class_limit_identity_is_fixed';
    END IF;
    IF NEW.held <> OLD.held AND pg_trigger_depth() = 1 THEN
        RAISE EXCEPTION 'what a class holds moves only with holds'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'class_limit_moves_with_holds';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER quotas_guard_class_limit BEFORE INSERT OR UPDATE ON quotas_classlimit
    FOR EACH ROW EXECUTE FUNCTION quotas_guard_class_limit();
