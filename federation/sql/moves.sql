-- Only a live attempt that is being stopped to be moved has a move, and it leads to another cluster. The gateway itself moves a
-- job at most three times in a day. Callers lock the job.
CREATE OR REPLACE FUNCTION federation_check_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM federation_attempt AS attempt
      WHERE attempt.id = NEW.attempt_id AND attempt.job_id = NEW.job_id AND attempt.finished_at IS NULL
        AND attempt.stop_reason = 'migrated'
        AND attempt.cluster_id <> NEW.expected_id AND NOT attempt.cluster_id = ANY(NEW.clusters);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'job % is not being moved away from there', NEW.job_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'a_move_leads_away';
    END IF;
    IF NEW.cause <> 'user' AND (SELECT count(*) FROM federation_move AS earlier
                                 WHERE earlier.job_id = NEW.job_id AND earlier.cause <> 'user'
                                   AND earlier.created_at > now() - interval '1 day') >= 3 THEN
        RAISE EXCEPTION 'the gateway has moved job % three times within a day', NEW.job_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'the_gateway_moves_a_job_a_few_times_a_day';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER a_move_leads_away BEFORE INSERT ON federation_move FOR EACH ROW EXECUTE FUNCTION federation_check_move();
