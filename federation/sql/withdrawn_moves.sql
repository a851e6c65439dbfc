-- A move is undone only if its run goes on, and it is part of a plan that has ended, or its place is no longer kept. No process has the
-- right to change one.
CREATE OR REPLACE FUNCTION federation_keep_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM federation_attempt AS attempt
          LEFT JOIN federation_consolidation AS plan ON plan.id = OLD.consolidation_id
         WHERE attempt.id = OLD.attempt_id AND attempt.finished_at IS NULL AND attempt.stop_requested_at IS NULL
           AND attempt.deletion_at IS NULL AND (plan.ended_at IS NOT NULL OR OLD.kept_until <= statement_timestamp())
    ) THEN
        RAISE EXCEPTION 'the move of attempt % is decided', OLD.attempt_id
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'a_move_is_undone_only_if_its_run_goes_on';
    END IF;
    RETURN OLD;
END $$;
CREATE OR REPLACE TRIGGER a_move_is_undone_only_if_its_run_goes_on BEFORE DELETE ON federation_move
    FOR EACH ROW EXECUTE FUNCTION federation_keep_move();
