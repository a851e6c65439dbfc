-- What the tables of this room refuse, whoever writes: PostgreSQL itself judges, in one transaction with the write.

ALTER TABLE tenancy_rolebinding ADD CONSTRAINT role_binding_is_a_members
    FOREIGN KEY (user_id, organisation_id) REFERENCES tenancy_membership (user_id, organisation_id) ON DELETE CASCADE;

-- The text that is hashed: every column with its length before it, so that no two entries read the same.
CREATE OR REPLACE FUNCTION tenancy_audit_text(entry tenancy_auditentry) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT string_agg(octet_length(coalesce(part, '')) || ':' || coalesce(part, ''), ',' ORDER BY number)
    FROM unnest(ARRAY[
        entry.id::text, to_char(entry.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), entry.actor_id::text,
        entry.actor_name, entry.token_id::text, entry.action, entry.outcome, entry.object_kind, entry.object_id,
        entry.tenant_id::text, entry.detail::text, entry.request_id
] || CASE WHEN entry.source IS NULL THEN '{}'::text[] ELSE ARRAY[entry.source::text] END) WITH ORDINALITY AS parts(part, number)
$$;

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
CREATE TRIGGER tenancy_tenant_place BEFORE INSERT OR UPDATE OF id, parent_id, name, path, depth ON tenancy_tenant
    FOR EACH ROW EXECUTE FUNCTION tenancy_tenant_place();

CREATE OR REPLACE FUNCTION tenancy_tenant_carry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tenancy_tenant SET path = NEW.path || '/' || name, depth = NEW.depth + 1 WHERE parent_id = NEW.id;
    RETURN NULL;
END $$;
CREATE TRIGGER tenancy_tenant_carry AFTER UPDATE ON tenancy_tenant
    FOR EACH ROW WHEN (OLD.path IS DISTINCT FROM NEW.path OR OLD.depth IS DISTINCT FROM NEW.depth)
    EXECUTE FUNCTION tenancy_tenant_carry();

CREATE OR REPLACE FUNCTION tenancy_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE restrict_violation USING MESSAGE = TG_TABLE_NAME || ' only grows: ' || TG_OP || ' refused';
END $$;
CREATE TRIGGER tenancy_auditentry_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON tenancy_auditentry
    FOR EACH STATEMENT EXECUTE FUNCTION tenancy_append_only();
CREATE TRIGGER tenancy_auditlink_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON tenancy_auditlink
    FOR EACH STATEMENT EXECUTE FUNCTION tenancy_append_only();

CREATE OR REPLACE FUNCTION tenancy_audit_chain() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    last_position bigint;
    last_hash bytea;
BEGIN
    PERFORM pg_advisory_xact_lock(1398233409);
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

CREATE OR REPLACE FUNCTION tenancy_audit_link_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() < 2 THEN
        RAISE restrict_violation USING MESSAGE = 'links are added by the chain alone';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER tenancy_audit_link_guard BEFORE INSERT ON tenancy_auditlink
    FOR EACH ROW EXECUTE FUNCTION tenancy_audit_link_guard();

CREATE OR REPLACE FUNCTION tenancy_binding_organisation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT root.id INTO NEW.organisation_id
      FROM tenancy_tenant AS tenant JOIN tenancy_tenant AS root ON root.path = split_part(tenant.path, '/', 1)
     WHERE tenant.id = NEW.tenant_id;
    RETURN NEW;
END $$;
CREATE TRIGGER tenancy_binding_organisation BEFORE INSERT OR UPDATE OF tenant_id, organisation_id ON tenancy_rolebinding
    FOR EACH ROW EXECUTE FUNCTION tenancy_binding_organisation();

CREATE OR REPLACE FUNCTION tenancy_membership_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        RAISE check_violation USING MESSAGE = 'a membership is made and removed, never changed', CONSTRAINT = 'membership_is_fixed';
    END IF;
    IF EXISTS (SELECT FROM tenancy_tenant WHERE id = NEW.organisation_id AND parent_id IS NOT NULL) THEN
        RAISE check_violation USING MESSAGE = 'people belong to organisations', CONSTRAINT = 'membership_is_of_an_organisation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER tenancy_membership_place BEFORE INSERT OR UPDATE ON tenancy_membership
    FOR EACH ROW EXECUTE FUNCTION tenancy_membership_place();

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
CREATE TRIGGER tenancy_tenant_stays BEFORE UPDATE OF parent_id ON tenancy_tenant
    FOR EACH ROW WHEN (OLD.parent_id IS DISTINCT FROM NEW.parent_id) EXECUTE FUNCTION tenancy_tenant_stays();

-- Who is deactivated comes back, if ever, without the sessions, tokens and links of before.
CREATE OR REPLACE FUNCTION tenancy_user_deactivated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.session_epoch := OLD.session_epoch + 1;
    UPDATE tenancy_apitoken SET revoked_at = now() WHERE user_id = NEW.id AND revoked_at IS NULL;
    UPDATE tenancy_onetimelink SET ended_at = now()
     WHERE (user_id = NEW.id OR made_by_id = NEW.id) AND used_at IS NULL AND ended_at IS NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER tenancy_user_deactivated BEFORE UPDATE OF is_active ON tenancy_user
    FOR EACH ROW WHEN (OLD.is_active AND NOT NEW.is_active) EXECUTE FUNCTION tenancy_user_deactivated();

CREATE OR REPLACE FUNCTION tenancy_epoch_grows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A row that was read before the sessions ended, and is saved whole after, must not bring them back.
    NEW.session_epoch := greatest(NEW.session_epoch, OLD.session_epoch);
    RETURN NEW;
END $$;
CREATE TRIGGER tenancy_epoch_grows BEFORE UPDATE OF session_epoch ON tenancy_user
    FOR EACH ROW EXECUTE FUNCTION tenancy_epoch_grows();

CREATE OR REPLACE FUNCTION tenancy_link_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.purpose, NEW.prefix, NEW.digest, NEW.made_by_id, NEW.user_id, NEW.email, NEW.tenant_id, NEW.role,
        NEW.role_expires_at, NEW.created_at, NEW.expires_at) IS DISTINCT FROM
       (OLD.id, OLD.purpose, OLD.prefix, OLD.digest, OLD.made_by_id, OLD.user_id, OLD.email, OLD.tenant_id, OLD.role,
        OLD.role_expires_at, OLD.created_at, OLD.expires_at) THEN
        RAISE check_violation USING MESSAGE = 'what a link is for never changes', CONSTRAINT = 'one_time_link_is_fixed';
    END IF;
    IF OLD.used_at IS NOT NULL OR OLD.ended_at IS NOT NULL THEN
        RAISE check_violation USING
            MESSAGE = 'a link that was used or ended stays so', CONSTRAINT = 'one_time_link_works_once';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER tenancy_link_guard BEFORE UPDATE ON tenancy_onetimelink
    FOR EACH ROW EXECUTE FUNCTION tenancy_link_guard();
