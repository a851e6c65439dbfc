-- An artifact is written only while its attempt may run, is one that the job declared, lies where the job declared it, and is
-- replaced only by a newer report. The lock on the attempt makes its end wait: nothing is announced after an end.
CREATE OR REPLACE FUNCTION federation_check_artifact() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    told federation_artifact := coalesce(NEW, OLD);
    declared jsonb;
    base text;
BEGIN
    PERFORM FROM federation_attempt AS attempt
      WHERE attempt.id = told.attempt_id AND attempt.state IN ('starting', 'running', 'unknown') FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt % does not run', told.attempt_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'artifacts_stand_once_their_attempt_has_ended';
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    IF TG_OP = 'UPDATE' AND ((NEW.id, NEW.attempt_id, NEW.name) IS DISTINCT FROM (OLD.id, OLD.attempt_id, OLD.name)
                             OR NEW.sequence <= OLD.sequence) THEN
        RAISE EXCEPTION 'artifact % is changed by a report that is not newer', OLD.name
            USING ERRCODE = 'check_violation', CONSTRAINT = 'an_artifact_changes_by_a_newer_report';
    END IF;
    SELECT item.value INTO declared
      FROM federation_attempt AS attempt
      JOIN federation_job AS job ON job.id = attempt.job_id
     CROSS JOIN LATERAL jsonb_array_elements(coalesce(job.spec -> 'artifacts', '[]'::jsonb)) AS item
     WHERE attempt.id = NEW.attempt_id AND item.value ->> 'name' = NEW.name;
    base := coalesce(declared ->> 'url', declared ->> 'path');
    IF base IS NULL OR NEW.storage <> coalesce(declared ->> 'storage', '')
       OR NOT (NEW.reference = base OR starts_with(NEW.reference, base || '/')) THEN
        RAISE EXCEPTION 'its job does not declare the artifact % there', NEW.name
            USING ERRCODE = 'check_violation', CONSTRAINT = 'an_artifact_lies_where_its_job_declared_it';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER an_artifact_is_announced_by_a_run BEFORE INSERT OR UPDATE OR DELETE ON federation_artifact
    FOR EACH ROW EXECUTE FUNCTION federation_check_artifact();
