-- A plan never changes; only its end is written, once.
CREATE OR REPLACE FUNCTION federation_keep_consolidation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR OLD.ended_at IS NOT NULL
       OR to_jsonb(NEW) - 'ended_at' - 'outcome' <> to_jsonb(OLD) - 'ended_at' - 'outcome' THEN
        RAISE EXCEPTION 'the consolidation % is decided', OLD.id
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'a_consolidation_ends_once';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER a_consolidation_ends_once BEFORE UPDATE OR DELETE ON federation_consolidation
    FOR EACH ROW EXECUTE FUNCTION federation_keep_consolidation();
