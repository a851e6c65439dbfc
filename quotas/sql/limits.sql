-- Limits that lend to each other. A hold has its line only at the nearest limit above it of each resource and scope. What a
-- limit claims of the next limit of equal resource and scope above it (`parent_id`) is `claim`: what is held there, and at least
-- what it does not lend. `held` is the sum of the limit's own lines and of its children's claims, so a change below the
-- guarantee ends there, and no limit above is locked for it.

-- The path of each tenant from itself to its root, as it is now. UNION ends even if a statement puts two below each other.
CREATE OR REPLACE FUNCTION quotas_tenants_above(tenant uuid) RETURNS TABLE(id uuid) LANGUAGE sql STABLE AS $$
    WITH RECURSIVE up AS (
        SELECT t.id, t.parent_id FROM tenancy_tenant AS t WHERE t.id = tenant
        UNION SELECT t.id, t.parent_id FROM up JOIN tenancy_tenant AS t ON t.id = up.parent_id
    ) SELECT up.id FROM up
$$;

CREATE OR REPLACE FUNCTION quotas_guard_limit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    by_journal boolean := pg_trigger_depth() > 1;
    bound bigint;
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
        NEW.parent_id := NEW.id; -- not placed yet; see quotas_place_limit
        NEW.cap := quotas_bound(NEW.nominal, NEW.parent_id, NEW.borrowing_limit);
        NEW.reclaim_at := NULL;
        RETURN NEW;
    END IF;
    -- Only this decides when a surplus is taken back: each reduction begins the delay again, and it ends with the surplus.
    bound := quotas_bound(NEW.nominal, NEW.parent_id, NEW.borrowing_limit);
    NEW.reclaim_at := CASE
        WHEN NEW.reclaim_after IS NULL OR NEW.removed_at IS NOT NULL OR NEW.held <= bound THEN NULL
        WHEN OLD.reclaim_at IS NULL OR NEW.reclaim_after IS DISTINCT FROM OLD.reclaim_after
             OR bound < quotas_bound(OLD.nominal, OLD.parent_id, OLD.borrowing_limit)
        THEN now() + make_interval(secs => NEW.reclaim_after)
        ELSE OLD.reclaim_at END;
    IF (NEW.id, NEW.tenant_id, NEW.resource, NEW.clusters) IS DISTINCT FROM (OLD.id, OLD.tenant_id, OLD.resource, OLD.clusters)
       OR (OLD.removed_at IS NOT NULL AND NEW.removed_at IS DISTINCT FROM OLD.removed_at) THEN
        RAISE EXCEPTION 'what a limit is for never changes, and a removed limit does not return'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_identity_is_fixed';
    END IF;
    IF by_journal THEN
        RETURN NEW;
    END IF;
    IF NEW.parent_id IS DISTINCT FROM OLD.parent_id THEN
        RAISE EXCEPTION 'the parent of a limit follows from the tree'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_parent_is_the_nearest';
    END IF;
    IF NEW.held <> OLD.held OR (NEW.cap <> OLD.cap
       AND NEW.cap <> greatest(quotas_bound(NEW.nominal, NEW.parent_id, NEW.borrowing_limit), NEW.held)) THEN
        RAISE EXCEPTION 'held and cap of a limit move only through the journal'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_held_moves_by_journal';
    END IF;
    NEW.cap := greatest(quotas_bound(NEW.nominal, NEW.parent_id, NEW.borrowing_limit), NEW.held);
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER quotas_guard_limit BEFORE INSERT OR UPDATE ON quotas_quotalimit
    FOR EACH ROW EXECUTE FUNCTION quotas_guard_limit();

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
            AND (h.amounts ->> NEW.resource)::bigint IS DISTINCT FROM (
                SELECT sum(m.amount) FROM quotas_holdmovement AS m JOIN quotas_quotalimit AS l ON l.id = m.limit_id
                JOIN tenancy_tenant AS mt ON mt.id = l.tenant_id
                WHERE m.hold_id = h.holder_id AND l.resource = NEW.resource AND l.clusters = NEW.clusters
                    AND (mt.path = lt.path OR starts_with(mt.path, lt.path || '/')))
    ) AND EXISTS (SELECT 1 FROM quotas_quotalimit WHERE id = NEW.id AND removed_at IS NULL) THEN
        RAISE EXCEPTION 'a new limit counts the pending holds below it'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'limit_counts_what_is_held';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER quotas_limit_counts_what_is_held AFTER INSERT ON quotas_quotalimit
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION quotas_limit_counts_what_is_held();

