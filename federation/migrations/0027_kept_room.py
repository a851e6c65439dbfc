"""Room that is kept for waiting jobs, from cycle to cycle (`0027_kept_room.sql`)."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
import foundation.ids
from django.db import migrations, models

SQL = Path(__file__).with_name("0027_kept_room.sql").read_text(encoding="utf-8")
UNDO = """
DROP TRIGGER federation_guard_kept_room ON federation_keptroom;
DROP FUNCTION federation_guard_room;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0009_history'),
        ('federation', '0026_prepulls'),
    ]

    operations = [
        migrations.CreateModel(
            name='KeptRoom',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('nodes', models.JSONField(help_text='Their names.')),
                ('expected_at', models.DateTimeField(help_text='When the job is expected to start there.', null=True)),
                ('since_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('until_at', models.DateTimeField()),
                ('again_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('outcome', models.CharField(blank=True, choices=[('placed', 'placed'), ('withdrawn', 'withdrawn'), ('given_up', 'given_up'), ('released', 'released')], default='', max_length=10)),
                ('cluster', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='clusters.cluster')),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='kept_room', to='federation.job')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('outcome', 'given_up')), fields=['again_at'], name='kept_rooms_that_rest')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('job',), name='one_room_is_kept_for_a_job'), models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('outcome', '')), models.Q(('ended_at__isnull', False), ('outcome__in', ('placed', 'withdrawn', 'given_up', 'released'))), _connector='OR'), name='kept_room_ends_with_an_outcome'), models.CheckConstraint(condition=models.Q(('again_at__gt', models.F('until_at')), ('until_at__gt', models.F('since_at'))), name='kept_room_is_given_up_in_time'), models.CheckConstraint(condition=models.Q(('ended_at__gte', models.F('since_at'))), name='kept_room_ends_after_it_began'), models.CheckConstraint(condition=models.Q(('nodes__contains', [])), name='kept_room_lists_its_nodes')],
            },
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
