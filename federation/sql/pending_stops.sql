-- A stop that waits for a checkpoint: it ends with the run for which it waits, whoever ends that. A job that was to be suspended does not
-- return to the queue: a process that does not know of such stops, as one of the version before during an upgrade, would put it there.

CREATE OR REPLACE FUNCTION federation_end_pending_stop() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.stop_wish ->> 'then' = 'suspend' THEN
        IF NEW.state = 'queued' THEN
            NEW.state := 'suspended';
            NEW.reason_code := 'suspended';
        END IF;
        IF NEW.state = 'suspended' THEN
            NEW.suspend_requested_at := coalesce(NEW.suspend_requested_at, NEW.stop_wished_at);
        END IF;
    END IF;
    NEW.stop_wish := NULL;
    NEW.stop_wished_at := NULL;
    NEW.stop_latest_at := NULL;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER a_pending_stop_ends_with_its_run BEFORE UPDATE OF state, suspend_requested_at ON federation_job
    FOR EACH ROW WHEN (NEW.stop_wish IS NOT NULL AND (NEW.state <> 'running' OR NEW.suspend_requested_at IS NOT NULL))
    EXECUTE FUNCTION federation_end_pending_stop();
