-- Maintenance windows are history once they have begun.

CREATE OR REPLACE FUNCTION clusters_guard_window() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.cancelled_at IS NOT NULL OR (NEW.id, NEW.cluster_id, NEW.starts_at, NEW.ends_at, NEW.nodes, NEW.flavor, NEW.reason,
        NEW.drain, NEW.created_by, NEW.created_at) IS DISTINCT FROM (OLD.id, OLD.cluster_id, OLD.starts_at, OLD.ends_at,
        OLD.nodes, OLD.flavor, OLD.reason, OLD.drain, OLD.created_by, OLD.created_at) THEN
        RAISE EXCEPTION 'maintenance window % can only be cancelled, once', OLD.id
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'windows_are_history';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER windows_are_history BEFORE UPDATE ON clusters_maintenancewindow FOR EACH ROW
    EXECUTE FUNCTION clusters_guard_window();

CREATE OR REPLACE FUNCTION clusters_keep_windows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'maintenance windows are history and are never deleted' USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE TRIGGER windows_are_kept BEFORE DELETE OR TRUNCATE ON clusters_maintenancewindow
    FOR EACH STATEMENT EXECUTE FUNCTION clusters_keep_windows();
