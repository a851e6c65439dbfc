-- What the pods of an object use is deducted from their nodes, as long as they live: it is what they requested.
CREATE OR REPLACE FUNCTION federation_keep_resources() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the resources of object % never change', OLD.name
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'resources_are_kept';
END $$;
CREATE TRIGGER resources_are_kept BEFORE UPDATE OF resources ON federation_remoteobject
    FOR EACH ROW WHEN (NEW.resources IS DISTINCT FROM OLD.resources) EXECUTE FUNCTION federation_keep_resources();
