-- Limits on what all work of a class may hold in all tenants together. What it holds moves in the statement that begins or ends a
-- hold, as for users (people.sql), and after what users hold: by their names, these triggers run after those.

CREATE OR REPLACE FUNCTION quotas_work_of_class_takes() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    over record;
BEGIN
    IF NOT EXISTS (SELECT FROM quotas_classlimit) THEN
        RETURN NULL;
    END IF;
    PERFORM 1 FROM quotas_classlimit AS l WHERE (l.class_name, l.resource) IN (
        SELECT b.class_name, one.key FROM begun AS b CROSS JOIN LATERAL jsonb_each(b.amounts) AS one WHERE one.value::bigint > 0
    ) ORDER BY l.id FOR NO KEY UPDATE;
    WITH asked AS MATERIALIZED (
        SELECT b.class_name, one.key AS resource, sum(one.value::bigint)::bigint AS amount
        FROM begun AS b CROSS JOIN LATERAL jsonb_each(b.amounts) AS one WHERE b.class_name <> '' GROUP BY b.class_name, one.key
    ), raised AS (
        UPDATE quotas_classlimit AS l SET held = l.held + asked.amount FROM asked
        WHERE l.class_name = asked.class_name AND l.resource = asked.resource AND asked.amount > 0
        RETURNING l.class_name, l.resource, l.held, l.most
    )
    SELECT * INTO over FROM raised WHERE held > most LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the class % would hold % of % %', over.class_name, over.held, over.most, over.resource
            USING ERRCODE = 'check_violation', CONSTRAINT = 'class_limit_is_never_exceeded';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_work_of_class_takes AFTER INSERT ON quotas_hold
    REFERENCING NEW TABLE AS begun FOR EACH STATEMENT EXECUTE FUNCTION quotas_work_of_class_takes();

CREATE OR REPLACE FUNCTION quotas_work_of_class_gives_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM quotas_classlimit) THEN
        RETURN NULL;
    END IF;
    PERFORM 1 FROM quotas_classlimit AS l WHERE (l.class_name, l.resource) IN (
        SELECT e.class_name, one.key FROM ended AS e CROSS JOIN LATERAL jsonb_each(e.amounts) AS one WHERE one.value::bigint > 0
    ) ORDER BY l.id FOR NO KEY UPDATE;
    WITH freed AS MATERIALIZED (
        SELECT e.class_name, one.key AS resource, sum(one.value::bigint)::bigint AS amount
        FROM ended AS e CROSS JOIN LATERAL jsonb_each(e.amounts) AS one WHERE e.class_name <> '' GROUP BY e.class_name, one.key
    )
    UPDATE quotas_classlimit AS l SET held = l.held - freed.amount FROM freed
        WHERE l.class_name = freed.class_name AND l.resource = freed.resource AND freed.amount > 0;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_work_of_class_gives_back AFTER UPDATE ON quotas_hold
    REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION quotas_work_of_class_gives_back();

CREATE OR REPLACE FUNCTION quotas_guard_class_limit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        -- Waits for all holds that are beginning or ending, and keeps others from it until commit, so that each is counted once.
        LOCK TABLE quotas_hold IN SHARE ROW EXCLUSIVE MODE;
        NEW.held := (SELECT coalesce(sum((h.amounts ->> NEW.resource)::bigint), 0) FROM quotas_hold AS h
            WHERE h.state = 'pending' AND h.class_name = NEW.class_name);
        RETURN NEW;
    END IF;
    IF (NEW.id, NEW.class_name, NEW.resource) IS DISTINCT FROM (OLD.id, OLD.class_name, OLD.resource) THEN
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
