-- What a claim gave to a pod stays known: a later report adds devices, and takes none back.
CREATE OR REPLACE FUNCTION federation_pod_devices() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the devices of pod % only become more', OLD.uid
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'a_pods_devices_stand';
END $$;
CREATE OR REPLACE TRIGGER a_pods_devices_stand BEFORE UPDATE OF devices ON federation_podrun
    FOR EACH ROW WHEN (NOT NEW.devices @> OLD.devices) EXECUTE FUNCTION federation_pod_devices();
