"""A pod is known by its cluster and uid, belongs to an object of that cluster, and has a place of it to itself.

Pods of before have no place. Those that still run get one each, as far as there are places; the constraint does not look at
the others, whose usage is metered or about to be.
"""

import django.contrib.postgres.constraints
import django.contrib.postgres.fields.ranges
import django.db.models.deletion
import django.db.models.functions.comparison
from django.db import migrations, models

FILL = """
UPDATE federation_remoteobject AS object SET cluster_id = attempt.cluster_id
  FROM federation_attempt AS attempt WHERE attempt.id = object.attempt_id AND object.uid <> '';
UPDATE federation_remoteobject AS object SET completions = (job.spec ->> 'completions')::int
  FROM federation_attempt AS attempt JOIN federation_job AS job ON job.id = attempt.job_id
 WHERE attempt.id = object.attempt_id AND job.spec ->> 'completions' IS NOT NULL;
UPDATE federation_podrun AS pod SET cluster_id = attempt.cluster_id
  FROM federation_attempt AS attempt WHERE attempt.id = pod.attempt_id;
UPDATE federation_podrun AS pod SET remote_object_id = object.id
  FROM federation_remoteobject AS object WHERE object.attempt_id = pod.attempt_id AND object.position = pod.position;
UPDATE federation_podrun AS pod SET index = numbered.n, place = CASE WHEN numbered.n < object.pods THEN numbered.n END
  FROM (SELECT id, row_number() OVER (PARTITION BY attempt_id, position ORDER BY id) - 1 AS n FROM federation_podrun
         WHERE finished_at IS NULL AND NOT is_gone) AS numbered, federation_podrun AS one, federation_remoteobject AS object
 WHERE pod.id = numbered.id AND one.id = pod.id AND object.id = one.remote_object_id;
"""

