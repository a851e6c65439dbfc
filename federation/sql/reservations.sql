-- Reservations of nodes.

CREATE OR REPLACE FUNCTION federation_guard_reservation() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    fault text;
BEGIN
    IF (NEW.id, NEW.tenant_id, NEW.created_by_id, NEW.cluster_id, NEW.name, NEW.shape, NEW.count, NEW.starts_at,
        NEW.ends_at, NEW.created_at, NEW.quota_id, NEW.recall_seconds, NEW.no_show_seconds) IS DISTINCT FROM
       (OLD.id, OLD.tenant_id, OLD.created_by_id, OLD.cluster_id, OLD.name, OLD.shape, OLD.count, OLD.starts_at,
        OLD.ends_at, OLD.created_at, OLD.quota_id, OLD.recall_seconds, OLD.no_show_seconds) THEN
        fault := 'stays as it was asked for';
    ELSIF OLD.cancelled_at IS NOT NULL AND NEW IS DISTINCT FROM OLD THEN
        fault := 'was cancelled';
    ELSIF OLD.released_at IS NOT NULL AND NEW IS DISTINCT FROM OLD THEN
        fault := 'was released';
    ELSIF NEW.until_at > OLD.until_at THEN
        fault := 'only ever ends sooner';
    ELSIF NEW.until_at < OLD.until_at AND OLD.until_at <= statement_timestamp() THEN
        fault := 'is over';
    ELSIF NEW.until_at < OLD.until_at AND NEW.until_at < statement_timestamp() AND OLD.starts_at < statement_timestamp() THEN
        fault := 'was in force until now';
    END IF;
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION 'reservation % %', OLD.id, fault
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'reservations_are_history';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER reservations_are_history BEFORE UPDATE ON federation_reservation
    FOR EACH ROW EXECUTE FUNCTION federation_guard_reservation();

CREATE OR REPLACE FUNCTION federation_guard_reserved_node() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.reservation_id, NEW.cluster_id, NEW.node) IS DISTINCT FROM
       (OLD.id, OLD.reservation_id, OLD.cluster_id, OLD.node) THEN
        RAISE EXCEPTION 'reserved node % stays in its reservation', OLD.node
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'reserved_nodes_are_history';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER reserved_nodes_are_history BEFORE UPDATE ON federation_reservednode
    FOR EACH ROW EXECUTE FUNCTION federation_guard_reserved_node();

CREATE OR REPLACE FUNCTION federation_keep_reservations() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'reservations are history and are never deleted' USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE TRIGGER reservations_are_kept BEFORE DELETE OR TRUNCATE ON federation_reservation
    FOR EACH STATEMENT EXECUTE FUNCTION federation_keep_reservations();
CREATE OR REPLACE TRIGGER reserved_nodes_are_kept BEFORE DELETE OR TRUNCATE ON federation_reservednode
    FOR EACH STATEMENT EXECUTE FUNCTION federation_keep_reservations();
