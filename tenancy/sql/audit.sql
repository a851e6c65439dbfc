-- The trail of what people did: append-only, each entry chained to the one before.

-- The text that is hashed: every column with its length before it, so that no two entries read the same.
CREATE OR REPLACE FUNCTION tenancy_audit_text(entry tenancy_auditentry) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT string_agg(octet_length(coalesce(part, '')) || ':' || coalesce(part, ''), ',' ORDER BY number)
    FROM unnest(ARRAY[
        entry.id::text, to_char(entry.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), entry.actor_id::text,
        entry.actor_name, entry.token_id::text, entry.action, entry.outcome, entry.object_kind, entry.object_id,
        entry.tenant_id::text, entry.detail::text, entry.request_id
] || CASE WHEN entry.source IS NULL THEN '{}'::text[] ELSE ARRAY[entry.source::text] END) WITH ORDINALITY AS parts(part, number)
$$;

CREATE OR REPLACE FUNCTION tenancy_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE restrict_violation USING MESSAGE = TG_TABLE_NAME || ' only grows: ' || TG_OP || ' refused';
END $$;
CREATE OR REPLACE TRIGGER tenancy_auditentry_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON tenancy_auditentry
    FOR EACH STATEMENT EXECUTE FUNCTION tenancy_append_only();
CREATE OR REPLACE TRIGGER tenancy_auditlink_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON tenancy_auditlink
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
CREATE OR REPLACE TRIGGER tenancy_audit_link_guard BEFORE INSERT ON tenancy_auditlink
    FOR EACH ROW EXECUTE FUNCTION tenancy_audit_link_guard();
