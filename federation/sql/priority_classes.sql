-- Priority classes.

-- One class is the default at the end of every transaction; an index keeps it from being more than one.
CREATE OR REPLACE FUNCTION federation_need_default_class() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM federation_priorityclass WHERE is_default) THEN
        RAISE EXCEPTION 'no priority class is the default'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'a_priority_class_is_the_default';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER a_priority_class_is_the_default AFTER UPDATE OR DELETE ON federation_priorityclass
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (OLD.is_default) EXECUTE FUNCTION federation_need_default_class();

-- Specs name classes, so a name means the same class forever.
CREATE OR REPLACE FUNCTION federation_keep_class_name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the priority class % keeps its name', OLD.name
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'priority_class_keeps_its_name';
END $$;
CREATE OR REPLACE TRIGGER priority_class_keeps_its_name BEFORE UPDATE OF name ON federation_priorityclass FOR EACH ROW
    WHEN (NEW.name <> OLD.name) EXECUTE FUNCTION federation_keep_class_name();

-- Jobs of before have no reference to their class. Those since are kept by their foreign key, against races too.
CREATE OR REPLACE FUNCTION federation_keep_used_class() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM federation_job WHERE priority_class_id IS NULL AND spec->>'priority_class' = OLD.name) THEN
        RAISE EXCEPTION 'jobs name the priority class %', OLD.name
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'priority_class_stays_while_jobs_name_it';
    END IF;
    RETURN OLD;
END $$;
CREATE OR REPLACE TRIGGER priority_class_stays_while_jobs_name_it BEFORE DELETE ON federation_priorityclass
    FOR EACH ROW EXECUTE FUNCTION federation_keep_used_class();
