-- The number of pods of each object of an elastic job is one that its spec allows: that of its elastic pod set is chosen when the
-- attempt is placed, and all others are what the spec says. What was chosen stands (`objects.sql`).
--
-- Reads by index, whatever a session knew of the tables when it planned the statement: a plan for almost empty tables, kept, would
-- read them from end to end for each row.
CREATE OR REPLACE FUNCTION federation_check_sizes() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    wrong text;
BEGIN
    SELECT object.name INTO wrong
      FROM placed AS object
      JOIN federation_attempt AS attempt ON attempt.id = object.attempt_id
      JOIN federation_job AS job ON job.id = attempt.job_id AND job.spec ? 'elastic'
     CROSS JOIN LATERAL (SELECT job.spec -> 'pod_sets' -> object.position::int AS asked, job.spec -> 'elastic' AS elastic) AS its
     WHERE (object.pods BETWEEN CASE WHEN its.asked ->> 'name' = its.elastic ->> 'pod_set'
                                     THEN (its.elastic ->> 'min_count')::int ELSE (its.asked ->> 'count')::int END
                            AND (its.asked ->> 'count')::int) IS NOT TRUE
     LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'object % has more or fewer pods than its job allows', wrong
            USING ERRCODE = 'check_violation', CONSTRAINT = 'a_run_has_a_size_of_its_job';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER a_run_has_a_size_of_its_job AFTER INSERT ON federation_remoteobject
    REFERENCING NEW TABLE AS placed FOR EACH STATEMENT EXECUTE FUNCTION federation_check_sizes();
