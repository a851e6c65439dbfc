-- Holds follow their tenant when it moves in the tree. What they took at limits above the old place ends there and is taken above
-- the new one, in lines of the kind `move`; what they took at limits that move along stays. The trigger of limits
-- (quotas_limits_follow_tenant) runs after this one, by its name: holds are locked before limits.
CREATE OR REPLACE FUNCTION quotas_holds_follow_tenant() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
DECLARE
    below uuid[];
BEGIN
    PERFORM 1 FROM tenancy_tenant WHERE id IN (
        SELECT up.id FROM unnest(ARRAY[OLD.parent_id, NEW.parent_id]) AS of(id), quotas_tenants_above(of.id) AS up
    ) ORDER BY id FOR SHARE;
    WITH RECURSIVE under AS (
        SELECT NEW.id UNION SELECT t.id FROM under JOIN tenancy_tenant AS t ON t.parent_id = under.id
    ) SELECT array_agg(id) INTO below FROM under;
    PERFORM 1 FROM quotas_hold WHERE tenant_id = ANY (below) AND state = 'pending' ORDER BY holder_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- The paths of descendants follow later. If others move in the same statement, what was counted where is not known here.
    IF EXISTS (SELECT FROM tenancy_tenant WHERE id = ANY (below) AND id <> NEW.id AND NOT starts_with(path, OLD.path || '/'))
       OR EXISTS (SELECT FROM tenancy_tenant WHERE id = OLD.parent_id AND path || '/' || OLD.name <> OLD.path)
       OR EXISTS (SELECT FROM tenancy_tenant WHERE id = NEW.parent_id AND path || '/' || NEW.name <> NEW.path) THEN
        RAISE EXCEPTION 'tenants with pending holds move one at a time'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'tenants_with_holds_move_alone';
    END IF;
    WITH held AS MATERIALIZED (
        SELECT holder_id, tenant_id, cluster_name, amounts FROM quotas_hold WHERE tenant_id = ANY (below) AND state = 'pending'
    ), counted AS MATERIALIZED (
        SELECT m.hold_id, m.limit_id, l.tenant_id, l.resource, l.clusters, sum(m.amount)::bigint AS amount
        FROM held JOIN quotas_holdmovement AS m ON m.hold_id = held.holder_id JOIN quotas_quotalimit AS l ON l.id = m.limit_id
        GROUP BY m.hold_id, m.limit_id, l.tenant_id, l.resource, l.clusters HAVING sum(m.amount) <> 0
    ), nearest AS MATERIALIZED (
        SELECT kinds.tenant_id, kinds.resource, kinds.clusters,
            quotas_nearest_limit(kinds.tenant_id, kinds.resource, kinds.clusters) AS limit_id
        FROM (SELECT DISTINCT own.tenant_id, l.resource, l.clusters FROM (SELECT DISTINCT tenant_id FROM held) AS own
            CROSS JOIN LATERAL quotas_tenants_above(own.tenant_id) AS up
            JOIN quotas_quotalimit AS l ON l.tenant_id = up.id AND l.removed_at IS NULL) AS kinds
    ), due AS MATERIALIZED (
        SELECT held.holder_id AS hold_id, nearest.limit_id, nearest.resource, nearest.clusters,
            (held.amounts ->> nearest.resource)::bigint AS amount
        FROM held JOIN nearest ON nearest.tenant_id = held.tenant_id
        WHERE (held.amounts ->> nearest.resource)::bigint > 0
            AND (cardinality(nearest.clusters) = 0 OR held.cluster_name = ANY (nearest.clusters))
    ), lines AS (
        SELECT c.hold_id, c.limit_id, -c.amount AS amount FROM counted AS c
        WHERE c.tenant_id <> ALL (below)
            AND NOT EXISTS (SELECT 1 FROM due WHERE due.hold_id = c.hold_id AND due.limit_id = c.limit_id)
        UNION ALL
        SELECT due.hold_id, due.limit_id, due.amount FROM due
        WHERE NOT EXISTS (
            SELECT 1 FROM counted AS c WHERE c.hold_id = due.hold_id AND c.resource = due.resource AND c.clusters = due.clusters
                AND (c.limit_id = due.limit_id OR c.tenant_id = ANY (below)))
    )
    INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, nth, amount)
        SELECT lines.hold_id, lines.limit_id, 'move', 1 + (
            SELECT count(*) FROM quotas_holdmovement AS m
            WHERE m.hold_id = lines.hold_id AND m.limit_id = lines.limit_id AND m.kind = 'move'), lines.amount
        FROM lines;
    PERFORM quotas_users_follow_tenant(below, OLD.parent_id, NEW.parent_id);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_holds_follow_tenant AFTER UPDATE ON tenancy_tenant
    FOR EACH ROW WHEN (OLD.parent_id IS DISTINCT FROM NEW.parent_id) EXECUTE FUNCTION quotas_holds_follow_tenant();