FORWARD = """
CREATE FUNCTION federation_pod_fits() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF (NEW.attempt_id, NEW.cluster_id, NEW.uid, NEW.position, NEW.index)
           IS DISTINCT FROM (OLD.attempt_id, OLD.cluster_id, OLD.uid, OLD.position, OLD.index)
           OR (OLD.place IS NOT NULL AND (NEW.place, NEW.remote_object_id)
               IS DISTINCT FROM (OLD.place, OLD.remote_object_id)) THEN
            RAISE EXCEPTION 'what pod % is never changes', OLD.uid
                USING ERRCODE = 'restrict_violation', CONSTRAINT = 'a_pod_stays_what_it_is';
        END IF;
        RETURN NEW;
    END IF;
    PERFORM 1 FROM federation_remoteobject AS object
              JOIN federation_attempt AS attempt ON attempt.id = object.attempt_id
     WHERE object.id = NEW.remote_object_id AND object.attempt_id = NEW.attempt_id AND object.position = NEW.position
       AND NEW.place < object.pods AND attempt.cluster_id = NEW.cluster_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pod % fits no object of its attempt and cluster', NEW.uid
            USING ERRCODE = 'check_violation', CONSTRAINT = 'a_pod_has_a_place_of_its_object';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_pod_has_a_place_of_its_object BEFORE INSERT ON federation_podrun FOR EACH ROW
    EXECUTE FUNCTION federation_pod_fits();
CREATE TRIGGER a_pod_stays_what_it_is
    BEFORE UPDATE OF attempt_id, cluster_id, uid, position, index, place, remote_object_id ON federation_podrun
    FOR EACH ROW EXECUTE FUNCTION federation_pod_fits();

CREATE FUNCTION federation_object_is_its_clusters() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.cluster_id <> (SELECT cluster_id FROM federation_attempt WHERE id = NEW.attempt_id) THEN
        RAISE EXCEPTION 'object % is not on cluster %', NEW.name, NEW.cluster_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'an_object_is_on_its_attempts_cluster';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER an_object_is_on_its_attempts_cluster BEFORE INSERT OR UPDATE OF cluster_id ON federation_remoteobject
    FOR EACH ROW WHEN (NEW.cluster_id IS NOT NULL) EXECUTE FUNCTION federation_object_is_its_clusters();
"""
BACKWARD = """
DROP TRIGGER an_object_is_on_its_attempts_cluster ON federation_remoteobject;
DROP FUNCTION federation_object_is_its_clusters();
DROP TRIGGER a_pod_stays_what_it_is ON federation_podrun;
DROP TRIGGER a_pod_has_a_place_of_its_object ON federation_podrun;
DROP FUNCTION federation_pod_fits();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('federation', '0013_job_queue_of_tenant'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='podrun',
            name='one_row_per_observed_pod',
        ),
        migrations.RemoveConstraint(
            model_name='remoteobject',
            name='an_object_serves_one_attempt',
        ),
        migrations.AddField(
            model_name='podrun',
            name='cluster_id',
            field=models.UUIDField(help_text="The attempt's (trigger): a uid means something on its cluster alone.", null=True),
        ),
        migrations.AddField(
            model_name='podrun',
            name='index',
            field=models.PositiveIntegerField(default=0, help_text='Its index in its Job.'),
        ),
        migrations.AddField(
            model_name='podrun',
            name='is_estimated',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name='podrun',
            name='place',
            field=models.PositiveIntegerField(help_text="Which of the object's pods that run at the same time it is (trigger: below `pods`).", null=True),
        ),
        migrations.AddField(
            model_name='podrun',
            name='remote_object',
            field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='federation.remoteobject'),
        ),
        migrations.AddField(
            model_name='remoteobject',
            name='completions',
            field=models.PositiveIntegerField(help_text='How many run in all, where that is said.', null=True),
        ),
        migrations.AddField(
            model_name='remoteobject',
            name='cluster_id',
            field=models.UUIDField(help_text="The attempt's cluster, from when it has told the uid on.", null=True),
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.AlterField(
            model_name='podrun',
            name='cluster_id',
            field=models.UUIDField(help_text="The attempt's (trigger): a uid means something on its cluster alone."),
        ),
        migrations.AlterField(
            model_name='podrun',
            name='attempt',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='pods', to='federation.attempt'),
        ),
        migrations.AddIndex(
            model_name='podrun',
            index=models.Index(fields=['attempt', 'position', 'index'], name='pods_of_attempts'),
        ),
        migrations.AddConstraint(
            model_name='podrun',
            constraint=models.UniqueConstraint(fields=('cluster_id', 'uid'), name='one_row_per_observed_pod'),
        ),
        migrations.AddConstraint(
            model_name='podrun',
            constraint=django.contrib.postgres.constraints.ExclusionConstraint(condition=models.Q(('place__isnull', False), ('started_at__isnull', False)), expressions=[(models.Func(models.F('remote_object_id'), models.F('remote_object_id'), models.Value('[]'), function='int8range', output_field=django.contrib.postgres.fields.ranges.BigIntegerRangeField()), '&&'), (models.Func(models.F('place'), models.F('place'), models.Value('[]'), function='int8range', output_field=django.contrib.postgres.fields.ranges.BigIntegerRangeField()), '&&'), (models.Func(models.F('started_at'), models.Case(models.When(finished_at__isnull=False, then=django.db.models.functions.comparison.Greatest('started_at', 'finished_at', 'observed_at')), models.When(is_gone=True, then=django.db.models.functions.comparison.Greatest('started_at', 'observed_at'))), function='tstzrange', output_field=django.contrib.postgres.fields.ranges.DateTimeRangeField()), '&&')], name='one_pod_at_a_time_has_a_place'),
        ),
        migrations.AddConstraint(
            model_name='remoteobject',
            constraint=models.UniqueConstraint(condition=models.Q(('uid', ''), _negated=True), fields=('cluster_id', 'uid'), name='an_object_serves_one_attempt'),
        ),
        migrations.AddConstraint(
            model_name='remoteobject',
            constraint=models.CheckConstraint(condition=models.Q(('uid', ''), ('cluster_id__isnull', False), _connector='OR'), name='a_uid_is_known_with_its_cluster'),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
