"""What an object was promised says also which GPU model it is and how it is shared, so that its usage is metered by that."""

from django.db import migrations

FORWARD = """
CREATE OR REPLACE FUNCTION federation_promise() RETURNS trigger LANGUAGE plpgsql AS $$
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
ALTER TABLE federation_remoteobject DISABLE TRIGGER a_promise_is_kept;
UPDATE federation_remoteobject AS object
   SET promised = object.promised || jsonb_build_object('gpu_model', flavor.gpu_model, 'sharing', flavor.sharing)
  FROM federation_attempt AS attempt, clusters_flavor AS flavor
 WHERE attempt.id = object.attempt_id AND object.promised IS NOT NULL
   AND flavor.cluster_id = attempt.cluster_id AND flavor.name = object.flavor;
ALTER TABLE federation_remoteobject ENABLE TRIGGER a_promise_is_kept;
"""


class Migration(migrations.Migration):
    dependencies = [("federation", "0022_pods_that_ran_unseen"), ("clusters", "0007_datasets")]

    operations = [migrations.RunSQL(FORWARD, migrations.RunSQL.noop)]
