-- Avoided nodes are history: a row only ends.
CREATE OR REPLACE FUNCTION clusters_keep_avoided() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.ended_at IS NOT NULL OR (NEW.id, NEW.cluster_id, NEW.node, NEW.uid, NEW.reason, NEW.evidence, NEW.began_at, NEW.until_at)
       IS DISTINCT FROM (OLD.id, OLD.cluster_id, OLD.node, OLD.uid, OLD.reason, OLD.evidence, OLD.began_at, OLD.until_at) THEN
        RAISE EXCEPTION 'avoided node % only ends', OLD.id
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'avoided_nodes_are_history';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER avoided_nodes_are_history BEFORE UPDATE ON clusters_avoidednode FOR EACH ROW
    EXECUTE FUNCTION clusters_keep_avoided();
