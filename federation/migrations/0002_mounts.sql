-- What the pods of an object mount was decided when its attempt was placed: a storage that changes later changes nothing of it.
CREATE OR REPLACE FUNCTION federation_keep_mounts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'what object % mounts never changes', OLD.name
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'mounts_are_kept';
END $$;
CREATE TRIGGER mounts_are_kept BEFORE UPDATE OF mounts ON federation_remoteobject
    FOR EACH ROW WHEN (NEW.mounts IS DISTINCT FROM OLD.mounts) EXECUTE FUNCTION federation_keep_mounts();
