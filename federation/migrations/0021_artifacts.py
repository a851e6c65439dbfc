"""Artifacts that runs announce (`0021_artifacts.sql`)."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

SQL = Path(__file__).with_name("0021_artifacts.sql").read_text(encoding="utf-8")
UNDO = "DROP TRIGGER an_artifact_is_announced_by_a_run ON federation_artifact; DROP FUNCTION federation_check_artifact;"

class Migration(migrations.Migration):

    dependencies = [
        ('federation', '0020_ends_are_dated_now'),
    ]

    operations = [
        migrations.CreateModel(
            name='Artifact',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=63)),
                ('storage', models.CharField(blank=True, help_text="On the attempt's cluster; empty for a URL.", max_length=63)),
                ('reference', models.CharField(help_text="A path below the tenant's part of the storage, or a URL.", max_length=1025)),
                ('sha256', models.CharField(help_text='In hexadecimal, as the run computed it.', max_length=64)),
                ('size_bytes', models.BigIntegerField()),
                ('sequence', models.BigIntegerField(help_text='Of the newest report that has it.')),
                ('announced_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('attempt', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='artifacts', to='federation.attempt')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('attempt', 'name'), name='an_artifact_is_listed_once'), models.CheckConstraint(condition=models.Q(('name__regex', '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\Z')), name='an_artifacts_name_is_a_dns_label'), models.CheckConstraint(condition=models.Q(('sha256__regex', '^[0-9a-f]{64}\\Z')), name='an_artifacts_digest_is_a_sha256'), models.CheckConstraint(condition=models.Q(('sequence__gte', 0), ('size_bytes__gte', 0), ('size_bytes__lte', 9007199254740991)), name='an_artifact_has_a_size'), models.CheckConstraint(condition=models.Q(models.Q(models.Q(('storage', ''), ('reference__regex', '^(s3|gs|az|https)://[A-Za-z0-9][A-Za-z0-9._-]{0,252}(:[0-9]{1,5})?(/[A-Za-z0-9._=+@,~-]+)+\\Z')), models.Q(('storage__regex', '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\Z'), ('reference__regex', '^[A-Za-z0-9._=+@,~-]+(/[A-Za-z0-9._=+@,~-]+)*\\Z')), _connector='OR'), models.Q(('reference__regex', '(^|/)\\.{1,2}(/|$)'), _negated=True)), name='an_artifacts_reference_leads_nowhere_else')],
            },
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
