-- Until when the place of a failed attempt is kept at most: while the attempt is cleared away, and for the time of its rule afterwards.
CREATE OR REPLACE FUNCTION federation_place_until(wanted uuid, at_most timestamptz) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT least(at_most, attempt.finished_at + make_interval(secs => coalesce(diagnosis.wait_seconds + diagnosis.keep_seconds, 0)))
      FROM federation_attempt AS attempt
      LEFT JOIN federation_diagnosis AS diagnosis ON diagnosis.attempt_id = attempt.id
     WHERE attempt.id = wanted
$$;

-- A place is one that the attempt has, and is kept from now on.
CREATE OR REPLACE FUNCTION federation_check_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM federation_attempt AS attempt
      WHERE attempt.id = NEW.attempt_id AND attempt.job_id = NEW.job_id AND attempt.cluster_id = NEW.cluster_id
        AND attempt.finished_at IS NULL AND NEW.ended_at IS NULL
        AND NEW.since_at BETWEEN transaction_timestamp() - interval '1 minute' AND clock_timestamp() + interval '1 second';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt % has no such place now', NEW.attempt_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'a_place_is_kept_of_an_attempt_that_lives';
    END IF;
    IF EXISTS (
        SELECT FROM jsonb_array_elements_text(NEW.nodes) AS kept(name)
         WHERE NOT EXISTS (SELECT FROM federation_podrun AS pod WHERE pod.attempt_id = NEW.attempt_id AND pod.node = kept.name)
           AND NOT EXISTS (SELECT FROM federation_remoteobject AS object
                            WHERE object.attempt_id = NEW.attempt_id AND object.assumed_nodes ? kept.name)
    ) THEN
        RAISE EXCEPTION 'attempt % has no such node', NEW.attempt_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'a_kept_place_has_only_nodes_of_its_attempt';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER a_place_is_kept_of_an_attempt_that_lives BEFORE INSERT ON federation_keptplace
    FOR EACH ROW EXECUTE FUNCTION federation_check_place();

-- Only its end is ever written, once, and it is not given up before its time.
CREATE OR REPLACE FUNCTION federation_guard_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR OLD.ended_at IS NOT NULL
       OR to_jsonb(NEW) - 'ended_at' - 'outcome' <> to_jsonb(OLD) - 'ended_at' - 'outcome' THEN
        RAISE EXCEPTION 'a kept place only ends, once'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'a_kept_place_only_ends';
    END IF;
    IF NEW.outcome = 'given_up' AND federation_place_until(NEW.attempt_id, NEW.until_at) > clock_timestamp() THEN
        RAISE EXCEPTION 'a place is not given up before its time'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'a_place_is_given_up_after_its_time';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER a_kept_place_only_ends BEFORE UPDATE OR DELETE ON federation_keptplace
    FOR EACH ROW EXECUTE FUNCTION federation_guard_place();
