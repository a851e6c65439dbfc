-- A class that is removed takes its limits along: another of the same name begins without any.
CREATE OR REPLACE FUNCTION federation_limits_go_with_class() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM quotas_classlimit WHERE class_name = OLD.name;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER limits_go_with_class AFTER DELETE ON federation_priorityclass
    FOR EACH ROW EXECUTE FUNCTION federation_limits_go_with_class();