-- What users hold below a moved tenant leaves the limits on users above its old place, and counts at those above the new one.
CREATE OR REPLACE FUNCTION quotas_users_follow_tenant(below uuid[], old_parent uuid, new_parent uuid) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    over record;
BEGIN
    IF NOT EXISTS (SELECT FROM quotas_userlimit) THEN
        RETURN;
    END IF;
    PERFORM 1 FROM quotas_userholding AS own JOIN quotas_userlimit AS l ON l.id = own.limit_id
        WHERE l.tenant_id IN (SELECT up.id FROM unnest(ARRAY[old_parent, new_parent]) AS of(id), quotas_tenants_above(of.id) AS up)
        ORDER BY own.limit_id, own.user_id FOR NO KEY UPDATE OF own;
    WITH held AS MATERIALIZED (
        SELECT h.user_id, one.key AS resource, sum(one.value::bigint)::bigint AS amount
        FROM quotas_hold AS h CROSS JOIN LATERAL jsonb_each(h.amounts) AS one
        WHERE h.tenant_id = ANY (below) AND h.state = 'pending' AND h.user_id IS NOT NULL AND one.value::bigint > 0
        GROUP BY h.user_id, one.key
    ), sides AS (
        SELECT up.id, -1 AS sign FROM quotas_tenants_above(old_parent) AS up
        UNION ALL SELECT up.id, 1 FROM quotas_tenants_above(new_parent) AS up
    ), changes AS (
        SELECT l.id AS limit_id, held.user_id, sum(sides.sign * held.amount)::bigint AS amount
        FROM sides JOIN quotas_userlimit AS l ON l.tenant_id = sides.id JOIN held ON held.resource = l.resource
        GROUP BY l.id, held.user_id HAVING sum(sides.sign) <> 0
    ), fallen AS (
        UPDATE quotas_userholding AS own SET held = own.held + changes.amount FROM changes
        WHERE own.limit_id = changes.limit_id AND own.user_id = changes.user_id AND changes.amount < 0
    ), risen AS (
        INSERT INTO quotas_userholding AS own (limit_id, user_id, held)
            SELECT limit_id, user_id, amount FROM changes WHERE amount > 0 ORDER BY limit_id, user_id
        ON CONFLICT (limit_id, user_id) DO UPDATE SET held = own.held + excluded.held
        RETURNING own.limit_id, own.user_id, own.held
    )
    SELECT risen.user_id, risen.held, l.most INTO over FROM risen JOIN quotas_userlimit AS l ON l.id = risen.limit_id
        WHERE risen.held > l.most LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'user % would hold % of %', over.user_id, over.held, over.most
            USING ERRCODE = 'check_violation', CONSTRAINT = 'user_limit_is_never_exceeded';
    END IF;
END $$;

-- Lines of the kind `move` follow a tenant, and nothing else writes them.
CREATE OR REPLACE FUNCTION quotas_moves_follow_tenants() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() > 1 THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'what holds took moves only with their tenant'
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'moves_follow_tenants';
END $$;
CREATE OR REPLACE TRIGGER quotas_moves_follow_tenants BEFORE INSERT ON quotas_holdmovement FOR EACH ROW
    WHEN (NEW.kind = 'move') EXECUTE FUNCTION quotas_moves_follow_tenants();
