-- The tree of tenants: a tenant's path and depth follow from its place.

CREATE OR REPLACE FUNCTION tenancy_tenant_place() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    above_path text;
    above_depth integer;
    true_path text;
    true_depth integer;
BEGIN
    IF TG_OP = 'INSERT' THEN
        -- Many may add at once; nobody may add while somebody moves or renames.
        PERFORM pg_advisory_xact_lock_shared(1398233428);
    ELSIF (NEW.parent_id, NEW.name) IS DISTINCT FROM (OLD.parent_id, OLD.name) THEN
        PERFORM pg_advisory_xact_lock(1398233428);
    END IF;
    IF NEW.parent_id IS NULL THEN
        true_path := NEW.name;
        true_depth := 0;
    ELSE
        SELECT path, depth INTO above_path, above_depth FROM tenancy_tenant WHERE id = NEW.parent_id;
        IF NOT FOUND THEN
            RAISE foreign_key_violation USING MESSAGE = 'the parent tenant does not exist';
        END IF;
        IF TG_OP = 'UPDATE' AND (NEW.parent_id = NEW.id OR starts_with(above_path, OLD.path || '/')) THEN
            RAISE check_violation USING
                MESSAGE = 'a tenant cannot lie below itself', CONSTRAINT = 'tenant_tree_has_no_cycle';
        END IF;
        true_path := above_path || '/' || NEW.name;
        true_depth := above_depth + 1;
    END IF;
    IF TG_OP = 'INSERT' THEN
        IF (coalesce(NEW.path, '') NOT IN ('', true_path)) OR coalesce(NEW.depth, true_depth) <> true_depth THEN
            RAISE check_violation USING
                MESSAGE = 'path and depth follow from parent and name', CONSTRAINT = 'tenant_path_is_true';
        END IF;
    ELSIF (NEW.path <> OLD.path AND NEW.path <> true_path) OR (NEW.depth <> OLD.depth AND NEW.depth <> true_depth) THEN
        RAISE check_violation USING
            MESSAGE = 'path and depth follow from parent and name', CONSTRAINT = 'tenant_path_is_true';
    END IF;
    NEW.path := true_path;
    NEW.depth := true_depth;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER tenancy_tenant_place BEFORE INSERT OR UPDATE OF id, parent_id, name, path, depth ON tenancy_tenant
    FOR EACH ROW EXECUTE FUNCTION tenancy_tenant_place();

CREATE OR REPLACE FUNCTION tenancy_tenant_carry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tenancy_tenant SET path = NEW.path || '/' || name, depth = NEW.depth + 1 WHERE parent_id = NEW.id;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER tenancy_tenant_carry AFTER UPDATE ON tenancy_tenant
    FOR EACH ROW WHEN (OLD.path IS DISTINCT FROM NEW.path OR OLD.depth IS DISTINCT FROM NEW.depth)
    EXECUTE FUNCTION tenancy_tenant_carry();

CREATE OR REPLACE FUNCTION tenancy_tenant_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.parent_id IS NULL OR NEW.parent_id IS NULL OR NOT EXISTS (
        SELECT FROM tenancy_tenant AS here JOIN tenancy_tenant AS there
            ON split_part(here.path, '/', 1) = split_part(there.path, '/', 1)
         WHERE here.id = OLD.parent_id AND there.id = NEW.parent_id
    ) THEN
        RAISE check_violation USING
            MESSAGE = 'a tenant stays in its organisation', CONSTRAINT = 'tenant_stays_in_its_organisation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER tenancy_tenant_stays BEFORE UPDATE OF parent_id ON tenancy_tenant
    FOR EACH ROW WHEN (OLD.parent_id IS DISTINCT FROM NEW.parent_id) EXECUTE FUNCTION tenancy_tenant_stays();
