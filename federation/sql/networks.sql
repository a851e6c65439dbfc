-- Which networks the pods of an object use was decided when its attempt was placed: a network that changes later changes nothing of it.
CREATE OR REPLACE FUNCTION federation_keep_networks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'which networks object % uses never changes', OLD.name
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'networks_are_kept';
END $$;
CREATE OR REPLACE TRIGGER networks_are_kept BEFORE UPDATE OF networks ON federation_remoteobject
    FOR EACH ROW WHEN (NEW.networks IS DISTINCT FROM OLD.networks) EXECUTE FUNCTION federation_keep_networks();
