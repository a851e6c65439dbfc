-- What conflicts, periods and invoices refuse, whoever writes.

CREATE OR REPLACE FUNCTION billing_guard_conflict() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.resolved_at IS NOT NULL THEN
            RAISE EXCEPTION 'a conflict begins unresolved'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'conflict_begins_unresolved';
        END IF;
        RETURN NEW;
    END IF;
    IF OLD.resolved_at IS NOT NULL
       OR (NEW.id, NEW.organisation_id, NEW.key, NEW.month, NEW.standing_digest, NEW.offered_digest, NEW.offered, NEW.seen_at)
          IS DISTINCT FROM
          (OLD.id, OLD.organisation_id, OLD.key, OLD.month, OLD.standing_digest, OLD.offered_digest, OLD.offered, OLD.seen_at) THEN
        RAISE EXCEPTION 'a conflict is only ever resolved, once'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'conflict_is_resolved_once';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_guard_conflict BEFORE INSERT OR UPDATE ON billing_postingconflict
    FOR EACH ROW EXECUTE FUNCTION billing_guard_conflict();
CREATE OR REPLACE TRIGGER billing_keep_conflicts BEFORE DELETE OR TRUNCATE ON billing_postingconflict
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();

-- At commit: if the offered content stands, it is posted under the conflict's key, and the other one is reversed.
CREATE OR REPLACE FUNCTION billing_judge_resolution() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.decision = 'offered' AND NOT (
        EXISTS (SELECT 1 FROM billing_ledgerentry AS e WHERE e.key = 'resolved/' || NEW.id
                   AND billing_entry_text(e.id) = e.key || substr(NEW.offered, length(NEW.key) + 1))
        AND EXISTS (SELECT 1 FROM billing_ledgerentry AS r JOIN billing_ledgerentry AS e ON e.id = r.reverses_id
                     WHERE e.key = NEW.key)) THEN
        RAISE EXCEPTION 'the offered content of % is not posted', NEW.key
            USING ERRCODE = 'check_violation', CONSTRAINT = 'offered_content_is_posted';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER billing_judge_resolution AFTER UPDATE ON billing_postingconflict
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION billing_judge_resolution();
