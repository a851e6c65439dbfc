"""Pending holds get the class of their job, and a class that is removed takes its limits along."""

from django.db import migrations

from foundation.rules import rules

# No statement but this one may change a hold that has not ended.
CLASSES_OF_HOLDS = """
ALTER TABLE quotas_hold DISABLE TRIGGER USER;
UPDATE quotas_hold AS h SET class_name = left(coalesce(job.spec->>'priority_class', ''), 63)
  FROM (SELECT id, job_id FROM federation_attempt UNION ALL SELECT id, job_id FROM federation_datawait) AS holder
  JOIN federation_job AS job ON job.id = holder.job_id
 WHERE h.state = 'pending' AND holder.id = h.holder_id;
ALTER TABLE quotas_hold ENABLE TRIGGER USER;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0039_moved_work"),
        ("quotas", "0010_class_limits"),
    ]

    operations = [
        migrations.RunSQL(CLASSES_OF_HOLDS, migrations.RunSQL.noop),
        rules("federation/class_limits.sql"),
    ]
