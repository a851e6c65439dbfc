-- A cluster stays the one that it was registered as.

CREATE OR REPLACE FUNCTION clusters_cluster_stays_itself() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.identity IS DISTINCT FROM OLD.identity THEN
        RAISE EXCEPTION 'the identity of a cluster is pinned at registration'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'cluster_identity_is_pinned', TABLE = 'clusters_cluster';
    END IF;
    IF OLD.removed_at IS NOT NULL AND NEW.removed_at IS DISTINCT FROM OLD.removed_at THEN
        RAISE EXCEPTION 'a removed cluster stays removed; register it again'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'removed_cluster_stays_removed', TABLE = 'clusters_cluster';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER cluster_stays_itself BEFORE UPDATE OF identity, removed_at ON clusters_cluster
    FOR EACH ROW EXECUTE FUNCTION clusters_cluster_stays_itself();
