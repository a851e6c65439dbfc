-- A tenant with work that holds quota moves only between places with the same budgets above: what budgets keep for a run and
-- what it costs count at the same ones from its beginning to its end.
CREATE OR REPLACE FUNCTION federation_moved_work_keeps_budgets() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Waits for budgets that are being set there (billing_stop_takers).
    PERFORM 1 FROM tenancy_tenant WHERE id IN (
        SELECT up.id FROM unnest(ARRAY[OLD.parent_id, NEW.parent_id]) AS of(id), quotas_tenants_above(of.id) AS up
    ) ORDER BY id FOR SHARE;
    IF EXISTS (
        SELECT FROM billing_budget AS b WHERE b.removed_at IS NULL
            AND b.tenant_id IN (SELECT id FROM quotas_tenants_above(OLD.parent_id))
                IS DISTINCT FROM (b.tenant_id IN (SELECT id FROM quotas_tenants_above(NEW.parent_id)))
    ) AND EXISTS (
        WITH RECURSIVE under AS (
            SELECT NEW.id UNION SELECT t.id FROM under JOIN tenancy_tenant AS t ON t.parent_id = under.id
        ) SELECT FROM under JOIN quotas_hold AS h ON h.tenant_id = under.id AND h.state = 'pending'
    ) THEN
        RAISE EXCEPTION 'tenant % has work that budgets count', OLD.path
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'moved_work_keeps_its_budgets';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER federation_moved_work_keeps_budgets AFTER UPDATE ON tenancy_tenant
    FOR EACH ROW WHEN (OLD.parent_id IS DISTINCT FROM NEW.parent_id) EXECUTE FUNCTION federation_moved_work_keeps_budgets();
