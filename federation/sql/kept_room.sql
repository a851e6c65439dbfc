-- Who has room kept, since when and until when at most, does not change; it ends once.
CREATE OR REPLACE FUNCTION federation_guard_room() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR OLD.ended_at IS NOT NULL
       OR (NEW.id, NEW.job_id, NEW.since_at, NEW.until_at, NEW.again_at)
          IS DISTINCT FROM (OLD.id, OLD.job_id, OLD.since_at, OLD.until_at, OLD.again_at) THEN
        RAISE EXCEPTION 'kept room only moves, and ends once'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'kept_room_only_ends';
    END IF;
    IF NEW.outcome = 'given_up' AND NEW.until_at > now() THEN
        RAISE EXCEPTION 'kept room is not given up before its time'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'kept_room_is_given_up_after_its_time';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER federation_guard_kept_room BEFORE UPDATE OR DELETE ON federation_keptroom
    FOR EACH ROW EXECUTE FUNCTION federation_guard_room();
