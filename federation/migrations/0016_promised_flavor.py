"""An object keeps the flavor that its attempt was promised: what the cluster offers later changes nothing about it."""

from django.db import migrations, models

FORWARD = """
CREATE FUNCTION federation_promise() RETURNS trigger LANGUAGE plpgsql AS $$
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
                              'device_class', flavor.device_class, 'cel', flavor.cel)
      INTO NEW.promised
      FROM federation_attempt AS attempt
      JOIN clusters_flavor AS flavor ON flavor.cluster_id = attempt.cluster_id AND flavor.name = NEW.flavor
     WHERE attempt.id = NEW.attempt_id;
    RETURN NEW;
END $$;
UPDATE federation_remoteobject AS object
   SET promised = jsonb_build_object('vendor', flavor.vendor, 'resource_name', flavor.resource_name,
                                     'node_selector', flavor.node_selector, 'slice_hosts', flavor.slice_hosts,
                                     'device_class', flavor.device_class, 'cel', flavor.cel)
  FROM federation_attempt AS attempt, clusters_flavor AS flavor
 WHERE attempt.id = object.attempt_id AND attempt.finished_at IS NULL
   AND flavor.cluster_id = attempt.cluster_id AND flavor.name = object.flavor;
CREATE TRIGGER a_promise_is_made BEFORE INSERT ON federation_remoteobject FOR EACH ROW
    EXECUTE FUNCTION federation_promise();
CREATE TRIGGER a_promise_is_kept
    BEFORE UPDATE OF promised, flavor, pods, gpu_units, cpu_millicores, memory_mib ON federation_remoteobject
    FOR EACH ROW EXECUTE FUNCTION federation_promise();
"""
BACKWARD = """
DROP TRIGGER a_promise_is_kept ON federation_remoteobject;
DROP TRIGGER a_promise_is_made ON federation_remoteobject;
DROP FUNCTION federation_promise();
"""


class Migration(migrations.Migration):
    dependencies = [("federation", "0015_states_that_something_writes"), ("clusters", "0007_datasets")]

    operations = [
        migrations.AddField(
            model_name="remoteobject",
            name="promised",
            field=models.JSONField(
                editable=False,
                help_text="The flavor as it was when the attempt was made (trigger); null = it was gone already.",
                null=True,
            ),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