-- The most that may be held, apart from a surplus. Only a limit with a parent has a limit to borrow from.
CREATE OR REPLACE FUNCTION quotas_bound(nominal bigint, parent uuid, borrowing bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE AS $$
    SELECT nominal + CASE WHEN parent IS NULL THEN 0 ELSE coalesce(borrowing, 1000000000000000) END
$$;

-- The nearest limit in force of this resource and scope at a tenant or above it. A limit is its own parent until it is placed.
CREATE OR REPLACE FUNCTION quotas_nearest_limit(tenant uuid, wanted text, scope varchar[]) RETURNS uuid LANGUAGE sql STABLE AS $$
    WITH RECURSIVE up AS (
        SELECT t.id, t.parent_id, 0 AS steps FROM tenancy_tenant AS t WHERE t.id = tenant
        UNION ALL SELECT t.id, t.parent_id, up.steps + 1 FROM up JOIN tenancy_tenant AS t ON t.id = up.parent_id
            WHERE up.steps < 16 -- the tree's depth; a statement may put two below each other before the tree refuses it
    ) SELECT l.id FROM up JOIN quotas_quotalimit AS l ON l.tenant_id = up.id
        WHERE l.removed_at IS NULL AND l.resource = wanted AND l.clusters = scope AND l.parent_id IS DISTINCT FROM l.id
        ORDER BY up.steps LIMIT 1
$$;

-- Adds to `held` of limits and passes the change of their claims up. It goes from the leaves to the roots, which is the one
-- order of locks; each limit gets the sum of all its changes at once. `cap` never grows here, so CHECK (held <= cap) refuses
-- every overshoot; only a limit that is just placed counts whatever it finds.
CREATE OR REPLACE FUNCTION quotas_change_held(limits uuid[], amounts bigint[], placed uuid DEFAULT NULL) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
DECLARE
    deepest integer;
    level uuid[];
    level_amounts bigint[];
BEGIN
    LOOP
        SELECT max(t.depth * 2 + (l.removed_at IS NOT NULL)::integer) INTO deepest FROM unnest(limits) AS due(id)
            JOIN quotas_quotalimit AS l ON l.id = due.id JOIN tenancy_tenant AS t ON t.id = l.tenant_id;
        EXIT WHEN deepest IS NULL;
        SELECT array_agg(one.id), array_agg(one.amount) INTO level, level_amounts FROM (
            SELECT l.id, sum(due.amount)::bigint AS amount FROM unnest(limits, amounts) AS due(id, amount)
            JOIN quotas_quotalimit AS l ON l.id = due.id JOIN tenancy_tenant AS t ON t.id = l.tenant_id
            WHERE t.depth * 2 + (l.removed_at IS NOT NULL)::integer = deepest GROUP BY l.id
        ) AS one;
        PERFORM 1 FROM quotas_quotalimit WHERE id = ANY (level) ORDER BY id FOR NO KEY UPDATE;
        WITH risen AS (
            UPDATE quotas_quotalimit AS l SET held = l.held + due.amount, cap = CASE
                    WHEN l.id = placed THEN greatest(quotas_bound(l.nominal, l.parent_id, l.borrowing_limit), l.held + due.amount)
                    ELSE least(l.cap,
                        greatest(quotas_bound(l.nominal, l.parent_id, l.borrowing_limit), l.held + due.amount)) END
                FROM unnest(level, level_amounts) AS due(id, amount)
                JOIN quotas_quotalimit AS before ON before.id = due.id
                WHERE l.id = due.id AND due.amount <> 0
                RETURNING l.parent_id AS id, l.claim - before.claim AS amount
        ), rest AS (
            SELECT due.id, due.amount FROM unnest(limits, amounts) AS due(id, amount) WHERE due.id <> ALL (level)
            UNION ALL SELECT risen.id, risen.amount FROM risen WHERE risen.id IS NOT NULL AND risen.amount <> 0
        ) SELECT array_agg(one.id), array_agg(one.amount) INTO limits, amounts
            FROM (SELECT rest.id, sum(rest.amount)::bigint AS amount FROM rest GROUP BY rest.id) AS one;
        EXIT WHEN limits IS NULL;
    END LOOP;
END $$;

-- Gives limits another parent: their claims leave the old one and come to the new one.
CREATE OR REPLACE FUNCTION quotas_set_parent(children uuid[], parent uuid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    limits uuid[];
    amounts bigint[];
BEGIN
    PERFORM 1 FROM quotas_quotalimit AS l JOIN tenancy_tenant AS t ON t.id = l.tenant_id
        WHERE l.id = ANY (children) ORDER BY t.depth DESC, l.id FOR NO KEY UPDATE OF l;
    SELECT array_agg(one.id), array_agg(one.amount) INTO limits, amounts FROM (
        SELECT parent_id AS id, -claim AS amount FROM quotas_quotalimit WHERE id = ANY (children) AND parent_id IS NOT NULL
        UNION ALL SELECT parent, claim FROM quotas_quotalimit WHERE id = ANY (children) AND parent IS NOT NULL
    ) AS one;
    UPDATE quotas_quotalimit SET parent_id = parent, cap = greatest(quotas_bound(nominal, parent, borrowing_limit), held)
        WHERE id = ANY (children);
    PERFORM quotas_change_held(limits, amounts);
END $$;

-- Waits for takers whose holds this limit must count, and for other changes of limits on its path; keeps new ones out until
-- commit. Then the limit takes its place: the limits next below it claim of it, and it claims of the next one above.
CREATE OR REPLACE FUNCTION quotas_place_limit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    above uuid;
    children uuid[];
    claimed bigint;
BEGIN
    PERFORM 1 FROM tenancy_tenant WHERE id IN (SELECT up.id FROM quotas_tenants_above(NEW.tenant_id) AS up)
        ORDER BY id FOR NO KEY UPDATE;
    above := quotas_nearest_limit(
        (SELECT parent_id FROM tenancy_tenant WHERE id = NEW.tenant_id), NEW.resource, NEW.clusters);
    SELECT array_agg(l.id) INTO children FROM tenancy_tenant AS lt
        JOIN tenancy_tenant AS t ON t.path = lt.path OR starts_with(t.path, lt.path || '/')
        JOIN quotas_quotalimit AS l ON l.tenant_id = t.id AND l.resource = NEW.resource AND l.clusters = NEW.clusters
        WHERE lt.id = NEW.tenant_id AND l.id <> NEW.id AND l.parent_id IS NOT DISTINCT FROM above;
    PERFORM 1 FROM quotas_quotalimit AS l JOIN tenancy_tenant AS t ON t.id = l.tenant_id
        WHERE l.id = ANY (children) ORDER BY t.depth DESC, l.id FOR NO KEY UPDATE OF l;
    SELECT coalesce(sum(claim), 0) INTO claimed FROM quotas_quotalimit WHERE id = ANY (children);
    UPDATE quotas_quotalimit SET parent_id = NEW.id, cap = greatest(quotas_bound(nominal, NEW.id, borrowing_limit), held)
        WHERE id = ANY (children);
    UPDATE quotas_quotalimit SET parent_id = above, cap = quotas_bound(nominal, above, borrowing_limit) WHERE id = NEW.id;
    PERFORM quotas_change_held(
        ARRAY[NEW.id, above], ARRAY[claimed, (SELECT claim FROM quotas_quotalimit WHERE id = NEW.id) - claimed], NEW.id);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_place_limit AFTER INSERT ON quotas_quotalimit FOR EACH ROW EXECUTE FUNCTION quotas_place_limit();

-- A change of the amounts changes the claim. A removed limit guarantees nothing, and those below it claim of the next one above;
-- it stays with the lines of its own holds until they end.
CREATE OR REPLACE FUNCTION quotas_limit_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    one record;
    limits uuid[];
    amounts bigint[];
BEGIN
    IF pg_trigger_depth() > 1 THEN
        RETURN NULL;
    END IF;
    SELECT array_agg(n.parent_id), array_agg(n.claim - o.claim) INTO limits, amounts
        FROM was AS o JOIN became AS n ON n.id = o.id WHERE n.claim <> o.claim AND n.parent_id IS NOT NULL;
    IF limits IS NOT NULL THEN
        PERFORM quotas_change_held(limits, amounts);
    END IF;
    FOR one IN
        SELECT quotas_nearest_limit(n.tenant_id, n.resource, n.clusters) AS above, array_agg(l.id) AS children
        FROM was AS o JOIN became AS n ON n.id = o.id JOIN quotas_quotalimit AS l ON l.parent_id = n.id
        WHERE o.removed_at IS NULL AND n.removed_at IS NOT NULL GROUP BY n.id, n.tenant_id, n.resource, n.clusters ORDER BY n.id
    LOOP
        PERFORM quotas_set_parent(one.children, one.above);
    END LOOP;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_limit_changed AFTER UPDATE ON quotas_quotalimit
    REFERENCING OLD TABLE AS was NEW TABLE AS became FOR EACH STATEMENT EXECUTE FUNCTION quotas_limit_changed();

CREATE OR REPLACE FUNCTION quotas_limit_goes() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    claimed bigint;
BEGIN
    PERFORM 1 FROM quotas_quotalimit AS l JOIN tenancy_tenant AS t ON t.id = l.tenant_id
        WHERE l.parent_id = OLD.id ORDER BY t.depth DESC, l.id FOR NO KEY UPDATE OF l;
    SELECT coalesce(sum(claim), 0) INTO claimed FROM quotas_quotalimit WHERE parent_id = OLD.id;
    UPDATE quotas_quotalimit
        SET parent_id = OLD.parent_id, cap = greatest(quotas_bound(nominal, OLD.parent_id, borrowing_limit), held)
        WHERE parent_id = OLD.id;
    PERFORM quotas_change_held(ARRAY[OLD.parent_id], ARRAY[claimed - OLD.claim]);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_limit_goes AFTER DELETE ON quotas_quotalimit FOR EACH ROW EXECUTE FUNCTION quotas_limit_goes();

-- The limits of a moved tenant, and of those below it, claim of the limits above its new place.
CREATE OR REPLACE FUNCTION quotas_limits_follow_tenant() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    one record;
BEGIN
    PERFORM 1 FROM tenancy_tenant WHERE id IN (SELECT up.id FROM quotas_tenants_above(NEW.parent_id) AS up)
        ORDER BY id FOR SHARE;
    FOR one IN
        WITH RECURSIVE below AS (
            SELECT NEW.id UNION SELECT t.id FROM below JOIN tenancy_tenant AS t ON t.parent_id = below.id
        ), moved AS MATERIALIZED (SELECT l.* FROM below JOIN quotas_quotalimit AS l ON l.tenant_id = below.id)
        SELECT quotas_nearest_limit(NEW.parent_id, l.resource, l.clusters) AS above, array_agg(l.id) AS children
        FROM moved AS l WHERE l.parent_id IS NULL OR l.parent_id NOT IN (SELECT id FROM moved)
        GROUP BY l.resource, l.clusters ORDER BY l.resource, l.clusters
    LOOP
        PERFORM quotas_set_parent(one.children, one.above);
    END LOOP;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_limits_follow_tenant AFTER UPDATE ON tenancy_tenant
    FOR EACH ROW WHEN (OLD.parent_id IS DISTINCT FROM NEW.parent_id) EXECUTE FUNCTION quotas_limits_follow_tenant();

-- What a limit would hold if these holders had ended. What limits below guarantee remains claimed.
CREATE OR REPLACE FUNCTION quotas_held_without(wanted uuid, gone uuid[]) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT l.held
             - coalesce((SELECT sum(m.amount) FROM quotas_holdmovement AS m
                          WHERE m.hold_id = ANY (gone) AND m.limit_id = l.id), 0)
             - coalesce((SELECT sum(below.claim - greatest(
                                quotas_held_without(below.id, gone),
                                CASE WHEN below.removed_at IS NULL
                                     THEN below.nominal - coalesce(below.lending_limit, below.nominal) ELSE 0 END))
                           FROM quotas_quotalimit AS below WHERE below.parent_id = l.id), 0)
          FROM quotas_quotalimit AS l WHERE l.id = wanted);
END $$;
