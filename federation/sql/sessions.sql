-- A ticket is used once, and says for whom, for which attempt and until when for ever.
CREATE OR REPLACE FUNCTION federation_guard_ticket() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.attempt_id, NEW.user_id, NEW.token_id, NEW.digest, NEW.epoch, NEW.created_at, NEW.expires_at)
       IS DISTINCT FROM
       (OLD.id, OLD.attempt_id, OLD.user_id, OLD.token_id, OLD.digest, OLD.epoch, OLD.created_at, OLD.expires_at)
    THEN
        RAISE EXCEPTION 'the ticket % is for one user, one attempt and one minute', OLD.id
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'a_ticket_does_not_change';
    END IF;
    IF OLD.used_at IS NOT NULL THEN
        RAISE EXCEPTION 'the ticket % was used', OLD.id
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'a_ticket_is_used_once';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER a_ticket_is_used_once BEFORE UPDATE ON federation_sessionticket
    FOR EACH ROW EXECUTE FUNCTION federation_guard_ticket();

-- Use only moves forward, and a stop is decided once: nothing makes a session look unused that was used.
CREATE OR REPLACE FUNCTION federation_guard_session_use() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.attempt_id <> OLD.attempt_id OR NEW.last_used_at < OLD.last_used_at
       OR OLD.stopped_at IS NOT NULL AND NEW.stopped_at IS DISTINCT FROM OLD.stopped_at
    THEN
        RAISE EXCEPTION 'the use of % only moves forward', OLD.attempt_id
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'a_sessions_use_moves_forward';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER a_sessions_use_moves_forward BEFORE UPDATE ON federation_sessionuse
    FOR EACH ROW EXECUTE FUNCTION federation_guard_session_use();
