-- Diagnoses of failures, and brakes on retries.

-- A diagnosis is history: once judged, it stays as it is. What is not judged yet may be judged, or dropped.
CREATE OR REPLACE FUNCTION federation_keep_diagnosis() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the diagnosis on attempt % stands', OLD.attempt_id
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'a_diagnosis_stands';
END $$;
CREATE OR REPLACE TRIGGER a_diagnosis_stands BEFORE UPDATE OR DELETE ON federation_diagnosis FOR EACH ROW
    WHEN (OLD.judged_at IS NOT NULL) EXECUTE FUNCTION federation_keep_diagnosis();

-- A brake's period is history: it only ends.
CREATE OR REPLACE FUNCTION federation_keep_brake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.ended_at IS NOT NULL OR (NEW.id, NEW.cluster_id, NEW.began_at, NEW.failures, NEW.attempts)
       IS DISTINCT FROM (OLD.id, OLD.cluster_id, OLD.began_at, OLD.failures, OLD.attempts) THEN
        RAISE EXCEPTION 'brake % only ends', OLD.id
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'brakes_are_history';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER brakes_are_history BEFORE UPDATE ON federation_retrybrake FOR EACH ROW
    EXECUTE FUNCTION federation_keep_brake();
