-- Quota that is reserved for a period, in advance. At every time, what is reserved of a limit stays within its nominal amount.

-- What is reserved of a limit at a time: the amounts for which it is the nearest limit, and what the limits below it claim, as
-- holds count. `but` is left out.
CREATE OR REPLACE FUNCTION quotas_reserved_at(wanted uuid, moment timestamptz, but uuid)
    RETURNS bigint
    LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT coalesce((
                   SELECT sum((r.amounts ->> l.resource)::bigint) FROM quotas_reservedquota AS r
                    WHERE r.starts_at <= moment AND r.until_at > moment AND r.id <> but
                      AND (r.amounts ->> l.resource)::bigint > 0
                      AND (cardinality(l.clusters) = 0 OR r.cluster_name = ANY (l.clusters))
                      AND quotas_nearest_limit(r.tenant_id, l.resource, l.clusters) = l.id), 0)
             + coalesce((
                   SELECT sum(greatest(quotas_reserved_at(below.id, moment, but),
                                       below.nominal - coalesce(below.lending_limit, below.nominal)))
                     FROM quotas_quotalimit AS below WHERE below.parent_id = l.id AND below.removed_at IS NULL), 0)
          FROM quotas_quotalimit AS l WHERE l.id = wanted);
END $$;

-- Waits for others who reserve, take holds or change limits on the path, and adds up what is reserved at each time at which
-- it grows: the start of the new row, and of every other one within it.
CREATE OR REPLACE FUNCTION quotas_reserve() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    over record;
BEGIN
    -- An older snapshot would not show what others reserved while this waited for them.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'quota is reserved in transactions that read what others committed'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'reserved_quota_sees_all_others';
    END IF;
    PERFORM 1 FROM tenancy_tenant WHERE id IN (SELECT up.id FROM quotas_tenants_above(NEW.tenant_id) AS up)
        ORDER BY id FOR NO KEY UPDATE;
    SELECT t.path, l.resource, l.nominal, at.moment INTO over
      FROM quotas_tenants_above(NEW.tenant_id) AS up
      JOIN tenancy_tenant AS t ON t.id = up.id
      JOIN quotas_quotalimit AS l ON l.tenant_id = up.id AND l.removed_at IS NULL
      CROSS JOIN LATERAL (
          SELECT NEW.starts_at AS moment
          UNION SELECT r.starts_at FROM quotas_reservedquota AS r JOIN tenancy_tenant AS other ON other.id = r.tenant_id
                 WHERE r.starts_at > NEW.starts_at AND r.starts_at < NEW.until_at AND r.until_at > r.starts_at
                   AND split_part(other.path, '/', 1) = split_part(t.path, '/', 1)) AS at
      CROSS JOIN LATERAL (SELECT quotas_reserved_at(l.id, at.moment, '00000000-0000-0000-0000-000000000000') AS amount) AS after
     WHERE (NEW.amounts ->> l.resource)::bigint > 0 AND NEW.until_at > NEW.starts_at
       AND (cardinality(l.clusters) = 0 OR NEW.cluster_name = ANY (l.clusters))
       AND after.amount > l.nominal AND after.amount > quotas_reserved_at(l.id, at.moment, NEW.id)
     ORDER BY at.moment, t.depth LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'more % would be reserved at % than the limit of % allows', over.resource, over.moment, over.path
            USING ERRCODE = 'check_violation', CONSTRAINT = 'reserved_quota_stays_within_limits';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_reserve AFTER INSERT ON quotas_reservedquota FOR EACH ROW EXECUTE FUNCTION quotas_reserve();

CREATE OR REPLACE FUNCTION quotas_guard_reserved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.tenant_id, NEW.cluster_name, NEW.amounts, NEW.starts_at, NEW.created_at) IS DISTINCT FROM
       (OLD.id, OLD.tenant_id, OLD.cluster_name, OLD.amounts, OLD.starts_at, OLD.created_at)
       OR NEW.until_at > OLD.until_at THEN
        RAISE EXCEPTION 'reserved quota only ever ends sooner'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'reserved_quota_only_shrinks';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER quotas_guard_reserved BEFORE UPDATE ON quotas_reservedquota
    FOR EACH ROW EXECUTE FUNCTION quotas_guard_reserved();
CREATE OR REPLACE TRIGGER quotas_keep_reserved BEFORE DELETE OR TRUNCATE ON quotas_reservedquota
    FOR EACH STATEMENT EXECUTE FUNCTION quotas_keep();

-- A hold is part of quota that its own tenant, or one above it, reserved on the same cluster.
CREATE OR REPLACE FUNCTION quotas_hold_is_within() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM quotas_reservedquota AS r
         WHERE r.id = NEW.within_id AND r.cluster_name = NEW.cluster_name
           AND r.tenant_id IN (SELECT up.id FROM quotas_tenants_above(NEW.tenant_id) AS up)
    ) THEN
        RAISE EXCEPTION 'hold % is not within the quota that it names', NEW.holder_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'hold_is_within_its_reserved_quota';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER quotas_hold_is_within BEFORE INSERT ON quotas_hold
    FOR EACH ROW WHEN (NEW.within_id IS NOT NULL) EXECUTE FUNCTION quotas_hold_is_within();
CREATE OR REPLACE TRIGGER quotas_hold_stays_within BEFORE UPDATE ON quotas_hold
    FOR EACH ROW WHEN (OLD.within_id IS DISTINCT FROM NEW.within_id) EXECUTE FUNCTION quotas_keep();

-- What a tenant and those below it reserved was added up on its path, so it stays there until that has ended.
CREATE OR REPLACE FUNCTION quotas_keep_reserving_tenant() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM quotas_reservedquota AS r JOIN tenancy_tenant AS t ON t.id = r.tenant_id
         WHERE r.until_at > statement_timestamp() AND r.until_at > r.starts_at AND (t.path IN (OLD.path, NEW.path)
            OR starts_with(t.path, OLD.path || '/') OR starts_with(t.path, NEW.path || '/'))
    ) THEN
        RAISE EXCEPTION 'tenant % has reserved quota and stays where it is', OLD.path
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'tenant_with_reserved_quota_stays';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_keep_reserving_tenant AFTER UPDATE ON tenancy_tenant
    FOR EACH ROW WHEN (OLD.parent_id IS DISTINCT FROM NEW.parent_id) EXECUTE FUNCTION quotas_keep_reserving_tenant();
