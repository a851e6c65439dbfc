-- The simulated database's clock. The functions below precede PostgreSQL's own in the search path, so every statement,
-- default and trigger of the gateway reads this clock. A sequence is visible to all sessions outside transactions. Without a
-- log, setting it writes nothing to disk and gives the transaction no number.
CREATE SCHEMA simulation;
CREATE UNLOGGED SEQUENCE simulation.clock;

CREATE FUNCTION simulation.clock_us() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT pg_catalog.pg_sequence_last_value('simulation.clock'::regclass) $$;

CREATE FUNCTION simulation.at(microseconds bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS
$$ SELECT timestamptz 'epoch' + microseconds * interval '1 microsecond' $$;

CREATE FUNCTION simulation.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
$$ SELECT simulation.at(simulation.clock_us()) $$;

-- A statement that waits for a lock keeps the time at which it began.
CREATE FUNCTION simulation.statement_timestamp() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
DECLARE
    statement text := pg_catalog.statement_timestamp()::text;
    kept text := current_setting('simulation.statement', true);
BEGIN
    IF kept IS NULL OR split_part(kept, '|', 1) <> statement THEN
        kept := statement || '|' || simulation.clock_us();
        PERFORM set_config('simulation.statement', kept, false);
    END IF;
    RETURN simulation.at(split_part(kept, '|', 2)::bigint);
END $$;

-- Set at the first statement of each transaction; a statement outside any has its own time.
CREATE FUNCTION simulation.now() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
DECLARE
    began text := current_setting('simulation.began_us', true);
BEGIN
    IF began IS NULL OR began = '' THEN
        RETURN simulation.statement_timestamp();
    END IF;
    RETURN simulation.at(began::bigint);
END $$;

CREATE FUNCTION simulation.transaction_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT simulation.now() $$;

-- The server's identity, which precedes PostgreSQL's own: another one after a restore that the gateway has to notice itself.
CREATE UNLOGGED SEQUENCE simulation.history;

CREATE FUNCTION simulation.pg_control_system() RETURNS TABLE (system_identifier bigint) LANGUAGE sql VOLATILE AS
$$ SELECT pg_catalog.pg_sequence_last_value('simulation.history'::regclass) $$;

-- Every committed change of a state, in the order of the statements, for the judges.
CREATE TABLE simulation.changes (
    number bigserial PRIMARY KEY, at timestamptz NOT NULL, what text NOT NULL, id text NOT NULL, before text, after text,
    actor text DEFAULT current_setting('simulation.actor', true)
);

CREATE FUNCTION simulation.note_state() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO simulation.changes (at, what, id, before, after)
    VALUES (simulation.clock_timestamp(), TG_ARGV[0], to_jsonb(NEW) ->> TG_ARGV[1],
            CASE WHEN TG_OP = 'UPDATE' THEN to_jsonb(OLD) ->> 'state' END, NEW.state);
    RETURN NULL;
END $$;
