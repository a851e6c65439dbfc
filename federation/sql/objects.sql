-- Objects on clusters: what was decided when an attempt was placed stands.

-- An object's identity is written once.
CREATE OR REPLACE FUNCTION federation_keep_uid() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'object % already has uid %', OLD.name, OLD.uid USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE TRIGGER object_uid_is_written_once BEFORE UPDATE OF uid ON federation_remoteobject FOR EACH ROW
    WHEN (OLD.uid <> '' AND NEW.uid IS DISTINCT FROM OLD.uid)
    EXECUTE FUNCTION federation_keep_uid();

-- Reads by index, whatever a session knew of the tables when it planned the statement: a plan for almost empty tables, kept, would
-- read them from end to end for each row.
CREATE OR REPLACE FUNCTION federation_object_is_its_clusters() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    IF NEW.cluster_id <> (SELECT cluster_id FROM federation_attempt WHERE id = NEW.attempt_id) THEN
        RAISE EXCEPTION 'object % is not on cluster %', NEW.name, NEW.cluster_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'an_object_is_on_its_attempts_cluster';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER an_object_is_on_its_attempts_cluster BEFORE INSERT OR UPDATE OF cluster_id ON federation_remoteobject
    FOR EACH ROW WHEN (NEW.cluster_id IS NOT NULL) EXECUTE FUNCTION federation_object_is_its_clusters();

-- Reads by index, whatever a session knew of the tables when it planned the statement: a plan for almost empty tables, kept, would
-- read them from end to end for each row.
CREATE OR REPLACE FUNCTION federation_promise() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.promised IS DISTINCT FROM OLD.promised
           OR (NEW.flavor, NEW.pods, NEW.gpu_units, NEW.cpu_millicores, NEW.memory_mib)
              IS DISTINCT FROM (OLD.flavor, OLD.pods, OLD.gpu_units, OLD.cpu_millicores, OLD.memory_mib) THEN
            RAISE EXCEPTION 'what object % was promised never changes', OLD.name
                USING ERRCODE = 'restrict_violation', CONSTRAINT = 'a_promise_is_kept';
        END IF;
        RETURN NEW;
    END IF;
    SELECT jsonb_build_object('vendor', flavor.vendor, 'resource_name', flavor.resource_name,
                              'node_selector', flavor.node_selector, 'slice_hosts', flavor.slice_hosts,
                              'device_class', flavor.device_class, 'cel', flavor.cel,
                              'gpu_model', flavor.gpu_model, 'sharing', flavor.sharing)
      INTO NEW.promised
      FROM federation_attempt AS attempt
      JOIN clusters_flavor AS flavor ON flavor.cluster_id = attempt.cluster_id AND flavor.name = NEW.flavor
     WHERE attempt.id = NEW.attempt_id;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER a_promise_is_made BEFORE INSERT ON federation_remoteobject FOR EACH ROW
    EXECUTE FUNCTION federation_promise();
CREATE OR REPLACE TRIGGER a_promise_is_kept
    BEFORE UPDATE OF promised, flavor, pods, gpu_units, cpu_millicores, memory_mib ON federation_remoteobject
    FOR EACH ROW EXECUTE FUNCTION federation_promise();

-- What the pods of an object mount was decided when its attempt was placed: a storage that changes later changes nothing of it.
CREATE OR REPLACE FUNCTION federation_keep_mounts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'what object % mounts never changes', OLD.name
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'mounts_are_kept';
END $$;
CREATE OR REPLACE TRIGGER mounts_are_kept BEFORE UPDATE OF mounts ON federation_remoteobject
    FOR EACH ROW WHEN (NEW.mounts IS DISTINCT FROM OLD.mounts) EXECUTE FUNCTION federation_keep_mounts();

-- The names of an object's Secrets stand for one version of each secret: whatever has such a name on the cluster is ours.
CREATE OR REPLACE FUNCTION federation_keep_secrets() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'which secrets object % uses never changes', OLD.name
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'secrets_are_kept';
END $$;
CREATE OR REPLACE TRIGGER secrets_are_kept BEFORE UPDATE OF secrets ON federation_remoteobject
    FOR EACH ROW WHEN (NEW.secrets IS DISTINCT FROM OLD.secrets) EXECUTE FUNCTION federation_keep_secrets();

-- What the pods of an object use is deducted from their nodes, as long as they live: it is what they requested.
CREATE OR REPLACE FUNCTION federation_keep_resources() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the resources of object % never change', OLD.name
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'resources_are_kept';
END $$;
CREATE OR REPLACE TRIGGER resources_are_kept BEFORE UPDATE OF resources ON federation_remoteobject
    FOR EACH ROW WHEN (NEW.resources IS DISTINCT FROM OLD.resources) EXECUTE FUNCTION federation_keep_resources();
