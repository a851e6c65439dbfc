"""What is kept idle for tenants counts as used by them (`0008_kept_idle.sql`)."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.lookups
import foundation.ids
from django.db import migrations, models

HERE = Path(__file__)
SQL = HERE.with_name("0008_kept_idle.sql").read_text(encoding="utf-8")
_, _, REST = HERE.with_name("0003_past_use.sql").read_text(encoding="utf-8").partition(
    "CREATE OR REPLACE FUNCTION quotas_past_use_of_holds()"
)
BEFORE, _, _ = REST.partition("CREATE OR REPLACE FUNCTION quotas_add_past_use()")
UNDO = f"""
CREATE OR REPLACE FUNCTION quotas_past_use_of_holds(){BEFORE}
DROP TRIGGER quotas_kept_idle_is_past_use ON quotas_keptidle;
DROP TRIGGER quotas_guard_kept_idle ON quotas_keptidle;
DROP FUNCTION quotas_guard_idle;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('quotas', '0007_reserved'),
        ('tenancy', '0002_weight'),
    ]

    operations = [
        migrations.CreateModel(
            name='KeptIdle',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('holder_id', models.UUIDField()),
                ('amounts', models.JSONField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('until_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenancy.tenant')),
            ],
            options={
                'verbose_name_plural': 'kept idle',
                'indexes': [models.Index(fields=['holder_id'], name='kept_idle_by_holder')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('holder_id',), name='one_open_kept_idle_per_holder'), models.CheckConstraint(condition=models.Q(('ended_at__gte', models.F('created_at'))), name='kept_idle_ends_after_it_began'), models.CheckConstraint(condition=models.Q(django.db.models.lookups.Exact(models.Func(models.F('amounts'), function='jsonb_typeof', output_field=models.TextField()), 'object'), models.Q(models.Func(models.F('amounts'), models.Value('$.keyvalue() ? (!(@.key like_regex "^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory|jobs)$") || @.value.type() != "number" || @.value < 0 || @.value > 1000000000000000 || @.value != @.value.floor())'), output_field=models.BooleanField(), template='jsonb_path_exists(%(expressions)s::jsonpath)'), _negated=True)), name='kept_idle_amounts_are_whole')],
            },
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
