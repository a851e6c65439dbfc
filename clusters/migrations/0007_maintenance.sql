-- What a maintenance window must be, besides the constraints of its model. Windows are history: one is only cancelled.
ALTER TABLE clusters_maintenancewindow
    ADD CONSTRAINT window_nodes_are_a_short_list_of_names CHECK (
        CASE WHEN jsonb_typeof(nodes) = 'array'
             THEN jsonb_array_length(nodes) <= 500 AND octet_length(nodes::text) <= 150000
                  AND NOT jsonb_path_exists(nodes, 'strict $[*] ? (@.type() != "string" || @ == "")')
             ELSE false END),
    ADD CONSTRAINT window_lasts_at_most_90_days CHECK (ends_at <= starts_at + interval '90 days');

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
CREATE TRIGGER windows_are_history BEFORE UPDATE ON clusters_maintenancewindow FOR EACH ROW
    EXECUTE FUNCTION clusters_guard_window();

CREATE OR REPLACE FUNCTION clusters_keep_windows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'maintenance windows are history and are never deleted' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER windows_are_kept BEFORE DELETE OR TRUNCATE ON clusters_maintenancewindow
    FOR EACH STATEMENT EXECUTE FUNCTION clusters_keep_windows();
