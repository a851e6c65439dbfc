-- The names of an object's Secrets stand for one version of each secret: whatever has such a name on the cluster is ours.
CREATE OR REPLACE FUNCTION federation_keep_secrets() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'which secrets object % uses never changes', OLD.name
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'secrets_are_kept';
END $$;
CREATE TRIGGER secrets_are_kept BEFORE UPDATE OF secrets ON federation_remoteobject
    FOR EACH ROW WHEN (NEW.secrets IS DISTINCT FROM OLD.secrets) EXECUTE FUNCTION federation_keep_secrets();
