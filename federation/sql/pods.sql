-- Pods: each has a place of its object, and stays what it was seen to be.

-- Reads by index, whatever a session knew of the tables when it planned the statement: a plan for almost empty tables, kept, would
-- read them from end to end for each row.
CREATE OR REPLACE FUNCTION federation_pod_fits() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF (NEW.attempt_id, NEW.cluster_id, NEW.uid, NEW.position, NEW.index)
           IS DISTINCT FROM (OLD.attempt_id, OLD.cluster_id, OLD.uid, OLD.position, OLD.index)
           OR (OLD.place IS NOT NULL AND (NEW.place, NEW.remote_object_id)
               IS DISTINCT FROM (OLD.place, OLD.remote_object_id)) THEN
            RAISE EXCEPTION 'what pod % is never changes', OLD.uid
                USING ERRCODE = 'restrict_violation', CONSTRAINT = 'a_pod_stays_what_it_is';
        END IF;
        RETURN NEW;
    END IF;
    PERFORM 1 FROM federation_remoteobject AS object
              JOIN federation_attempt AS attempt ON attempt.id = object.attempt_id
     WHERE object.id = NEW.remote_object_id AND object.attempt_id = NEW.attempt_id AND object.position = NEW.position
       AND NEW.place < object.pods AND attempt.cluster_id = NEW.cluster_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pod % fits no object of its attempt and cluster', NEW.uid
            USING ERRCODE = 'check_violation', CONSTRAINT = 'a_pod_has_a_place_of_its_object';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER a_pod_has_a_place_of_its_object BEFORE INSERT ON federation_podrun FOR EACH ROW
    EXECUTE FUNCTION federation_pod_fits();
CREATE OR REPLACE TRIGGER a_pod_stays_what_it_is
    BEFORE UPDATE OF attempt_id, cluster_id, uid, position, index, place, remote_object_id ON federation_podrun
    FOR EACH ROW EXECUTE FUNCTION federation_pod_fits();

CREATE OR REPLACE FUNCTION federation_pod_instants() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'when pod % began or ended is known and stands', OLD.uid
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'a_pods_instants_stand';
END $$;
CREATE OR REPLACE TRIGGER a_pods_instants_stand BEFORE UPDATE OF started_at, finished_at, part, resumed_at ON federation_podrun
    FOR EACH ROW WHEN (
        OLD.started_at IS NOT NULL AND NEW.started_at IS DISTINCT FROM OLD.started_at
        OR OLD.finished_at IS NOT NULL AND NEW.finished_at IS DISTINCT FROM OLD.finished_at
        OR NEW.part < OLD.part
        OR NEW.part = OLD.part AND NEW.resumed_at IS DISTINCT FROM OLD.resumed_at)
    EXECUTE FUNCTION federation_pod_instants();
