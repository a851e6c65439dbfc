-- What the hours set aside refuse, whoever writes.

-- Numbers of people's decisions do not change; a decision is made once.
CREATE OR REPLACE FUNCTION billing_guard_node_hour() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state <> 'open' THEN
            RAISE EXCEPTION 'an hour is set aside before it is decided'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'node_hour_begins_open';
        END IF;
        RETURN NEW;
    END IF;
    IF OLD.state <> 'open' AND NOT (OLD.state = 'superseded' AND NEW.state = 'open')
       OR (NEW.id, NEW.organisation_id, NEW.cluster_id, NEW.node, NEW.hour, NEW.currency, NEW.cost, NEW.charged, NEW.cause,
           NEW.runs, NEW.seen_at)
          IS DISTINCT FROM
          (OLD.id, OLD.organisation_id, OLD.cluster_id, OLD.node, OLD.hour, OLD.currency, OLD.cost, OLD.charged, OLD.cause,
           OLD.runs, OLD.seen_at) THEN
        RAISE EXCEPTION 'a negative hour is decided once, and keeps its numbers'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'node_hour_is_decided_once';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER billing_guard_node_hour BEFORE INSERT OR UPDATE ON billing_negativenodehour
    FOR EACH ROW EXECUTE FUNCTION billing_guard_node_hour();
CREATE OR REPLACE TRIGGER billing_keep_node_hours BEFORE DELETE OR TRUNCATE ON billing_negativenodehour
    FOR EACH STATEMENT EXECUTE FUNCTION billing_keep();
