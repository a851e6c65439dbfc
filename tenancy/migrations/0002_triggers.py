"""What the database itself keeps true: every tenant's path, and an audit trail that only grows and is chained."""

from django.db import migrations

TREE_LOCK = 0x53575954
CHAIN_LOCK = 0x53575941

TENANT_PLACE = f"""
CREATE FUNCTION tenancy_tenant_place() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    above_path text;
    above_depth integer;
    true_path text;
    true_depth integer;
BEGIN
    IF TG_OP = 'INSERT' THEN
        -- Many may add at once; nobody may add while somebody moves or renames.
        PERFORM pg_advisory_xact_lock_shared({TREE_LOCK});
    ELSIF (NEW.parent_id, NEW.name) IS DISTINCT FROM (OLD.parent_id, OLD.name) THEN
        PERFORM pg_advisory_xact_lock({TREE_LOCK});
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
CREATE TRIGGER tenancy_tenant_place BEFORE INSERT OR UPDATE OF id, parent_id, name, path, depth ON tenancy_tenant
    FOR EACH ROW EXECUTE FUNCTION tenancy_tenant_place();

CREATE FUNCTION tenancy_tenant_carry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tenancy_tenant SET path = NEW.path || '/' || name, depth = NEW.depth + 1 WHERE parent_id = NEW.id;
    RETURN NULL;
END $$;
CREATE TRIGGER tenancy_tenant_carry AFTER UPDATE ON tenancy_tenant
    FOR EACH ROW WHEN (OLD.path IS DISTINCT FROM NEW.path OR OLD.depth IS DISTINCT FROM NEW.depth)
    EXECUTE FUNCTION tenancy_tenant_carry();
"""

AUDIT_CHAIN = f"""
CREATE FUNCTION tenancy_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE restrict_violation USING MESSAGE = TG_TABLE_NAME || ' only grows: ' || TG_OP || ' refused';
END $$;
CREATE TRIGGER tenancy_auditentry_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON tenancy_auditentry
    FOR EACH STATEMENT EXECUTE FUNCTION tenancy_append_only();
CREATE TRIGGER tenancy_auditlink_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON tenancy_auditlink
    FOR EACH STATEMENT EXECUTE FUNCTION tenancy_append_only();

-- The text that is hashed: every column with its length before it, so that no two entries read the same.
CREATE FUNCTION tenancy_audit_text(entry tenancy_auditentry) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT string_agg(octet_length(coalesce(part, '')) || ':' || coalesce(part, ''), ',' ORDER BY number)
    FROM unnest(ARRAY[
        entry.id::text, to_char(entry.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), entry.actor_id::text,
        entry.actor_name, entry.token_id::text, entry.action, entry.outcome, entry.object_kind, entry.object_id,
        entry.tenant_id::text, entry.detail::text, entry.request_id
    ]) WITH ORDINALITY AS parts(part, number)
$$;

CREATE FUNCTION tenancy_audit_chain() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    last_position bigint;
    last_hash bytea;
BEGIN
    PERFORM pg_advisory_xact_lock({CHAIN_LOCK});
    SELECT position, hash INTO last_position, last_hash FROM tenancy_auditlink ORDER BY position DESC LIMIT 1;
    INSERT INTO tenancy_auditlink (position, entry_id, hash) VALUES (
        coalesce(last_position, 0) + 1,
        NEW.id,
        sha256(coalesce(last_hash, decode(repeat('00', 32), 'hex')) || convert_to(tenancy_audit_text(NEW), 'UTF8'))
    );
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER tenancy_audit_chain AFTER INSERT ON tenancy_auditentry
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tenancy_audit_chain();

CREATE FUNCTION tenancy_audit_link_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() < 2 THEN
        RAISE restrict_violation USING MESSAGE = 'links are added by the chain alone';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER tenancy_audit_link_guard BEFORE INSERT ON tenancy_auditlink
    FOR EACH ROW EXECUTE FUNCTION tenancy_audit_link_guard();
"""

REMOVE = """
DROP TRIGGER tenancy_audit_link_guard ON tenancy_auditlink;
DROP TRIGGER tenancy_audit_chain ON tenancy_auditentry;
DROP TRIGGER tenancy_auditlink_append_only ON tenancy_auditlink;
DROP TRIGGER tenancy_auditentry_append_only ON tenancy_auditentry;
DROP TRIGGER tenancy_tenant_carry ON tenancy_tenant;
DROP TRIGGER tenancy_tenant_place ON tenancy_tenant;
DROP FUNCTION tenancy_audit_link_guard(), tenancy_audit_chain(), tenancy_audit_text(tenancy_auditentry),
    tenancy_append_only(), tenancy_tenant_carry(), tenancy_tenant_place();
"""


class Migration(migrations.Migration):
    dependencies = [("tenancy", "0001_initial")]
    operations = [migrations.RunSQL(TENANT_PLACE + AUDIT_CHAIN, REMOVE)]
