-- Jobs and attempts end now, by every writer: an end in the past would pass for evidence that its cluster had its time to report
-- pods (`what_may_have_run_settles_on_evidence`), and bills would be bounded by it. The minute is for transactions that last.
CREATE OR REPLACE FUNCTION federation_ends_now() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.finished_at IS NOT NULL THEN
        RAISE EXCEPTION '% % has ended at %, which stands', TG_ARGV[0], OLD.id, OLD.finished_at
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'an_end_is_dated_now';
    END IF;
    IF NEW.finished_at NOT BETWEEN transaction_timestamp() - interval '1 minute' AND clock_timestamp() + interval '1 second' THEN
        RAISE EXCEPTION '% % ends now, not at %', TG_ARGV[0], OLD.id, NEW.finished_at
            USING ERRCODE = 'check_violation', CONSTRAINT = 'an_end_is_dated_now';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER jobs_end_now BEFORE UPDATE OF finished_at ON federation_job FOR EACH ROW
    WHEN (NEW.finished_at IS DISTINCT FROM OLD.finished_at) EXECUTE FUNCTION federation_ends_now('job');
CREATE TRIGGER attempts_end_now BEFORE UPDATE OF finished_at ON federation_attempt FOR EACH ROW
    WHEN (NEW.finished_at IS DISTINCT FROM OLD.finished_at) EXECUTE FUNCTION federation_ends_now('attempt');
